//! Calls a driver's recordings functions, takes its reports, and encrypts its secrets.

use std::ffi::c_void;
use std::time::Duration;

use bytes::Bytes;

use super::extensions::put_text;
use super::listing::{Listing, parse};
use super::services::with;
use crate::Error;
use crate::abi::{self, SatcastErrorSink, SatcastRecordings, SatcastStr, SatcastTextSink};
use crate::recording::{FinishedFile, INDEX_BYTES_MAX, RecordingIndex, SEAL_BYTES_MAX};
use crate::wire::{self, ErrorSlot, bytes_done_of, done_of, report};

pub(super) static RECORDINGS_HOST: abi::SatcastRecordingsHost = abi::SatcastRecordingsHost {
    size: size_of::<abi::SatcastRecordingsHost>(),
    report: Some(report_recording),
};
pub(super) static VAULT: abi::SatcastVault =
    abi::SatcastVault { size: size_of::<abi::SatcastVault>(), seal: Some(seal), unseal: Some(unseal) };

/// Longest address a driver signs, in bytes.
pub const SIGNED_BYTES_MAX: usize = 16 * 1024;

/// Called with the outcome of a request, on a thread of the driver; must return at once.
pub type Done = Box<dyn FnOnce(Result<(), Error>) + Send>;

/// Called with the bytes that a request asked for, like [`Done`].
pub type BytesDone = Box<dyn FnOnce(Result<Bytes, Error>) + Send>;

/// A driver's functions for recordings that outlive their sessions. All run driver code on the calling thread.
#[derive(Clone, Copy)]
pub struct Recordings {
    raw: SatcastRecordings,
}

/// Bytes of the table of minor versions before 4.
const FIRST_BYTES: usize = std::mem::offset_of!(SatcastRecordings, configured);

impl Recordings {
    /// Copies the fields that a driver's table has; `None` when the table is too short.
    ///
    /// # Safety
    /// `raw` must be null or a table whose `size` bytes can be read.
    pub(super) unsafe fn copy(raw: *const SatcastRecordings) -> Option<Self> {
        // SAFETY: every extension begins with its size.
        let size = unsafe { raw.as_ref().map(|_| (&raw const (*raw).size).read())? };
        if size < FIRST_BYTES {
            return None;
        }
        let mut own = SatcastRecordings {
            size: 0,
            list: None,
            retry: None,
            remove: None,
            sign: None,
            configured: None,
            probe: None,
            read: None,
            index: None,
            announced: None,
            keep: None,
        };
        let bytes = size.min(size_of::<SatcastRecordings>());
        // SAFETY: both sides have these bytes; functions that an older driver lacks stay `None`.
        unsafe {
            std::ptr::copy_nonoverlapping(raw.cast::<u8>(), (&raw mut own).cast::<u8>(), bytes);
        }
        Some(Self { raw: own })
    }

    /// Gives the driver the current configuration of a destination, `None` after its deletion. Does nothing when the driver lacks
    /// the function.
    ///
    /// # Errors
    /// The driver's error.
    pub fn configured(
        &self,
        destination_id: i64,
        type_name: &str,
        config: Option<&str>,
    ) -> Result<(), Error> {
        let Some(configured) = self.raw.configured else { return Ok(()) };
        let config = SatcastStr::new(config.unwrap_or_default());
        ask(|errors| {
            // SAFETY: texts and sink live for the call.
            unsafe { configured(destination_id, SatcastStr::new(type_name), config, errors) }
        })
    }

    /// Tests whether a configuration can record; `done` gets the result. A driver without the function accepts every configuration.
    pub fn probe(&self, type_name: &str, config: &str, done: Done) {
        match self.raw.probe {
            // SAFETY: the texts live for the call; the driver calls `done` once.
            Some(probe) => unsafe {
                probe(SatcastStr::new(type_name), SatcastStr::new(config), done_of(done));
            },
            None => done(Ok(())),
        }
    }

    /// Whether the driver can read its recordings; one of an earlier minor version cannot.
    pub fn can_read(&self) -> bool {
        self.raw.read.is_some() && self.raw.index.is_some()
    }

