//! One HTTP/1.1 request over a socket of the guard: the name is resolved and checked for this very request, and the checked
//! address is the one connected to. No pool, proxy, redirect or cookie that could lead elsewhere.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::ring};

use super::{Asker, Guard, GuardError};

/// Largest head of an answer in bytes; a longer one breaks the connection.
pub const HEAD_BYTES_MAX: usize = 16 * 1_024;

/// TLS cannot be set up.
#[derive(Clone, Debug, thiserror::Error)]
#[error("cannot set up TLS for webhooks and wallets: {0}")]
pub struct TlsError(#[from] tokio_rustls::rustls::Error);

/// Why there is no connection. Nothing was sent yet but what TLS needs.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The guard refused the host, or did not reach it.
    #[error(transparent)]
    Guard(#[from] GuardError),
    /// The host can stand in no certificate.
    #[error("the host name cannot be used with TLS")]
    Name,
    /// The certificate was refused, or TLS broke.
    #[error("TLS failed: {0}")]
    Tls(#[source] io::Error),
}

/// Where a request goes, taken from an address that was checked.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// Name or literal address; IPv6 may stand in brackets.
    pub host: &'a str,
    /// TCP port.
    pub port: u16,
    /// Whether TLS is spoken.
    pub tls: bool,
}

/// What both sides of a connection can do, with and without TLS.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A connection that stands.
pub type Channel = Box<dyn Stream>;

/// Opens connections through a guard; cheap to clone.
#[derive(Clone, Debug)]
pub struct Opener {
    guard: Guard,
    tls: Arc<ClientConfig>,
}

impl Opener {
    /// An opener that trusts the system's certificate authorities.
    ///
    /// # Errors
    /// TLS has no usable protocol version.
    pub fn new(guard: Guard) -> Result<Self, TlsError> {
        let found = rustls_native_certs::load_native_certs();
        let mut roots = RootCertStore::empty();
        let (known, _) = roots.add_parsable_certificates(found.certs);
        if known == 0 {
            tracing::warn!(
                "no certificate authorities were found, webhooks and wallets over https will fail; install ca-certificates"
            );
        }
        Self::with_roots(guard, roots)
    }

    /// An opener that trusts these certificate authorities.
    ///
    /// # Errors
    /// As [`Opener::new`].
    pub fn with_roots(guard: Guard, roots: RootCertStore) -> Result<Self, TlsError> {
        // Named, because a process may have no default provider.
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let tls = builder
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self { guard, tls: Arc::new(tls) })
    }

    /// This opener, as `asker` uses it.
    #[must_use]
    pub fn asked_by(&self, asker: Asker) -> Self {
        Self { guard: self.guard.asked_by(asker), tls: Arc::clone(&self.tls) }
    }

    /// The guard that connects.
    pub fn guard(&self) -> &Guard {
        &self.guard
    }

    /// Resolves, checks and connects within `limit`; TLS, which follows, is under the caller's own limit of time.
    ///
    /// # Errors
    /// [`OpenError`].
    pub async fn open(&self, place: Place<'_>, limit: Duration) -> Result<Channel, OpenError> {
        let socket = self.guard.connect(place.host, place.port, limit).await?;
        let socket = TcpStream::from_std(socket).map_err(OpenError::Tls)?;
        if !place.tls {
            return Ok(Box::new(socket));
        }
        let name = place.host.trim_matches(['[', ']']).to_owned();
        let name = ServerName::try_from(name).map_err(|_| OpenError::Name)?;
        let stream = TlsConnector::from(Arc::clone(&self.tls)).connect(name, socket).await;
        Ok(Box::new(stream.map_err(OpenError::Tls)?))
    }
}

/// An answer whose head came. The connection ends when this is dropped, whatever the other side still sends.
#[derive(Debug)]
pub struct Answer {
    /// Status and headers; the body is read by [`Answer::read`].
    response: Response<Incoming>,
    /// Held so that the connection is not taken for one that nobody needs.
    _sender: http1::SendRequest<Full<Bytes>>,
    _connection: JoinSet<Result<(), hyper::Error>>,
}

impl Answer {
    /// Status and headers.
    pub fn head(&self) -> &Response<Incoming> {
        &self.response
    }

    /// Appends the body to `into` until that holds `max` bytes. What came before a failure stays.
    ///
    /// # Errors
    /// The connection broke.
    pub async fn read(&mut self, into: &mut Vec<u8>, max: usize) -> Result<(), hyper::Error> {
        while into.len() < max {
            let Some(frame) = self.response.frame().await else { return Ok(()) };
            if let Some(data) = frame?.data_ref() {
                let room = max - into.len();
                into.extend_from_slice(&data[..data.len().min(room)]);
            }
        }
        Ok(())
    }
}

/// Sends a request, whose target is a path, and waits for the head of the answer.
///
/// # Errors
/// The connection broke; the request may have arrived.
pub async fn exchange(channel: Channel, request: Request<Full<Bytes>>) -> Result<Answer, hyper::Error> {
    let mut builder = http1::Builder::new();
    let handshake = builder.max_buf_size(HEAD_BYTES_MAX).handshake(TokioIo::new(channel));
    let (mut sender, connection) = handshake.await?;
    let mut driver = JoinSet::new();
    driver.spawn(connection);
    let response = sender.send_request(request).await?;
    Ok(Answer { response, _sender: sender, _connection: driver })
}
