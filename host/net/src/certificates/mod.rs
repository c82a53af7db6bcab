//! The certificates for encoders and viewers: read from their files, and read again when the files change.

mod challenges;
mod validity;

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use sha2::{Digest as _, Sha256};
use tokio::time::sleep;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig, crypto::ring};
use tracing::{info, warn};

pub use challenges::{ACME_TLS, Challenges};
use satcast_core::clock::Clock;
use satcast_core::ids::UnixMillis;
pub use validity::Validity;

/// Milliseconds between two checks of the files.
pub const CERTIFICATE_LOOK_MS: u64 = 5_000;
/// Checks after which a lasting fault is logged again: one hour.
const CERTIFICATE_REPORT_LOOKS: u32 = 720;
/// Milliseconds before the expiry of a certificate from which on a warning is logged: seven days.
const CERTIFICATE_SOON_MS: i64 = 7 * 24 * 3_600_000;
/// Name of HTTP/2 inside TLS (RFC 9113 section 3.2).
pub(crate) const HTTP_2: &[u8] = b"h2";
const HTTP_1: &[u8] = b"http/1.1";
/// Largest file of a certificate or key.
pub const CERTIFICATE_BYTES_MAX: u64 = 1024 * 1024;
/// Reason for refusing a larger file.
const TOO_LARGE: &str = "it is larger than 1 MiB";
/// The beginning of a file with a certificate that this service has ordered or will order.
pub(crate) const ORDERED: &str = "# Ordered by Satcast";
/// The expected contents of the two files.
const WANTED_CERT: &str = "certificate in PEM";
const WANTED_KEY: &str = "unencrypted private key in PEM";

/// The section of the configuration with the certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// The API and playback, by HTTP/2 or HTTP/1.1 as the client requires.
    Http,
    /// Encoders, by RTMPS.
    Ingest,
}

impl Section {
    /// Protocols inside TLS (RFC 7301), preferred first.
    fn protocols(self) -> Vec<Vec<u8>> {
        match self {
            Section::Http => vec![HTTP_2.to_vec(), HTTP_1.to_vec()],
            Section::Ingest => Vec::new(),
        }
    }
}

impl fmt::Display for Section {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Section::Http => "http",
            Section::Ingest => "ingest",
        })
    }
}

/// Why the files cannot be used. Contains nothing from the files.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    /// A file cannot be read.
    #[error("cannot read [{section}] {setting} {}: {reason}; correct the path or the file's rights", .file.display())]
    Unreadable {
        /// Section of the certificate.
        section: Section,
        /// `tls_cert` or `tls_key`.
        setting: &'static str,
        /// The file.
        file: PathBuf,
        /// The system's error.
        reason: String,
    },
    /// The file does not contain what the setting requires.
    #[error("[{section}] {setting} {} holds no {wanted}; name the right file", .file.display())]
    Empty {
        /// Section of the certificate.
        section: Section,
        /// `tls_cert` or `tls_key`.
        setting: &'static str,
        /// The file.
        file: PathBuf,
        /// The expected content.
        wanted: &'static str,
    },
    /// The key belongs to another certificate.
    #[error("[{section}] tls_key {} does not belong to the certificate in tls_cert {}; use the two that were made together", .key.display(), .cert.display())]
    Mismatch {
        /// Section of the certificate.
        section: Section,
        /// The certificate's file.
        cert: PathBuf,
        /// The key's file.
        key: PathBuf,
    },
    /// TLS cannot use them.
    #[error("[{section}] tls_cert {} cannot be used: {reason}", .file.display())]
    Unusable {
        /// Section of the certificate.
        section: Section,
        /// The certificate's file.
        file: PathBuf,
        /// The TLS library's error.
        reason: String,
    },
}

/// The certificate in use, with the files it came from.
#[derive(Debug)]
pub struct Certificates {
    section: Section,
    current: RwLock<Current>,
}

#[derive(Debug)]
struct Current {
    cert: PathBuf,
    key: PathBuf,
    config: Arc<ServerConfig>,
    /// Digest of both files.
    digest: [u8; 32],
    validity: Option<Validity>,
    /// The port answers these too.
    challenges: Option<Challenges>,
}

impl Current {
    /// Takes over what was read; connections that are open keep what they have.
    fn use_files(&mut self, config: Arc<ServerConfig>, files: &Files<'_>) {
        self.config = match &self.challenges {
            Some(challenges) => challenges.beside(&config),
            None => config,
        };
        (self.digest, self.validity) = (files.digest(), files.validity());
    }
}

/// Decides when the fault of an unusable pair is logged.
#[derive(Debug, Default)]
struct FaultReports {
    fault: Option<CertificateError>,
    looks: u32,
}

