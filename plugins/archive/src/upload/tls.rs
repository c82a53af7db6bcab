//! TLS for `https://` stores, and the certificate authorities that the driver trusts.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::task::spawn_blocking;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore, crypto::ring};

use super::fault::Fault;

/// The authorities of the machine, or those in `SSL_CERT_FILE` and `SSL_CERT_DIR`. Loaded at the first use, and again
/// at every use until one is found.
#[derive(Debug, Default)]
pub(crate) struct Trust {
    config: Mutex<Option<Arc<ClientConfig>>>,
}

impl Trust {
    /// Trusts these roots.
    #[cfg(test)]
    pub(crate) fn with_roots(roots: RootCertStore) -> Self {
        Trust { config: Mutex::new(Some(Arc::new(client_config(roots).unwrap()))) }
    }

    async fn config(&self) -> Result<Arc<ClientConfig>, Fault> {
        if let Some(config) = self.known().clone() {
            return Ok(config);
        }
        let roots = spawn_blocking(system_roots).await.unwrap_or_else(|_| RootCertStore::empty());
        if roots.is_empty() {
            return Err(Fault::internal(
                "no certificate authorities were found on this machine, so https:// stores cannot be verified; ask the operator to \
                 install ca-certificates or to set SSL_CERT_FILE",
            ));
        }
        let config = Arc::new(client_config(roots)?);
        *self.known() = Some(Arc::clone(&config));
        Ok(config)
    }

    fn known(&self) -> parking_lot::MutexGuard<'_, Option<Arc<ClientConfig>>> {
        self.config.lock()
    }

    /// Starts TLS with `host` over a connected socket.
    pub(crate) async fn connect(&self, host: &str, socket: TcpStream) -> Result<TlsStream<TcpStream>, Fault> {
        // An IPv6 address is in brackets in a URL, and a trailing dot means the same name.
        let bare = host.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.').to_owned();
        let name = ServerName::try_from(bare)
            .map_err(|_| Fault::config("endpoint: the host is not a name that a certificate can have"))?;
        let connector = TlsConnector::from(self.config().await?);
        connector.connect(name, socket).await.map_err(|error| failed(host, &error))
    }
}

fn client_config(roots: RootCertStore) -> Result<ClientConfig, Fault> {
    // Explicit: this library has its own copy of rustls without a default provider.
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let versions = builder
        .with_safe_default_protocol_versions()
        .map_err(|error| Fault::internal(format!("TLS cannot be set up: {error}")))?;
    Ok(versions.with_root_certificates(roots).with_no_client_auth())
}

fn system_roots() -> RootCertStore {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (known, ignored) = roots.add_parsable_certificates(found.certs);
    tracing::debug!(known, ignored, "certificate authorities loaded");
    roots
}

/// Why the handshake failed. Nothing that the server wrote is repeated.
fn failed(host: &str, error: &std::io::Error) -> Fault {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match inner {
        Some(rustls::Error::InvalidCertificate(_)) => not_believed(host),
        _ => no_handshake(host),
    }
}

/// The certificate of the store is not trusted.
pub(crate) fn not_believed(host: &str) -> Fault {
    Fault::remote(format!(
        "the certificate of {host} is not trusted; check that it is valid for this name and signed by a known authority"
    ))
}

/// The store does not speak TLS, or ended the handshake.
pub(crate) fn no_handshake(host: &str) -> Fault {
    Fault::network(format!(
        "{host} did not complete the TLS handshake; check that it takes https:// at this port"
    ))
}
