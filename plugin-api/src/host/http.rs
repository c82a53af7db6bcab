//! Viewer requests that a driver answers: sends the request and reads the answer.

use std::ffi::c_void;
use std::os::fd::{BorrowedFd, FromRawFd as _, OwnedFd};
use std::sync::Arc;

use super::assets::{Body, read_body};
use super::services::with;
use crate::abi::{self, SatcastHttp, SatcastHttpRequest, SatcastStr};
use crate::wire::report;
use crate::{AssetBody, Audience, Error, HttpRequest, HttpResponse, http};

pub(super) static HTTP_HOST: abi::SatcastHttpHost =
    abi::SatcastHttpHost { size: size_of::<abi::SatcastHttpHost>(), respond: Some(respond) };

/// A driver's functions for viewer requests.
#[derive(Clone, Copy)]
pub struct Http {
    raw: SatcastHttp,
}

impl Http {
    pub(super) fn new(raw: SatcastHttp) -> Self {
        Self { raw }
    }

    /// Passes a request to the opening `dest`; the answer to `token` comes through [`Services::respond`](super::Services::respond), perhaps before this returns.
    pub fn request(&self, dest: u64, token: u64, request: &HttpRequest) {
        let audience = match request.audience {
            Audience::Preview => abi::AUDIENCE_PREVIEW,
            Audience::Hosted | Audience::Both => abi::AUDIENCE_HOSTED,
        };
        let raw = SatcastHttpRequest {
            size: size_of::<SatcastHttpRequest>(),
            dest,
            token,
            method: request.method as u32,
            audience,
            path: SatcastStr::new(&request.path),
            query: SatcastStr::new(&request.query),
        };
        if let Some(call) = self.raw.request {
            // SAFETY: the request lives for the call.
            unsafe { call(&raw const raw) };
        }
    }
}

/// # Safety
/// As [`abi::SatcastHttpHost::respond`].
unsafe extern "C" fn respond(
    ctx: *mut c_void,
    token: u64,
    response: *const abi::SatcastHttpResponse,
    errors: *const abi::SatcastErrorSink,
) -> i32 {
    // SAFETY: the answer lives for the call; body and descriptor pass to us.
    unsafe {
        with(ctx, abi::ERR, |context| {
            let read = if response.is_null() || (*response).size < size_of::<abi::SatcastHttpResponse>() {
                Err(Error::internal("the driver's answer is malformed"))
            } else {
                read_response(&*response)
            };
            let read = read.and_then(|response| response.check().map(|()| response));
            let refused = read.as_ref().err().cloned();
            let is_taken = context.services.respond(token, read.ok());
            match refused {
                Some(error) => {
                    report(errors, &error);
                    abi::ERR
                }
                None if is_taken => abi::OK,
                None => abi::ERR_CLOSED,
            }
        })
    }
}

/// Takes ownership of the descriptor; `None` when that number is not open.
///
/// # Safety
/// It passes to us.
unsafe fn own_descriptor(number: i32) -> Option<OwnedFd> {
    if number < 0 {
        return None;
    }
    // SAFETY: only to see whether it is open.
    unsafe { BorrowedFd::borrow_raw(number) }.try_clone_to_owned().ok()?;
    // SAFETY: it is open, and passes to us.
    Some(unsafe { OwnedFd::from_raw_fd(number) })
}

/// # Safety
/// Texts and headers must live for the call; body and descriptor pass to us.
unsafe fn read_response(raw: &abi::SatcastHttpResponse) -> Result<HttpResponse, Error> {
    // Owned from here on, so that an error releases both, too.
    let body = Body::own(raw.body);
    let is_descriptor = raw.body.kind == abi::BODY_DESCRIPTOR;
    // SAFETY: the descriptor passes to us.
    let file = if is_descriptor { unsafe { own_descriptor(raw.descriptor) } } else { None };
    // SAFETY: texts live for the call.
    let (content_type, source) = unsafe { (raw.content_type.read(), raw.source.read()) };
    let status = u16::try_from(raw.status).unwrap_or(0);
    if raw.header_count > http::HEADERS_MAX || (raw.header_count > 0 && raw.headers.is_null()) {
        return Err(Error::internal(format!("an answer has over {} headers", http::HEADERS_MAX)));
    }
    let mut headers = Vec::with_capacity(raw.header_count);
    for index in 0..raw.header_count {
        // SAFETY: there are so many headers, and they live for the call.
        let (name, value) = unsafe {
            let header = *raw.headers.add(index);
            (
                header.key.read_up_to(http::HEADER_BYTES_MAX + 1),
                header.value.read_up_to(http::HEADER_BYTES_MAX + 1),
            )
        };
        headers.push((name.into_owned(), value.into_owned()));
    }
    let body = match (file, is_descriptor) {
        (Some(file), _) => {
            AssetBody::Open { file: Some(Arc::new(file.into())), offset: raw.body.offset, len: raw.body.len }
        }
        (None, true) => return Err(Error::internal("an answer has no file")),
        (None, false) => read_body("of an answer", body, &source)?,
    };
    let content_type = content_type.into_owned();
    Ok(HttpResponse { status, content_type, max_age_secs: raw.max_age_secs, headers, body })
}
