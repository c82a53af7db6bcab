//! The one HTTP client of the service itself, for webhooks and wallets.
//!
//! The guard is its resolver: a connection goes to an address that was checked. A literal address never reaches a resolver, so
//! it is checked before every request. Deliberately absent: proxies, redirects, cookies, retries, HTTP/2. An answer whose head has
//! more than 100 lines or some 400 KiB, the parser's own limits, breaks the connection.

use std::error::Error;
use std::io;
use std::iter::from_fn;
use std::sync::Arc;
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{Request, Response};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore, crypto::ring};

use super::target::Target;
use super::{Asker, Guard, GuardError, whole_ms};

/// How long an unused connection is kept: less than the 5 s after which many servers close theirs, so that a request does not
/// meet a connection that just closes. It is gone after twice this time at the latest.
const IDLE_KEPT: Duration = Duration::from_secs(4);
/// Unused connections kept for one server.
const IDLE_PER_HOST_MAX: usize = 4;
const AGENT: &str = concat!("Satcast/", env!("CARGO_PKG_VERSION"));

tokio::task_local! {
    /// The asker of this task's request; the HTTP library passes only a name to its resolver.
    static ASKER: Asker;
}

/// TLS cannot be set up.
#[derive(Clone, Debug, thiserror::Error)]
#[error("cannot set up TLS for webhooks and wallets: {0}")]
pub struct TlsError(String);

impl From<rustls::Error> for TlsError {
    fn from(error: rustls::Error) -> Self {
        Self(error.to_string())
    }
}

/// Why there is no connection. Nothing but the TLS handshake was sent.
#[derive(Clone, Debug, thiserror::Error)]
pub enum OpenError {
    /// The guard refused the host, or it was not reached.
    #[error(transparent)]
    Guard(#[from] GuardError),
    /// The host cannot be the name in a certificate.
    #[error("the host name cannot be in a TLS certificate; use another name of the server")]
    Name,
    /// The certificate was refused, or TLS broke.
    #[error("TLS failed: {0}")]
    Tls(String),
}

/// Why there is no answer. Contains only the host of the URL.
#[derive(Clone, Debug, thiserror::Error)]
pub enum HttpError {
    /// The request was not sent.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The request may have arrived.
    #[error("the connection broke: {0}")]
    Broke(String),
}

/// Target of a connection without HTTP, from a checked address.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// Name or literal address; IPv6 may stand in brackets.
    pub host: &'a str,
    /// TCP port.
    pub port: u16,
    /// Whether to use TLS.
    pub tls: bool,
}

/// A byte stream with or without TLS.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// An open connection.
pub type Channel = Box<dyn Stream>;

/// Sends requests through a guard; clones share their connections.
#[derive(Clone, Debug)]
pub struct Client {
    guard: Guard,
    http: reqwest::Client,
    tls: Arc<ClientConfig>,
    connect_limit: Duration,
}

impl Client {
    /// A client that trusts the system's certificate authorities. `connect_limit` is the longest time for opening a connection,
    /// look-up and TLS included.
    ///
    /// # Errors
    /// TLS has no usable protocol version.
    pub fn new(guard: Guard, connect_limit: Duration) -> Result<Self, TlsError> {
        Self::keeping(guard, connect_limit, IDLE_PER_HOST_MAX)
    }

    /// The same, which keeps `idle` unused connections for one server.
    ///
    /// # Errors
    /// As [`Client::new`].
    pub fn keeping(guard: Guard, connect_limit: Duration, idle: usize) -> Result<Self, TlsError> {
        let found = rustls_native_certs::load_native_certs();
        let mut roots = RootCertStore::empty();
        let (known, _) = roots.add_parsable_certificates(found.certs);
        if known == 0 {
            tracing::warn!(
                "no certificate authorities were found, webhooks and wallets over https will fail; install ca-certificates"
            );
        }
        Self::build(guard, connect_limit, roots, idle)
    }

    /// A client that trusts these certificate authorities.
    ///
    /// # Errors
    /// As [`Client::new`].
    pub fn with_roots(guard: Guard, connect_limit: Duration, roots: RootCertStore) -> Result<Self, TlsError> {
        Self::build(guard, connect_limit, roots, IDLE_PER_HOST_MAX)
    }

    fn build(
        guard: Guard,
        connect_limit: Duration,
        roots: RootCertStore,
        idle: usize,
    ) -> Result<Self, TlsError> {
        // Explicit, because a process may have no default provider.
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let tls = builder
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let http = reqwest::Client::builder()
            .tls_backend_preconfigured(tls.clone())
            .dns_resolver(Checked { guard: guard.clone(), limit: connect_limit * 4 / 5 })
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .connect_timeout(connect_limit)
            .pool_idle_timeout(IDLE_KEPT)
            .pool_max_idle_per_host(idle)
            .user_agent(AGENT)
            .build()
            .map_err(|error| TlsError(error.to_string()))?;
        Ok(Self { guard, http, tls: Arc::new(tls), connect_limit })
    }

    /// This client on behalf of `asker`.
    #[must_use]
    pub fn asked_by(&self, asker: Asker) -> Self {
        Self { guard: self.guard.asked_by(asker), ..self.clone() }
    }

