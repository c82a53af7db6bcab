//! Calls and reports of a child.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use satcast_plugin_api::manifest::Manifest;
use satcast_plugin_api::{AssetBody, Error, HttpResponse};

use super::channel::Message;
use super::message::{Request, ToChild, ToHost};
use super::session::Session;

/// The declarations of a driver.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Facts {
    pub(crate) id: String,
    pub(crate) version: String,
    pub(crate) manifest: Manifest,
    /// It must not lose packets.
    pub(crate) is_lossless: bool,
}

/// A child's messages about its start.
pub(super) enum Begun {
    Loaded(Facts),
    Ready { keeps_recordings: bool, reads_recordings: bool },
    Refused(String),
}

impl Session {
    /// Handles one message.
    ///
    /// # Errors
    /// Why the message is invalid; such a child is ended.
    pub(super) fn handle(self: &Arc<Self>, message: Message<ToHost>) -> Result<Option<Begun>, &'static str> {
        match message.content {
            ToHost::Loaded { id, version, manifest, is_lossless } => {
                return Ok(Some(match Manifest::parse(&manifest) {
                    Ok(manifest) => Begun::Loaded(Facts { id, version, manifest, is_lossless }),
                    Err(error) => Begun::Refused(error.to_string()),
                }));
            }
            ToHost::Ready { keeps_recordings, reads_recordings } => {
                return Ok(Some(Begun::Ready { keeps_recordings, reads_recordings }));
            }
            ToHost::Refused { reason } => return Ok(Some(Begun::Refused(reason))),
            ToHost::Answer { call, outcome } => self.answered(call, outcome),
            ToHost::Call { call, request } => self.grant(call, request, &message.bytes),
            ToHost::Media(progress) => progress.iter().for_each(|progress| self.progress(progress)),
            ToHost::Log(line) => self.services.log(line),
            ToHost::Respond { token, response, body } => {
                let response = response
                    .and_then(|response| self.response(response, &message.bytes, message.descriptor, body));
                // The viewer may have gone.
                self.services.respond(token, response);
            }
            ToHost::Recording(recording) => {
                recording.check().map_err(|_| "reported an invalid recording")?;
                // Reports that the host refuses are found later with a list.
                let _ = self.services.recording(recording);
            }
            ToHost::Done { request, outcome } => {
                let done = self.requests.lock().remove(&request);
                let outcome = outcome.map(|()| message.bytes);
                done.into_iter().for_each(|done| done(outcome.clone()));
            }
            ToHost::Alive => {}
            report => self.report(report),
        }
        Ok(None)
    }

    /// Reports about an unknown destination are dropped: it may have ended meanwhile.
    fn report(&self, report: ToHost) {
        let has = |dest: u64| self.feeds.lock().contains_key(&dest);
        match report {
            ToHost::State { dest, state, reason } if has(dest) => self.services.state(dest, state, reason),
            ToHost::Event { dest, name, json } if has(dest) => self.services.event(dest, &name, &json),
            ToHost::Counted { dest, name, added } if has(dest) => {
                if let Some(counter) = self.services.metric(dest, &name) {
                    counter.fetch_add(added, Ordering::Relaxed);
                }
            }
            ToHost::Stopped { dest, outcome } if has(dest) => self.services.stopped(dest, outcome),
            ToHost::Retract { dest, name } if has(dest) => self.services.retract(dest, &name),
            _ => {}
        }
    }

    /// Answers a call of the library.
    fn grant(self: &Arc<Self>, call: u64, request: Request, bytes: &Bytes) {
        let services = &self.services;
        let nothing = |()| String::new();
        let outcome = match request {
            Request::DataDir => self.data_dir(),
            Request::Settings => Ok(services.settings()),
            Request::Publish { dest, mut asset, body } => {
                self.give(&mut asset.body, bytes, body);
                services.publish(dest, asset).map(nothing)
            }
            Request::Playback { dest, playback } => services.playback(dest, playback).map(nothing),
            Request::Seal(text) => services.seal(&text),
            Request::Unseal(sealed) => services.unseal(&sealed),
            Request::Connect { dest, host, port, timeout, is_udp } => {
                let session = self.clone();
                let done = move |outcome: Result<OwnedFd, Error>| {
                    let (outcome, socket) = match outcome {
                        Ok(socket) => (Ok(String::new()), Some(socket)),
                        Err(error) => (Err(error), None),
                    };
                    session.send_with(&ToChild::Answer { call, outcome }, socket);
                };
                return match is_udp {
                    false => services.connect(dest, host, port, timeout, Box::new(done)),
                    true => services.connect_udp(dest, host, port, timeout, Box::new(done)),
                };
            }
        };
        self.send(&ToChild::Answer { call, outcome });
    }

    fn data_dir(&self) -> Result<String, Error> {
        let path = self.services.data_dir()?;
        // The child's working folder is another one.
        let path = std::path::absolute(path)
            .map_err(|error| Error::internal(format!("the driver's folder has no place: {error}")))?;
        path.into_os_string()
            .into_string()
            .map_err(|_| Error::internal("the driver's data folder has no UTF-8 name"))
    }

    /// Attaches the received bytes to a body, or the handle of its file.
    fn give(self: &Arc<Self>, body: &mut AssetBody, bytes: &Bytes, number: u64) {
        match body {
            // A copy of its own: the received block also contains other data.
            AssetBody::Memory(body) => *body = Bytes::copy_from_slice(bytes),
            AssetBody::File { keep, .. } => {
                *keep = Some(Box::new(Kept { session: Arc::downgrade(self), body: number }));
            }
            AssetBody::Open { .. } | AssetBody::Parts(_) => {}
        }
    }

    /// An answer to a viewer; `None` if its bytes or its file are missing, or if the limit is reached.
    fn response(
        self: &Arc<Self>,
        mut response: HttpResponse,
        bytes: &Bytes,
        descriptor: Option<OwnedFd>,
        number: u64,
    ) -> Option<HttpResponse> {
        match &mut response.body {
            AssetBody::Memory(body) => {
                let Some(held) = self.answers.hold(Bytes::copy_from_slice(bytes)) else {
                    tracing::warn!(driver = %self.id, "answer refused: too many bytes of earlier answers wait for viewers");
                    return None;
                };
                *body = held;
            }
            AssetBody::Open { file, .. } => *file = Some(Arc::new(descriptor?.into())),
            body => self.give(body, bytes, number),
        }
        Some(response)
    }
}

/// A file that a child keeps unchanged while this lives.
struct Kept {
    session: Weak<Session>,
    body: u64,
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Some(session) = self.session.upgrade() {
            session.push(&ToChild::BodyReleased { body: self.body }, Vec::new());
            // Dropping it must not wait for the child.
            session.flush_soon();
        }
    }
}
