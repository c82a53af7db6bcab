//! The client's commands and the server's answers.

use super::{ClientEvent, ClientSession, Stage};
use crate::Codec;
use crate::flv::{codec_of_fourcc, fourcc};
use crate::rtmp::RtmpError;
use crate::rtmp::amf0::Value;
use crate::rtmp::chunk::Message;
use crate::rtmp::limits::{COMMAND_BYTES_MAX, STATUS_CHARS_MAX};
use crate::rtmp::message::{Command, kind, text};

const TRANSACTION_CONNECT: f64 = 1.0;
const TRANSACTION_RELEASE: f64 = 2.0;
const TRANSACTION_FC_PUBLISH: f64 = 3.0;
const TRANSACTION_CREATE_STREAM: f64 = 4.0;
const TRANSACTION_PUBLISH: f64 = 5.0;
const TRANSACTION_FC_UNPUBLISH: f64 = 6.0;
const TRANSACTION_DELETE_STREAM: f64 = 7.0;

/// Shorter names are not secret, and replacing them would garble the text.
const SECRET_BYTES_MIN: usize = 4;

impl ClientSession {
    pub(super) fn connect(&mut self) -> Result<(), RtmpError> {
        let mut members = vec![
            ("app".to_owned(), text(&self.config.app)),
            ("type".to_owned(), text("nonprivate")),
            ("flashVer".to_owned(), text(&self.config.flash_ver)),
            ("tcUrl".to_owned(), text(&self.config.tc_url)),
        ];
        if self.config.enhanced {
            let codecs = [Codec::H264, Codec::Hevc, Codec::Av1, Codec::Aac, Codec::Opus];
            let names = codecs.map(|codec| text(&String::from_utf8_lossy(&fourcc(codec))));
            members.push(("fourCcList".to_owned(), Value::StrictArray(names.to_vec())));
        }
        self.stage = Stage::Connecting;
        self.call(0, "connect", TRANSACTION_CONNECT, vec![Value::Object(members)])
    }

    pub(super) fn message(&mut self, message: &Message) -> Result<(), RtmpError> {
        if !matches!(message.header.kind, kind::COMMAND | kind::COMMAND_AMF3) {
            return Ok(());
        }
        let bytes = message.payload.len();
        if bytes > COMMAND_BYTES_MAX {
            return Err(RtmpError::CommandTooLong { bytes });
        }
        let command = Command::parse(message.header.kind, &message.payload)?;
        match command.name.as_str() {
            "_result" => self.result(&command),
            "_error" => self.call_error(&command),
            "onStatus" => self.on_status(&command),
            "close" => self.close(status_of(&command), false),
            _ => Ok(()),
        }
    }

    fn result(&mut self, command: &Command) -> Result<(), RtmpError> {
        match self.stage {
            Stage::Connecting if command.transaction == TRANSACTION_CONNECT => {
                self.announced = announced(&command.args);
                self.create_stream()
            }
            Stage::CreatingStream if command.transaction == TRANSACTION_CREATE_STREAM => {
                let id = command.number(1).filter(|id| (0.0..=f64::from(u32::MAX)).contains(id));
                self.publish(id.ok_or(RtmpError::NoStreamId)? as u32)
            }
            // Answers to releaseStream and FCPublish; many servers do not send them.
            _ => Ok(()),
        }
    }

    fn create_stream(&mut self) -> Result<(), RtmpError> {
        self.stage = Stage::CreatingStream;
        self.link.announce_window(self.config.window_bytes)?;
        self.link.announce_chunk_size(self.config.chunk_size)?;
        let key = self.config.stream_key.clone();
        self.call(0, "releaseStream", TRANSACTION_RELEASE, vec![Value::Null, text(&key)])?;
        self.call(0, "FCPublish", TRANSACTION_FC_PUBLISH, vec![Value::Null, text(&key)])?;
        self.call(0, "createStream", TRANSACTION_CREATE_STREAM, vec![Value::Null])
    }

    fn publish(&mut self, stream: u32) -> Result<(), RtmpError> {
        self.stage = Stage::Requesting { stream };
        let key = text(&self.config.stream_key);
        self.call(stream, "publish", TRANSACTION_PUBLISH, vec![Value::Null, key, text("live")])
    }

    pub(super) fn send_end(&mut self, stream: u32) {
        let key = text(&self.config.stream_key);
        let delete = vec![Value::Null, Value::Number(f64::from(stream))];
        // A write fails only above the message limit, and this command is short.
        let _ = self
            .call(0, "FCUnpublish", TRANSACTION_FC_UNPUBLISH, vec![Value::Null, key])
            .and_then(|()| self.call(0, "deleteStream", TRANSACTION_DELETE_STREAM, delete));
    }

    fn call_error(&mut self, command: &Command) -> Result<(), RtmpError> {
        let pending = match self.stage {
            Stage::Connecting => TRANSACTION_CONNECT,
            Stage::CreatingStream => TRANSACTION_CREATE_STREAM,
            Stage::Requesting { .. } => TRANSACTION_PUBLISH,
            _ => return Ok(()),
        };
        match command.transaction == pending {
            true => self.close(status_of(command), true),
            false => Ok(()),
        }
    }

