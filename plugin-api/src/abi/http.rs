//! Viewer requests that a driver answers itself, and the answers.

use std::ffi::c_void;

use super::{SatcastBody, SatcastErrorSink, SatcastKv, SatcastStr};

/// Driver extension: requests of viewers, see `SatcastHttp`.
pub const EXT_HTTP: &str = "satcast.http/1";
/// Host extension: answers to them, see `SatcastHttpHost`.
pub const EXT_HTTP_HOST: &str = "satcast.http-host/1";

/// A request for head and body.
pub const HTTP_GET: u32 = 1;
/// A request for the head only. The answer may have a body: the host leaves it out.
pub const HTTP_HEAD: u32 = 2;

/// Body of an answer in an open file: `SatcastHttpResponse.descriptor`, `offset` and `len` select the bytes. It must be a readable
/// regular file that does not get shorter.
pub const BODY_DESCRIPTOR: u32 = 4;

/// `SATCAST_EXT_HTTP`: asked for after `init`, for types whose manifest names routes: `"routes": [{"path", "long", "preview"}]`. A route
/// is one path component (named like an asset) below the address of a destination's playback, with everything below it. The host
/// handles keys, origins, ranges, metering and limits.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SatcastHttp {
    /// Size of this struct in bytes.
    pub size: usize,
    /// `[control]` Between `open` and `destroy`, any number of times, also after `stopped`. A viewer requests a path below one of the routes.
    /// Returns at once; the answer is `SatcastHttpHost.respond` with the request's token, during this call or later. After 10 s, or 30 s for
    /// a route with `long`, an answer is too late: the viewer has got an error. At most 64 requests of a destination wait at a time.
    pub request: Option<unsafe extern "C" fn(request: *const SatcastHttpRequest)>,
}

/// A viewer's request. Everything is borrowed for the call.
#[repr(C)]
pub struct SatcastHttpRequest {
    /// Size of this struct in bytes.
    pub size: usize,
    /// Number of the opening, as in `SatcastOpen`. It may have ended.
    pub dest: u64,
    /// Names this request in `SatcastHttpHost.respond`. Never 0, never used twice.
    pub token: u64,
    /// `HTTP_*`.
    pub method: u32,
    /// `AUDIENCE_*` of the viewer.
    pub audience: u32,
    /// Path below the destination's address, beginning with the route's name: as it was sent, percent signs included; at most 1 KiB.
    pub path: SatcastStr,
    /// Query after the question mark, as it was sent, without the viewer's key; at most 1 KiB.
    pub query: SatcastStr,
}

/// `SATCAST_EXT_HTTP_HOST`: takes the answers.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SatcastHttpHost {
    /// Size of this struct in bytes.
    pub size: usize,
    /// `[any]` From the request on, once for each token. The host owns body and descriptor in every case. Returns `SATCAST_OK`;
    /// `SATCAST_ERR_CLOSED` when no request waits for an answer to `token`; or `SATCAST_ERR` after a report to `error` when the
    /// answer breaks a rule: the viewer gets an error then, and the token is used up. `SATCAST_OK` means that the host took the answer, not
    /// that the viewer gets it: from an isolated driver the host refuses answers in memory while viewers have not read
    /// 256 MiB of earlier ones; the viewer gets an error, and the host logs it.
    pub respond: Option<
        unsafe extern "C" fn(
            ctx: *mut c_void,
            token: u64,
            response: *const SatcastHttpResponse,
            error: *const SatcastErrorSink,
        ) -> i32,
    >,
}

/// The answer to a viewer.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SatcastHttpResponse {
    /// Size of this struct in bytes.
    pub size: usize,
    /// 200, 204, or from 400 to 599. The host cuts ranges out of an answer with 200.
    pub status: u32,
    /// Seconds that caches may keep it; 0 = not at all.
    pub max_age_secs: u32,
    /// Media type: printable, at most 128 bytes; may be empty without a body.
    pub content_type: SatcastStr,
    /// Further headers, at most 32 with 8 KiB of text: `Content-Disposition`, `Content-Encoding`, `Content-Language`, `ETag`, `Last-Modified`,
    /// `Retry-After`, and the driver's own, whose names begin with `X-Driver-`. The host refuses an answer with any other header.
    pub headers: *const SatcastKv,
    /// Their number.
    pub header_count: usize,
    /// Open file for `SATCAST_BODY_DESCRIPTOR`, else -1.
    pub descriptor: i32,
    /// Zero.
    pub reserved: u32,
    /// The bytes: `BODY_MEMORY` (at most 64 MiB), `BODY_FILE`, `BODY_PARTS` (published assets) or `SATCAST_BODY_DESCRIPTOR`.
    pub body: SatcastBody,
    /// Path for `BODY_FILE`, names for `BODY_PARTS`, else empty.
    pub source: SatcastStr,
}
