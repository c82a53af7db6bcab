//! One HTTP request over a connection that the host checked. No redirect is followed.

use std::fmt;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::header::{ACCEPT, HOST, USER_AGENT};
use hyper::{Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use satcast_driver_rtmp::tls::{self, Trust};
use satcast_plugin_api::Error;
use satcast_plugin_api::driver::Ctx;
use tokio::io::{AsyncRead, AsyncWrite};

use super::{LIST_BYTES_MAX, LIST_WAIT};

/// The address of a list.
pub(super) struct ListAddress {
    host: String,
    port: u16,
    has_tls: bool,
    path: String,
}

impl fmt::Display for ListAddress {
    /// Without the query, which may be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl ListAddress {
    /// Parses an address.
    pub(super) fn parse(address: &str) -> Result<Self, String> {
        let wrong = || "must be an address that begins with https:// or http://".to_owned();
        let uri: Uri = address.parse().map_err(|_| wrong())?;
        let has_tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(wrong()),
        };
        let authority =
            uri.authority().filter(|authority| !authority.as_str().contains('@')).ok_or_else(wrong)?;
        let port = authority.port_u16().unwrap_or(if has_tls { 443 } else { 80 });
        // The host's guard takes an IPv6 address without its brackets.
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        Ok(Self { host, port, has_tls, path })
    }

    fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        format!("{host}:{}", self.port)
    }
}

/// The body of the answer.
pub(super) async fn get(address: &ListAddress, ctx: &Ctx, trust: &Trust) -> Result<Bytes, Error> {
    let socket = ctx.connect(&address.host, address.port, LIST_WAIT).await?;
    if address.has_tls {
        exchange(address, tls::secure(&address.host, socket, trust).await?).await
    } else {
        exchange(address, socket).await
    }
}

async fn exchange<S>(address: &ListAddress, stream: S) -> Result<Bytes, Error>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let request = Request::get(&address.path)
        .header(HOST, address.authority())
        .header(ACCEPT, "application/json")
        .header(USER_AGENT, concat!("satcast/", env!("CARGO_PKG_VERSION")))
        .body(Empty::<Bytes>::new())
        .map_err(|error| Error::internal(format!("the request cannot be made: {error}")))?;
    let broken = |error: hyper::Error| Error::network(format!("the connection broke off: {error}"));
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
    let connection = Guarded(tokio::spawn(connection));
    let response = sender.send_request(request).await.map_err(broken)?;
    if response.status() != StatusCode::OK {
        return Err(Error::remote(format!("it answers {}", response.status())));
    }
    let body = Limited::new(response.into_body(), LIST_BYTES_MAX).collect().await;
    drop(connection);
    let body = body.map_err(|_| {
        Error::remote(format!("the answer breaks off, or has more than {LIST_BYTES_MAX} bytes"))
    })?;
    Ok(body.to_bytes())
}

/// A task that ends with its owner.
struct Guarded<T>(tokio::task::JoinHandle<T>);

impl<T> Drop for Guarded<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_shown_without_their_path() {
        let address = ListAddress::parse("https://ingest.example/ingests?x=hunter2").unwrap();
        assert_eq!((address.host.as_str(), address.port, address.has_tls), ("ingest.example", 443, true));
        assert_eq!(
            (address.path.as_str(), address.to_string().as_str()),
            ("/ingests?x=hunter2", "ingest.example:443")
        );
        let address = ListAddress::parse("http://[::1]:8081").unwrap();
        assert_eq!((address.host.as_str(), address.authority().as_str()), ("::1", "[::1]:8081"));
        assert_eq!((address.port, address.has_tls, address.path.as_str()), (8081, false, "/"));
        for wrong in
            ["", "ingest.example", "ftp://a.example/", "https://u:p@a.example/", "/ingests", "https://"]
        {
            assert!(ListAddress::parse(wrong).is_err(), "{wrong}");
        }
    }
}
