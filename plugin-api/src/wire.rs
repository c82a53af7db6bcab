//! Errors across the boundary: reading a record of the other side, reporting through its sink, collecting through ours.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

#[cfg(feature = "host")]
use crate::abi;
use bytes::Bytes;

use crate::abi::{SatcastBytesDone, SatcastDone, SatcastError, SatcastErrorSink, SatcastStr};
use crate::recording::{INDEX_BYTES_MAX, RecordingIndex};
use crate::{Class, Error};

/// Longest message that crosses the boundary, in bytes; the rest is cut. Far above the length that a host shows. The host removes secrets
/// first and cuts then, so it never shows a secret that this cut splits.
const MESSAGE_BYTES_MAX: usize = 16 * 1024;

/// Collects the one error a call reports.
pub(crate) struct ErrorSlot(Option<Error>);

impl ErrorSlot {
    pub(crate) fn new() -> Self {
        Self(None)
    }

    /// A sink that is valid as long as `self` stays where it is.
    pub(crate) fn sink(&mut self) -> SatcastErrorSink {
        SatcastErrorSink { data: (self as *mut Self).cast(), put: Some(put_error) }
    }

    pub(crate) fn take(self, otherwise: &str) -> Error {
        self.or(Error::internal(otherwise))
    }

    pub(crate) fn or(self, otherwise: Error) -> Error {
        self.0.unwrap_or(otherwise)
    }

    /// The error of a driver call that returned `code`. After a panic the class is always `Panic`.
    #[cfg(feature = "host")]
    pub(crate) fn failed(self, code: i32) -> Error {
        let outcome = if code == abi::ERR_PANIC { "panicked" } else { "failed" };
        let mut error = self.take(&format!("the driver {outcome} with code {code} and no reason"));
        if code == abi::ERR_PANIC {
            error.class = Class::Panic;
        }
        error
    }
}

/// # Safety
/// `data` must be the [`ErrorSlot`] of the running call.
unsafe extern "C" fn put_error(data: *mut c_void, error: *const SatcastError) {
    // SAFETY: see above; the slot outlives the call.
    let slot = unsafe { &mut *data.cast::<ErrorSlot>() };
    // SAFETY: the error lives for the call.
    slot.0 = unsafe { read_error(error) };
}

/// # Safety
/// `error` must be null or valid for its own size for the call.
pub(crate) unsafe fn read_error(error: *const SatcastError) -> Option<Error> {
    if error.is_null() {
        return None;
    }
    // SAFETY: `size` is the first field.
    if (unsafe { (&raw const (*error).size).read() } as usize) < size_of::<SatcastError>() {
        return Some(Error::internal("an error record of the other side is too short"));
    }
    // SAFETY: at least the known size is there.
    let raw = unsafe { error.read() };
    // SAFETY: the text lives for the call.
    let message = unsafe { raw.message.read() };
    let message = cut(&message, MESSAGE_BYTES_MAX).to_string();
    let mut error = Error::new(Class::from_number(raw.error_class), message);
    if raw.retry_ms > 0 {
        error.retry_after = Some(Duration::from_millis(u64::from(raw.retry_ms)));
    }
    Some(error)
}

/// Calls `use_it` with the C form of `error`, which borrows from it.
pub(crate) fn with_abi<R>(error: &Error, use_it: impl FnOnce(&SatcastError) -> R) -> R {
    let message = cut(&error.message, MESSAGE_BYTES_MAX);
    let retry_ms = error.retry_after.map_or(0, |wait| u32::try_from(wait.as_millis()).unwrap_or(u32::MAX));
    use_it(&SatcastError {
        size: size_of::<SatcastError>() as u32,
        error_class: error.class as u32,
        retry_ms,
        reserved: 0,
        message: SatcastStr::new(message),
    })
}

