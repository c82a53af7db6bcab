//! `[acme]`: certificates that the service orders by itself, and the file in the data folder that they are kept in.

use std::path::PathBuf;

use serde::Deserialize;
use url::Url;

use super::check::refuse;
use super::ingest::is_local;
use super::{Config, ConfigError, value};

/// Name of the folder inside the data folder with account and certificate.
const FOLDER_NAME: &str = "acme";
/// Name of the file in it with the certificate chain and its key.
const CERTIFICATE_FILE_NAME: &str = "certificate.pem";
/// Most names of one certificate, as at Let's Encrypt.
const DOMAINS_MAX: usize = 100;

/// `[acme]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Acme {
    /// Names of the certificate; none: no certificate is ordered.
    #[serde(default, deserialize_with = "value::host_names")]
    pub domains: Vec<String>,
    /// E-mail address for the authority.
    #[serde(default, deserialize_with = "value::plain_text")]
    pub contact: Option<String>,
    /// Address of the authority's directory (RFC 8555 section 7.1.1).
    #[serde(deserialize_with = "value::url")]
    pub directory: Url,
    /// Certificate authorities in PEM to trust for `directory`; `None`: those of the system.
    pub ca_file: Option<PathBuf>,
}

impl Acme {
    /// Whether the service orders its certificate.
    pub fn is_on(&self) -> bool {
        !self.domains.is_empty()
    }

    /// Whether the authority may be asked at `url`: over https, or in clear on this machine.
    pub fn is_safe(url: &Url) -> bool {
        url.scheme() == "https" || is_local(url)
    }
}

impl Config {
    /// The folder of account and certificate.
    pub fn acme_folder(&self) -> PathBuf {
        self.data_dir.join(FOLDER_NAME)
    }

    /// The file with the ordered certificate and its key.
    pub fn acme_file(&self) -> PathBuf {
        self.acme_folder().join(CERTIFICATE_FILE_NAME)
    }

    /// Both ports use the ordered certificate as if its file were configured.
    pub(super) fn use_acme(&mut self) {
        if !self.acme.is_on() {
            return;
        }
        let file = Some(self.acme_file());
        (self.http.tls_cert, self.http.tls_key) = (file.clone(), file.clone());
        if self.ingest.rtmps_listen.is_some() {
            (self.ingest.tls_cert, self.ingest.tls_key) = (file.clone(), file);
        }
    }
}

pub(super) fn check(config: &Config) -> Result<(), ConfigError> {
    let acme = &config.acme;
    if !acme.is_on() {
        return Ok(());
    }
    if acme.domains.len() > DOMAINS_MAX {
        return refuse(format!(
            "acme.domains has {} names; a certificate has at most {DOMAINS_MAX}",
            acme.domains.len()
        ));
    }
    for (name, file) in [("http", &config.http.tls_cert), ("ingest", &config.ingest.tls_cert)] {
        if file.is_some() {
            return refuse(format!(
                "acme.domains and {name}.tls_cert are both set; remove acme.domains to use the files, or {name}.tls_cert and {name}.tls_key to have the certificate ordered"
            ));
        }
    }
    if !Acme::is_safe(&acme.directory) {
        return refuse(
            "acme.directory is an http address of another machine; use an https address".to_owned(),
        );
    }
    if acme.contact.as_ref().is_some_and(|contact| !contact.contains('@') || contact.contains(':')) {
        return refuse(
            "acme.contact is not an e-mail address; use one such as \"ops@example.com\"".to_owned(),
        );
    }
    if config.cluster.node.is_some() {
        return refuse(
            "acme.domains is set on a node of several, but the authority may ask any of them; remove acme.domains and let a proxy before the nodes end TLS".to_owned(),
        );
    }
    Ok(())
}
