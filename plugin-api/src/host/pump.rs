//! `SATCAST_EXT_PUMP`: a driver that makes the calls of its pump thread itself.

use std::ffi::c_void;
use std::os::fd::IntoRawFd as _;

use super::services::with;
use crate::abi;

pub(super) static PUMP: abi::SatcastPump = abi::SatcastPump {
    size: size_of::<abi::SatcastPump>(),
    take: Some(take),
    run: Some(run),
    give_back: Some(give_back),
};

/// # Safety
/// As [`abi::SatcastPump::take`].
unsafe extern "C" fn take(ctx: *mut c_void) -> i32 {
    // SAFETY: passed on from the caller.
    unsafe { with(ctx, -1, |context| context.services.take_pump().map_or(-1, |bell| bell.into_raw_fd())) }
}

/// # Safety
/// As [`abi::SatcastPump::run`].
unsafe extern "C" fn run(ctx: *mut c_void) {
    // SAFETY: passed on from the caller.
    unsafe { with(ctx, (), |context| context.services.run_pump()) }
}

/// # Safety
/// As [`abi::SatcastPump::give_back`].
unsafe extern "C" fn give_back(ctx: *mut c_void) {
    // SAFETY: passed on from the caller.
    unsafe { with(ctx, (), |context| context.services.give_back_pump()) }
}