    /// Asks for `len` bytes of a recording, at most [`READ_RANGE_BYTES_MAX`](crate::recording::READ_RANGE_BYTES_MAX).
    /// `done` gets at most that many; [`checked_range`] checks that there are as many.
    pub fn read(&self, file_name: &str, offset: u64, len: u32, done: BytesDone) {
        match self.raw.read {
            // SAFETY: the name lives for the call; the driver calls `done` once.
            Some(read) => unsafe {
                read(SatcastStr::new(file_name), offset, len, bytes_done_of(done, len as usize));
            },
            None => done(Err(missing_function("read"))),
        }
    }

    /// Asks for a page of the index of a recording: at most `most` fragments from number `first` on, at most
    /// [`INDEX_FRAGMENTS_MAX`](crate::recording::INDEX_FRAGMENTS_MAX). `done` gets its form for [`read_index`].
    pub fn index(&self, file_name: &str, first: u64, most: u32, done: BytesDone) {
        match self.raw.index {
            // SAFETY: the name lives for the call; the driver calls `done` once.
            Some(index) => unsafe {
                index(SatcastStr::new(file_name), first, most, bytes_done_of(done, INDEX_BYTES_MAX));
            },
            None => done(Err(missing_function("index"))),
        }
    }

    /// Confirms to the driver that the owner of a recording is told of its deletion at `expires_at_ms`. Does nothing when the driver
    /// lacks the function.
    ///
    /// # Errors
    /// The driver's error.
    pub fn announced(&self, file_name: &str, expires_at_ms: i64) -> Result<(), Error> {
        let Some(announced) = self.raw.announced else { return Ok(()) };
        ask(|errors| {
            // SAFETY: name and sink live for the call.
            unsafe { announced(SatcastStr::new(file_name), expires_at_ms, errors) }
        })
    }

    /// Gives a finished file to the driver, which keeps it as a recording for a destination of that configuration; `done` gets the
    /// outcome.
    pub fn keep(&self, type_name: &str, config: &str, file: &FinishedFile, done: Done) {
        let Some(keep) = self.raw.keep else {
            return done(Err(Error::config("the driver keeps no finished files")));
        };
        match serde_json::to_string(file) {
            // SAFETY: the texts live for the call; the driver calls `done` once.
            Ok(json) => unsafe {
                let (type_name, config) = (SatcastStr::new(type_name), SatcastStr::new(config));
                keep(SatcastStr::new(&json), type_name, config, done_of(done));
            },
            Err(error) => done(Err(Error::internal(error.to_string()))),
        }
    }

    /// Every recording the driver still knows; those that break a rule are listed separately.
    ///
    /// # Errors
    /// The driver's error, or over [`RECORDINGS_MAX`](crate::recording::RECORDINGS_MAX) of them.
    pub fn list(&self) -> Result<Listing, Error> {
        let list = self.raw.list.ok_or_else(|| missing_function("list"))?;
        let mut listed = Listed { listing: Listing::default(), error: None };
        let sink = SatcastTextSink { data: (&raw mut listed).cast(), put: Some(put_recording) };
        ask(|errors| {
            // SAFETY: both sinks live for the call.
            unsafe { list(&raw const sink, errors) }
        })?;
        listed.error.map_or(Ok(listed.listing), Err)
    }

    /// Asks for another upload; `done` is called when the store has opened it or has failed to.
    pub fn retry(&self, file_name: &str, done: Done) {
        match self.raw.retry {
            // SAFETY: the name lives for the call; the driver calls `done` once.
            Some(retry) => unsafe { retry(SatcastStr::new(file_name), done_of(done)) },
            None => done(Err(missing_function("retry"))),
        }
    }

    /// Asks to forget a recording; `done` gets the outcome.
    pub fn delete(&self, file_name: &str, remote: bool, done: Done) {
        let flags = if remote { abi::REMOVE_REMOTE } else { 0 };
        match self.raw.remove {
            // SAFETY: the name lives for the call; the driver calls `done` once.
            Some(remove) => unsafe { remove(SatcastStr::new(file_name), flags, done_of(done)) },
            None => done(Err(missing_function("remove"))),
        }
    }

