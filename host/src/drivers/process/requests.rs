//! What a child asks for and reports. Everything in it is checked as if it came from the network.

use std::os::fd::OwnedFd;
use std::path::{Component, PathBuf};
use std::sync::Arc;
use std::sync::Weak;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use satcast_plugin_api::Error;
use satcast_plugin_api::driver_state::State;
use satcast_plugin_api::host::{Asset, AssetBody};
use satcast_plugin_api::manifest::{MANIFEST_BYTES_MAX, Manifest};
use satcast_plugin_api::playback::{ASSET_PARTS_MAX, is_asset_name};

use super::Facts;
use super::handed::sealed;
use super::message::{Failure, Message, Piece, PieceBytes, ToChild, ToHost, Told, coded, decoded, read};
use super::notes::Demand;
use super::session::Session;
use super::shortage;

/// Largest piece for viewers that a child may hand over in memory, in bytes.
pub(super) const PIECE_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Longest path of a file in bytes.
const PATH_BYTES_MAX: usize = 1024;

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
    pub(super) fn handle(
        self: &Arc<Self>,
        bytes: &[u8],
        descriptors: Vec<OwnedFd>,
    ) -> Result<Option<Begun>, &'static str> {
        match read::<ToHost>(bytes) {
            Ok(Message::Demand(demand)) => self.meet(&demand).map(|()| None),
            Ok(Message::Text(message)) => self.answer(*message, descriptors),
            Ok(Message::Media(_)) | Err(_) => Err("sent what is no message"),
        }
    }

    /// As [`Session::handle`], for a message whose descriptors the service had no room for: who waits for what was beside it gets an
    /// error, and a child that cannot go on without it is ended with nobody to blame.
    ///
    /// # Errors
    /// As for any message.
    pub(super) fn handle_short(self: &Arc<Self>, bytes: &[u8]) -> Result<Option<Begun>, &'static str> {
        let message = match read::<ToHost>(bytes) {
            Ok(Message::Text(message)) => message,
            _ => return self.handle(bytes, Vec::new()),
        };
        let failure = || Failure::from(Error::internal(shortage::lost()));
        match *message {
            ToHost::Loaded { .. } => {
                let why = format!("cannot be started: {}", shortage::lost());
                self.fail_for_service(&why);
            }
            ToHost::Answer { call, outcome } => {
                self.answered(call, outcome.and_then(|_| Err(failure())), Vec::new());
            }
            ToHost::Publish { call, .. } => {
                self.tell(&ToChild::Answer { call, outcome: Err(failure()) });
            }
            ToHost::Respond { token, .. } => self.respond(token, None, Vec::new()),
            // Nothing belongs beside any other.
            other => return self.answer(other, Vec::new()),
        }
        Ok(None)
    }

    fn meet(self: &Arc<Self>, demand: &Demand) -> Result<(), &'static str> {
        if !self.released(&demand.released) {
            return Err("let go of media it does not hold");
        }
        if demand.abandoned != 0 {
            self.abandoned(demand.abandoned);
        }
        if demand.wanted != 0 {
            self.feed(demand.wanted);
        }
        Ok(())
    }

    fn answer(
        self: &Arc<Self>,
        message: ToHost,
        descriptors: Vec<OwnedFd>,
    ) -> Result<Option<Begun>, &'static str> {
        match message {
            ToHost::Loaded { id, version, is_lossless } => {
                return loaded(id, version, is_lossless, descriptors).map(Some);
            }
            ToHost::Ready { keeps_recordings } => return Ok(Some(Begun::Ready { keeps_recordings })),
            ToHost::Refused { reason } => return Ok(Some(Begun::Refused(reason))),
            ToHost::Answer { call, outcome } => self.answered(call, outcome, descriptors),
            ToHost::Log(line) => self.services.log(line.into()),
            ToHost::DataDir { call } => {
                let outcome = self.data_dir();
                self.tell(&ToChild::Answer { call, outcome: outcome.map_err(Failure::from) });
            }
            ToHost::Settings { call } => {
                self.tell(&ToChild::Answer { call, outcome: Ok(self.services.settings()) });
            }
            ToHost::Publish { call, dest, piece } => {
                let outcome = self.publish(dest, piece, descriptors).map(|()| String::new());
                self.tell(&ToChild::Answer { call, outcome: outcome.map_err(Failure::from) });
            }
            ToHost::Playback { call, dest, told } => {
                let outcome = self.playback(dest, told).map(|()| String::new());
                self.tell(&ToChild::Answer { call, outcome: outcome.map_err(Failure::from) });
            }
            ToHost::Connect { call, dest, host, port, timeout_ms } => {
                self.connect(call, dest, host, port, Duration::from_millis(timeout_ms));
            }
            ToHost::Respond { token, response } => self.respond(token, response, descriptors),
            ToHost::Recording(recording) => self.recording(recording)?,
            ToHost::Done { request, failure } => self.done(request, failure),
            ToHost::Seal { call, text } => {
                let outcome = decoded(&text).and_then(|text| self.services.seal(&text));
                self.tell(&ToChild::Answer {
                    call,
                    outcome: outcome.map(|it| coded(&it)).map_err(Failure::from),
                });
            }
            ToHost::Unseal { call, sealed } => {
                let outcome = decoded(&sealed).and_then(|sealed| self.services.unseal(&sealed));
                self.tell(&ToChild::Answer {
                    call,
                    outcome: outcome.map(|it| coded(&it)).map_err(Failure::from),
                });
            }
            ToHost::Pong => {}
            report => self.report(report),
        }
        Ok(None)
    }

    /// What is about a destination it does not have is left out: it may have ended meanwhile.
    fn report(&self, report: ToHost) {
        match report {
            ToHost::State { dest, state, reason } if self.has(dest) => {
                if let Some(state) = State::from_abi(state) {
                    self.services.state(dest, state, reason.map(Error::from));
                }
            }
            ToHost::Event { dest, name, json } if self.has(dest) => self.services.event(dest, &name, &json),
            ToHost::Counted { dest, name, added } if self.has(dest) => {
                if let Some(counter) = self.services.metric(dest, &name) {
                    counter.fetch_add(added, Ordering::Relaxed);
                }
            }
            ToHost::Stopped { dest, failure } if self.has(dest) => {
                self.services.stopped(dest, failure.map_or(Ok(()), |failure| Err(failure.into())));
            }
            ToHost::Retract { dest, name } if self.has(dest) => self.services.retract(dest, &name),
            _ => {}
        }
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

    fn connect(self: &Arc<Self>, call: u64, dest: u64, host: String, port: u16, timeout: Duration) {
        let session = self.clone();
        let done = move |outcome: Result<OwnedFd, Error>| match outcome {
            Ok(socket) => session.tell_with(&ToChild::Connected { call, failure: None }, &socket),
            Err(error) => session.tell(&ToChild::Connected { call, failure: Some(error.into()) }),
        };
        self.services.connect(dest, host, port, timeout, Box::new(done));
    }

    fn publish(self: &Arc<Self>, dest: u64, piece: Piece, descriptors: Vec<OwnedFd>) -> Result<(), Error> {
        if !is_asset_name(&piece.name) {
            return Err(Error::internal("an asset has a malformed name"));
        }
        if !piece.followed.is_sound() {
            return Err(Error::internal("a playlist names malformed pieces"));
        }
        let audience = piece.audience().ok_or_else(|| Error::internal("an asset is for nobody"))?;
        let body = self.piece_body(piece.bytes, descriptors)?;
        let Piece { name, content_type, max_age_secs, followed, .. } = piece;
        self.services.publish(dest, Asset { name, content_type, max_age_secs, audience, body, followed })
    }

    /// Where the bytes of a piece are, checked.
    pub(super) fn piece_body(
        self: &Arc<Self>,
        bytes: PieceBytes,
        descriptors: Vec<OwnedFd>,
    ) -> Result<AssetBody, Error> {
        Ok(match bytes {
            PieceBytes::Memory => AssetBody::Memory(sealed(descriptors, PIECE_BYTES_MAX)?.into()),
            PieceBytes::File { path, offset, len, body } => {
                // Given back whatever follows.
                let kept = Bytes::from_owner(Kept { session: Arc::downgrade(self), body });
                let path = plain(&path).filter(|_| offset.checked_add(len).is_some());
                let path =
                    path.ok_or_else(|| Error::internal("an asset's file is not below the data folder"))?;
                AssetBody::File { path, offset, len, keep: kept.into() }
            }
            PieceBytes::Parts(names) => {
                let sound = (1..=ASSET_PARTS_MAX).contains(&names.len());
                if !sound || !names.iter().all(|name| is_asset_name(name)) {
                    return Err(Error::internal("an asset is made of malformed names"));
                }
                AssetBody::Parts(names)
            }
        })
    }

    fn playback(&self, dest: u64, told: Told) -> Result<(), Error> {
        let names = [Some(&told.entry), told.preview.as_ref()];
        if !names.into_iter().flatten().all(|name| is_asset_name(name)) {
            return Err(Error::internal("a playback must name assets as its entries"));
        }
        self.services.playback(dest, told.into())
    }
}

