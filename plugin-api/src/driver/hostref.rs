//! The driver's view of the host's table, which may lack functions.

use std::ffi::c_void;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::host::VaultCall;
use super::time::Time;
use crate::Error;
use crate::abi::{self, SatcastError, SatcastHost, SatcastKv, SatcastStr};
use crate::wire::{ErrorSlot, with_abi};

/// A function of the host that returns a text.
type AskText = unsafe extern "C" fn(
    ctx: *mut c_void,
    sink: *const abi::SatcastTextSink,
    error: *const abi::SatcastErrorSink,
) -> i32;

/// A full-size copy of the host's table; functions the host does not have are `None`.
pub(crate) struct HostRef {
    table: SatcastHost,
    pub(crate) time: Time,
}

// SAFETY: the contract makes every host function callable from any thread, and `ctx` is only passed back to them.
unsafe impl Send for HostRef {}
// SAFETY: as above.
unsafe impl Sync for HostRef {}

impl HostRef {
    /// Copies the host's table.
    ///
    /// # Safety
    /// `table` must point to a host table that is valid for its own `size` bytes and stays so for the process's life.
    pub(crate) unsafe fn copy(table: *const SatcastHost) -> Result<Self, Error> {
        if table.is_null() {
            return Err(Error::internal("the host gave no table"));
        }
        // SAFETY: `size` is the first field of every host table.
        let size = unsafe { (&raw const (*table).size).read() };
        let floor = std::mem::offset_of!(SatcastHost, get_extension);
        if size < floor {
            return Err(Error::internal(format!("the host's table has {size} bytes, {floor} are needed")));
        }
        // SAFETY: all-zero is a valid table: null pointers, absent functions.
        let mut full: SatcastHost = unsafe { std::mem::zeroed() };
        // SAFETY: both sides are valid for the smaller of the two sizes and do not overlap.
        unsafe {
            std::ptr::copy_nonoverlapping(
                table.cast::<u8>(),
                (&raw mut full).cast::<u8>(),
                size.min(size_of::<SatcastHost>()),
            );
        }
        Ok(Self { table: full, time: Time::of_start() })
    }

    pub(crate) fn is_static(&self) -> bool {
        self.table.flags & abi::HOST_FLAG_STATIC != 0
    }

    pub(crate) fn ctx(&self) -> *mut c_void {
        self.table.ctx
    }

    pub(crate) fn table(&self) -> &SatcastHost {
        &self.table
    }

    /// The log level gate; 0 when the host has none.
    pub(crate) fn max_level(&self) -> u32 {
        if self.table.max_level.is_null() {
            return 0;
        }
        // SAFETY: the host keeps the gate for the process's life.
        unsafe { &*self.table.max_level.cast::<AtomicU32>() }.load(Ordering::Relaxed)
    }

    pub(crate) fn log(&self, dest: u64, level: u32, target: &str, message: &str, fields: &[SatcastKv]) {
        if let Some(log) = self.table.log {
            let (target, message) = (SatcastStr::new(target), SatcastStr::new(message));
            // SAFETY: all text lives for the call.
            unsafe { log(self.table.ctx, dest, level, target, message, fields.as_ptr(), fields.len()) };
        }
    }

    pub(crate) fn state(&self, dest: u64, state: u32, reason: Option<&Error>) {
        let Some(call) = self.table.state else { return };
        // SAFETY: the error lives for the call.
        with_error(reason, |raw| unsafe { call(self.table.ctx, dest, state, raw) });
    }

    pub(crate) fn stopped(&self, dest: u64, error: Option<&Error>) {
        let Some(call) = self.table.stopped else { return };
        // SAFETY: the error lives for the call.
        with_error(error, |raw| unsafe { call(self.table.ctx, dest, raw) });
    }

    pub(crate) fn event(&self, dest: u64, name: &str, json: &str) {
        if let Some(event) = self.table.event {
            // SAFETY: the text lives for the call.
            unsafe { event(self.table.ctx, dest, SatcastStr::new(name), SatcastStr::new(json)) };
        }
    }

