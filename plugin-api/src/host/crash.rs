//! `SATCAST_EXT_WORKING`: whom a thread of a driver works for. Drivers may say so, and nothing is done with it: the host knows without the
//! driver which accounts had work in a process that ended.

use std::ffi::c_void;

use crate::abi;

pub(super) static WORKING: abi::SatcastWorking =
    abi::SatcastWorking { size: size_of::<abi::SatcastWorking>(), working: Some(say) };

/// # Safety
/// As [`abi::SatcastWorking::working`].
unsafe extern "C" fn say(_: *mut c_void, _: u64) {}
