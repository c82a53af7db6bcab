//! Requests of viewers to a driver in a child, and its answers.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use satcast_plugin_api::Error;
use satcast_plugin_api::host::{HttpBody, HttpRequest, HttpResponse};
use satcast_plugin_api::http::Method;

use super::Remote;
use super::message::{Responded, RespondedBytes, ToChild};
use super::session::Session;

impl Remote {
    /// Hands a request over; false when no child runs.
    pub(in crate::drivers) fn request(&self, request: &HttpRequest) -> bool {
        let Ok(session) = self.session() else { return false };
        session.tell(&ToChild::Request {
            dest: request.dest,
            token: request.token,
            is_head: request.method == Method::Head,
            is_preview: !request.audience.is_hosted(),
            path: request.path.clone(),
            query: request.query.clone(),
        });
        true
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
