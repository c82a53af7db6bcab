//! From the safe trait to the C table: the expansion of [`export_driver!`](crate::export_driver).
//!
//! All state of a driver lives in a [`Slot`] that the macro puts into the driver's own crate, so that two drivers linked
//! into one binary do not share a runtime or a host.

#![allow(unsafe_code)] // This is the boundary.

mod http;
mod recordings;
mod request;
mod run;

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::watch;

use crate::Error;
use crate::abi::{
    self, SatcastDriver, SatcastErrorSink, SatcastHost, SatcastOpen, SatcastReconfigure, SatcastStr,
};
use crate::driver::hostref::HostRef;
use crate::driver::log::{self, Bridge, CURRENT_DEST};
use crate::driver::pump::Pump;
use crate::driver::{Config, Ctx, Driver, DynDestination, Media, Reconfigured};
use crate::manifest::Manifest;
use crate::wire::report;
use request::read_open;
use run::{bounded_run, panic_error};

/// Most worker threads of a driver's runtime; see [`Driver::WORKERS`].
pub const RUNTIME_WORKERS_MAX: usize = 8;
/// Most threads for blocking work of a driver's runtime.
pub const RUNTIME_BLOCKING_THREADS_MAX: usize = 8;
/// Stack of a runtime thread in bytes.
pub const RUNTIME_STACK_BYTES: usize = 1024 * 1024;
/// How long `deinit` waits for the runtime's tasks.
const SHUTDOWN_WAIT: Duration = Duration::from_secs(2);

/// Exports a [`Driver`] from a `cdylib` crate under the one symbol the host looks up.
///
/// Put it into its own crate that nothing else links: two exports in one binary are a duplicate symbol.
#[macro_export]
macro_rules! export_driver {
    ($driver:ty) => {
        $crate::driver_entry!(satcast_exported_entry, $driver);

        /// The one symbol of the library.
        #[allow(unsafe_code)]
        #[unsafe(no_mangle)]
        pub extern "C" fn satcast_driver_entry(host_major: u32) -> *const $crate::abi::SatcastDriver {
            satcast_exported_entry(host_major)
        }
    };
}

/// Makes a function `$name` that is the driver's entry without exporting a symbol: for tests and static registration.
#[macro_export]
macro_rules! driver_entry {
    ($name:ident, $driver:ty) => {
        /// Entry of a driver.
        #[allow(unsafe_code)]
        pub extern "C" fn $name(host_major: u32) -> *const $crate::abi::SatcastDriver {
            struct Exported;
            impl $crate::export::Exported for Exported {
                type Driver = $driver;
                const PANIC_UNWIND: bool = cfg!(panic = "unwind");
                fn slot() -> &'static $crate::export::Slot<$driver> {
                    static SLOT: $crate::export::Slot<$driver> = $crate::export::Slot::new();
                    &SLOT
                }
            }
            $crate::export::entry::<Exported>(host_major)
        }
    };
}

/// Ties a driver type to its slot; implemented by the macros.
pub trait Exported: 'static {
    /// The driver.
    type Driver: Driver;
    /// The driver's crate was compiled with unwinding panics.
    const PANIC_UNWIND: bool;
    /// The slot of this driver.
    fn slot() -> &'static Slot<Self::Driver>;
}

/// All state of one driver in one library.
pub struct Slot<D> {
    table: OnceLock<TableBox>,
    loaded: Mutex<Option<Arc<Loaded<D>>>>,
}

struct TableBox {
    table: SatcastDriver,
    _manifest: Box<str>,
}

// SAFETY: the table's pointers lead to static text and to `_manifest`, neither of which ever changes.
unsafe impl Send for TableBox {}
// SAFETY: as above.
unsafe impl Sync for TableBox {}

struct Loaded<D> {
    driver: D,
    host: Arc<HostRef>,
    runtime: Runtime,
    openings: Arc<http::Openings>,
}

impl<D> Slot<D> {
    /// An empty slot.
    pub const fn new() -> Self {
        Self { table: OnceLock::new(), loaded: Mutex::new(None) }
    }

