//! A started driver and its open destinations.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use super::http::Http;
use super::recordings::Recordings;
use super::services::{Context, host_table, media_handle};
use super::table::Table;
use super::{MediaSource, Services};
use crate::Error;
use crate::abi::{self, SatcastHost, SatcastOpen, SatcastStr};
use crate::recording::About;
use crate::wire::ErrorSlot;

/// A driver whose `init` succeeded. Its functions run driver code on the calling thread.
pub struct Driver {
    table: Table,
}

/// An open destination. Dropping it without [`Instance::destroy`] leaks it, which is safe.
pub struct Instance {
    raw: *mut c_void,
    table: Table,
}

// SAFETY: the contract ties instance functions to one thread at a time, not to one thread.
unsafe impl Send for Instance {}

impl Driver {
    /// Calls `init` with a host table that lives for the process.
    ///
    /// `flags` are `HOST_FLAG_*`.
    pub fn start(
        table: Table,
        services: Arc<dyn Services>,
        max_level: &'static AtomicU32,
        flags: u32,
    ) -> Result<Self, Error> {
        // Leaked on purpose: threads of the driver may call the host as long as the process lives.
        let context: &'static Context = Box::leak(Box::new(Context::new(services)));
        let host: &'static SatcastHost = Box::leak(Box::new(host_table(context, max_level, flags)));
        let init = table.raw().init.ok_or_else(|| Error::internal("no init function"))?;
        call(|errors| {
            // SAFETY: the table was checked; host table and sink live long enough.
            unsafe { init(std::ptr::from_ref(host), errors) }
        })?;
        Ok(Self { table })
    }

    /// The driver's description.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Lets the driver check a configuration that its schema accepts.
    pub fn validate(&self, type_name: &str, config_json: &str) -> Result<(), Error> {
        let Some(validate) = self.table.raw().validate else { return Ok(()) };
        let mut slot = ErrorSlot::new();
        let sink = slot.sink();
        // SAFETY: text and sink live for the call.
        match unsafe { validate(SatcastStr::new(type_name), SatcastStr::new(config_json), &raw const sink) } {
            abi::OK => Ok(()),
            // The return code alone means a refusal.
            abi::ERR => {
                Err(slot.or(Error::config("the driver refused the configuration and gave no reason")))
            }
            code => Err(slot.failed(code)),
        }
    }

    /// Opens a destination under the number `dest`, which is never used again.
    pub fn open(
        &self,
        dest: u64,
        source: u64,
        type_name: &str,
        config_json: &str,
        about: &About,
        media: Arc<dyn MediaSource>,
    ) -> Result<Instance, Error> {
        // Numbers and texts only: serializing them cannot fail.
        let about = serde_json::to_string(about).unwrap_or_default();
        let open = self.table.raw().open.ok_or_else(|| Error::internal("no open function"))?;
        let request = SatcastOpen {
            size: size_of::<SatcastOpen>(),
            dest,
            source,
            type_name: SatcastStr::new(type_name),
            config_json: SatcastStr::new(config_json),
            media: media_handle(media),
            about_json: SatcastStr::new(&about),
        };
        let mut raw: *mut c_void = std::ptr::null_mut();
        call(|errors| {
            // SAFETY: the request lives for the call; the queue passes to the driver.
            unsafe { open(&raw const request, &raw mut raw, errors) }
        })?;
        Ok(Instance { raw, table: self.table.clone() })
    }

    /// The driver's functions for recordings, if it keeps any.
    pub fn recordings(&self) -> Option<Recordings> {
        let get = self.table.raw().get_extension?;
        // SAFETY: the name lives for the call.
        let raw = unsafe { get(SatcastStr::new(abi::EXT_RECORDINGS)) }.cast::<abi::SatcastRecordings>();
        // SAFETY: it begins with its size, and lives as long as the library, which is never unloaded.
        unsafe { Recordings::copy(raw) }
    }

    /// The driver's functions for viewer requests, if it answers any.
    pub fn http(&self) -> Option<Http> {
        let get = self.table.raw().get_extension?;
        // SAFETY: the name lives for the call.
        let raw = unsafe { get(SatcastStr::new(abi::EXT_HTTP)) }.cast::<abi::SatcastHttp>();
        // SAFETY: every extension begins with its size.
        if raw.is_null() || unsafe { (*raw).size } < size_of::<abi::SatcastHttp>() {
            return None;
        }
        // SAFETY: at least the known size is there, for as long as the library lives, which is never unloaded.
        Some(Http::new(unsafe { raw.read() }))
    }

    /// Ends the driver's threads. The last call; the library stays loaded.
    pub fn shut_down(self) {
        if let Some(deinit) = self.table.raw().deinit {
            // SAFETY: nothing is called after it: `self` is gone.
            unsafe { deinit() };
        }
    }
}

impl Instance {
    /// Offers a running destination a new configuration; false when the destination must be opened again to use it.
    ///
    /// # Errors
    /// The driver's error; the destination must then be opened again, too.
    pub fn reconfigure(&self, config_json: &str) -> Result<bool, Error> {
        let Some(get) = self.table.raw().get_extension else { return Ok(false) };
        // SAFETY: the name lives for the call.
        let raw = unsafe { get(SatcastStr::new(abi::EXT_RECONFIGURE)) }.cast::<abi::SatcastReconfigure>();
        // SAFETY: every extension begins with its size.
        if raw.is_null() || unsafe { (*raw).size } < size_of::<abi::SatcastReconfigure>() {
            return Ok(false);
        }
        // SAFETY: the extension has that function, and lives as long as the library, which is never unloaded.
        let Some(reconfigure) = (unsafe { (*raw).reconfigure }) else { return Ok(false) };
        let mut slot = ErrorSlot::new();
        let sink = slot.sink();
        // SAFETY: the instance is alive until `destroy`; text and sink live for the call.
        match unsafe { reconfigure(self.raw, SatcastStr::new(config_json), &raw const sink) } {
            abi::OK => Ok(true),
            abi::REOPEN => Ok(false),
            code => Err(slot.failed(code)),
        }
    }

    /// Asks for the end; the driver answers with `stopped` within `deadline_ms` if it can.
    pub fn stop(&self, deadline_ms: u32) {
        if let Some(stop) = self.table.raw().stop {
            // SAFETY: the instance is alive until `destroy`.
            unsafe { stop(self.raw, deadline_ms) };
        }
    }

    /// Frees the instance. Call it only after the driver reported `stopped`.
    pub fn destroy(self) {
        if let Some(destroy) = self.table.raw().destroy {
            // SAFETY: called once: `self` is gone.
            unsafe { destroy(self.raw) };
        }
    }
}

/// Calls a driver function that reports errors through a sink.
fn call(function: impl FnOnce(*const abi::SatcastErrorSink) -> i32) -> Result<(), Error> {
    let mut slot = ErrorSlot::new();
    let sink = slot.sink();
    match function(&raw const sink) {
        abi::OK => Ok(()),
        code => Err(slot.failed(code)),
    }
}
