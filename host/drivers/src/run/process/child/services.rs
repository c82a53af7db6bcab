//! The library's calls to its host, forwarded to the service.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use bytes::Bytes;
use satcast_plugin_api::driver_state::State;
use satcast_plugin_api::host::{Connected, LogLine, Services};
use satcast_plugin_api::recording::Recording;
use satcast_plugin_api::{Asset, AssetBody, Error, HttpResponse, Playback};

use super::super::message::{Request, ToHost};
use super::link::Link;
use crate::run::services::is_counter_name;

/// The library's services.
pub(super) struct Proxy {
    link: Arc<Link>,
}

impl Proxy {
    pub(super) fn new(link: Arc<Link>) -> Self {
        Self { link }
    }

    /// Takes the bytes of a body, which are sent after the message; a file is kept under the returned number.
    fn take(&self, body: &mut AssetBody) -> (Vec<Bytes>, u64) {
        match body {
            AssetBody::Memory(body) => (vec![std::mem::take(body)], 0),
            AssetBody::File { keep, .. } => {
                let number = self.link.number();
                self.link.keep(number, std::mem::take(keep));
                (Vec::new(), number)
            }
            AssetBody::Open { .. } | AssetBody::Parts(_) => (Vec::new(), 0),
        }
    }
}

impl Services for Proxy {
    fn log(&self, line: LogLine) {
        self.link.send(&ToHost::Log(line));
    }

    fn state(&self, dest: u64, state: State, reason: Option<Error>) {
        if !self.link.is_news(dest, state, reason.is_some()) {
            return;
        }
        // The counters that make it live are reported before the state.
        self.link.push_pending();
        self.link.send(&ToHost::State { dest, state, reason });
    }

    fn event(&self, dest: u64, name: &str, json: &str) {
        self.link.send(&ToHost::Event { dest, name: name.to_owned(), json: json.to_owned() });
    }

    fn metric(&self, dest: u64, name: &str) -> Option<Arc<AtomicU64>> {
        // Same rule as in the host, which is not called here.
        if is_counter_name(name) { self.link.counter(dest, name) } else { None }
    }

    fn stopped(&self, dest: u64, outcome: Result<(), Error>) {
        self.link.push_pending();
        self.link.send(&ToHost::Stopped { dest, outcome });
    }

    fn connect(&self, dest: u64, host: String, port: u16, timeout: Duration, done: Connected) {
        self.link.connect(Request::Connect { dest, host, port, timeout, is_udp: false }, done);
    }

    fn connect_udp(&self, dest: u64, host: String, port: u16, timeout: Duration, done: Connected) {
        self.link.connect(Request::Connect { dest, host, port, timeout, is_udp: true }, done);
    }

    fn data_dir(&self) -> Result<PathBuf, Error> {
        self.link.ask(Request::DataDir, Vec::new()).map(PathBuf::from)
    }

    fn settings(&self) -> String {
        // A host that does not answer has ended, and this process with it.
        self.link.ask(Request::Settings, Vec::new()).unwrap_or_else(|_| "{}".to_owned())
    }

    fn publish(&self, dest: u64, mut asset: Asset) -> Result<(), Error> {
        let (bytes, body) = self.take(&mut asset.body);
        self.link.ask(Request::Publish { dest, asset, body }, bytes).map(drop)
    }

    fn retract(&self, dest: u64, name: &str) {
        self.link.send(&ToHost::Retract { dest, name: name.to_owned() });
    }

    fn playback(&self, dest: u64, playback: Playback) -> Result<(), Error> {
        self.link.ask(Request::Playback { dest, playback }, Vec::new()).map(drop)
    }

    fn respond(&self, token: u64, mut response: Option<HttpResponse>) -> bool {
        if !self.link.is_first_answer(token) {
            return false;
        }
        let ((bytes, body), file) = match response.as_mut().map(|response| &mut response.body) {
            Some(AssetBody::Open { file, .. }) => {
                ((Vec::new(), 0), file.take().and_then(Arc::into_inner).map(Into::into))
            }
            Some(body) => (self.take(body), None),
            None => ((Vec::new(), 0), None),
        };
        self.link.send_with(&ToHost::Respond { token, response, body }, bytes, file);
        true
    }

    fn recording(&self, recording: Recording) -> Result<(), Error> {
        // Does not wait for an answer: the host finds refused reports with a list.
        self.link.send(&ToHost::Recording(recording));
        Ok(())
    }

    fn seal(&self, text: &str) -> Result<String, Error> {
        self.link.ask(Request::Seal(text.to_owned()), Vec::new())
    }

    fn unseal(&self, sealed: &str) -> Result<String, Error> {
        self.link.ask(Request::Unseal(sealed.to_owned()), Vec::new())
    }
}
