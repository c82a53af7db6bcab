//! What the process asks the system for, and what its log is set to.

use satcast_core::config;
use satcast_core::ids::UnixMillis;
use satcast_net::certificates::{CertificateError, Certificates, Section};

/// Open files the service asks the system for: both ports at their caps, with as much again for destinations.
const OPEN_FILES_WANTED: u64 = 65_536;
/// With fewer it says so: streams will be refused long before the caps.
const OPEN_FILES_WARNED: u64 = 4_096;

/// What drivers log is decided in them by one number: the most that any part of this process logs.
pub(super) fn driver_log_level() -> u32 {
    match tracing::level_filters::LevelFilter::current().into_level() {
        None => 0,
        Some(tracing::Level::ERROR) => 1,
        Some(tracing::Level::WARN) => 2,
        Some(tracing::Level::INFO) => 3,
        Some(tracing::Level::DEBUG) => 4,
        Some(tracing::Level::TRACE) => 5,
    }
}

/// The usual soft limit of 1024 is below the ports' caps; the hard limit may be taken without asking.
pub(super) fn raise_open_files() {
    match rlimit::increase_nofile_limit(OPEN_FILES_WANTED) {
        Ok(files) if files >= OPEN_FILES_WARNED => {}
        Ok(files) => {
            tracing::warn!(files, "few open files are allowed; raise the limit (ulimit -n, LimitNOFILE)")
        }
        Err(error) => tracing::warn!(%error, "the limit of open files cannot be raised"),
    }
}

/// Files this process may have open.
pub(super) fn open_files() -> u64 {
    // Without an answer the ports keep to their own caps.
    rlimit::getrlimit(rlimit::Resource::NOFILE).map_or(u64::MAX, |(files, _)| files)
}

/// Warns of an https certificate that is out of its time at `now`.
///
/// # Errors
/// Names the file that cannot be used.
pub(super) fn look_at_certificate(config: &config::Http, now: UnixMillis) -> Result<(), CertificateError> {
    let Some((cert, key)) = config.https() else { return Ok(()) };
    if let Some(objection) = Certificates::objection(Section::Http, cert, key, now)? {
        let file = cert.display();
        tracing::warn!(%file, "the certificate of [http] {objection}; browsers will refuse it");
    }
    Ok(())
}