    /// A counter of the host.
    pub(crate) fn metric(&self, dest: u64, name: &str) -> Option<&'static AtomicU64> {
        let metric = self.table.metric?;
        let desc = abi::SatcastMetricDesc {
            size: size_of::<abi::SatcastMetricDesc>() as u32,
            reserved: 0,
            name: SatcastStr::new(name),
        };
        let mut slot: *mut AtomicU64 = std::ptr::null_mut();
        // SAFETY: description and slot live for the call.
        let code = unsafe { metric(self.table.ctx, dest, &raw const desc, &raw mut slot) };
        if code != abi::OK || slot.is_null() {
            return None;
        }
        // SAFETY: the contract keeps slots for the process's life.
        Some(unsafe { &*slot })
    }

    /// The driver's folder.
    pub(crate) fn data_dir(&self) -> Result<PathBuf, Error> {
        // SAFETY: `SatcastDataDir` is the struct of this name.
        let ext = unsafe { self.extension::<abi::SatcastDataDir>(abi::EXT_DATA_DIR) };
        let path = ext.and_then(|ext| ext.path).ok_or_else(|| super::ctx::missing(abi::EXT_DATA_DIR))?;
        // SAFETY: the function is the one of the extension.
        unsafe { self.ask(path) }.map(PathBuf::from)
    }

    /// The operator's settings for the driver, as JSON.
    pub(crate) fn settings(&self) -> Result<String, Error> {
        // SAFETY: `SatcastSettings` is the struct of this name.
        let ext = unsafe { self.extension::<abi::SatcastSettings>(abi::EXT_SETTINGS) };
        let json = ext.and_then(|ext| ext.json).ok_or_else(|| super::ctx::missing(abi::EXT_SETTINGS))?;
        // SAFETY: the function is the one of the extension.
        unsafe { self.ask(json) }
    }

    /// Reports a recording to the host.
    pub(crate) fn report_recording(&self, json: &str) -> Result<(), Error> {
        let name = abi::EXT_RECORDINGS_HOST;
        // SAFETY: `SatcastRecordingsHost` is the struct of this name.
        let ext = unsafe { self.extension::<abi::SatcastRecordingsHost>(name) };
        let report = ext.and_then(|ext| ext.report).ok_or_else(|| super::ctx::missing(name))?;
        let mut slot = ErrorSlot::new();
        let errors = slot.sink();
        // SAFETY: text and sink live for the call.
        match unsafe { report(self.ctx(), SatcastStr::new(json), &raw const errors) } {
            abi::OK => Ok(()),
            _ => Err(slot.take("the host refused a recording")),
        }
    }

    /// Passes `text` through a function of the host's vault.
    pub(super) fn vault(
        &self,
        choose: impl FnOnce(abi::SatcastVault) -> Option<VaultCall>,
        text: &str,
    ) -> Result<String, Error> {
        // SAFETY: `SatcastVault` is the struct of this name.
        let ext = unsafe { self.extension::<abi::SatcastVault>(abi::EXT_VAULT) };
        let call = ext.and_then(choose).ok_or_else(|| super::ctx::missing(abi::EXT_VAULT))?;
        let (mut made, mut slot) = (String::new(), ErrorSlot::new());
        let sink = abi::SatcastTextSink { data: (&raw mut made).cast(), put: Some(put_text) };
        let errors = slot.sink();
        // SAFETY: text and sinks live for the call.
        match unsafe { call(self.ctx(), SatcastStr::new(text), &raw const sink, &raw const errors) } {
            abi::OK => Ok(made),
            _ => Err(slot.take("the host gave no answer")),
        }
    }

    /// The text that a function of the host returns.
    ///
    /// # Safety
    /// `function` must be one of this host.
    unsafe fn ask(&self, function: AskText) -> Result<String, Error> {
        let (mut text, mut slot) = (String::new(), ErrorSlot::new());
        let sink = abi::SatcastTextSink { data: (&raw mut text).cast(), put: Some(put_text) };
        let errors = slot.sink();
        // SAFETY: both sinks live for the call.
        match unsafe { function(self.ctx(), &raw const sink, &raw const errors) } {
            abi::OK => Ok(text),
            _ => Err(slot.take("the host gave no answer")),
        }
    }

    /// The extension `name` as `T`, if the host has it and its struct is at least `T`'s size.
    ///
    /// # Safety
    /// `T` must be the `#[repr(C)]` struct of that extension with its size in the first field.
    pub(crate) unsafe fn extension<T: Copy>(&self, name: &str) -> Option<T> {
        let get = self.table.get_extension?;
        // SAFETY: the name lives for the call.
        let raw = unsafe { get(self.table.ctx, SatcastStr::new(name)) };
        if raw.is_null() {
            return None;
        }
        // SAFETY: every extension begins with its size.
        if unsafe { raw.cast::<usize>().read() } < size_of::<T>() {
            return None;
        }
        // SAFETY: at least `size_of::<T>()` bytes are there.
        Some(unsafe { raw.cast::<T>().read() })
    }
}

/// # Safety
/// `data` must be the `String` of the running call.
unsafe extern "C" fn put_text(data: *mut c_void, text: SatcastStr) {
    // SAFETY: see above; the text lives for the call.
    unsafe { *data.cast::<String>() = text.read().into_owned() };
}

fn with_error(error: Option<&Error>, call: impl FnOnce(*const SatcastError)) {
    match error {
        Some(error) => with_abi(error, |raw| call(raw)),
        None => call(std::ptr::null()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::driver::log::{Bridge, lead_to};

    unsafe extern "C" fn count(
        ctx: *mut c_void,
        _: u64,
        _: u32,
        _: SatcastStr,
        _: SatcastStr,
        _: *const SatcastKv,
        _: usize,
    ) {
        // SAFETY: the test's counter.
        unsafe { &*ctx.cast::<AtomicU64>() }.fetch_add(1, Ordering::Relaxed);
    }

    fn host(lines: &AtomicU64, level: &AtomicU32) -> Arc<HostRef> {
        // SAFETY: all-zero is a valid table: null pointers, absent functions.
        let mut table: SatcastHost = unsafe { std::mem::zeroed() };
        table.size = size_of::<SatcastHost>();
        table.ctx = std::ptr::from_ref(lines).cast_mut().cast();
        table.max_level = std::ptr::from_ref(level).cast();
        table.log = Some(count);
        // SAFETY: the table is valid, and its targets outlive the test's use of it.
        Arc::new(unsafe { HostRef::copy(&raw const table) }.unwrap())
    }

    #[test]
    fn a_restarted_image_logs_to_its_new_host() {
        let (level, earlier, later) = (AtomicU32::new(3), AtomicU64::new(0), AtomicU64::new(0));
        let bridge = Bridge::new(host(&earlier, &level));
        tracing::subscriber::with_default(bridge, || {
            for (lines, wanted) in [(&earlier, [1, 0]), (&later, [1, 1])] {
                lead_to(host(lines, &level));
                tracing::info!("a line");
                tracing::debug!("none at this level");
                assert_eq!([&earlier, &later].map(|lines| lines.load(Ordering::Relaxed)), wanted);
            }
        });
    }
}
