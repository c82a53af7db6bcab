//! What the library asks for, passed on to the host.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use satcast_plugin_api::Error;
use satcast_plugin_api::driver_state::State;
use satcast_plugin_api::host::{
    Asset, AssetBody, Connected, HttpBody, HttpResponse, LogLine, Playback, Services,
};
use satcast_plugin_api::recording::{Recording, SEAL_BYTES_MAX};

use super::super::channel::MESSAGE_BYTES_MAX;
use super::super::handed::sealed_memory;
use super::super::message::{
    Line, Piece, PieceBytes, Responded, RespondedBytes, ToHost, coded, decoded, state_number,
};
use super::link::Link;
use crate::drivers::services::{EVENT_BYTES_MAX, is_counter_name};

/// Bytes of all texts of a log line together: in the form on the way each can take six. Fields beyond are left out whole,
/// because half a secret would not be found.
const LINE_BYTES_MAX: usize = MESSAGE_BYTES_MAX / 8;

/// Longest sealed text in bytes: the longest text, encrypted, in the form of printable characters.
const SEALED_BYTES_MAX: usize = SEAL_BYTES_MAX / 2 * 3;

/// The library's services.
pub(super) struct Proxy {
    link: Arc<Link>,
}

impl Proxy {
    pub(super) fn new(link: Arc<Link>) -> Self {
        Self { link }
    }

    /// A body on its way, and the memory beside it.
    fn piece_bytes(&self, body: AssetBody) -> Result<(PieceBytes, Option<OwnedFd>), Error> {
        Ok(match body {
            AssetBody::Memory(body) => (PieceBytes::Memory, Some(sealed_memory(body.as_ref())?)),
            AssetBody::File { path, offset, len, keep } => {
                let path = path.into_os_string().into_string();
                let path = path.map_err(|_| Error::internal("a file for viewers has no UTF-8 name"))?;
                let body = self.link.number();
                self.link.keep(body, keep);
                (PieceBytes::File { path, offset, len, body }, None)
            }
            AssetBody::Parts(names) => (PieceBytes::Parts(names), None),
        })
    }

    /// An answer on its way, and what is beside it.
    fn responded(&self, response: HttpResponse) -> Result<(Responded, Option<OwnedFd>), Error> {
        let HttpResponse { status, content_type, max_age_secs, headers, body } = response;
        let (bytes, beside) = match body {
            HttpBody::Asset(body) => {
                let (bytes, memory) = self.piece_bytes(body)?;
                (RespondedBytes::Piece(bytes), memory)
            }
            HttpBody::Descriptor { file, offset, len } => {
                (RespondedBytes::Descriptor { offset, len }, Some(file))
            }
        };
        Ok((Responded { status, content_type, max_age_secs, headers, bytes }, beside))
    }
}

impl Services for Proxy {
    fn log(&self, line: LogLine) {
        let LogLine { dest, level, target, message, fields } = line;
        let mut room = LINE_BYTES_MAX;
        let mut fits = |text: &str| {
            let is_in = text.len() <= room;
            room = room.saturating_sub(text.len());
            is_in
        };
        let left_out = || "(left out: too long)".to_owned();
        let message = if fits(&message) { message } else { left_out() };
        let target = if fits(&target) { target } else { left_out() };
        let fields = fields.into_iter().filter(|(key, value)| fits(key) && fits(value)).collect();
        self.link.send(&ToHost::Log(Line { dest, level, target, message, fields }));
    }

    fn state(&self, dest: u64, state: State, reason: Option<Error>) {
        if !self.link.is_news(dest, state, reason.is_some()) {
            return;
        }
        // What makes it live is known before it is.
        self.link.flush();
        self.link.send(&ToHost::State { dest, state: state_number(state), reason: reason.map(Into::into) });
    }

    fn event(&self, dest: u64, name: &str, json: &str) {
        // One byte too many is enough for the host to say so.
        let end = (0..=json.len().min(EVENT_BYTES_MAX + 4)).rev().find(|end| json.is_char_boundary(*end));
        let json = json[..end.unwrap_or(0)].to_owned();
        self.link.send(&ToHost::Event { dest, name: name.to_owned(), json });
    }

    fn metric(&self, dest: u64, name: &str) -> Option<Arc<AtomicU64>> {
        // As the host sees it, which is not asked here.
        if is_counter_name(name) { self.link.counter(dest, name) } else { None }
    }

    fn stopped(&self, dest: u64, outcome: Result<(), Error>) {
        self.link.flush();
        self.link.send(&ToHost::Stopped { dest, failure: outcome.err().map(Into::into) });
    }

    fn connect(&self, dest: u64, host: String, port: u16, timeout: Duration, done: Connected) {
        let (call, timeout_ms) = (self.link.number(), timeout.as_millis() as u64);
        self.link.await_connection(call, done);
        self.link.send(&ToHost::Connect { call, dest, host, port, timeout_ms });
    }

    fn data_dir(&self) -> Result<PathBuf, Error> {
        self.link.ask(|call| ToHost::DataDir { call }, None).map(PathBuf::from)
    }

    fn settings(&self) -> String {
        // A host that does not answer has gone, and this process with it.
        self.link.ask(|call| ToHost::Settings { call }, None).unwrap_or_else(|_| "{}".to_owned())
    }

    fn publish(&self, dest: u64, asset: Asset) -> Result<(), Error> {
        let (bytes, memory) = self.piece_bytes(asset.body)?;
        let piece = Piece {
            name: asset.name,
            content_type: asset.content_type,
            max_age_secs: asset.max_age_secs,
            hosted: asset.audience.is_hosted(),
            preview: asset.audience.is_preview(),
            bytes,
            followed: asset.followed,
        };
        let publish = |call| ToHost::Publish { call, dest, piece };
        self.link.ask(publish, memory.as_ref()).map(drop)
    }

    fn retract(&self, dest: u64, name: &str) {
        self.link.send(&ToHost::Retract { dest, name: name.to_owned() });
    }

    fn playback(&self, dest: u64, playback: Playback) -> Result<(), Error> {
        self.link.ask(|call| ToHost::Playback { call, dest, told: playback.into() }, None).map(drop)
    }

    fn respond(&self, token: u64, response: Option<HttpResponse>) -> bool {
        if !self.link.is_first_answer(token) {
            return false;
        }
        let sent = response.map(|response| self.responded(response)).and_then(Result::ok).unzip();
        let message = ToHost::Respond { token, response: sent.0 };
        match sent.1.flatten() {
            Some(beside) => self.link.send_with(&message, &beside),
            None => self.link.send(&message),
        }
        true
    }

    fn recording(&self, recording: Recording) -> Result<(), Error> {
        // No answer is waited for: what the host does not take it finds by a list.
        self.link.send(&ToHost::Recording(recording));
        Ok(())
    }

    fn seal(&self, text: &str) -> Result<String, Error> {
        let text = coded(text);
        self.link.ask(|call| ToHost::Seal { call, text }, None).and_then(|sealed| decoded(&sealed))
    }

    fn unseal(&self, sealed: &str) -> Result<String, Error> {
        if sealed.len() > SEALED_BYTES_MAX {
            return Err(Error::internal("this was not sealed by the service"));
        }
        let sealed = coded(sealed);
        self.link.ask(|call| ToHost::Unseal { call, sealed }, None).and_then(|text| decoded(&text))
    }
}