    fn on_status(&mut self, command: &Command) -> Result<(), RtmpError> {
        let status = status_of(command);
        match self.stage {
            _ if status.error => self.close(status, true),
            Stage::Requesting { stream } if status.code == "NetStream.Publish.Start" => {
                self.stage = Stage::Publishing { stream };
                self.events.push_back(ClientEvent::Publishing);
                Ok(())
            }
            Stage::Publishing { .. }
                if status.code == "NetStream.Unpublish.Success"
                    || status.code == "NetConnection.Connect.Closed" =>
            {
                self.close(status, false)
            }
            _ => Ok(()),
        }
    }

    fn close(&mut self, status: Status, rejected: bool) -> Result<(), RtmpError> {
        self.stage = Stage::Closed;
        let code = self.presentable(&status.code);
        let description = self.presentable(&status.description);
        self.events.push_back(match rejected {
            true => ClientEvent::Rejected { code, description },
            false => ClientEvent::PeerClosed { code, description },
        });
        Ok(())
    }

    /// The server's text without our secrets (some servers echo the publish name) and without control characters, at
    /// most [`STATUS_CHARS_MAX`] characters long.
    fn presentable(&self, text: &str) -> String {
        let name = self.config.stream_key.as_str();
        let key = name.split('?').next().unwrap_or_default();
        let mut text = text.to_owned();
        for secret in [self.config.tc_url.as_str(), name, key] {
            if secret.len() >= SECRET_BYTES_MIN {
                text = text.replace(secret, "****");
            }
        }
        text.chars().filter(|character| !character.is_control()).take(STATUS_CHARS_MAX).collect()
    }

    fn call(&mut self, stream: u32, name: &str, transaction: f64, args: Vec<Value>) -> Result<(), RtmpError> {
        self.link.send_command(stream, &Command { name: name.to_owned(), transaction, args })
    }
}

/// A status of the server, unfiltered.
struct Status {
    error: bool,
    code: String,
    description: String,
}

/// Reads the information object of a status: usually the second argument, in some answers the first.
fn status_of(command: &Command) -> Status {
    let information = command.args.iter().rev().find(|value| value.member("code").is_some());
    let empty = Value::Null;
    let information = information.or(command.args.last()).unwrap_or(&empty);
    let field = |name: &str| information.member(name).and_then(Value::text).unwrap_or_default();
    let mut description = field("description");
    if description.is_empty() {
        // Some servers send plain text instead of the object.
        description = information.text().unwrap_or_default();
    }
    Status {
        error: field("level") == "error",
        code: field("code").to_owned(),
        description: description.to_owned(),
    }
}

/// Stands for every codec.
const ANY: &str = "*";
/// Codecs that need Enhanced RTMP; the others are older, and every server accepts them.
const ENHANCED: [Codec; 3] = [Codec::Hevc, Codec::Av1, Codec::Opus];

/// The Enhanced RTMP codecs that a server announces in its answer to `connect` (Enhanced RTMP v1 and v2, "Enhancing NetConnection
/// connect Command"); none if it announces nothing.
fn announced(args: &[Value]) -> Vec<Codec> {
    let names: Vec<&str> = args.iter().flat_map(names).collect();
    let is_named = |codec: &Codec| {
        let is_it = |name: &&str| name.as_bytes().try_into().ok().and_then(codec_of_fourcc) == Some(*codec);
        names.iter().any(|name| *name == ANY || is_it(name))
    };
    ENHANCED.into_iter().filter(is_named).collect()
}

fn names(object: &Value) -> Vec<&str> {
    let listed = match object.member("fourCcList") {
        Some(Value::StrictArray(list)) => list.iter().filter_map(Value::text).collect(),
        _ => Vec::new(),
    };
    let maps =
        ["videoFourCcInfoMap", "audioFourCcInfoMap"].into_iter().filter_map(|name| object.member(name));
    let keys = maps.flat_map(|map| match map {
        Value::Object(members) | Value::EcmaArray(members) => members.as_slice(),
        _ => &[],
    });
    listed.into_iter().chain(keys.map(|(name, _)| name.as_str())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(name: &str, value: Value) -> Value {
        Value::Object(vec![(name.to_owned(), value)])
    }

    #[test]
    fn every_form_of_the_lists_is_understood() {
        let map = |names: &[&str]| {
            let members = names.iter().map(|name| ((*name).to_owned(), Value::Number(4.0)));
            Value::Object(members.collect())
        };
        let list = |names: &[&str]| Value::StrictArray(names.iter().map(|name| text(name)).collect());
        for (args, codecs) in [
            (vec![], vec![]),
            (vec![Value::Null, object("code", text("NetConnection.Connect.Success"))], vec![]),
            (vec![Value::Null, object("fourCcList", list(&["av01", "hvc1"]))], vec![Codec::Hevc, Codec::Av1]),
            (vec![object("fourCcList", list(&["*"]))], ENHANCED.to_vec()),
            (vec![object("videoFourCcInfoMap", map(&["hvc1", "avc1", "vp09"]))], vec![Codec::Hevc]),
            (vec![object("audioFourCcInfoMap", map(&["Opus", "mp4a", ""]))], vec![Codec::Opus]),
            (vec![object("fourCcList", text("hvc1"))], vec![]),
            (vec![object("videoFourCcInfoMap", list(&["hvc1"]))], vec![]),
        ] {
            assert_eq!(announced(&args), codecs, "{args:?}");
        }
    }
}
