//! `rtmps://`: which certificates the driver trusts, and plain texts for a failed handshake.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use satcast_plugin_api::Error;
use tokio::net::TcpStream;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{self, CertificateError, ClientConfig, RootCertStore, crypto::ring};

use crate::refusal;
use crate::target::Target;

/// Bytes that TLS accepts before the system must have them. Two records: large enough that a batch needs few of them,
/// small enough that a server at 100 kbit/s is seen to read before it counts as stalled.
const UNSENT_BYTES_MAX: usize = 32 * 1024;
/// Floor before the next attempt after a certificate was not trusted: only people can fix it.
pub(crate) const CERTIFICATE_RETRY_FLOOR: Duration = Duration::from_secs(60);

/// The TLS library's name for an authority's certificate that a server uses as its own.
const AUTHORITY_AS_SERVER: &str = "CaUsedAsEndEntity";

/// Trusted certificate authorities. Cheap to clone; clones share what was loaded.
#[derive(Clone, Debug)]
pub struct Trust {
    config: Arc<Mutex<Option<Arc<ClientConfig>>>>,
}

impl Trust {
    /// The system's authorities, or those in `SSL_CERT_FILE` and `SSL_CERT_DIR`. Loaded at the first use, and again
    /// at every use until one is found.
    pub fn system() -> Self {
        Trust { config: Arc::default() }
    }

    /// # Errors
    /// The TLS library supports no usable protocol version.
    pub fn with_roots(roots: RootCertStore) -> Result<Self, Error> {
        let config = client_config(roots)?;
        Ok(Trust { config: Arc::new(Mutex::new(Some(Arc::new(config)))) })
    }

    async fn config(&self) -> Result<Arc<ClientConfig>, Error> {
        if let Some(config) = self.known().clone() {
            return Ok(config);
        }
        let loaded = spawn_blocking(system_roots).await;
        let roots =
            loaded.map_err(|error| Error::internal(format!("loading certificates failed: {error}")))?;
        if roots.is_empty() {
            return Err(Error::internal(
                "no certificate authorities were found on this machine, so no rtmps:// server can be checked; ask the \
                 operator to install ca-certificates or to set SSL_CERT_FILE",
            ));
        }
        let config = Arc::new(client_config(roots)?);
        *self.known() = Some(Arc::clone(&config));
        Ok(config)
    }

    fn known(&self) -> parking_lot::MutexGuard<'_, Option<Arc<ClientConfig>>> {
        self.config.lock()
    }
}

fn system_roots() -> RootCertStore {
    let found = rustls_native_certs::load_native_certs();
    for error in &found.errors {
        tracing::debug!(%error, "certificate authorities that cannot be read");
    }
    let mut roots = RootCertStore::empty();
    let (known, ignored) = roots.add_parsable_certificates(found.certs);
    tracing::debug!(known, ignored, "certificate authorities loaded");
    roots
}

fn client_config(roots: RootCertStore) -> Result<ClientConfig, Error> {
    // Explicit provider: this library has its own copy of rustls, without a process default.
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let versions = builder
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::internal(format!("TLS cannot be set up: {error}")))?;
    Ok(versions.with_root_certificates(roots).with_no_client_auth())
}

/// Makes a TLS connection to `target` over a connected socket, until `deadline` at the latest.
pub(crate) async fn connect(
    target: &Target,
    socket: TcpStream,
    trust: &Trust,
    deadline: Instant,
) -> Result<TlsStream<TcpStream>, Error> {
    let name = server_name(target.host())?;
    let connector = TlsConnector::from(trust.config().await?);
    match timeout_at(deadline, connector.connect(name, socket)).await {
        Ok(Ok(mut stream)) => {
            stream.get_mut().1.set_buffer_limit(Some(UNSENT_BYTES_MAX));
            Ok(stream)
        }
        Ok(Err(error)) => Err(failed(target, &error)),
        Err(_) => Err(late(target)),
    }
}

pub fn late(target: &Target) -> Error {
    Error::network(format!(
        "{target} did not complete the TLS handshake in time; check that it takes rtmps:// at this port"
    ))
}

/// Makes a TLS connection over a connected socket to a host that is no RTMP server. Has no time limit.
///
/// # Errors
/// The reason, as text for a log.
pub async fn secure(host: &str, socket: TcpStream, trust: &Trust) -> Result<TlsStream<TcpStream>, Error> {
    let name = server_name(host)?;
    let connector = TlsConnector::from(trust.config().await?);
    let connected = connector.connect(name, socket).await;
    connected.map_err(|error| Error::remote(format!("TLS with {host} failed: {error}")))
}

fn server_name(host: &str) -> Result<ServerName<'static>, Error> {
    // A dot at the end means the same name and is in no certificate.
    ServerName::try_from(host.trim_end_matches('.').to_owned())
        .map_err(|_| Error::config("url: the host name cannot be in a certificate; check it"))
}

