//! `SATCAST_EXT_WORKING`: the opening that a driver's thread works for. The host ignores the calls: it knows by itself which accounts
//! had work in a process that ended.

use std::ffi::c_void;

use crate::abi;

pub(super) static WORKING: abi::SatcastWorking =
    abi::SatcastWorking { size: size_of::<abi::SatcastWorking>(), working: Some(say) };

/// # Safety
/// As [`abi::SatcastWorking::working`].
unsafe extern "C" fn say(_: *mut c_void, _: u64) {}