impl FaultReports {
    /// Whether to log this fault of a check. While the two files are being replaced they do not match, so the first check is ignored;
    /// a lasting fault is logged at the second check and then once an hour.
    fn is_due(&mut self, fault: &CertificateError) -> bool {
        if self.fault.as_ref() != Some(fault) {
            *self = Self { fault: Some(fault.clone()), looks: 0 };
        }
        self.looks = self.looks.saturating_add(1);
        self.looks > 1 && (self.looks - 2).is_multiple_of(CERTIFICATE_REPORT_LOOKS)
    }
}

/// Result of a check of the files.
#[derive(Debug, PartialEq, Eq)]
enum Look {
    Same,
    Renewed,
}

impl Certificates {
    /// Reads certificate chain and private key, both in PEM.
    ///
    /// # Errors
    /// Names the file and its fault.
    pub fn load(section: Section, cert: &Path, key: &Path) -> Result<Self, CertificateError> {
        let files = Files::read(section, cert, key)?;
        let current = Current {
            cert: cert.to_owned(),
            key: key.to_owned(),
            config: files.config()?,
            digest: files.digest(),
            validity: files.validity(),
            challenges: None,
        };
        Ok(Self { section, current: RwLock::new(current) })
    }

    /// The fault of the certificate's validity period at `now`, if any.
    ///
    /// # Errors
    /// As [`Certificates::load`].
    pub fn objection(
        section: Section,
        cert: &Path,
        key: &Path,
        now: UnixMillis,
    ) -> Result<Option<&'static str>, CertificateError> {
        let files = Files::read(section, cert, key)?;
        files.config()?;
        Ok(files.objection(now))
    }

    /// Checks a file with chain and key that is not written yet, and gives the times of the certificate.
    ///
    /// # Errors
    /// TLS cannot use them.
    pub fn check(section: Section, file: &Path, pem: &[u8]) -> Result<Option<Validity>, CertificateError> {
        let files = Files { section, cert: (file, pem.to_owned()), key: (file, pem.to_owned()) };
        files.config()?;
        Ok(files.validity())
    }

    /// When the certificate in use is valid; `None` if its times cannot be told.
    pub fn validity(&self) -> Option<Validity> {
        self.current.read().validity
    }

    /// From now on new connections are asked for these challenges too.
    pub fn answer(&self, challenges: &Challenges) {
        let mut current = self.current.write();
        current.config = challenges.beside(&current.config);
        current.challenges = Some(challenges.clone());
    }

    /// The TLS configuration for new connections.
    pub fn current(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.current.read().config)
    }

    /// Takes over the certificate and the files of `other` for new connections; false if certificate and key are the
    /// same as before.
    pub fn take_over(&self, other: Self) -> bool {
        let new = other.current.into_inner();
        let mut current = self.current.write();
        let is_other = new.digest != current.digest;
        let challenges = current.challenges.take();
        let config = challenges.as_ref().map(|challenges| challenges.beside(&new.config));
        *current = Current { config: config.unwrap_or_else(|| new.config.clone()), challenges, ..new };
        is_other
    }

    /// The paths of certificate and key.
    fn paths(&self) -> (PathBuf, PathBuf) {
        let current = self.current.read();
        (current.cert.clone(), current.key.clone())
    }

    /// Checks the files periodically. While the new pair is unusable, the current one stays in use.
    pub async fn keep_fresh(self: Arc<Self>) -> Infallible {
        let mut reports = FaultReports::default();
        let mut looks = 0_u32;
        loop {
            sleep(Duration::from_millis(CERTIFICATE_LOOK_MS)).await;
            let this = Arc::clone(&self);
            let is_time = looks.is_multiple_of(CERTIFICATE_REPORT_LOOKS);
            looks = looks.wrapping_add(1);
            let look = move || {
                let look = this.look();
                let is_due = is_time || look == Ok(Look::Renewed);
                (look, is_due.then(|| this.end(Clock::system().now())).flatten())
            };
            // A panic would be a bug in reading; the current certificate stays in use.
            let Ok((look, end)) = tokio::task::spawn_blocking(look).await else { continue };
            if let Some(end) = end {
                warn!(section = %self.section, file = %self.paths().0.display(), "the certificate {end}");
            }
            match look {
                Ok(Look::Same) => reports = FaultReports::default(),
                Ok(Look::Renewed) => {
                    reports = FaultReports::default();
                    info!(section = %self.section, "the certificate was renewed; new connections use it");
                }
                Err(error) => {
                    if reports.is_due(&error) {
                        warn!("the certificate in use is kept: {error}");
                    }
                }
            }
        }
    }

    /// The fault of the validity period at `now` or soon after. `None` for unreadable files: their error is logged elsewhere.
    fn end(&self, now: UnixMillis) -> Option<&'static str> {
        let (cert, key) = self.paths();
        let files = Files::read(self.section, &cert, &key).ok()?;
        let soon = UnixMillis(now.0.saturating_add(CERTIFICATE_SOON_MS));
        let ends_soon = || {
            let what = if files.is_ordered() {
                "expires within seven days; the warnings about its orders have the reason"
            } else {
                "expires within seven days; renew it"
            };
            files.objection(soon).map(|_| what)
        };
        files.objection(now).or_else(ends_soon)
    }

    fn look(&self) -> Result<Look, CertificateError> {
        let (cert, key) = self.paths();
        let files = Files::read(self.section, &cert, &key)?;
        let digest = files.digest();
        if self.current.read().digest == digest {
            return Ok(Look::Same);
        }
        let config = files.config()?;
        let mut current = self.current.write();
        // A reload has named other files meanwhile, and has read them.
        if (&current.cert, &current.key) != (&cert, &key) {
            return Ok(Look::Same);
        }
        current.use_files(config, &files);
        Ok(Look::Renewed)
    }
}

