//! Answers to the publisher.

use super::{HeldCall, ServerSession};
use crate::Codec;
use crate::flv::fourcc;
use crate::rtmp::RtmpError;
use crate::rtmp::amf0::Value;
use crate::rtmp::message::{Command, Control, text};

/// Status code of a publish whose name cannot be accepted.
pub(super) const CODE_BAD_NAME: &str = "NetStream.Publish.BadName";
/// Status code of a publish that ended.
pub(super) const CODE_UNPUBLISHED: &str = "NetStream.Unpublish.Success";

/// Enhanced RTMP capability: we can read, not play, a codec ("can forward").
const FOURCC_CAN_FORWARD: f64 = 4.0;
/// Enhanced RTMP capsEx: ModEx (4) and its nanosecond offset (8); not reconnect (1), not multitrack (2).
const CAPS_EX: f64 = 12.0;

impl ServerSession {
    pub(super) fn connect_result(&mut self, transaction: f64) -> Result<(), RtmpError> {
        self.link.announce_window(self.config.window_bytes)?;
        self.link.send_control(Control::PeerBandwidth(self.config.window_bytes))?;
        self.link.announce_chunk_size(self.config.chunk_size)?;
        let mut properties = vec![
            ("fmsVer".to_owned(), text("FMS/3,5,7,7009")),
            ("capabilities".to_owned(), Value::Number(31.0)),
            ("mode".to_owned(), Value::Number(1.0)),
        ];
        let mut information = status_members("status", "NetConnection.Connect.Success", "connected");
        information.push(("objectEncoding".to_owned(), Value::Number(0.0)));
        // Some clients look for the capabilities here, others in the properties; old ones ignore both.
        information.extend(enhanced_members());
        properties.extend(enhanced_members());
        let (properties, information) = (Value::Object(properties), Value::Object(information));
        self.reply("_result", transaction, vec![properties, information])
    }

    pub(super) fn result(&mut self, transaction: f64, value: Value) -> Result<(), RtmpError> {
        self.reply("_result", transaction, vec![Value::Null, value])
    }

    pub(super) fn call_failed(&mut self, transaction: f64) -> Result<(), RtmpError> {
        let information = status_object("error", "NetConnection.Call.Failed", "call is not known here");
        self.reply("_error", transaction, vec![Value::Null, information])
    }

    pub(super) fn answer_call(&mut self, call: HeldCall) -> Result<(), RtmpError> {
        if call.fc_publish {
            let information = status_object("status", "NetStream.Publish.Start", "publishing");
            let args = vec![Value::Null, information];
            let notice = Command { name: "onFCPublish".to_owned(), transaction: 0.0, args };
            self.link.send_command(0, &notice)?;
        }
        self.result(call.transaction, Value::Undefined)
    }

    pub(super) fn refuse_held_calls(&mut self, code: &str, description: &str) {
        for call in std::mem::take(&mut self.held_calls) {
            let information = status_object("error", code, description);
            // A write fails only above the message limit, and a reply is far below it.
            let _ = self.reply("_error", call.transaction, vec![Value::Null, information]);
        }
    }

    pub(super) fn status(&mut self, stream: u32, level: &str, code: &str, description: &str) {
        let args = vec![Value::Null, status_object(level, code, description)];
        let command = Command { name: "onStatus".to_owned(), transaction: 0.0, args };
        // As above: too short to fail.
        let _ = self.link.send_command(stream, &command);
    }

    /// Answers a call; a call with transaction 0 gets no answer.
    fn reply(&mut self, name: &str, transaction: f64, args: Vec<Value>) -> Result<(), RtmpError> {
        if transaction == 0.0 {
            return Ok(());
        }
        self.link.send_command(0, &Command { name: name.to_owned(), transaction, args })
    }
}

fn status_members(level: &str, code: &str, description: &str) -> Vec<(String, Value)> {
    let members = [("level", level), ("code", code), ("description", description)];
    members.into_iter().map(|(name, value)| (name.to_owned(), text(value))).collect()
}

fn status_object(level: &str, code: &str, description: &str) -> Value {
    Value::Object(status_members(level, code, description))
}

/// Capabilities announced with Enhanced RTMP.
fn enhanced_members() -> [(String, Value); 3] {
    let map = |codecs: &[Codec]| {
        let members = codecs.iter().map(|codec| {
            let name = String::from_utf8_lossy(&fourcc(*codec)).into_owned();
            (name, Value::Number(FOURCC_CAN_FORWARD))
        });
        Value::Object(members.collect())
    };
    [
        ("capsEx".to_owned(), Value::Number(CAPS_EX)),
        ("videoFourCcInfoMap".to_owned(), map(&[Codec::H264, Codec::Hevc, Codec::Av1])),
        ("audioFourCcInfoMap".to_owned(), map(&[Codec::Aac, Codec::Opus])),
    ]
}
