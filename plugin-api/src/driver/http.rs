//! Sends a destination's answers to viewer requests.

use super::assets::RawBody;
use super::ctx::missing;
use super::hostref::HostRef;
use crate::abi::{self, SatcastKv, SatcastStr};
use crate::wire::ErrorSlot;
use crate::{Error, HttpResponse, http};

/// Gives the answer to the request `token`.
pub(crate) fn respond(host: &HostRef, token: u64, response: HttpResponse) -> Result<(), Error> {
    let HttpResponse { status, content_type, max_age_secs, headers, body } = response;
    // SAFETY: `SatcastHttpHost` is the struct of this name.
    let extension = unsafe { host.extension::<abi::SatcastHttpHost>(abi::EXT_HTTP_HOST) };
    let call =
        extension.and_then(|extension| extension.respond).ok_or_else(|| missing(abi::EXT_HTTP_HOST))?;
    let raw = RawBody::of(body)?;
    let fields: Vec<SatcastKv> = headers
        .iter()
        .map(|(name, value)| SatcastKv { key: SatcastStr::new(name), value: SatcastStr::new(value) })
        .collect();
    let response = abi::SatcastHttpResponse {
        size: size_of::<abi::SatcastHttpResponse>(),
        status: u32::from(status),
        max_age_secs,
        content_type: SatcastStr::new(&content_type),
        headers: fields.as_ptr(),
        header_count: fields.len(),
        descriptor: raw.descriptor,
        reserved: 0,
        body: raw.body,
        source: SatcastStr::new(&raw.source),
    };
    let mut slot = ErrorSlot::new();
    let errors = slot.sink();
    // SAFETY: the answer lives for the call; the host owns body and descriptor from here on.
    match unsafe { call(host.ctx(), token, &raw const response, &raw const errors) } {
        abi::OK => Ok(()),
        abi::ERR_CLOSED => Err(Error::internal(format!(
            "no request waits for this answer; the driver must answer within {} s",
            http::ANSWER_SECS
        ))),
        _ => Err(slot.take("the host refused an answer")),
    }
}
