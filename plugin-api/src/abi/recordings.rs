//! Recordings that outlive their sessions: what a driver offers, what it tells, and how it keeps secrets in its own journal.

use std::ffi::c_void;

use super::{SatcastError, SatcastErrorSink, SatcastStr, SatcastTextSink};

/// Driver extension: recordings that outlive their sessions, see `SatcastRecordings`.
pub const EXT_RECORDINGS: &str = "satcast.recordings/1";
/// Host extension: changes of recordings are told to the host, see `SatcastRecordingsHost`.
pub const EXT_RECORDINGS_HOST: &str = "satcast.recordings-host/1";
/// Host extension: text that only this driver can read again, see `SatcastVault`.
pub const EXT_VAULT: &str = "satcast.vault/1";

/// `SatcastRecordings.remove`: the object in the store goes as well.
pub const REMOVE_REMOTE: u32 = 1;

/// Where the outcome of a request goes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SatcastDone {
    /// Passed back.
    pub data: *mut c_void,
    /// `[any]` Exactly once, during the request or any time later: null = done, else why not. Must return at once.
    pub done: Option<unsafe extern "C" fn(data: *mut c_void, error: *const SatcastError)>,
}

/// `SATCAST_EXT_RECORDINGS`: asked for after `init`. A recording is named by its file name, the object key below the prefix. Its JSON
/// form is an object of at most 32 KiB: `fileName` (1 to 1024 printable ASCII characters, unique over everything the driver ever made),
/// `destinationId`, `sessionId`, `state` (`recording`, `uploading`, `ready`, `failed`), `sizeBytes`, `uploadedBytes`, `durationMs`,
/// `error` and `errorClass` (a text and one of `config`, `auth`, `network`, `remote`, `internal`, `panic`; for failed ones and, since minor
/// version 4, for those whose upload waits for its next try; else null),
/// `url` (or null), `startedAtMs`, `changedAtMs` (grows with every change), `attempt` (retries asked for so far), `attemptOpened` (the
/// store opened the upload of that attempt), `hasCopy` (there is a copy here, without which no retry can begin; true when left out), `gone`
/// (it is not at the store any more, its days were over or `error` says why, and the host shows it no longer; false when left out).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SatcastRecordings {
    /// Size of this struct in bytes.
    pub size: usize,
    /// `[control]` Puts every recording the driver still knows into `sink`, one call of `put` for each, within 1 s. One that breaks a rule is
    /// left out and named in the host's log. Returns `SATCAST_OK`, or `SATCAST_ERR` after a report to `error`.
    pub list:
        Option<unsafe extern "C" fn(sink: *const SatcastTextSink, error: *const SatcastErrorSink) -> i32>,
    /// `[control]` Uploads a failed one again; returns within 1 s. `done` is called once the store has opened the upload, or cannot;
    /// the rest goes on in the background.
    pub retry: Option<unsafe extern "C" fn(file_name: SatcastStr, done: SatcastDone)>,
    /// `[control]` Forgets a recording and removes the local copy, with `SATCAST_REMOVE_REMOTE` in `flags` the object in the store,
    /// too; returns within 1 s. `done` is called when that is done.
    pub remove: Option<unsafe extern "C" fn(file_name: SatcastStr, flags: u32, done: SatcastDone)>,
    /// `[control]` Puts an address into `sink` by which the object may be fetched without a login for `valid_secs` seconds: `http://` or
    /// `https://`, printable ASCII without spaces, at most 16 KiB. No I/O. Returns `SATCAST_OK`, or `SATCAST_ERR` after a report to `error`.
    pub sign: Option<
        unsafe extern "C" fn(
            file_name: SatcastStr,
            valid_secs: u32,
            sink: *const SatcastTextSink,
            error: *const SatcastErrorSink,
        ) -> i32,
    >,
    /// Since minor version 4, so only where `size` says that it is there; optional. `[control]` What a destination's configuration is now:
    /// told when it was changed, and from `init` on for destinations with recordings, also when nothing changed. `config_json` is
    /// empty when the destination was deleted. No I/O that takes time. Returns `SATCAST_OK`, or `SATCAST_ERR` after a report to `error`;
    /// then it is told again.
    pub configured: Option<
        unsafe extern "C" fn(
            destination_id: i64,
            type_name: SatcastStr,
            config_json: SatcastStr,
            error: *const SatcastErrorSink,
        ) -> i32,
    >,
    /// Since minor version 6, so only where `size` says that it is there; optional. `[control]` Whether a configuration could record; returns
    /// within 1 s. `done` is called within 5 s: null when the store lets the configuration's keys upload, an error of class `config` or
    /// `auth` when it refuses them, which is shown at the field that its text begins with, or of another class when it cannot be reached.
    pub probe:
        Option<unsafe extern "C" fn(type_name: SatcastStr, config_json: SatcastStr, done: SatcastDone)>,
}

/// `SATCAST_EXT_RECORDINGS_HOST`: the driver tells what became of its recordings.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SatcastRecordingsHost {
    /// Size of this struct in bytes.
    pub size: usize,
    /// `[any]` From `init` on, at every change of state and now and then while sizes grow: `json` is the recording's form as
    /// `SatcastRecordings` describes it. What the host misses it finds by `list`. Returns `SATCAST_OK`, or `SATCAST_ERR` after a
    /// report to `error`.
    pub report: Option<
        unsafe extern "C" fn(ctx: *mut c_void, json: SatcastStr, error: *const SatcastErrorSink) -> i32,
    >,
}

/// `SATCAST_EXT_VAULT`: encryption with a key of the host's, for secrets that a driver must keep in its folder.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SatcastVault {
    /// Size of this struct in bytes.
    pub size: usize,
    /// `[any]` From `init` on. Puts the encrypted form of `text`, at most 64 KiB, into `sink`: printable ASCII.
    pub seal: Option<
        unsafe extern "C" fn(
            ctx: *mut c_void,
            text: SatcastStr,
            sink: *const SatcastTextSink,
            error: *const SatcastErrorSink,
        ) -> i32,
    >,
    /// `[any]` From `init` on. Puts the text of a form that `seal` made for this driver into `sink`.
    pub unseal: Option<
        unsafe extern "C" fn(
            ctx: *mut c_void,
            sealed: SatcastStr,
            sink: *const SatcastTextSink,
            error: *const SatcastErrorSink,
        ) -> i32,
    >,
}