    /// Sends a request and waits for the head of the answer. The caller limits the time of both; giving up closes the connection.
    ///
    /// # Errors
    /// [`HttpError`].
    pub async fn send(&self, request: Request) -> Result<Answer, HttpError> {
        let host = request.url().host_str().unwrap_or_default().to_owned();
        let port = request.url().port_or_known_default().unwrap_or_default();
        self.guard.check_literal(&host).map_err(|refused| OpenError::Guard(refused.into()))?;
        match ASKER.scope(self.guard.asker.clone(), self.http.execute(request)).await {
            Ok(response) => Ok(Answer(response)),
            Err(error) if error.is_connect() => Err(self.not_opened(&error, &host, port).into()),
            Err(error) => Err(broke(&error)),
        }
    }

    /// Why a connection could not be opened.
    fn not_opened(&self, error: &reqwest::Error, host: &str, port: u16) -> OpenError {
        let host = Target::parse(host).map_or_else(String::new, |target| target.to_string());
        if let Some(refused) = causes(error).find_map(|cause| cause.downcast_ref::<GuardError>()) {
            return refused.clone().into();
        }
        let failure = causes(error).find_map(|cause| cause.downcast_ref::<io::Error>());
        if let Some(tls) = failure.and_then(of_tls) {
            return OpenError::Tls(tls.to_string());
        }
        if error.is_timeout() {
            let after_ms = whole_ms(self.connect_limit);
            return GuardError::Timeout { host, port, after_ms }.into();
        }
        let source = match failure {
            Some(failure) => match failure.raw_os_error() {
                Some(code) => io::Error::from_raw_os_error(code),
                None => io::Error::new(failure.kind(), failure.to_string()),
            },
            None => io::Error::other("it was interrupted"),
        };
        GuardError::Connect { host, port, source: Arc::new(source) }.into()
    }

    /// Resolves, checks and connects within `limit`; the caller limits the time of the TLS handshake that follows. For protocols
    /// other than HTTP.
    ///
    /// # Errors
    /// [`OpenError`].
    pub async fn open(&self, place: Place<'_>, limit: Duration) -> Result<Channel, OpenError> {
        let broke = |error: io::Error| OpenError::Tls(error.to_string());
        let socket = self.guard.connect(place.host, place.port, limit).await?;
        let socket = TcpStream::from_std(socket).map_err(broke)?;
        if !place.tls {
            return Ok(Box::new(socket));
        }
        let name = place.host.trim_matches(['[', ']']).to_owned();
        let name = ServerName::try_from(name).map_err(|_| OpenError::Name)?;
        let stream = TlsConnector::from(Arc::clone(&self.tls)).connect(name, socket).await;
        Ok(Box::new(stream.map_err(broke)?))
    }
}

/// An answer whose head has arrived. Dropping it before the end of its body closes the connection.
#[derive(Debug)]
pub struct Answer(Response);

impl Answer {
    /// Status and headers; the body is read by [`Answer::read`].
    pub fn head(&self) -> &Response {
        &self.0
    }

    /// The answer itself, for a caller that reads the body as it arrives and limits it.
    pub fn into_response(self) -> Response {
        self.0
    }

    /// Appends the body to `into` up to `max` bytes. Bytes received before a failure stay in `into`.
    ///
    /// # Errors
    /// The connection broke.
    pub async fn read(&mut self, into: &mut Vec<u8>, max: usize) -> Result<(), HttpError> {
        while into.len() < max {
            let Some(data) = self.0.chunk().await.map_err(|error| broke(&error))? else { return Ok(()) };
            let free = max - into.len();
            into.extend_from_slice(&data[..data.len().min(free)]);
        }
        Ok(())
    }
}

/// The guard as the client's resolver. The look-up has less time than the whole connection, so that its error is reported.
struct Checked {
    guard: Guard,
    limit: Duration,
}

impl Resolve for Checked {
    fn resolve(&self, name: Name) -> Resolving {
        let asked = ASKER.try_with(|asker| self.guard.asked_by(asker.clone()));
        let (guard, limit) = (asked.unwrap_or_else(|_| self.guard.clone()), self.limit);
        Box::pin(async move {
            // The client sets the port of the URL.
            let found = guard.resolve(name.as_str(), 0, limit).await?;
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

/// The causes of an error, without the error itself, which contains the URL.
fn causes(error: &reqwest::Error) -> impl Iterator<Item = &(dyn Error + 'static)> {
    let mut next = error.source();
    from_fn(move || {
        let cause = next?;
        next = cause.source();
        Some(cause)
    })
}

/// The TLS error inside a socket's error, at any depth.
fn of_tls(error: &io::Error) -> Option<&rustls::Error> {
    let inner = error.get_ref()?;
    inner.downcast_ref().or_else(|| of_tls(inner.downcast_ref()?))
}

fn broke(error: &reqwest::Error) -> HttpError {
    let mut words: Vec<String> = Vec::new();
    for cause in causes(error).skip_while(|cause| !cause.is::<hyper::Error>()) {
        let more = cause.to_string();
        if !words.iter().any(|said| said.contains(&more)) {
            words.push(more);
        }
    }
    HttpError::Broke(words.join(": "))
}

#[cfg(test)]
mod tests;