    fn loaded(&self) -> Result<Arc<Loaded<D>>, Error> {
        let loaded = self.loaded.lock();
        loaded.clone().ok_or_else(|| Error::internal("the driver is not initialised"))
    }
}

impl<D> Default for Slot<D> {
    fn default() -> Self {
        Self::new()
    }
}

/// The driver's table, or null for a host of another major version or a driver that cannot describe itself.
pub fn entry<E: Exported>(host_major: u32) -> *const SatcastDriver {
    if host_major != abi::ABI_MAJOR {
        return std::ptr::null();
    }
    let made = catch_unwind(|| E::slot().table.get_or_init(make_table::<E>));
    made.map_or(std::ptr::null(), |made| &raw const made.table)
}

fn make_table<E: Exported>() -> TableBox {
    let info = E::Driver::INFO;
    let settings = E::Driver::settings().map(crate::SettingsSchema::into_json);
    let (types, made) = (E::Driver::types(), E::Driver::made_types().map(Box::new));
    let manifest = Manifest { title: info.title.to_string(), types, settings, made };
    // Names and JSON values only: serializing cannot fail, and the host refuses an empty manifest.
    let manifest = serde_json::to_string(&manifest).unwrap_or_default().into_boxed_str();
    let table = SatcastDriver {
        magic: abi::MAGIC,
        abi_major: abi::ABI_MAJOR,
        abi_minor: abi::ABI_MINOR,
        size: size_of::<SatcastDriver>(),
        flags: flag(E::PANIC_UNWIND, abi::FLAG_PANIC_UNWIND) | flag(E::Driver::LOSSLESS, abi::FLAG_LOSSLESS),
        id: SatcastStr::new(info.id),
        version: SatcastStr::new(info.version),
        toolchain: SatcastStr::new("rust"),
        manifest_json: SatcastStr::new(&manifest),
        init: Some(init::<E>),
        validate: Some(validate::<E>),
        open: Some(open::<E>),
        stop: Some(stop),
        destroy: Some(destroy),
        deinit: Some(deinit::<E>),
        get_extension: Some(get_extension::<E>),
    };
    TableBox { table, _manifest: manifest }
}

fn flag(is: bool, flag: u64) -> u64 {
    if is { flag } else { 0 }
}

static RECONFIGURE: SatcastReconfigure =
    SatcastReconfigure { size: size_of::<SatcastReconfigure>(), reconfigure: Some(reconfigure) };

/// # Safety
/// As [`SatcastDriver::get_extension`]: the name lives for the call.
unsafe extern "C" fn get_extension<E: Exported>(name: SatcastStr) -> *const c_void {
    // SAFETY: passed on from the caller.
    match &*unsafe { name.read() } {
        abi::EXT_RECONFIGURE => (&raw const RECONFIGURE).cast(),
        abi::EXT_RECORDINGS => recordings::table::<E>(),
        abi::EXT_HTTP => http::table::<E>(),
        _ => std::ptr::null(),
    }
}

/// Runs `body`, turning an error or a panic into a return code and a report.
fn guarded(errors: *const SatcastErrorSink, body: impl FnOnce() -> Result<(), Error>) -> i32 {
    guarded_code(errors, || body().map(|()| abi::OK))
}

/// As [`guarded`], with the return code of success from `body`.
fn guarded_code(errors: *const SatcastErrorSink, body: impl FnOnce() -> Result<i32, Error>) -> i32 {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(code)) => code,
        Ok(Err(error)) => {
            // SAFETY: the caller's sink lives for the call.
            unsafe { report(errors, &error) };
            abi::ERR
        }
        Err(panic) => {
            // SAFETY: the caller's sink lives for the call.
            unsafe { report(errors, &panic_error(&*panic)) };
            abi::ERR_PANIC
        }
    }
}

