//! The listener over real sockets.

use std::net::SocketAddr;
use std::time::Duration;

use poem::endpoint::make;
use poem::{EndpointExt as _, Request, Response, Route};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::*;

const WAIT_MAX: Duration = Duration::from_secs(10);

struct Running {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

fn listen() -> config::Http {
    config::Http {
        listen: "127.0.0.1:0".parse().unwrap(),
        tls_cert: None,
        tls_key: None,
        trusted_proxies: Vec::new(),
    }
}

async fn start(limits: ServerLimits) -> Running {
    let server = Server::bind(&listen(), limits).await.unwrap();
    let address = server.local_addr();
    let peer = |request: Request| async move {
        let peer = request.remote_addr().as_socket_addr().unwrap().ip();
        Ok::<_, poem::Error>(Response::from(peer.to_string()))
    };
    let slow = |_| async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        Ok::<_, poem::Error>(Response::from("slow"))
    };
    let routes =
        Route::new().at("/", poem::get(make(peer))).at("/slow", poem::get(make(slow))).map_to_response();
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(server.serve(routes, async {
        let _ = stopped.await;
    }));
    Running { address, stop: Some(stop), task }
}

async fn send(address: SocketAddr, request: &str) -> TcpStream {
    let mut socket = TcpStream::connect(address).await.unwrap();
    socket.write_all(request.as_bytes()).await.unwrap();
    socket
}

/// Everything until the server closes.
async fn rest(socket: &mut TcpStream) -> String {
    let mut text = Vec::new();
    let read =
        tokio::time::timeout(WAIT_MAX, socket.read_to_end(&mut text)).await.expect("the server closes");
    // A reset closes as well: bytes of ours were left unread.
    if let Err(error) = read {
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }
    String::from_utf8(text).unwrap()
}

#[tokio::test]
async fn requests_are_answered_and_know_their_peer() {
    let server = start(ServerLimits::default()).await;
    let mut socket = send(server.address, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
    let answer = rest(&mut socket).await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("\r\n\r\n127.0.0.1"), "{answer}");
}

#[tokio::test]
async fn slow_heads_and_idle_connections_are_closed() {
    let limits = ServerLimits { head_timeout: Duration::from_millis(200), ..ServerLimits::default() };
    let server = start(limits).await;
    for request in ["", "GET / HTTP/1.1\r\nHost: x\r\n"] {
        let mut socket = send(server.address, request).await;
        assert!(!rest(&mut socket).await.contains("200 OK"));
    }
    let mut idle = send(server.address, "GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert!(rest(&mut idle).await.contains("200 OK"), "answered once, then closed");
}

#[tokio::test]
async fn large_heads_and_many_headers_are_refused() {
    let server = start(ServerLimits::default()).await;
    let long = format!("GET / HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n", "x".repeat(2 * HEAD_BYTES_MAX));
    let many = format!("GET / HTTP/1.1\r\nHost: x\r\n{}\r\n", "X: y\r\n".repeat(HEADERS_MAX));
    for request in [long, many, "\u{0}garbage\r\n\r\n".to_owned()] {
        let mut socket = TcpStream::connect(server.address).await.unwrap();
        // The server may close before everything is written.
        let _ = socket.write_all(request.as_bytes()).await;
        assert!(!rest(&mut socket).await.contains("200 OK"));
    }
    let mut socket = send(server.address, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
    assert!(rest(&mut socket).await.contains("200 OK"), "others are served on");
}

#[tokio::test]
async fn connections_beyond_the_cap_wait_for_a_place() {
    let limits = ServerLimits { connections_max: 1, ..ServerLimits::default() };
    let server = start(limits).await;
    let mut first = send(server.address, "GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
    let mut byte = [0; 1];
    first.read_exact(&mut byte).await.unwrap();
    let mut second = send(server.address, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
    let early = tokio::time::timeout(Duration::from_millis(200), second.read_exact(&mut byte)).await;
    assert!(early.is_err(), "the second connection waits");
    drop(first);
    assert!(rest(&mut second).await.contains("TTP/1.1 200"));
}

#[tokio::test]
async fn shutdown_lets_running_requests_finish_and_closes_idle_connections() {
    let mut server = start(ServerLimits::default()).await;
    let mut idle = TcpStream::connect(server.address).await.unwrap();
    let mut busy = send(server.address, "GET /slow HTTP/1.1\r\nHost: x\r\n\r\n").await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    server.stop.take().unwrap().send(()).unwrap();
    assert!(rest(&mut busy).await.ends_with("slow"));
    assert_eq!(rest(&mut idle).await, "");
    tokio::time::timeout(WAIT_MAX, server.task).await.unwrap().unwrap();
    assert!(TcpStream::connect(server.address).await.is_err(), "nobody listens any more");
}

#[tokio::test]
async fn requests_beyond_the_grace_time_are_cut() {
    let limits = ServerLimits { shutdown_grace: Duration::from_millis(50), ..ServerLimits::default() };
    let mut server = start(limits).await;
    let mut busy = send(server.address, "GET /slow HTTP/1.1\r\nHost: x\r\n\r\n").await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    server.stop.take().unwrap().send(()).unwrap();
    tokio::time::timeout(WAIT_MAX, server.task).await.unwrap().unwrap();
    assert!(!rest(&mut busy).await.contains("slow"));
}

#[tokio::test]
async fn a_taken_address_and_a_certificate_are_errors_with_the_fix() {
    let server = start(ServerLimits::default()).await;
    let taken = config::Http { listen: server.address, ..listen() };
    let error = Server::bind(&taken, ServerLimits::default()).await.unwrap_err().to_string();
    assert!(error.contains(&server.address.to_string()) && error.contains("[http] listen"), "{error}");
    let tls = config::Http { tls_cert: Some("cert.pem".into()), ..listen() };
    assert!(matches!(Server::bind(&tls, ServerLimits::default()).await, Err(HttpError::TlsNotBuilt)));
}
