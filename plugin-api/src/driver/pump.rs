//! The host's calls for this driver, made on the driver's own runtime.
//!
//! The runtime's thread waits for sockets anyway. Where the host's pump thread made the calls, each batch of media would wake that
//! thread first, and it would wake this one.

use std::ffi::c_void;
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::sync::Arc;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::hostref::HostRef;
use crate::abi;

/// The right to make the calls; given back on drop.
pub(crate) struct Pump {
    host: Arc<HostRef>,
    bell: Option<OwnedFd>,
    run: unsafe extern "C" fn(ctx: *mut c_void),
    give_back: unsafe extern "C" fn(ctx: *mut c_void),
}

impl Pump {
    /// `None` where the host makes the calls.
    pub(crate) fn take(host: &Arc<HostRef>) -> Option<Self> {
        // SAFETY: `SatcastPump` is the struct of this name.
        let table = unsafe { host.extension::<abi::SatcastPump>(abi::EXT_PUMP) }?;
        let (take, run, give_back) = (table.take?, table.run?, table.give_back?);
        // SAFETY: the function is the one of the extension.
        let bell = unsafe { take(host.ctx()) };
        if bell < 0 {
            return None;
        }
        // SAFETY: the descriptor passes to us with this call.
        let bell = unsafe { OwnedFd::from_raw_fd(bell) };
        Some(Self { host: host.clone(), bell: Some(bell), run, give_back })
    }

    /// Makes the calls as they become due, until the runtime ends.
    pub(crate) async fn run(mut self) {
        let Some(bell) = self.bell.take() else { return };
        // SAFETY: an owned descriptor stays the same and open until it is dropped.
        let Ok(bell) = (unsafe { AsyncFd::register_with_interest(bell, Interest::READABLE) }) else { return };
        while let Ok(mut rung) = bell.readable().await {
            // Before the calls: a ring after them is a new event. The count of rings is not read.
            rung.clear_ready();
            // SAFETY: the function is the one of the extension, and `self` holds the right to call it.
            unsafe { (self.run)(self.host.ctx()) };
        }
    }
}

impl Drop for Pump {
    fn drop(&mut self) {
        // SAFETY: the function is the one of the extension, called once.
        unsafe { (self.give_back)(self.host.ctx()) };
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write as _;
    use std::os::fd::IntoRawFd as _;
    use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;
    use crate::abi::{SatcastHost, SatcastPump, SatcastStr};

    /// A host with one pump.
    #[derive(Default)]
    struct Hosted {
        bell: AtomicI32,
        runs: AtomicUsize,
        is_back: AtomicBool,
    }

    /// # Safety
    /// `ctx` must be a [`Hosted`].
    unsafe fn hosted<'a>(ctx: *mut c_void) -> &'a Hosted {
        // SAFETY: see above.
        unsafe { &*ctx.cast::<Hosted>() }
    }

    unsafe extern "C" fn take(ctx: *mut c_void) -> i32 {
        // SAFETY: the test's host.
        unsafe { hosted(ctx) }.bell.load(Ordering::SeqCst)
    }

    unsafe extern "C" fn run(ctx: *mut c_void) {
        // SAFETY: the test's host.
        unsafe { hosted(ctx) }.runs.fetch_add(1, Ordering::SeqCst);
    }

    unsafe extern "C" fn give_back(ctx: *mut c_void) {
        // SAFETY: the test's host.
        unsafe { hosted(ctx) }.is_back.store(true, Ordering::SeqCst);
    }

    static PUMP: SatcastPump = SatcastPump {
        size: size_of::<SatcastPump>(),
        take: Some(take),
        run: Some(run),
        give_back: Some(give_back),
    };

    unsafe extern "C" fn extension(_: *mut c_void, name: SatcastStr) -> *const c_void {
        // SAFETY: the name lives for the call.
        if unsafe { name.read() } == abi::EXT_PUMP { (&raw const PUMP).cast() } else { std::ptr::null() }
    }

    fn host(hosted: &Hosted) -> Arc<HostRef> {
        // SAFETY: all-zero is a valid table: null pointers, absent functions.
        let mut table: SatcastHost = unsafe { std::mem::zeroed() };
        table.size = size_of::<SatcastHost>();
        table.ctx = std::ptr::from_ref(hosted).cast_mut().cast();
        table.get_extension = Some(extension);
        // SAFETY: the table is valid, and its targets outlive the test's use of it.
        Arc::new(unsafe { HostRef::copy(&raw const table) }.unwrap())
    }

    /// A bell for the host, and the same one for the driver.
    fn bell() -> (File, i32) {
        // SAFETY: the new descriptor is owned here alone.
        let bell = unsafe { OwnedFd::from_raw_fd(libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK)) };
        let drivers = bell.try_clone().unwrap().into_raw_fd();
        (File::from(bell), drivers)
    }

    #[test]
    fn each_ring_makes_the_calls_and_the_end_gives_the_pump_back() {
        let hosted = Hosted::default();
        let (mut ours, drivers) = bell();
        hosted.bell.store(drivers, Ordering::SeqCst);
        let host = host(&hosted);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.spawn(Pump::take(&host).unwrap().run());
        for runs in 1..=3 {
            ours.write_all(&1_u64.to_ne_bytes()).unwrap();
            runtime.block_on(async {
                let done = async {
                    while hosted.runs.load(Ordering::SeqCst) < runs {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                };
                tokio::time::timeout(Duration::from_secs(30), done).await.unwrap();
            });
        }
        assert!(!hosted.is_back.load(Ordering::SeqCst));
        drop(runtime);
        assert!(hosted.is_back.load(Ordering::SeqCst));
    }

    #[test]
    fn a_host_that_keeps_its_pump_gets_nothing_back() {
        let hosted = Hosted { bell: AtomicI32::new(-1), ..Hosted::default() };
        assert!(Pump::take(&host(&hosted)).is_none());
        assert!(!hosted.is_back.load(Ordering::SeqCst));
    }
}