    /// An address that gives access to the object without a login for `valid`, in whole seconds.
    ///
    /// # Errors
    /// The driver's error, or the address fails [`is_signed_address`].
    pub fn sign(&self, file_name: &str, valid: Duration) -> Result<String, Error> {
        let sign = self.raw.sign.ok_or_else(|| missing_function("sign"))?;
        let mut address = String::new();
        let sink = SatcastTextSink { data: (&raw mut address).cast(), put: Some(put_address) };
        let valid_secs = u32::try_from(valid.as_secs()).unwrap_or(u32::MAX);
        ask(|errors| {
            // SAFETY: name and sinks live for the call.
            unsafe { sign(SatcastStr::new(file_name), valid_secs, &raw const sink, errors) }
        })?;
        if !is_signed_address(&address) {
            return Err(unusable_address());
        }
        Ok(address)
    }
}

/// Reads and checks a page of an index as [`Recordings::index`] gives it.
///
/// # Errors
/// `Internal`: the form is too long, cannot be read, or breaks a rule.
pub fn read_index(json: &[u8]) -> Result<RecordingIndex, Error> {
    wire::read_index(json)
}

/// The bytes that [`Recordings::read`] asked for, if there are `len`.
///
/// # Errors
/// `Internal`: the driver gave another number.
pub fn checked_range(bytes: Bytes, len: u32) -> Result<Bytes, Error> {
    if bytes.len() == len as usize {
        return Ok(bytes);
    }
    Err(Error::internal(format!("the driver gave {} bytes of a recording instead of {len}", bytes.len())))
}

/// Whether an address that a driver signed may be passed to browsers: `http://` or `https://`, printable ASCII without spaces, at most
/// [`SIGNED_BYTES_MAX`].
pub fn is_signed_address(address: &str) -> bool {
    let rest = address.strip_prefix("https://").or_else(|| address.strip_prefix("http://"));
    address.len() <= SIGNED_BYTES_MAX
        && rest.is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_graphic()))
}

fn unusable_address() -> Error {
    Error::internal(
        "the driver signed an unusable address: the address must begin with http:// or https:// and be printable ASCII without spaces",
    )
}

fn too_long_to_seal() -> Error {
    Error::internal(format!("a text to seal has over {SEAL_BYTES_MAX} bytes"))
}

fn missing_function(function: &str) -> Error {
    Error::internal(format!("the driver's recordings table has no function {function}"))
}

fn ask(function: impl FnOnce(*const SatcastErrorSink) -> i32) -> Result<(), Error> {
    let mut slot = ErrorSlot::new();
    let sink = slot.sink();
    match function(&raw const sink) {
        abi::OK => Ok(()),
        code => Err(slot.failed(code)),
    }
}

struct Listed {
    listing: Listing,
    error: Option<Error>,
}

/// # Safety
/// `data` must be the [`Listed`] of the running call.
unsafe extern "C" fn put_recording(data: *mut c_void, text: SatcastStr) {
    // SAFETY: see above; the text lives for the call.
    let (listed, text) = unsafe { (&mut *data.cast::<Listed>(), text.read()) };
    if let Err(error) = listed.listing.add(&text) {
        listed.error = Some(error);
    }
}

/// # Safety
/// `data` must be the `String` of the running call.
unsafe extern "C" fn put_address(data: *mut c_void, text: SatcastStr) {
    // SAFETY: see above; the text lives for the call.
    unsafe { *data.cast::<String>() = text.read_up_to(SIGNED_BYTES_MAX + 1).into_owned() };
}