/// # Safety
/// As [`SatcastDriver::init`]: `host` stays valid for the process's life, `errors` for the call.
unsafe extern "C" fn init<E: Exported>(host: *const SatcastHost, errors: *const SatcastErrorSink) -> i32 {
    guarded(errors, || {
        // SAFETY: passed on from the caller.
        let host = Arc::new(unsafe { HostRef::copy(host) }?);
        // Before any code of the driver runs. Our host counts images; this check is for hosts that do not.
        if E::slot().loaded.lock().is_some() {
            return Err(Error::internal(
                "a driver already runs in this image of its library; restart the service",
            ));
        }
        if !host.is_static() {
            install_hooks(&host);
        }
        let id = E::Driver::INFO.id;
        let runtime = Builder::new_multi_thread()
            .worker_threads(E::Driver::WORKERS.clamp(1, RUNTIME_WORKERS_MAX))
            .max_blocking_threads(RUNTIME_BLOCKING_THREADS_MAX)
            .thread_stack_size(RUNTIME_STACK_BYTES)
            .thread_name(format!("d:{id}"))
            .enable_all()
            .build()
            .map_err(|error| Error::internal(format!("cannot start the driver's runtime: {error}")))?;
        let driver = {
            let _entered = runtime.enter();
            E::Driver::load(&crate::driver::Host::new(host.clone()))?
        };
        let mut loaded = E::slot().loaded.lock();
        if loaded.is_some() {
            return Err(Error::internal(
                "a driver already runs in this image of its library; restart the service",
            ));
        }
        if let Some(pump) = Pump::take(&host) {
            runtime.spawn(pump.run());
        }
        *loaded = Some(Arc::new(Loaded { driver, host, runtime, openings: Arc::default() }));
        Ok(())
    })
}

/// Log bridge and panic hook of this library. Both are globals of the library, not of the process.
fn install_hooks(host: &Arc<HostRef>) {
    log::lead_to(host.clone());
    // An error only means that the bridge exists: this image has run before.
    let _ = tracing::subscriber::set_global_default(Bridge::new(host.clone()));
    let host = host.clone();
    std::panic::set_hook(Box::new(move |info| {
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        let dest = CURRENT_DEST.try_with(|dest| *dest).unwrap_or(0);
        // Outside a destination the secrets in the text are unknown; the caller gets the text as its error.
        let text = if dest == 0 { "" } else { info.payload_as_str().unwrap_or("no message") };
        host.log(dest, 1, "panic", format!("driver panicked at {place} {text}").trim_end(), &[]);
    }));
}

/// # Safety
/// As [`SatcastDriver::validate`]: text and sink live for the call.
unsafe extern "C" fn validate<E: Exported>(
    type_name: SatcastStr,
    config: SatcastStr,
    errors: *const SatcastErrorSink,
) -> i32 {
    guarded(errors, || {
        // SAFETY: passed on from the caller.
        let (type_name, config) = unsafe { (type_name.read(), config.read()) };
        let json = parse_config(&config)?;
        E::slot().loaded()?.driver.validate(Config::new(&type_name, &json))
    })
}

fn parse_config(config: &str) -> Result<Value, Error> {
    serde_json::from_str(config).map_err(|_| Error::config("the configuration is not JSON"))
}

/// One opening of a destination.
struct Instance {
    dest: u64,
    type_name: String,
    // Weak, so that the destination is dropped at the end of its run.
    destination: Weak<dyn DynDestination>,
    runtime: Handle,
    stopping: watch::Sender<bool>,
    deadline_ms: Arc<AtomicU32>,
    openings: Arc<http::Openings>,
}

