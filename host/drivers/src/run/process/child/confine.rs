//! Limits that the child sets on its own process.

use std::os::fd::{AsFd as _, OwnedFd};

use rustix::process::{Resource, Rlimit, Signal};

use super::super::message::BYTES_PER_MB;
use satcast_core::config::ProcessLimits;

/// Extra CPU seconds for a library that does not end at its limit.
const CPU_GRACE_SECS: u64 = 5;

/// Takes the socket from standard input and replaces it by an empty file.
pub(super) fn take_socket() -> std::io::Result<OwnedFd> {
    let socket: OwnedFd = std::io::stdin().as_fd().try_clone_to_owned()?;
    rustix::stdio::dup2_stdin(std::fs::File::open("/dev/null")?)?;
    Ok(socket)
}

/// Set before the library is loaded; also applies to processes that the library starts.
pub(super) fn confine(id: &str, limits: &ProcessLimits, is_grouped: bool) -> std::io::Result<()> {
    // The end of the socket would also show it, but only to this thread.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    rustix::thread::set_no_new_privs(true)?;
    let limits_of = |resource, current: u64, maximum: u64| {
        // The limits of the service itself cannot be exceeded.
        let most = rustix::process::getrlimit(resource).maximum.unwrap_or(u64::MAX);
        let (current, maximum) = (Some(most.min(current)), Some(most.min(maximum)));
        rustix::process::setrlimit(resource, Rlimit { current, maximum })
    };
    let limit = |resource, value| limits_of(resource, value, value);
    limit(Resource::Core, 0)?;
    if !is_grouped {
        limit(Resource::Data, limits.memory_mb.saturating_mul(BYTES_PER_MB))?;
    }
    limit(Resource::Nofile, limits.open_files)?;
    if limits.cpu_secs > 0 {
        // The soft limit ends the process with a signal of its own, which tells the service the reason; the hard
        // limit with one that cannot be caught.
        limits_of(Resource::Cpu, limits.cpu_secs, limits.cpu_secs.saturating_add(CPU_GRACE_SECS))?;
    }
    // Only for the process list; the name is a driver id, which holds no NUL.
    if let Ok(name) = std::ffi::CString::new(format!("driver:{id}")) {
        let _ = rustix::thread::set_name(&name);
    }
    Ok(())
}

/// Without a host there is nothing left to do, and no code of the library may run any more.
pub(super) fn die() -> ! {
    let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::KILL);
    std::process::abort()
}
