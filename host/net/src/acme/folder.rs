//! The folder of the account, the certificate and the last failure. Every file is private and replaced as a whole.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::certificates::{
    CERTIFICATE_BYTES_MAX, CertificateError, Certificates, ORDERED, Section, Validity, pem,
};
use satcast_core::config::Config;
use satcast_core::ids::UnixMillis;

/// First line of the certificate's file after [`ORDERED`], before the words for what it was ordered.
const HEAD: &str = ", which replaces this file: ";
/// The rest of the first line before the first order.
const PLACEHOLDER: &str = "nothing was ordered yet";
const ACCOUNT_FILE_NAME: &str = "account.json";
const PROBE_FILE_NAME: &str = "probe";
/// More than a chain with its key and an account.
const PROBE_BYTES: usize = 64 * 1024;
const FAILED_FILE_NAME: &str = "failed.json";
const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

/// The folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// A file or the folder cannot be written.
    #[error("cannot write {path}: {source}; make it writable for the service's user")]
    Unwritable {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The certificate that came cannot be used.
    #[error("{0}")]
    Certificate(#[from] CertificateError),
    /// A first certificate cannot be made.
    #[error("cannot make a certificate: {0}")]
    Placeholder(#[from] rcgen::Error),
}

/// The last order failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// Failures since the last success.
    pub failures: u32,
    /// When the next order may begin.
    pub next_at: UnixMillis,
    /// The reason, without secrets.
    pub reason: String,
}

impl Failed {
    /// What happened and what follows, for people.
    pub fn text(&self, now: UnixMillis) -> String {
        let minutes = self.next_at.0.saturating_sub(now.0).max(0) / 60_000;
        let Self { failures, reason, .. } = self;
        format!(
            "the order of a certificate failed {failures} times, the last time with: {reason}; the service tries again in {minutes} minutes; check that each of [acme] domains leads to this service at port 443"
        )
    }
}

/// What the folder holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// No certificate was ordered yet, or for other names.
    Waiting(Option<Failed>),
    /// A certificate, whose renewal may have failed.
    Held(Option<Failed>),
}

/// The certificate in the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) validity: Option<Validity>,
    /// It was ordered for the configured names, at the configured authority.
    pub(super) is_wanted: bool,
}

/// A failure in its file, with what was ordered: another configuration is tried at once.
#[derive(Deserialize, Serialize)]
struct Noted {
    wanted: String,
    failures: u32,
    next_at_ms: i64,
    reason: String,
}

/// The account in its file.
#[derive(Deserialize, Serialize)]
pub(super) struct Stored<C> {
    pub(super) directory: String,
    pub(super) contact: Option<String>,
    pub(super) credentials: C,
}

/// The folder of one configuration.
#[derive(Clone, Debug)]
pub(super) struct Folder {
    path: PathBuf,
    file: PathBuf,
    /// Names and authority, for the first line of the file.
    wanted: String,
}

impl Folder {
    pub(super) fn of(config: &Config) -> Self {
        let wanted = format!("{} at {}", config.acme.domains.join(","), config.acme.directory);
        Self { path: config.acme_folder(), file: config.acme_file(), wanted }
    }

    /// Makes the folder, and a certificate for the time before the first order.
    pub(super) fn prepare(&self) -> Result<(), FolderError> {
        let failed = |source| FolderError::Unwritable { path: self.path.clone(), source };
        DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(&self.path).map_err(failed)?;
        if self.held().is_some() {
            return Ok(());
        }
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(vec!["satcast.invalid".to_owned()])?;
        (params.not_before, params.not_after) = (date_time_ymd(1970, 1, 1), date_time_ymd(1970, 1, 2));
        let certificate = params.self_signed(&key)?;
        let pair = pem("CERTIFICATE", certificate.der()) + &pem("PRIVATE KEY", &key.serialize_der());
        self.write(&self.file, format!("{ORDERED}{HEAD}{PLACEHOLDER}\n{pair}").as_bytes())
    }

