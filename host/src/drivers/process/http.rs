//! Requests of viewers to a driver in a child, and its answers.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use satcast_plugin_api::Error;
use satcast_plugin_api::host::{AssetBody, HttpBody, HttpRequest, HttpResponse};
use satcast_plugin_api::http::{BODY_BYTES_MAX, Method};

use super::Remote;
use super::handed::sealed;
use super::message::{PieceBytes, Responded, RespondedBytes, ToChild};
use super::session::Session;

impl Remote {
    /// Hands a request over; false when no child runs, or it answers none. A child that does not take it in time is ended.
    pub(in crate::drivers) fn request(&self, request: &HttpRequest) -> bool {
        let Ok(session) = self.session() else { return false };
        session.request(request.dest, |call| ToChild::Request {
            call,
            dest: request.dest,
            token: request.token,
            is_head: request.method == Method::Head,
            is_preview: !request.audience.is_hosted(),
            path: request.path.clone(),
            query: request.query.clone(),
        })
    }
}

/// Bytes of answers of one child that may be in memory at once, until their viewers have read them.
pub(super) const ANSWER_BYTES_HELD_MAX: u64 = 256 * 1024 * 1024;

/// Bytes of answers that are in memory.
#[derive(Debug, Default)]
pub(super) struct Held(AtomicU64);

impl Held {
    /// Room for these bytes, until they are dropped; `None` where there is none.
    fn hold(self: &Arc<Self>, bytes: Bytes) -> Option<Bytes> {
        let len = bytes.len() as u64;
        let share = Share { held: self.clone(), len };
        let before = self.0.fetch_add(len, Ordering::AcqRel);
        // Too many are given back by the drop of their share.
        (before + len <= ANSWER_BYTES_HELD_MAX).then(|| Bytes::from_owner(HeldBytes { bytes, _share: share }))
    }
}

struct Share {
    held: Arc<Held>,
    len: u64,
}

impl Drop for Share {
    fn drop(&mut self) {
        self.held.0.fetch_sub(self.len, Ordering::AcqRel);
    }
}

struct HeldBytes {
    bytes: Bytes,
    _share: Share,
}

impl AsRef<[u8]> for HeldBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Session {
    /// Takes an answer. One that breaks a rule is a failure for the viewer who waits for it.
    pub(super) fn respond(
        self: &Arc<Self>,
        token: u64,
        response: Option<Responded>,
        descriptors: Vec<OwnedFd>,
    ) {
        let response = response.and_then(|response| self.response(response, descriptors).ok());
        // The viewer may have gone.
        self.services.respond(token, response.filter(|response| response.check().is_ok()));
    }

    fn response(
        self: &Arc<Self>,
        response: Responded,
        descriptors: Vec<OwnedFd>,
    ) -> Result<HttpResponse, Error> {
        let Responded { status, content_type, max_age_secs, headers, bytes } = response;
        let body = match bytes {
            RespondedBytes::Piece(PieceBytes::Memory) => {
                // Copied one after the other, so that at most one is over the limit before it is looked at.
                let bytes = self.answers.hold(sealed(descriptors, BODY_BYTES_MAX)?);
                let bytes = bytes.ok_or_else(|| {
                    tracing::warn!(driver = %self.id, "an answer is refused: viewers have not read {ANSWER_BYTES_HELD_MAX} bytes of others yet");
                    Error::internal("too much of its answers waits for viewers")
                })?;
                HttpBody::Asset(AssetBody::Memory(bytes.into()))
            }
            RespondedBytes::Piece(bytes) => HttpBody::Asset(self.piece_body(bytes, descriptors)?),
            RespondedBytes::Descriptor { offset, len } => {
                let file = descriptors.into_iter().next();
                let file = file.ok_or_else(|| Error::internal("an answer has no file"))?;
                HttpBody::Descriptor { file, offset, len }
            }
        };
        Ok(HttpResponse { status, content_type, max_age_secs, headers, body })
    }
}

#[cfg(test)]
mod tests {
    use super::super::CALL_MS;
    use super::super::calls::not_returned;
    use super::super::channel::MESSAGE_BYTES_MAX;
    use super::super::message::{self, Message, ToHost};
    use super::super::recordings::tests::begin;
    use super::*;

    #[test]
    fn so_many_bytes_wait_for_viewers_and_no_more() {
        let held = Arc::new(Held::default());
        let half = Bytes::from(vec![0; (ANSWER_BYTES_HELD_MAX / 2) as usize]);
        let first = held.hold(half.clone()).unwrap();
        let second = held.hold(half).unwrap();
        assert!(held.hold(Bytes::from_static(b"x")).is_none());
        // A viewer holds a part of it.
        let part = first.slice(..10);
        drop(first);
        assert!(held.hold(Bytes::from_static(b"x")).is_none());
        drop(part);
        assert_eq!(held.hold(Bytes::from_static(b"x")).unwrap(), "x");
        drop(second);
        assert_eq!(held.0.load(Ordering::Relaxed), 0);
    }

    /// Hands a request to a child that answers the call with `answer`, if at all.
    fn hand_over(answer: Option<bool>) -> (bool, Option<String>) {
        let (session, child, _) = begin();
        let asking = session.clone();
        let asked = std::thread::spawn(move || {
            asking.request(1, |call| ToChild::Request {
                call,
                dest: 1,
                token: 2,
                is_head: false,
                is_preview: false,
                path: "ask".into(),
                query: String::new(),
            })
        });
        let mut buffer = vec![0; MESSAGE_BYTES_MAX];
        let (len, _) = child.recv(&mut buffer).unwrap();
        let Ok(Message::Text(text)) = message::read::<ToChild>(&buffer[..len]) else { panic!("no call") };
        let ToChild::Request { call, .. } = *text else { panic!("{text:?}") };
        if let Some(is_taken) = answer {
            child.send(&message::text(&ToHost::Answer { call, outcome: Ok(is_taken) }), &[]).unwrap();
            // The supervisor's part.
            let (len, descriptors) = session.channel.recv(&mut buffer).unwrap();
            assert!(session.handle(&buffer[..len], descriptors).unwrap().is_none());
        }
        (asked.join().unwrap(), session.failure())
    }

    #[test]
    fn a_child_that_does_not_take_a_request_is_ended() {
        assert_eq!(hand_over(Some(true)), (true, None));
        assert_eq!(hand_over(Some(false)), (false, None), "it answers none");
        let (is_taken, failure) = hand_over(None);
        assert_eq!((is_taken, failure), (false, Some(not_returned())));
    }

    #[test]
    fn a_call_that_does_not_return_text() {
        assert_eq!(not_returned(), format!("did not return from a call within {CALL_MS} ms"));
    }
}
