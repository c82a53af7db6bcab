//! Recordings that outlive their sessions: the driver's functions, its reports, and encryption for secrets in its own journal.

use std::ffi::c_void;

use super::{SatcastError, SatcastErrorSink, SatcastStr, SatcastTextSink};

/// Driver extension: recordings that outlive their sessions, see `SatcastRecordings`.
pub const EXT_RECORDINGS: &str = "satcast.recordings/1";
/// Host extension: the driver reports changes of recordings, see `SatcastRecordingsHost`.
pub const EXT_RECORDINGS_HOST: &str = "satcast.recordings-host/1";
/// Host extension: encryption of text that only this driver can read, see `SatcastVault`.
pub const EXT_VAULT: &str = "satcast.vault/1";

/// `SatcastRecordings.remove`: delete the object in the store as well.
pub const REMOVE_REMOTE: u32 = 1;

/// Callback for the outcome of a request.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SatcastDone {
    /// Passed back.
    pub data: *mut c_void,
    /// `[any]` Exactly once, during the request or any time later: null = done, else why not. Must return at once.
    pub done: Option<unsafe extern "C" fn(data: *mut c_void, error: *const SatcastError)>,
}

/// Callback for bytes that were asked for, since minor version 8.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SatcastBytesDone {
    /// Passed back.
    pub data: *mut c_void,
    /// `[any]` Exactly once, during the request or any time later. `error` null: the `len` bytes at `bytes`, borrowed for the call; else
    /// why there are none. Must return at once.
    pub done: Option<
        unsafe extern "C" fn(data: *mut c_void, bytes: *const u8, len: usize, error: *const SatcastError),
    >,
}