    /// `None` if the file is missing or cannot be used.
    pub(super) fn held(&self) -> Option<Held> {
        let bytes = read(&self.file)?;
        let validity = Certificates::check(Section::Http, &self.file, &bytes).ok()?;
        Some(Held { validity, is_wanted: bytes.starts_with(self.head().as_bytes()) })
    }

    pub(super) fn standing(&self) -> Standing {
        match self.held() {
            Some(Held { is_wanted: true, .. }) => Standing::Held(self.failed()),
            _ => Standing::Waiting(self.failed()),
        }
    }

    fn head(&self) -> String {
        format!("{ORDERED}{HEAD}{}\n", self.wanted)
    }

    /// Replaces the certificate by `pair`, chain and key, if TLS can use it.
    pub(super) fn store(&self, pair: &str) -> Result<Option<Validity>, FolderError> {
        let text = self.head() + pair;
        let validity = Certificates::check(Section::Http, &self.file, text.as_bytes())?;
        self.write(&self.file, text.as_bytes())?;
        // Left behind, it would only delay the next renewal.
        let _ = fs::remove_file(self.path.join(FAILED_FILE_NAME));
        Ok(validity)
    }

    /// Whether a certificate can be stored.
    pub(super) fn probe(&self) -> Result<(), FolderError> {
        let path = self.path.join(PROBE_FILE_NAME);
        self.write(&path, &[0; PROBE_BYTES])?;
        // The next probe replaces what is left.
        let _ = fs::remove_file(path);
        Ok(())
    }

    pub(super) fn account<C: DeserializeOwned>(&self) -> Option<Stored<C>> {
        serde_json::from_slice(&read(&self.path.join(ACCOUNT_FILE_NAME))?).ok()
    }

    pub(super) fn store_account<C: Serialize>(&self, account: &Stored<C>) -> Result<(), FolderError> {
        self.write_json(ACCOUNT_FILE_NAME, account)
    }

    /// The authority does not know the account any more.
    pub(super) fn forget_account(&self) {
        // If it stays, the next order fails as this one did.
        let _ = fs::remove_file(self.path.join(ACCOUNT_FILE_NAME));
    }

    /// The last failure, if it was about the same names and authority.
    pub(super) fn failed(&self) -> Option<Failed> {
        let noted: Noted = serde_json::from_slice(&read(&self.path.join(FAILED_FILE_NAME))?).ok()?;
        let Noted { wanted, failures, next_at_ms, reason } = noted;
        (wanted == self.wanted).then_some(Failed { failures, next_at: UnixMillis(next_at_ms), reason })
    }

    pub(super) fn note(&self, failed: &Failed) -> Result<(), FolderError> {
        let Failed { failures, next_at, reason } = failed.clone();
        let noted = Noted { wanted: self.wanted.clone(), failures, next_at_ms: next_at.0, reason };
        self.write_json(FAILED_FILE_NAME, &noted)
    }

    fn write_json(&self, name: &str, value: &impl Serialize) -> Result<(), FolderError> {
        let path = self.path.join(name);
        match serde_json::to_vec(value) {
            Ok(bytes) => self.write(&path, &bytes),
            Err(error) => Err(FolderError::Unwritable { path, source: error.into() }),
        }
    }

    /// After a crash the file is the old one or the new one.
    fn write(&self, path: &Path, bytes: &[u8]) -> Result<(), FolderError> {
        let partial = path.with_extension("partial");
        let written = || {
            // One that was left behind may have other rights.
            let _ = fs::remove_file(&partial);
            let mut file = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(&partial)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            fs::rename(&partial, path)?;
            File::open(&self.path)?.sync_all()
        };
        written().map_err(|source| FolderError::Unwritable { path: path.to_owned(), source })
    }
}

/// A file up to the largest size of a certificate's.
fn read(path: &Path) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(CERTIFICATE_BYTES_MAX + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= CERTIFICATE_BYTES_MAX).then_some(bytes)
}