/// Why the handshake failed. Text from the server is never repeated.
pub fn failed(target: &Target, error: &io::Error) -> Error {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match inner {
        Some(rustls::Error::InvalidCertificate(why)) => {
            let text = format!("the certificate of {target} {}", not_trusted(why));
            Error::remote(text).retry_after(CERTIFICATE_RETRY_FLOOR)
        }
        Some(rustls::Error::InvalidMessage(_) | rustls::Error::InappropriateMessage { .. }) => {
            Error::remote(format!(
                "{target} does not speak TLS at this port; check the port, or use rtmp:// if it has no TLS"
            ))
        }
        Some(rustls::Error::AlertReceived(alert)) => {
            Error::remote(format!("{target} refused the TLS handshake: {alert:?}"))
        }
        Some(rustls::Error::PeerIncompatible(_)) => Error::remote(format!(
            "{target} offers no safe TLS version; the server must support TLS 1.2 or 1.3"
        )),
        Some(_) => Error::remote(format!("{target} violates the TLS protocol")),
        None if refusal::is_close(error) => Error::remote(format!(
            "{target} closed the connection in the TLS handshake; check that it takes rtmps:// at this port"
        )),
        None => refusal::io(target, error),
    }
}

fn not_trusted(why: &CertificateError) -> &'static str {
    use CertificateError as C;
    match why {
        C::Expired | C::ExpiredContext { .. } => "has expired; the server's operator must renew it",
        C::NotValidYet | C::NotValidYetContext { .. } => "is not valid yet; check the clock of this machine",
        C::NotValidForName | C::NotValidForNameContext { .. } => {
            "is for another host name; use the name in the url that the server's operator gives"
        }
        C::UnknownIssuer => {
            "is not signed by an authority that this machine trusts; install the certificate here if the server uses \
             a self-signed one"
        }
        C::Revoked => "was revoked",
        C::Other(why) if why.to_string().contains(AUTHORITY_AS_SERVER) => {
            "is that of an authority (CA:TRUE), not of a server; the server's operator must replace it"
        }
        C::BadSignature => "has a wrong signature",
        _ => "cannot be used; the server's operator must replace it",
    }
}

#[cfg(test)]
mod tests {
    use satcast_plugin_api::Class;
    use tokio_rustls::rustls::{AlertDescription, InvalidMessage, OtherError, PeerIncompatible};

    use super::*;

    #[test]
    fn failures_texts() {
        let target = Target::parse("rtmps://a.example/live/sesame", None).unwrap();
        let certificate = rustls::Error::InvalidCertificate;
        let authority = CertificateError::Other(OtherError(Arc::new(io::Error::other(AUTHORITY_AS_SERVER))));
        for (error, text, floor) in [
            (
                certificate(CertificateError::Expired),
                "the certificate of a.example:443 has expired; the server's operator must renew it",
                true,
            ),
            (
                certificate(CertificateError::NotValidYet),
                "the certificate of a.example:443 is not valid yet; check the clock of this machine",
                true,
            ),
            (
                certificate(CertificateError::NotValidForName),
                "the certificate of a.example:443 is for another host name; use the name in the url that the server's \
                 operator gives",
                true,
            ),
            (
                certificate(CertificateError::UnknownIssuer),
                "the certificate of a.example:443 is not signed by an authority that this machine trusts; install the \
                 certificate here if the server uses a self-signed one",
                true,
            ),
            (certificate(CertificateError::Revoked), "the certificate of a.example:443 was revoked", true),
            (
                certificate(authority),
                "the certificate of a.example:443 is that of an authority (CA:TRUE), not of a server; the server's \
                 operator must replace it",
                true,
            ),
            (
                certificate(CertificateError::BadSignature),
                "the certificate of a.example:443 has a wrong signature",
                true,
            ),
            (
                certificate(CertificateError::BadEncoding),
                "the certificate of a.example:443 cannot be used; the server's operator must replace it",
                true,
            ),
            (
                rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType),
                "a.example:443 does not speak TLS at this port; check the port, or use rtmp:// if it has no TLS",
                false,
            ),
            (
                rustls::Error::AlertReceived(AlertDescription::HandshakeFailure),
                "a.example:443 refused the TLS handshake: HandshakeFailure",
                false,
            ),
            (
                rustls::Error::PeerIncompatible(PeerIncompatible::Tls12NotOffered),
                "a.example:443 offers no safe TLS version; the server must support TLS 1.2 or 1.3",
                false,
            ),
            (rustls::Error::DecryptError, "a.example:443 violates the TLS protocol", false),
        ] {
            let actual = failed(&target, &io::Error::new(io::ErrorKind::InvalidData, error));
            let expected =
                Error { retry_after: floor.then_some(CERTIFICATE_RETRY_FLOOR), ..Error::remote(text) };
            assert_eq!(actual, expected);
        }
        let text = "a.example:443 closed the connection in the TLS handshake; check that it takes rtmps:// at this port";
        assert_eq!(failed(&target, &io::ErrorKind::UnexpectedEof.into()), Error::remote(text));
        let text = "a.example:443 did not complete the TLS handshake in time; check that it takes rtmps:// at this port";
        assert_eq!(late(&target), Error::network(text));
        assert_eq!(failed(&target, &io::ErrorKind::TimedOut.into()).class, Class::Network);
    }

    #[tokio::test]
    async fn missing_authorities_are_reported() {
        let trust = Trust::system();
        // The test accepts machines with and without authorities and checks the consequence.
        match trust.config().await {
            Ok(config) => assert!(Arc::ptr_eq(&config, &trust.config().await.unwrap()), "loaded once"),
            Err(error) => assert!(error.message.contains("ca-certificates"), "{error}"),
        }
    }
}