/// # Safety
/// As [`abi::SatcastRecordingsHost::report`].
unsafe extern "C" fn report_recording(
    ctx: *mut c_void,
    json: SatcastStr,
    errors: *const SatcastErrorSink,
) -> i32 {
    // SAFETY: the text and the sink live for the call.
    unsafe {
        with(ctx, abi::ERR, |context| {
            let taken = parse(&json.read()).and_then(|recording| context.services.recording(recording));
            match taken {
                Ok(()) => abi::OK,
                Err(error) => {
                    report(errors, &error);
                    abi::ERR
                }
            }
        })
    }
}

/// # Safety
/// As [`abi::SatcastVault::seal`].
unsafe extern "C" fn seal(
    ctx: *mut c_void,
    text: SatcastStr,
    sink: *const SatcastTextSink,
    errors: *const SatcastErrorSink,
) -> i32 {
    // SAFETY: the text and both sinks live for the call.
    unsafe {
        put_text(ctx, sink, errors, |context| {
            if text.len > SEAL_BYTES_MAX {
                return Err(too_long_to_seal());
            }
            context.services.seal(&text.read())
        })
    }
}

/// # Safety
/// As [`abi::SatcastVault::unseal`].
unsafe extern "C" fn unseal(
    ctx: *mut c_void,
    sealed: SatcastStr,
    sink: *const SatcastTextSink,
    errors: *const SatcastErrorSink,
) -> i32 {
    // SAFETY: the text and both sinks live for the call.
    unsafe { put_text(ctx, sink, errors, |context| context.services.unseal(&sealed.read())) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // A failed step is a failed test.
mod tests {
    use super::*;

    unsafe extern "C" fn refuse(_: i64, _: SatcastStr, _: SatcastStr, _: *const SatcastErrorSink) -> i32 {
        abi::ERR
    }

    #[test]
    fn refusals_texts() {
        for (error, text) in [
            (
                unusable_address(),
                "the driver signed an unusable address: the address must begin with http:// or https:// and be printable \
                 ASCII without spaces",
            ),
            (too_long_to_seal(), "a text to seal has over 65536 bytes"),
            (missing_function("sign"), "the driver's recordings table has no function sign"),
        ] {
            assert_eq!(error, Error::internal(text));
        }
    }

    #[test]
    fn only_web_addresses_are_accepted() {
        let longest = format!("https://{}", "x".repeat(SIGNED_BYTES_MAX - 8));
        for good in ["https://s.example/a%20b.mp4?sig=%2F", "http://127.0.0.1:9/a", &longest] {
            assert!(is_signed_address(good), "{good}");
        }
        let bad = [
            "",
            "http://",
            "https://",
            "javascript:alert(1)",
            "data:text/html,x",
            "//s.example/a",
            "ftp://s.example/a",
        ];
        for bad in bad.into_iter().chain([
            "https://a b",
            "https://a\n",
            "https://\u{e4}",
            "https://a\u{7f}",
            " https://a",
        ]) {
            assert!(!is_signed_address(bad), "{bad:?}");
        }
        assert!(!is_signed_address(&format!("{longest}x")));
    }

    /// The table of an older driver ends before the appended functions; the memory after it is something else.
    #[test]
    fn a_shorter_table_is_read_as_far_as_it_goes() {
        let full = SatcastRecordings {
            size: size_of::<SatcastRecordings>(),
            list: None,
            retry: None,
            remove: None,
            sign: None,
            configured: Some(refuse),
            probe: None,
            read: None,
            index: None,
            announced: None,
            keep: None,
        };
        let copied = |size: usize| {
            let table = SatcastRecordings { size, ..full };
            // SAFETY: the whole table exists, whatever its `size` says.
            unsafe { Recordings::copy(&raw const table) }
        };
        assert!(copied(size_of::<SatcastRecordings>()).unwrap().configured(1, "t", None).is_err());
        assert!(copied(size_of::<SatcastRecordings>() + 8).unwrap().configured(1, "t", None).is_err());
        copied(FIRST_BYTES).unwrap().configured(1, "t", Some("{}")).unwrap();
        assert!(copied(FIRST_BYTES - 1).is_none());
        // SAFETY: null is allowed.
        assert!(unsafe { Recordings::copy(std::ptr::null()) }.is_none());
    }
}
