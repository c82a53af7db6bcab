//! Requests of viewers, and how a destination answers them.

use std::any::Any;
use std::os::fd::{IntoRawFd as _, OwnedFd};
use std::path::PathBuf;

use bytes::Bytes;

use super::assets::{AssetBody, RawBody};
use super::ctx::missing;
use super::hostref::HostRef;
use crate::abi::{self, SatcastKv, SatcastStr};
use crate::playback::Audience;
use crate::wire::ErrorSlot;
use crate::{Error, http};

pub use crate::http::Method;

/// What a viewer asks for below a route of the destination's type. Keys and origins were checked by the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// How.
    pub method: Method,
    /// Path below the destination's address, beginning with the route's name; as it was sent, percent signs included.
    pub path: String,
    /// What stands behind the question mark, as it was sent, without the viewer's key.
    pub query: String,
    /// Who asks: [`Audience::Preview`] only where the route lets them.
    pub audience: Audience,
}

/// An answer to a viewer. The host adds length, ranges, origins and caching.
pub struct Response {
    /// 200, 204, or 400 to 599.
    pub status: u16,
    /// Media type; may be empty without a body.
    pub content_type: String,
    /// Seconds a cache may keep it; 0 = not at all.
    pub max_age_secs: u32,
    /// Further headers; see [`crate::http::check_head`] for what is refused.
    pub headers: Vec<(String, String)>,
    /// The bytes.
    pub body: ResponseBody,
}

/// Where the bytes of an answer are.
pub enum ResponseBody {
    /// In memory, shared with the host: at most [`BODY_BYTES_MAX`](crate::http::BODY_BYTES_MAX).
    Memory(Bytes),
    /// In a file below the driver's data folder that does not change while `keep` lives.
    File {
        /// Path relative to the folder, without `..` and symbolic links.
        path: PathBuf,
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
        /// Dropped on a thread of the host when the answer has gone; must not block.
        keep: Box<dyn Any + Send + Sync>,
    },
    /// In an open regular file that does not get shorter.
    Descriptor {
        /// The file.
        file: OwnedFd,
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// In published pieces of the destination, one after the other, by name.
    Pieces(Vec<String>),
}

impl Response {
    /// An answer with a body, which no cache keeps.
    pub fn of(content_type: &str, body: ResponseBody) -> Self {
        Self {
            status: 200,
            content_type: content_type.to_owned(),
            max_age_secs: 0,
            headers: Vec::new(),
            body,
        }
    }

    /// An answer without a body.
    pub fn empty(status: u16) -> Self {
        let body = ResponseBody::Memory(Bytes::new());
        Self { status, content_type: String::new(), max_age_secs: 0, headers: Vec::new(), body }
    }

    /// Bytes in memory, which no cache keeps.
    pub fn bytes(content_type: &str, bytes: impl Into<Bytes>) -> Self {
        Self::of(content_type, ResponseBody::Memory(bytes.into()))
    }

    /// There is no such thing.
    pub fn not_found() -> Self {
        Self::empty(404)
    }

    /// Says that caches may keep it for so many seconds.
    pub fn max_age(mut self, secs: u32) -> Self {
        self.max_age_secs = secs;
        self
    }

    /// Adds a header.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }
}

/// Gives the answer to the request `token`.
pub(crate) fn respond(host: &HostRef, token: u64, response: Response) -> Result<(), Error> {
    let Response { status, content_type, max_age_secs, headers, body } = response;
    // SAFETY: `SatcastHttpHost` is the struct of this name.
    let extension = unsafe { host.extension::<abi::SatcastHttpHost>(abi::EXT_HTTP_HOST) };
    let call =
        extension.and_then(|extension| extension.respond).ok_or_else(|| missing(abi::EXT_HTTP_HOST))?;
    let mut descriptor = -1;
    let raw = match body {
        ResponseBody::Memory(bytes) => RawBody::of(AssetBody::Memory(bytes))?,
        ResponseBody::File { path, offset, len, keep } => {
            RawBody::of(AssetBody::File { path, offset, len, keep })?
        }
        ResponseBody::Pieces(names) => RawBody::of(AssetBody::Parts(names))?,
        ResponseBody::Descriptor { file, offset, len } => {
            descriptor = file.into_raw_fd();
            RawBody::outside(abi::BODY_DESCRIPTOR, offset, len)
        }
    };
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
        descriptor,
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
            "nobody waits for this answer any more; it must come within {} s",
            http::ANSWER_SECS
        ))),
        _ => Err(slot.take("the host refused an answer")),
    }
}
