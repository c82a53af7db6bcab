//! Commands of the publisher.

use super::replies::{CODE_BAD_NAME, CODE_UNPUBLISHED};
use super::{HeldCall, PublishId, ServerEvent, ServerSession, Stage};
use crate::rtmp::RtmpError;
use crate::rtmp::amf0::Value;
use crate::rtmp::limits::{HELD_CALLS_MAX, MESSAGE_STREAMS_MAX, NAME_BYTES_MAX};
use crate::rtmp::message::{Command, EVENT_STREAM_BEGIN, user_control};
use crate::rtmp::time::TimeLine;

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
