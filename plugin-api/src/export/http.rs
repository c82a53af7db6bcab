//! The table of [`Destination::http`](crate::driver::Destination::http).

use std::collections::HashMap;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::Exported;
use super::run::panic_error;
use crate::Error;
use crate::abi::{self, SatcastHttp, SatcastHttpRequest};
use crate::driver::hostref::HostRef;
use crate::driver::log::CURRENT_DEST;
use crate::driver::{DynDestination, respond};
use crate::http::Method;
use crate::{Audience, HttpRequest, HttpResponse};

/// Destinations by the number of their opening.
#[derive(Default)]
pub(super) struct Openings(Mutex<HashMap<u64, Weak<dyn DynDestination>>>);

impl Openings {
    pub(super) fn add(&self, dest: u64, destination: &Arc<dyn DynDestination>) {
        self.0.lock().insert(dest, Arc::downgrade(destination));
    }

    pub(super) fn remove(&self, dest: u64) {
        self.0.lock().remove(&dest);
    }

    fn find(&self, dest: u64) -> Option<Arc<dyn DynDestination>> {
        self.0.lock().get(&dest)?.upgrade()
    }
}

struct TableOf<E>(PhantomData<E>);

impl<E: Exported> TableOf<E> {
    const TABLE: &'static SatcastHttp =
        &SatcastHttp { size: size_of::<SatcastHttp>(), request: Some(request::<E>) };
}

/// The table.
pub(super) fn table<E: Exported>() -> *const std::ffi::c_void {
    std::ptr::from_ref(TableOf::<E>::TABLE).cast()
}

/// Answers one request, at the latest when dropped.
struct Responder {
    host: Arc<HostRef>,
    token: u64,
    is_answered: bool,
}

impl Responder {
    fn give(mut self, response: HttpResponse) {
        self.is_answered = true;
        if let Err(error) = respond(&self.host, self.token, response) {
            tracing::warn!(error = %error.message, "the host refused an answer to a viewer");
        }
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        if !self.is_answered {
            // The request may be over.
            let _ = respond(&self.host, self.token, HttpResponse::empty(500));
        }
    }
}

/// # Safety
/// As [`SatcastHttp::request`]: the request lives for the call.
unsafe extern "C" fn request<E: Exported>(request: *const SatcastHttpRequest) {
    let begin = || {
        // SAFETY: passed on from the caller.
        let Some((dest, token, request)) = (unsafe { read_request(request) }) else { return };
        let Ok(loaded) = E::slot().loaded() else { return };
        let responder = Responder { host: loaded.host.clone(), token, is_answered: false };
        let Some(destination) = loaded.openings.find(dest) else {
            return responder.give(HttpResponse::not_found());
        };
        loaded.runtime.spawn(CURRENT_DEST.scope(dest, async move {
            match caught(destination, request).await {
                Ok(response) => responder.give(response),
                Err(error) => {
                    tracing::warn!(error = %error.message, "a viewer's request failed");
                    drop(responder);
                }
            }
        }));
    };
    // Dropping the started answer sends an error; the panic hook has logged the panic.
    let _ = catch_unwind(AssertUnwindSafe(begin));
}

/// The destination's answer; a panic is an error.
async fn caught(destination: Arc<dyn DynDestination>, request: HttpRequest) -> Result<HttpResponse, Error> {
    let mut answer = catch_unwind(AssertUnwindSafe(|| destination.http_dyn(request)))
        .map_err(|panic| panic_error(&*panic))?;
    let outcome = poll_fn(|cx| {
        catch_unwind(AssertUnwindSafe(|| answer.as_mut().poll(cx)))
            .unwrap_or_else(|panic| std::task::Poll::Ready(Err(panic_error(&*panic))))
    })
    .await;
    // Dropping the author's future may panic, too.
    match catch_unwind(AssertUnwindSafe(|| drop(answer))) {
        Ok(()) => outcome,
        Err(panic) => Err(panic_error(&*panic)),
    }
}

/// # Safety
/// `request` must be valid for its own size for the call.
unsafe fn read_request(request: *const SatcastHttpRequest) -> Option<(u64, u64, HttpRequest)> {
    // SAFETY: `size` is the first field.
    if request.is_null() || unsafe { (&raw const (*request).size).read() } < size_of::<SatcastHttpRequest>() {
        return None;
    }
    // SAFETY: at least the known size is there, and texts live for the call.
    let (raw, path, query) = unsafe { (&*request, (*request).path.read(), (*request).query.read()) };
    let is_preview = raw.audience & abi::AUDIENCE_PREVIEW != 0;
    let audience = if is_preview { Audience::Preview } else { Audience::Hosted };
    let method = Method::from_number(raw.method);
    let (path, query) = (path.into_owned(), query.into_owned());
    Some((raw.dest, raw.token, HttpRequest { method, path, query, audience }))
}
