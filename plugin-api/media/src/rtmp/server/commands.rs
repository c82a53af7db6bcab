//! Commands of the publisher, and the answers to them.

use super::{HeldCall, PublishId, ServerEvent, ServerSession, Stage};
use crate::Codec;
use crate::flv::fourcc;
use crate::rtmp::RtmpError;
use crate::rtmp::amf0::Value;
use crate::rtmp::limits::{HELD_CALLS_MAX, MESSAGE_STREAMS_MAX, NAME_BYTES_MAX};
use crate::rtmp::message::{Command, Control, EVENT_STREAM_BEGIN, text, user_control};
use crate::rtmp::time::TimeLine;

/// Status code of a publish whose name cannot be accepted.
const CODE_BAD_NAME: &str = "NetStream.Publish.BadName";
/// Status code of a publish that ended.
const CODE_UNPUBLISHED: &str = "NetStream.Unpublish.Success";

/// Enhanced RTMP capability: we can read, not play, a codec ("can forward").
const FOURCC_CAN_FORWARD: f64 = 4.0;
/// Enhanced RTMP capsEx: ModEx (4) and its nanosecond offset (8); not reconnect (1), not multitrack (2).
const CAPS_EX: f64 = 12.0;

impl ServerSession {
    pub(super) fn command(&mut self, stream: u32, command: &Command) -> Result<(), RtmpError> {
        let connecting = self.stage == Stage::Connecting;
        match command.name.as_str() {
            "connect" if connecting => self.connect(command),
            _ if connecting => Err(RtmpError::Order { what: "a command", before: "connect" }),
            "createStream" => self.create_stream(command.transaction),
            "releaseStream" => self.hold_call(command.transaction, false),
            "FCPublish" => self.hold_call(command.transaction, true),
            "publish" => self.publish(stream, command),
            "FCUnpublish" | "unpublish" | "UnpublishStream" | "closeStream" => {
                self.unpublish()?;
                self.result(command.transaction, Value::Null)
            }
            "deleteStream" => self.delete_stream(command),
            "_checkbw" | "checkBandwidth" | "setDataFrame" | "receiveAudio" | "receiveVideo" => {
                self.result(command.transaction, Value::Null)
            }
            "getStreamLength" => self.result(command.transaction, Value::Number(0.0)),
            "play" | "play2" => {
                self.status(stream, "error", "NetStream.Play.Failed", "this server takes publishers only");
                Ok(())
            }
            "_result" | "_error" | "onStatus" => Ok(()),
            _ => self.call_failed(command.transaction),
        }
    }

    fn connect(&mut self, command: &Command) -> Result<(), RtmpError> {
        let app = command.args.first().and_then(|object| object.member("app")).and_then(Value::text);
        let app = bounded("app", app.unwrap_or_default())?;
        self.app = app.trim_end_matches('/').to_owned();
        let flash_ver =
            command.args.first().and_then(|object| object.member("flashVer")).and_then(Value::text);
        self.flash_ver = bounded("flashVer", flash_ver.unwrap_or_default())?.to_owned();
        self.stage = Stage::Connected;
        self.connect_result(command.transaction)?;
        self.event(ServerEvent::Connected { app: self.app.clone() })
    }

    fn create_stream(&mut self, transaction: f64) -> Result<(), RtmpError> {
        if self.streams_created == MESSAGE_STREAMS_MAX {
            return Err(RtmpError::TooManyStreams);
        }
        self.streams_created += 1;
        self.result(transaction, Value::Number(f64::from(self.streams_created)))
    }

    /// Answers releaseStream or FCPublish, or holds the call until the decision: an earlier answer would reveal
    /// whether a stream key is valid.
    fn hold_call(&mut self, transaction: f64, fc_publish: bool) -> Result<(), RtmpError> {
        let call = HeldCall { transaction, fc_publish };
        if matches!(self.stage, Stage::Publishing { .. }) {
            return self.answer_call(call);
        }
        match self.held_calls.len() < HELD_CALLS_MAX {
            true => self.held_calls.push(call),
            false => self.stats.ignored_messages += 1,
        }
        Ok(())
    }

    fn publish(&mut self, stream: u32, command: &Command) -> Result<(), RtmpError> {
        let name = bounded("publish name", command.text(1).unwrap_or_default())?;
        if self.takes_media() {
            self.status(stream, "error", CODE_BAD_NAME, "this connection is already publishing");
            return Ok(());
        }
        let (stream_key, query) = match name.split_once('?') {
            Some((key, query)) => (key.to_owned(), Some(query.to_owned())),
            None => (name.to_owned(), None),
        };
        let id = PublishId(self.next_publish);
        self.next_publish = self.next_publish.wrapping_add(1);
        self.stage = Stage::Requested { id, stream };
        self.event(ServerEvent::PublishRequested { id, app: self.app.clone(), stream_key, query })
    }

    /// Starts an accepted publish.
    pub(super) fn start(&mut self, stream: u32) -> Result<(), RtmpError> {
        self.stage = Stage::Publishing { stream };
        self.time = TimeLine::default();
        (self.foreign_video_named, self.foreign_audio_named) = (false, false);
        self.link.send_encoded(user_control(EVENT_STREAM_BEGIN, stream))?;
        for call in std::mem::take(&mut self.held_calls) {
            self.answer_call(call)?;
        }
        self.status(stream, "status", "NetStream.Publish.Start", "publishing");
        self.held_media_bytes = 0;
        for message in std::mem::take(&mut self.held_media) {
            self.deliver(message)?;
        }
        Ok(())
    }

    fn delete_stream(&mut self, command: &Command) -> Result<(), RtmpError> {
        let (Stage::Publishing { stream } | Stage::Requested { stream, .. }) = self.stage else {
            return Ok(());
        };
        // The peer may delete another of its own streams while this one runs.
        let other = command.number(1).is_some_and(|number| {
            number != f64::from(stream) && (1.0..=f64::from(self.streams_created)).contains(&number)
        });
        if other { Ok(()) } else { self.unpublish() }
    }

    /// Ends the accepted or pending publish, once.
    fn unpublish(&mut self) -> Result<(), RtmpError> {
        let (Stage::Publishing { stream } | Stage::Requested { stream, .. }) = self.stage else {
            return Ok(());
        };
        self.stage = Stage::Unpublished;
        self.drop_held();
        self.held_calls.clear();
        self.status(stream, "status", CODE_UNPUBLISHED, "publish ended");
        self.event(ServerEvent::Unpublished)
    }
}

fn bounded<'a>(what: &'static str, name: &'a str) -> Result<&'a str, RtmpError> {
    match name.len() {
        bytes if bytes > NAME_BYTES_MAX => Err(RtmpError::NameTooLong { what, bytes }),
        _ => Ok(name),
    }
}

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