/// Contents of the two files. Not `Debug`: one is a secret.
struct Files<'a> {
    section: Section,
    cert: (&'a Path, Vec<u8>),
    key: (&'a Path, Vec<u8>),
}

impl<'a> Files<'a> {
    fn read(section: Section, cert: &'a Path, key: &'a Path) -> Result<Self, CertificateError> {
        let read = |setting, file| Ok((file, read(section, setting, file)?));
        Ok(Self { section, cert: read("tls_cert", cert)?, key: read("tls_key", key)? })
    }

    fn digest(&self) -> [u8; 32] {
        let mut digest = Sha256::new();
        for bytes in [&self.cert.1, &self.key.1] {
            digest.update(bytes.len().to_be_bytes());
            digest.update(bytes);
        }
        digest.finalize().into()
    }

    fn chain(&self) -> Vec<CertificateDer<'static>> {
        CertificateDer::pem_slice_iter(&self.cert.1).map_while(Result::ok).collect()
    }

    fn config(&self) -> Result<Arc<ServerConfig>, CertificateError> {
        let section = self.section;
        let empty = |setting, file: &Path, wanted| CertificateError::Empty {
            section,
            setting,
            file: file.to_owned(),
            wanted,
        };
        let chain = self.chain();
        if chain.is_empty() {
            return Err(empty("tls_cert", self.cert.0, WANTED_CERT));
        }
        let key = PrivateKeyDer::from_pem_slice(&self.key.1)
            .map_err(|_| empty("tls_key", self.key.0, WANTED_KEY))?;
        let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let config = builder
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key));
        let mut config = config.map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => CertificateError::Mismatch {
                section,
                cert: self.cert.0.to_owned(),
                key: self.key.0.to_owned(),
            },
            error => CertificateError::Unusable {
                section,
                file: self.cert.0.to_owned(),
                reason: error.to_string(),
            },
        })?;
        config.alpn_protocols = section.protocols();
        Ok(Arc::new(config))
    }

    fn objection(&self, now: UnixMillis) -> Option<&'static str> {
        match validity::state(&self.chain(), now)? {
            validity::State::Early => Some("is not valid yet; check the clock"),
            validity::State::Late if self.is_ordered() => Some("has expired; the service orders another one"),
            validity::State::Late => Some("has expired; renew it"),
            validity::State::Valid => None,
        }
    }

    fn is_ordered(&self) -> bool {
        self.cert.1.starts_with(ORDERED.as_bytes())
    }

    fn validity(&self) -> Option<Validity> {
        Validity::of(&self.chain())
    }
}

fn read(section: Section, setting: &'static str, file: &Path) -> Result<Vec<u8>, CertificateError> {
    let unreadable =
        |reason: String| CertificateError::Unreadable { section, setting, file: file.to_owned(), reason };
    let size = std::fs::metadata(file).map_err(|error: io::Error| unreadable(error.to_string()))?.len();
    if size > CERTIFICATE_BYTES_MAX {
        return Err(unreadable(TOO_LARGE.to_owned()));
    }
    std::fs::read(file).map_err(|error| unreadable(error.to_string()))
}

/// A PEM file with one entry.
pub fn pem(kind: &str, der: &[u8]) -> String {
    use base64::Engine as _;
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    let lines: Vec<_> = text.as_bytes().chunks(64).map(String::from_utf8_lossy).collect();
    format!("-----BEGIN {kind}-----\n{}\n-----END {kind}-----\n", lines.join("\n"))
}

#[cfg(test)]
mod tests;
