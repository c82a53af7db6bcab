//! Limits of the process and its log level.

use satcast_core::config;
use satcast_core::ids::UnixMillis;
use satcast_net::certificates::{CertificateError, Certificates, Section};

/// Open files the service requests: both ports at their caps, and as many for destinations.
const OPEN_FILES_WANTED: u64 = 65_536;
/// Below this limit a warning is logged: streams will be refused long before the caps.
const OPEN_FILES_WARNED: u64 = 4_096;

/// The log level for drivers: the most verbose level of any part of this process.
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

/// The usual soft limit of 1024 is below the ports' caps; the hard limit needs no privileges.
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
    // When the limit is unknown, the ports use their own caps.
    rlimit::getrlimit(rlimit::Resource::NOFILE).map_or(u64::MAX, |(files, _)| files)
}

/// Warns about an https certificate outside its validity period at `now`.
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