/// # Safety
/// As [`SatcastDriver::open`]: the request lives for the call, its queue passes to us, `instance` takes one pointer.
unsafe extern "C" fn open<E: Exported>(
    request: *const SatcastOpen,
    instance: *mut *mut c_void,
    errors: *const SatcastErrorSink,
) -> i32 {
    guarded(errors, || {
        // SAFETY: passed on from the caller.
        let request = unsafe { read_open(request) }?;
        let loaded = E::slot().loaded()?;
        let media = Media::new(loaded.host.clone(), request.media);
        // SAFETY: passed on from the caller.
        let (type_name, config) = unsafe { (request.type_name.read(), request.config_json.read()) };
        let json = parse_config(&config)?;
        let destination = {
            let _entered = loaded.runtime.enter();
            CURRENT_DEST.sync_scope(request.dest, || loaded.driver.open(Config::new(&type_name, &json)))?
        };
        let (stopping, stop_seen) = watch::channel(false);
        let deadline_ms = Arc::new(AtomicU32::new(0));
        let instance_of = Instance {
            dest: request.dest,
            type_name: type_name.into_owned(),
            destination: Arc::downgrade(&destination),
            runtime: loaded.runtime.handle().clone(),
            stopping,
            deadline_ms: deadline_ms.clone(),
            openings: loaded.openings.clone(),
        };
        loaded.openings.add(request.dest, &destination);
        // SAFETY: passed on from the caller. Unreadable facts of a newer host are no reason to refuse.
        let about = serde_json::from_str(&unsafe { request.about_json.read() }).unwrap_or_default();
        let ctx = Ctx::new(loaded.host.clone(), request.dest, request.source, about, stop_seen.clone());
        let end = bounded_run(destination, ctx, media, stop_seen, deadline_ms);
        let (host, dest) = (loaded.host.clone(), request.dest);
        loaded.runtime.spawn(CURRENT_DEST.scope(dest, async move {
            let outcome = end.await;
            host.stopped(dest, outcome.as_ref().err());
        }));
        // SAFETY: the caller provides space for one pointer.
        unsafe { *instance = Box::into_raw(Box::new(instance_of)).cast() };
        Ok(())
    })
}

/// # Safety
/// As [`SatcastReconfigure::reconfigure`]: `instance` came from `open` and was not destroyed; text and sink live for the call.
unsafe extern "C" fn reconfigure(
    instance: *mut c_void,
    config: SatcastStr,
    errors: *const SatcastErrorSink,
) -> i32 {
    guarded_code(errors, || {
        // SAFETY: passed on from the caller.
        let (instance, config) = unsafe { (&*instance.cast::<Instance>(), config.read()) };
        let json = parse_config(&config)?;
        let Some(destination) = instance.destination.upgrade() else { return Ok(abi::REOPEN) };
        let _entered = instance.runtime.enter();
        let config = Config::new(&instance.type_name, &json);
        let outcome = CURRENT_DEST.sync_scope(instance.dest, || destination.reconfigure_dyn(config))?;
        Ok(match outcome {
            Reconfigured::Taken => abi::OK,
            Reconfigured::Reopen => abi::REOPEN,
        })
    })
}

/// # Safety
/// As [`SatcastDriver::stop`]: `instance` came from `open` and was not destroyed.
unsafe extern "C" fn stop(instance: *mut c_void, deadline_ms: u32) -> i32 {
    // SAFETY: passed on from the caller.
    let instance = unsafe { &*instance.cast::<Instance>() };
    instance.deadline_ms.store(deadline_ms, Ordering::Release);
    // No receiver is left when the run has ended by itself.
    let _ = instance.stopping.send(true);
    abi::OK
}

/// # Safety
/// As [`SatcastDriver::destroy`]: `instance` came from `open` and is passed here once.
unsafe extern "C" fn destroy(instance: *mut c_void) {
    // SAFETY: passed on from the caller.
    let instance = unsafe { Box::from_raw(instance.cast::<Instance>()) };
    instance.openings.remove(instance.dest);
}

/// # Safety
/// As [`SatcastDriver::deinit`]: nothing is called after it.
unsafe extern "C" fn deinit<E: Exported>() {
    let loaded = E::slot().loaded.lock().take();
    if let Some(Ok(loaded)) = loaded.map(Arc::try_unwrap) {
        // A panic of the driver's Drop must not cross the boundary.
        let _ = catch_unwind(AssertUnwindSafe(|| {
            drop(loaded.driver);
            loaded.runtime.shutdown_timeout(SHUTDOWN_WAIT);
        }));
    }
}
