//! Whom a thread works for, so that a process that a driver ends can still say whose work ended it.
//!
//! Each thread of the process has a number, which the functions of the host's table and the process itself set. When a signal of a fault
//! comes, or something calls `exit`, the number of that thread is sent over a socket, and what would have happened happens.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::{IntoRawFd as _, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicU8, Ordering};

use super::services::with;
use crate::abi;

/// Bytes of what is sent: a mark, then the number, lowest byte first.
const NOTE_BYTES: usize = 9;
/// What a fault, an abort or a broken call sends to the thread it happens on.
const SIGNALS: [c_int; 5] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGABRT];

thread_local! {
    /// Of nothing that needs a drop: a signal's handler may read it.
    static WORK: Cell<Work> = const { Cell::new(Work { number: 0, is_said: false }) };
}

#[derive(Clone, Copy)]
struct Work {
    number: u64,
    /// The thread says itself whom it works for: what it asks of the host tells nothing more.
    is_said: bool,
}

/// The socket; below 0 where nobody is told.
static SOCKET: AtomicI32 = AtomicI32::new(-1);
static MARK: AtomicU8 = AtomicU8::new(0);
/// What was done about each of [`SIGNALS`] before.
static BEFORE: [OnceLock<libc::sigaction>; SIGNALS.len()] = [const { OnceLock::new() }; SIGNALS.len()];

/// What this thread does from now on is for the number `number`; 0 = for nobody known.
pub fn working(number: u64) {
    WORK.set(Work { number, is_said: true });
}

/// This thread asked the host something about an opening: where it does not say whom it works for, that tells it.
pub(super) fn named(dest: u64) {
    let work = WORK.get();
    if !work.is_said && dest != 0 {
        WORK.set(Work { number: dest, ..work });
    }
}

/// From now on the end of this process by a driver's fault is told: `mark`, then the number of the thread that met it. Once for a process,
/// before its driver is loaded. Nothing is sent when the thread works for nobody, or has no stack left for it.
///
/// # Errors
/// The system takes no handlers.
pub fn tell_of_ends(socket: OwnedFd, mark: u8) -> io::Result<()> {
    MARK.store(mark, Ordering::Release);
    SOCKET.store(socket.into_raw_fd(), Ordering::Release);
    for (signal, before) in SIGNALS.iter().zip(&BEFORE) {
        // SAFETY: all-zero is a valid action: the default, no flags, no mask.
        let (mut now, mut old): (libc::sigaction, libc::sigaction) = unsafe { std::mem::zeroed() };
        // SAFETY: only asked for.
        if unsafe { libc::sigaction(*signal, std::ptr::null(), &raw mut old) } != 0 {
            return Err(io::Error::last_os_error());
        }
        before.get_or_init(|| old);
        let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = on_signal;
        now.sa_sigaction = handler as libc::sighandler_t;
        now.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // SAFETY: the handler does nothing that a handler may not do.
        if unsafe { libc::sigaction(*signal, &raw const now, std::ptr::null_mut()) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    // SAFETY: the function may be called at any time, on any thread.
    match unsafe { libc::atexit(on_exit) } {
        0 => Ok(()),
        _ => Err(io::Error::other("no room for a function that is called at the end")),
    }
}

/// Says whose work it was, then lets happen what would have happened.
extern "C" fn on_signal(signal: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
    tell();
    let before = SIGNALS.iter().position(|one| *one == signal).and_then(|at| BEFORE[at].get());
    let Some(before) = before else { return };
    // SAFETY: the action was in force before, and the system describes the signal. A fault comes again when this returns; what was sent on
    // purpose does not, and is sent again.
    unsafe {
        libc::sigaction(signal, before, std::ptr::null_mut());
        if before.sa_sigaction == libc::SIG_DFL || (*info).si_code <= 0 {
            libc::raise(signal);
        }
    }
}

extern "C" fn on_exit() {
    tell();
}

fn tell() {
    let (socket, number) = (SOCKET.load(Ordering::Acquire), WORK.get().number);
    if socket < 0 || number == 0 {
        return;
    }
    let mut note = [MARK.load(Ordering::Acquire); NOTE_BYTES];
    note[1..].copy_from_slice(&number.to_le_bytes());
    // SAFETY: the socket is never closed. Who does not read at once is not waited for.
    unsafe {
        libc::send(socket, note.as_ptr().cast(), NOTE_BYTES, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT);
    }
}

pub(super) static WORKING: abi::SatcastWorking =
    abi::SatcastWorking { size: size_of::<abi::SatcastWorking>(), working: Some(say) };

/// # Safety
/// As [`abi::SatcastWorking::working`].
unsafe extern "C" fn say(ctx: *mut c_void, dest: u64) {
    // SAFETY: passed on from the caller.
    unsafe { with(ctx, (), |_| working(dest)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_says_whom_it_works_for_is_believed_before_what_it_asks() {
        let number = || WORK.get().number;
        std::thread::spawn(move || {
            named(5);
            assert_eq!(number(), 5);
            named(0);
            assert_eq!(number(), 5, "nothing about an opening");
            named(6);
            assert_eq!(number(), 6);
            working(7);
            named(8);
            assert_eq!(number(), 7);
            working(0);
            named(8);
            assert_eq!(number(), 0, "it works for nobody");
        })
        .join()
        .unwrap();
        assert_eq!(number(), 0, "each thread for itself");
    }
}