fn loaded(
    id: String,
    version: String,
    is_lossless: bool,
    descriptors: Vec<OwnedFd>,
) -> Result<Begun, &'static str> {
    let json = sealed(descriptors, MANIFEST_BYTES_MAX as u64).map_err(|_| "gave no manifest")?;
    let json = std::str::from_utf8(&json).map_err(|_| "gave no manifest")?;
    // The child checked it with the same code; only another kind of child could send a bad one.
    match Manifest::parse(json) {
        Ok(manifest) => {
            let version = version.chars().filter(|c| !c.is_control()).take(64).collect();
            Ok(Begun::Loaded(Facts { id, version, manifest, is_lossless }))
        }
        Err(error) => Ok(Begun::Refused(error.to_string())),
    }
}

/// The path, when it is relative and made of plain names.
fn plain(text: &str) -> Option<PathBuf> {
    let path = PathBuf::from(text);
    let plain = path.components().all(|part| matches!(part, Component::Normal(_)));
    (plain && (1..=PATH_BYTES_MAX).contains(&text.len()) && !text.contains('\0')).then_some(path)
}

/// A file that a child keeps as it is while this lives.
struct Kept {
    session: Weak<Session>,
    body: u64,
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        &[]
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let (session, body) = (self.session.clone(), self.body);
        if let Some(session) = session.upgrade() {
            // Whoever drops it must not wait for the child.
            let pump = session.pump.clone();
            pump.run(move || session.tell(&ToChild::BodyReleased { body }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::channel::{Channel, MESSAGE_BYTES_MAX};
    use super::super::message::text;
    use super::super::recordings::tests::begin;
    use super::*;

    fn told(child: &Channel) -> ToChild {
        let mut buffer = vec![0; MESSAGE_BYTES_MAX];
        let (len, _) = child.recv(&mut buffer).unwrap();
        match read(&buffer[..len]) {
            Ok(Message::Text(message)) => *message,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_the_service_has_no_descriptor_for_is_an_error_for_who_waits_and_no_crash() {
        let (session, child, _) = begin();
        let piece = Piece {
            name: "a.m4s".into(),
            content_type: "video/mp4".into(),
            max_age_secs: 1,
            hosted: true,
            preview: false,
            bytes: PieceBytes::Memory,
            followed: Default::default(),
        };
        let publish = text(&ToHost::Publish { call: 7, dest: 1, piece });
        assert!(session.handle_short(&publish).unwrap().is_none());
        let ToChild::Answer { call: 7, outcome: Err(failure) } = told(&child) else { panic!("no answer") };
        assert!(Error::from(failure).message.contains("LimitNOFILE"));
        let asking = session.clone();
        let asked = std::thread::spawn(move || asking.call_with(|call| ToChild::Recordings { call }, None));
        let ToChild::Recordings { call } = told(&child) else { panic!("no call") };
        assert!(session.handle_short(&text(&ToHost::Answer { call, outcome: Ok(true) })).unwrap().is_none());
        let refused = asked.join().unwrap().map(|reply| reply.is_taken).unwrap_err();
        assert!(refused.message.contains("LimitNOFILE"), "{refused}");
        assert_eq!(session.failure(), None, "it goes on");
        let loaded = ToHost::Loaded { id: "t".into(), version: String::new(), is_lossless: false };
        assert!(session.handle_short(&text(&loaded)).unwrap().is_none());
        assert!(session.failure().unwrap().contains("LimitNOFILE"));
        assert!(session.is_for_service());
    }

    #[test]
    fn paths_stay_below_the_folder() {
        for bad in ["", "/etc/passwd", "../x", "a/../b", "a\0b", &"p".repeat(PATH_BYTES_MAX + 1)] {
            assert_eq!(plain(bad), None, "{bad:?}");
        }
        assert_eq!(plain("dvr/1.m4s"), Some(PathBuf::from("dvr/1.m4s")));
    }
}