/// The longest prefix of `text` of at most `bytes_max` bytes that ends at a character.
fn cut(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

/// Reports `error` through a sink of the other side.
///
/// # Safety
/// `sink` must be null or valid for the call.
pub(crate) unsafe fn report(sink: *const SatcastErrorSink, error: &Error) {
    if sink.is_null() {
        return;
    }
    // SAFETY: sinks live for the call.
    let sink = unsafe { sink.read() };
    if let Some(put) = sink.put {
        // SAFETY: the error lives for the call.
        with_abi(error, |raw| unsafe { put(sink.data, raw) });
    }
}

type OwnDone = Box<dyn FnOnce(Result<(), Error>) + Send>;

/// `call` in the form of the C table. The other side calls it once; it leaks if it is never called.
pub(crate) fn done_of(call: OwnDone) -> SatcastDone {
    SatcastDone { data: Box::into_raw(Box::new(call)).cast(), done: Some(call_done) }
}

type OwnBytesDone = Box<dyn FnOnce(Result<Bytes, Error>) + Send>;

/// A callback and the most bytes that it takes.
struct Bounded {
    call: OwnBytesDone,
    most: usize,
}

/// `call` in the form of the C table, for at most `most` bytes. As with [`done_of`].
pub(crate) fn bytes_done_of(call: OwnBytesDone, most: usize) -> SatcastBytesDone {
    let data = Box::into_raw(Box::new(Bounded { call, most }));
    SatcastBytesDone { data: data.cast(), done: Some(call_bytes_done) }
}

/// # Safety
/// `data` must come from [`bytes_done_of`] and be passed here once; bytes and error live for the call.
unsafe extern "C" fn call_bytes_done(
    data: *mut c_void,
    bytes: *const u8,
    len: usize,
    error: *const SatcastError,
) {
    // SAFETY: see above.
    let (Bounded { call, most }, error) =
        unsafe { (*Box::from_raw(data.cast::<Bounded>()), read_error(error)) };
    let outcome = match error {
        Some(error) => Err(error),
        None if len > most => Err(Error::internal(format!("an answer has over {most} bytes"))),
        None if len == 0 || bytes.is_null() => Ok(Bytes::new()),
        // SAFETY: `len` bytes live for the call.
        None => Ok(Bytes::copy_from_slice(unsafe { std::slice::from_raw_parts(bytes, len) })),
    };
    // As in `call_done`.
    let _ = catch_unwind(AssertUnwindSafe(|| call(outcome)));
}

/// # Safety
/// `data` must come from [`done_of`] and be passed here once; the error lives for the call.
unsafe extern "C" fn call_done(data: *mut c_void, error: *const SatcastError) {
    // SAFETY: see above.
    let (call, error) = unsafe { (Box::from_raw(data.cast::<OwnDone>()), read_error(error)) };
    // A panic of the waiting code must not unwind into the other side.
    let _ = catch_unwind(AssertUnwindSafe(|| call(error.map_or(Ok(()), Err))));
}

/// Reads and checks the JSON form of a page of an index.
///
/// # Errors
/// `Internal`: the form is too long, cannot be read, or breaks a rule.
pub(crate) fn read_index(json: &[u8]) -> Result<RecordingIndex, Error> {
    if json.len() > INDEX_BYTES_MAX {
        return Err(Error::internal(format!("a page of an index has over {INDEX_BYTES_MAX} bytes of JSON")));
    }
    let index: RecordingIndex = serde_json::from_slice(json)
        .map_err(|error| Error::internal(format!("the index of a recording cannot be read: {error}")))?;
    index.check()?;
    Ok(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cut_never_splits_a_character() {
        assert_eq!(cut("añb", 2), "a");
        assert_eq!(cut("añb", 3), "añ");
        assert_eq!(cut("abc", 10), "abc");
    }

    #[test]
    fn long_messages_are_cut_at_the_limit() {
        let error = Error::network("x".repeat(MESSAGE_BYTES_MAX + 1));
        assert_eq!(with_abi(&error, |raw| raw.message.len), MESSAGE_BYTES_MAX);
    }

    #[test]
    fn failures_texts() {
        let failed = |code| ErrorSlot(None).failed(code);
        assert_eq!(failed(-1), Error::internal("the driver failed with code -1 and no reason"));
        let text = "the driver panicked with code -3 and no reason";
        assert_eq!(failed(abi::ERR_PANIC), Error::new(Class::Panic, text));
    }
}
