//! What a child asks for and reports.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use satcast_plugin_api::manifest::Manifest;
use satcast_plugin_api::{AssetBody, Error, HttpResponse};

use super::channel::Message;
use super::message::{ToChild, ToHost, Wish};
use super::session::Session;
use super::spec::Facts;

/// What a child says of its start.
pub(super) enum Begun {
    Loaded(Facts),
    Ready { keeps_recordings: bool },
    Refused(String),
}

impl Session {
    /// Does what one message asks for.
    ///
    /// # Errors
    /// What is wrong with it; such a child is ended.
    pub(super) fn handle(self: &Arc<Self>, message: Message<ToHost>) -> Result<Option<Begun>, &'static str> {
        match message.what {
            ToHost::Loaded { id, version, manifest, is_lossless } => {
                return Ok(Some(match Manifest::parse(&manifest) {
                    Ok(manifest) => Begun::Loaded(Facts { id, version, manifest, is_lossless }),
                    Err(error) => Begun::Refused(error.to_string()),
                }));
            }
            ToHost::Ready { keeps_recordings } => return Ok(Some(Begun::Ready { keeps_recordings })),
            ToHost::Refused { reason } => return Ok(Some(Begun::Refused(reason))),
            ToHost::Answer { call, outcome } => self.answered(call, outcome),
            ToHost::Call { call, wish } => self.grant(call, wish, &message.bytes),
            ToHost::Media(progress) => progress.iter().for_each(|progress| self.progress(progress)),
            ToHost::Log(line) => self.services.log(line),
            ToHost::Respond { token, response, body } => {
                let response = response
                    .and_then(|response| self.response(response, &message.bytes, message.descriptor, body));
                // The viewer may have gone.
                self.services.respond(token, response);
            }
            ToHost::Recording(recording) => {
                recording.check().map_err(|_| "told of a recording that breaks the rules")?;
                // What the host cannot take is found by a list.
                let _ = self.services.recording(recording);
            }
            ToHost::Done { request, outcome } => {
                let done = self.requests.lock().remove(&request);
                done.into_iter().for_each(|done| done(outcome.clone()));
            }
            ToHost::Alive => {}
            report => self.report(report),
        }
        Ok(None)
    }

    /// What is about a destination it does not have is left out: it may have ended meanwhile.
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

    /// Answers what the library asks for.
    fn grant(self: &Arc<Self>, call: u64, wish: Wish, bytes: &Bytes) {
        let services = &self.services;
        let nothing = |()| String::new();
        let outcome = match wish {
            Wish::DataDir => self.data_dir(),
            Wish::Settings => Ok(services.settings()),
            Wish::Publish { dest, mut asset, body } => {
                self.give(&mut asset.body, bytes, body);
                services.publish(dest, asset).map(nothing)
            }
            Wish::Playback { dest, playback } => services.playback(dest, playback).map(nothing),
            Wish::Seal(text) => services.seal(&text),
            Wish::Unseal(sealed) => services.unseal(&sealed),
            Wish::Connect { dest, host, port, timeout } => {
                let session = self.clone();
                let done = move |outcome: Result<OwnedFd, Error>| {
                    let (outcome, socket) = match outcome {
                        Ok(socket) => (Ok(String::new()), Some(socket)),
                        Err(error) => (Err(error), None),
                    };
                    session.tell_with(&ToChild::Answer { call, outcome }, socket);
                };
                return services.connect(dest, host, port, timeout, Box::new(done));
            }
        };
        self.tell(&ToChild::Answer { call, outcome });
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

    /// Gives a body that came its bytes, or what holds its file.
    fn give(self: &Arc<Self>, body: &mut AssetBody, bytes: &Bytes, number: u64) {
        match body {
            // A copy of its own: the block it came in has other things in it.
            AssetBody::Memory(body) => *body = Bytes::copy_from_slice(bytes),
            AssetBody::File { keep, .. } => {
                *keep = Some(Box::new(Kept { session: Arc::downgrade(self), body: number }));
            }
            AssetBody::Open { .. } | AssetBody::Parts(_) => {}
        }
    }

    /// An answer to a viewer; `None` for one that lacks what should have come with it, or for which there is no room.
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
                    tracing::warn!(driver = %self.id, "an answer is refused: viewers have not read enough of others yet");
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

/// A file that a child keeps as it is while this lives.
struct Kept {
    session: Weak<Session>,
    body: u64,
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Some(session) = self.session.upgrade() {
            session.push(&ToChild::BodyReleased { body: self.body }, Vec::new());
            // Whoever drops it must not wait for the child.
            session.flush_soon();
        }
    }
}