/// `SATCAST_EXT_RECORDINGS`: asked for after `init`. A recording is named by its file name, the object key below the prefix. Its JSON
/// form is an object of at most 32 KiB: `fileName` (1 to 1024 printable ASCII characters, unique over all recordings the driver ever made),
/// `destinationId`, `sessionId`, `state` (`recording`, `uploading`, `ready`, `failed`), `sizeBytes`, `uploadedBytes`, `durationMs`,
/// `error` and `errorClass` (a text and one of `config`, `auth`, `network`, `remote`, `internal`, `panic`; for failed recordings and, since minor
/// version 4, for those whose upload waits for its next try; else null),
/// `url` (or null), `startedAtMs`, `changedAtMs` (grows with every change), `attempt` (retries asked for so far), `attemptOpened` (the
/// store opened the upload of that attempt), `hasCopy` (the driver has a local copy, which a retry needs; true when left out), `gone`
/// (it is no longer at the store, because its retention ended or for the reason in `error`, and the host hides it; false when left out),
/// and since minor version 8 `expiresAtMs` (when the driver will delete it at the store by a rule of its destination; null: it stays)
/// and `asksNotice` (the host must call `announced` before the driver deletes it; false when left out). `audioOnly`: it has no video, so the
/// host offers no poster of it (false when left out).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SatcastRecordings {
    /// Size of this struct in bytes.
    pub size: usize,
    /// `[control]` Puts every recording the driver still knows into `sink`, one call of `put` for each, within 1 s. A recording that breaks a rule is
    /// left out and named in the host's log. Returns `SATCAST_OK`, or `SATCAST_ERR` after a report to `error`.
    pub list:
        Option<unsafe extern "C" fn(sink: *const SatcastTextSink, error: *const SatcastErrorSink) -> i32>,
    /// `[control]` Uploads a failed recording again; returns within 1 s. `done` is called when the store has opened the upload or has failed to;
    /// the upload continues in the background.
    pub retry: Option<unsafe extern "C" fn(file_name: SatcastStr, done: SatcastDone)>,
    /// `[control]` Forgets a recording and removes the local copy, and with `SATCAST_REMOVE_REMOTE` in `flags` also the object in the
    /// store; returns within 1 s. `done` is called at the end of that.
    pub remove: Option<unsafe extern "C" fn(file_name: SatcastStr, flags: u32, done: SatcastDone)>,
    /// `[control]` Puts an address into `sink` that gives access to the object without a login for `valid_secs` seconds: `http://` or
    /// `https://`, printable ASCII without spaces, at most 16 KiB. No I/O. Returns `SATCAST_OK`, or `SATCAST_ERR` after a report to `error`.
    pub sign: Option<
        unsafe extern "C" fn(
            file_name: SatcastStr,
            valid_secs: u32,
            sink: *const SatcastTextSink,
            error: *const SatcastErrorSink,
        ) -> i32,
    >,
    /// Since minor version 4, so only where `size` says that it is there; optional. `[control]` The current configuration of a destination:
    /// called after a change, and from `init` on for destinations with recordings, also without a change. `config_json` is
    /// empty when the destination was deleted. No slow I/O. Returns `SATCAST_OK`, or `SATCAST_ERR` after a report to `error`;
    /// then the host calls again later.
    pub configured: Option<
        unsafe extern "C" fn(
            destination_id: i64,
            type_name: SatcastStr,
            config_json: SatcastStr,
            error: *const SatcastErrorSink,
        ) -> i32,
    >,
    /// Since minor version 6, so only where `size` says that it is there; optional. `[control]` Tests whether a configuration can record; returns
    /// within 1 s. `done` is called within 5 s: null when the store lets the configuration's keys upload, an error of class `config` or
    /// `auth` when the store refuses them, shown at the field that its text begins with, or of another class when the store cannot be reached.
    pub probe:
        Option<unsafe extern "C" fn(type_name: SatcastStr, config_json: SatcastStr, done: SatcastDone)>,
    /// Since minor version 8, so only where `size` says that it is there; optional, and never without `index`. `[control]` Reads `len`
    /// bytes (1 to 1 MiB) of a recording from `offset` on, from the local copy while there is one, else from the store; returns within
    /// 1 s and holds up no other request. `done` is called within 15 s with exactly `len` bytes, or with an error: of class `config` when
    /// the recording is not known or has no such range, of the class of the store's failure otherwise.
    pub read:
        Option<unsafe extern "C" fn(file_name: SatcastStr, offset: u64, len: u32, done: SatcastBytesDone)>,
    /// Since minor version 8, so only where `size` says that it is there; optional, and never without `read`. `[control]` A page of the
    /// index of a recording that is a fragmented MP4; returns within 1 s. `done` is called within 15 s with a JSON object of at most 256
    /// KiB: `initBytes` (bytes of the initialization segment at the start), `bytes` (end of the last known fragment), `count` (known
    /// fragments), `isComplete` (no fragment follows; false also while a recording without an index is indexed), `first` (as asked for)
    /// and `fragments`: the known ones from number `first` on, at most `most` (1 to 2048), each as an array of offset, bytes, start in
    /// microseconds, duration in microseconds, and whether it begins with a keyframe. Bytes and times have no gaps.
    pub index:
        Option<unsafe extern "C" fn(file_name: SatcastStr, first: u64, most: u32, done: SatcastBytesDone)>,
    /// Since minor version 8, so only where `size` says that it is there; optional. `[control]` The owner of a recording with `asksNotice`
    /// is told that it will be deleted at `expires_at_ms`, which may be later than its `expiresAtMs`: the driver does not delete it
    /// earlier. It need not keep the time: after a restart it asks again, and gets the same. No I/O. Returns `SATCAST_OK`, or
    /// `SATCAST_ERR` after a report to `error`; then the host calls again later.
    pub announced: Option<
        unsafe extern "C" fn(
            file_name: SatcastStr,
            expires_at_ms: i64,
            error: *const SatcastErrorSink,
        ) -> i32,
    >,
    /// Since minor version 8, so only where `size` says that it is there; optional. `[control]` Keeps a finished file as a recording that
    /// is uploaded to the store of a configuration; returns within 1 s. `file_json` is an object with `fileName` (the recording's name,
    /// by the rules above), `path` (of the file, relative to the driver's data folder, plain parts), `about` (as in `SatcastOpen`),
    /// `startedAtMs`, `durationMs` and `audioOnly`. `done` is called within 60 s: null when the driver has taken the file away from `path` and will
    /// keep it through a crash, also when it has a recording of that name already; else why not, and the file stays where it is.
    pub keep: Option<
        unsafe extern "C" fn(
            file_json: SatcastStr,
            type_name: SatcastStr,
            config_json: SatcastStr,
            done: SatcastDone,
        ),
    >,
}

/// `SATCAST_EXT_RECORDINGS_HOST`: the driver reports changes of its recordings.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SatcastRecordingsHost {
    /// Size of this struct in bytes.
    pub size: usize,
    /// `[any]` From `init` on, at every change of state and from time to time while sizes grow: `json` is the recording's form as
    /// `SatcastRecordings` describes it. The host finds missed reports by `list`. Returns `SATCAST_OK`, or `SATCAST_ERR` after a
    /// report to `error`.
    pub report: Option<
        unsafe extern "C" fn(ctx: *mut c_void, json: SatcastStr, error: *const SatcastErrorSink) -> i32,
    >,
}

/// `SATCAST_EXT_VAULT`: encryption with the host's key, for secrets that a driver must keep in its folder.
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
    /// `[any]` From `init` on. Decrypts a form that `seal` made for this driver and puts the text into `sink`.
    pub unseal: Option<
        unsafe extern "C" fn(
            ctx: *mut c_void,
            sealed: SatcastStr,
            sink: *const SatcastTextSink,
            error: *const SatcastErrorSink,
        ) -> i32,
    >,
}
