//! The listener with a certificate: the HTTP version, and the limits of HTTP/2 peers.

use std::path::Path;
use std::sync::Arc;

use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{CertificateParams, KeyPair};
use tempfile::TempDir;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::ring};

use super::*;
use crate::certificates::pem;

const NAME: &str = "live.example";

struct Secure {
    running: Running,
    trusted: CertificateDer<'static>,
    _folder: TempDir,
}

fn certificate(folder: &Path) -> CertificateDer<'static> {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec![NAME.to_owned()]).unwrap().self_signed(&key).unwrap();
    std::fs::write(folder.join("cert.pem"), pem("CERTIFICATE", certificate.der())).unwrap();
    std::fs::write(folder.join("key.pem"), pem("PRIVATE KEY", &key.serialize_der())).unwrap();
    certificate.der().clone()
}

async fn start_secure(limits: ServerLimits) -> Secure {
    let folder = tempfile::tempdir().unwrap();
    let trusted = certificate(folder.path());
    let config = config::Http {
        tls_cert: Some(folder.path().join("cert.pem")),
        tls_key: Some(folder.path().join("key.pem")),
        ..listen()
    };
    Secure { running: start_with(&config, limits).await, trusted, _folder: folder }
}

impl Secure {
    /// A connection that offers these protocols.
    async fn connect(&self, protocols: &[&str]) -> TlsStream<TcpStream> {
        let mut roots = RootCertStore::empty();
        roots.add(self.trusted.clone()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let mut config = builder
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        let socket = TcpStream::connect(self.running.address).await.unwrap();
        let name = ServerName::try_from(NAME).unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, socket).await.unwrap()
    }

    /// An HTTP/2 connection; the task ends with it.
    async fn http_2(&self) -> (SendRequest<Empty<Bytes>>, JoinHandle<()>) {
        let stream = self.connect(&["h2", "http/1.1"]).await;
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        let (requests, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        // An error is a valid end here: the server closed the connection.
        let task = tokio::spawn(async { drop(connection.await) });
        (requests, task)
    }
}

fn get(path: &str) -> hyper::Request<Empty<Bytes>> {
    hyper::Request::get(format!("https://{NAME}{path}")).body(Empty::new()).unwrap()
}

/// The only slot of a server with one is free.
async fn assert_served(server: &Secure) {
    let served = async {
        let (mut requests, _task) = server.http_2().await;
        requests.send_request(get("/")).await.unwrap().status()
    };
    assert_eq!(tokio::time::timeout(WAIT_MAX, served).await.expect("a place"), 200);
}

#[tokio::test]
async fn alpn_selects_http_2_or_http_1() {
    let server = start_secure(ServerLimits::default()).await;
    let (mut requests, _task) = server.http_2().await;
    let answers =
        futures_util::future::join_all((0..20).map(|_| requests.send_request(get("/scheme")))).await;
    for answer in answers {
        let body = answer.unwrap().into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body, "https");
    }
    let large = requests.send_request(get("/large")).await.unwrap();
    assert_eq!(large.into_body().collect().await.unwrap().to_bytes().len(), LARGE_BYTES);
    for protocols in [&["http/1.1"][..], &[]] {
        let mut stream = server.connect(protocols).await;
        stream.write_all(b"GET /scheme HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        assert!(text.starts_with("HTTP/1.1 200") && text.ends_with("https"), "{text}");
    }
    let mut plain = send(server.running.address, "GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
    let mut answer = Vec::new();
    let _ = tokio::time::timeout(WAIT_MAX, plain.read_to_end(&mut answer)).await.expect("the server closes");
    assert!(!answer.starts_with(b"HTTP"), "no answer in clear text");
}

#[tokio::test]
async fn an_unfinished_handshake_is_closed() {
    let limits = ServerLimits {
        connections_max: 1,
        head_timeout: Duration::from_millis(300),
        ..ServerLimits::default()
    };
    let server = start_secure(limits).await;
    // The head of a record of TLS 1.2, and nothing after it.
    let _silent = send(server.running.address, "\u{16}\u{3}\u{1}").await;
    assert_served(&server).await;
}

#[tokio::test]
async fn an_http_2_connection_without_requests_loses_its_slot() {
    let limits = ServerLimits {
        connections_max: 1,
        head_timeout: Duration::from_millis(300),
        ..ServerLimits::default()
    };
    let server = start_secure(limits).await;
    let (mut requests, task) = server.http_2().await;
    assert_eq!(requests.send_request(get("/")).await.unwrap().status(), 200);
    assert_served(&server).await;
    tokio::time::timeout(WAIT_MAX, task).await.expect("closed").unwrap();
}

#[tokio::test]
async fn an_http_2_peer_that_keeps_its_window_closed_loses_its_slot() {
    let limits = ServerLimits {
        connections_max: 1,
        write_stall_timeout: Duration::from_millis(300),
        ..ServerLimits::default()
    };
    let server = start_secure(limits).await;
    let (mut requests, task) = server.http_2().await;
    // hyper's client opens the window only as the body is read.
    let _unread = requests.send_request(get("/large")).await.unwrap();
    assert_served(&server).await;
    tokio::time::timeout(WAIT_MAX, task).await.expect("closed").unwrap();
}

#[tokio::test]
async fn large_heads_are_refused_by_http_2() {
    let server = start_secure(ServerLimits::default()).await;
    let (mut requests, _task) = server.http_2().await;
    let mut long = get("/");
    long.headers_mut().insert("x", "x".repeat(2 * HEAD_BYTES_MAX).parse().unwrap());
    assert_eq!(requests.send_request(long).await.unwrap().status(), 431);
    assert_eq!(requests.send_request(get("/")).await.unwrap().status(), 200, "the next request failed");
}

#[tokio::test]
async fn shutdown_lets_running_http_2_requests_finish() {
    let mut server = start_secure(patient()).await;
    let (mut requests, task) = server.http_2().await;
    let busy = tokio::spawn(requests.send_request(get("/slow")));
    tokio::time::sleep(Duration::from_millis(100)).await;
    server.running.stop.take().unwrap().send(()).unwrap();
    let answer = busy.await.unwrap().unwrap();
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "slow");
    tokio::time::timeout(WAIT_MAX, task).await.expect("closed").unwrap();
    tokio::time::timeout(WAIT_MAX, server.running.task).await.unwrap().unwrap();
}
