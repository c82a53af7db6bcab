//! The table of [`crate::driver::Recordings`].

use std::ffi::c_void;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use super::{Exported, guarded, parse_config};
use crate::Error;
use crate::abi::{
    self, SatcastBytesDone, SatcastDone, SatcastErrorSink, SatcastRecordings, SatcastStr, SatcastTextSink,
};
use crate::driver::{Answer, BytesAnswer, Config, Driver as _, FinishedFile, IndexAnswer, Recordings};
use crate::recording::{INDEX_FRAGMENTS_MAX, READ_RANGE_BYTES_MAX};

struct TableOf<E>(PhantomData<E>);

impl<E: Exported> TableOf<E> {
    const TABLE: &'static SatcastRecordings = &SatcastRecordings {
        size: size_of::<SatcastRecordings>(),
        list: Some(list::<E>),
        retry: Some(retry::<E>),
        remove: Some(remove::<E>),
        sign: Some(sign::<E>),
        configured: Some(configured::<E>),
        probe: Some(probe::<E>),
        read: Some(read::<E>),
        index: Some(index::<E>),
        announced: Some(announced::<E>),
        keep: Some(keep::<E>),
    };
}

/// The table, or null when the driver is not loaded or keeps no recordings.
pub(super) fn table<E: Exported>() -> *const c_void {
    let offered =
        catch_unwind(|| E::slot().loaded().is_ok_and(|loaded| loaded.driver.recordings().is_some()));
    if offered.unwrap_or(false) { std::ptr::from_ref(TableOf::<E>::TABLE).cast() } else { std::ptr::null() }
}

/// Runs `body` with the driver's recordings, inside its runtime.
fn with<E: Exported, R>(body: impl FnOnce(Result<&dyn Recordings, Error>) -> R) -> R {
    let loaded = match E::slot().loaded() {
        Ok(loaded) => loaded,
        Err(error) => return body(Err(error)),
    };
    let _entered = loaded.runtime.enter();
    body(loaded.driver.recordings().ok_or_else(|| Error::internal("the driver keeps no recordings")))
}

/// Runs `call` with the answer.
fn answered<E: Exported>(done: SatcastDone, call: impl FnOnce(&dyn Recordings, Answer)) {
    let answer = Answer::new(done);
    run::<E>(|recordings| match recordings {
        Ok(recordings) => call(recordings, answer),
        Err(error) => answer.give(Err(error)),
    });
}

/// Runs `body`, which owns the answer of the request. A panic drops the answer, which sends an error.
fn run<E: Exported>(body: impl FnOnce(Result<&dyn Recordings, Error>)) {
    let run = AssertUnwindSafe(|| with::<E, _>(body));
    // The panic hook has logged it.
    let _ = catch_unwind(run);
}

/// # Safety
/// `sink` must be null or valid for the call.
unsafe fn put(sink: *const SatcastTextSink, text: &str) {
    // SAFETY: passed on from the caller.
    if let Some((data, put)) = unsafe { sink.as_ref() }.and_then(|sink| Some((sink.data, sink.put?))) {
        // SAFETY: the text lives for the call.
        unsafe { put(data, SatcastStr::new(text)) };
    }
}

/// # Safety
/// As [`SatcastRecordings::list`]: both sinks live for the call.
unsafe extern "C" fn list<E: Exported>(sink: *const SatcastTextSink, errors: *const SatcastErrorSink) -> i32 {
    guarded(errors, || {
        let recordings = with::<E, _>(|recordings| recordings?.list())?;
        for recording in &recordings {
            let json = serde_json::to_string(recording)
                .map_err(|error| Error::internal(format!("a recording cannot be serialized: {error}")))?;
            // SAFETY: passed on from the caller.
            unsafe { put(sink, &json) };
        }
        Ok(())
    })
}

/// # Safety
/// As [`SatcastRecordings::retry`]: the name lives for the call.
unsafe extern "C" fn retry<E: Exported>(file_name: SatcastStr, done: SatcastDone) {
    // SAFETY: passed on from the caller.
    let file_name = unsafe { file_name.read() };
    answered::<E>(done, |recordings, answer| recordings.retry(&file_name, answer));
}

/// # Safety
/// As [`SatcastRecordings::remove`]: the name lives for the call.
unsafe extern "C" fn remove<E: Exported>(file_name: SatcastStr, flags: u32, done: SatcastDone) {
    // SAFETY: passed on from the caller.
    let file_name = unsafe { file_name.read() };
    let remote = flags & abi::REMOVE_REMOTE != 0;
    answered::<E>(done, |recordings, answer| recordings.delete(&file_name, remote, answer));
}

