//! What the child does to its own process.

use std::os::fd::{AsFd as _, OwnedFd};

use rustix::process::{Resource, Rlimit, Signal};

use super::super::limits::BYTES_PER_MB;
use satcast_core::config::ProcessLimits;

/// Processor time, in seconds, for a library that does not end at its limit.
const CPU_GRACE_SECS: u64 = 5;

/// Takes the socket from standard input and leaves an empty file there.
pub(super) fn take_socket() -> std::io::Result<OwnedFd> {
    let socket: OwnedFd = std::io::stdin().as_fd().try_clone_to_owned()?;
    rustix::stdio::dup2_stdin(std::fs::File::open("/dev/null")?)?;
    Ok(socket)
}

/// What is set before the library is there; it binds what the library starts, too.
pub(super) fn confine(id: &str, limits: &ProcessLimits, is_grouped: bool) -> std::io::Result<()> {
    // The socket's end would tell as well, but only this thread.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    rustix::thread::set_no_new_privs(true)?;
    let limits_of = |resource, current: u64, maximum: u64| {
        // More than the service itself may use is not to be had.
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
        // The first limit ends it with a signal of its own, by which the service knows why; the second with one that cannot be caught.
        limits_of(Resource::Cpu, limits.cpu_secs, limits.cpu_secs.saturating_add(CPU_GRACE_SECS))?;
    }
    // Only for people who look at the process list; the name is a driver id, which holds no NUL.
    if let Ok(name) = std::ffi::CString::new(format!("driver:{id}")) {
        let _ = rustix::thread::set_name(&name);
    }
    Ok(())
}

/// Without a host there is nothing left to do, and nothing of the library shall run any more.
pub(super) fn die() -> ! {
    let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::KILL);
    std::process::abort()
}