/// # Safety
/// As [`SatcastRecordings::sign`]: the name and both sinks live for the call.
unsafe extern "C" fn sign<E: Exported>(
    file_name: SatcastStr,
    valid_secs: u32,
    sink: *const SatcastTextSink,
    errors: *const SatcastErrorSink,
) -> i32 {
    guarded(errors, || {
        // SAFETY: passed on from the caller.
        let file_name = unsafe { file_name.read() };
        let valid = Duration::from_secs(u64::from(valid_secs));
        let address = with::<E, _>(|recordings| recordings?.sign(&file_name, valid))?;
        // SAFETY: passed on from the caller.
        unsafe { put(sink, &address) };
        Ok(())
    })
}

/// # Safety
/// As [`SatcastRecordings::configured`]: both texts and the sink live for the call.
unsafe extern "C" fn configured<E: Exported>(
    destination_id: i64,
    type_name: SatcastStr,
    config_json: SatcastStr,
    errors: *const SatcastErrorSink,
) -> i32 {
    guarded(errors, || {
        // SAFETY: passed on from the caller.
        let (type_name, config) = unsafe { (type_name.read(), config_json.read()) };
        let json = if config.is_empty() { None } else { Some(parse_config(&config)?) };
        let config = json.as_ref().map(|json| Config::new(&type_name, json));
        with::<E, _>(|recordings| recordings?.configured(destination_id, config))
    })
}

/// # Safety
/// As [`SatcastRecordings::announced`]: the name and the sink live for the call.
unsafe extern "C" fn announced<E: Exported>(
    file_name: SatcastStr,
    expires_at_ms: i64,
    errors: *const SatcastErrorSink,
) -> i32 {
    guarded(errors, || {
        // SAFETY: passed on from the caller.
        let file_name = unsafe { file_name.read() };
        with::<E, _>(|recordings| recordings?.announced(&file_name, expires_at_ms))
    })
}

/// # Safety
/// As [`SatcastRecordings::probe`]: both texts live for the call.
unsafe extern "C" fn probe<E: Exported>(type_name: SatcastStr, config_json: SatcastStr, done: SatcastDone) {
    // SAFETY: passed on from the caller.
    let (type_name, config) = unsafe { (type_name.read(), config_json.read()) };
    answered::<E>(done, |recordings, answer| match parse_config(&config) {
        Ok(json) => recordings.probe(Config::new(&type_name, &json), answer),
        Err(error) => answer.give(Err(error)),
    });
}

/// # Safety
/// As [`SatcastRecordings::read`]: the name lives for the call.
unsafe extern "C" fn read<E: Exported>(file_name: SatcastStr, offset: u64, len: u32, done: SatcastBytesDone) {
    // SAFETY: passed on from the caller.
    let file_name = unsafe { file_name.read() };
    let answer = BytesAnswer::new(done);
    run::<E>(|recordings| match recordings {
        Ok(_) if !(1..=READ_RANGE_BYTES_MAX).contains(&len) => answer.give(Err(bad_request())),
        Ok(recordings) => recordings.read(&file_name, offset, len, answer),
        Err(error) => answer.give(Err(error)),
    });
}

/// # Safety
/// As [`SatcastRecordings::index`]: the name lives for the call.
unsafe extern "C" fn index<E: Exported>(
    file_name: SatcastStr,
    first: u64,
    most: u32,
    done: SatcastBytesDone,
) {
    // SAFETY: passed on from the caller.
    let file_name = unsafe { file_name.read() };
    let answer = IndexAnswer::new(done);
    run::<E>(|recordings| match recordings {
        Ok(_) if !(1..=INDEX_FRAGMENTS_MAX).contains(&most) => answer.give(Err(bad_request())),
        Ok(recordings) => recordings.index(&file_name, first, most, answer),
        Err(error) => answer.give(Err(error)),
    });
}

fn bad_request() -> Error {
    Error::internal("the service asked for too much of a recording, or for nothing")
}

/// # Safety
/// As [`SatcastRecordings::keep`]: the texts live for the call.
unsafe extern "C" fn keep<E: Exported>(
    file_json: SatcastStr,
    type_name: SatcastStr,
    config_json: SatcastStr,
    done: SatcastDone,
) {
    // SAFETY: passed on from the caller.
    let (file, type_name, config) = unsafe { (file_json.read(), type_name.read(), config_json.read()) };
    let read = || {
        let file: FinishedFile = serde_json::from_str(&file)
            .map_err(|error| Error::internal(format!("a finished file cannot be read: {error}")))?;
        file.check()?;
        Ok((file, parse_config(&config)?))
    };
    answered::<E>(done, |recordings, answer| match read() {
        Ok((file, json)) => recordings.keep(file, Config::new(&type_name, &json), answer),
        Err(error) => answer.give(Err(error)),
    });
}
