//! The listener over real sockets.

mod secure;

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;

use poem::endpoint::make;
use poem::{EndpointExt as _, Request, Response, Route};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::*;

const WAIT_MAX: Duration = Duration::from_secs(60);
/// More than the buffers of both sockets take.
const LARGE_BYTES: usize = 32 * 1024 * 1024;

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
    start_with(&listen(), limits).await
}

async fn start_with(config: &config::Http, limits: ServerLimits) -> Running {
    let server = Server::bind(config, limits).await.unwrap();
    let address = server.local_addr();
    let peer = |request: Request| async move {
        let peer = request.remote_addr().as_socket_addr().unwrap().ip();
        Ok::<_, poem::Error>(Response::from(peer.to_string()))
    };
    let scheme =
        |request: Request| async move { Ok::<_, poem::Error>(Response::from(request.scheme().to_string())) };
    let slow = |_| async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        Ok::<_, poem::Error>(Response::from("slow"))
    };
    let large = |_| async { Ok::<_, poem::Error>(Response::from(vec![b'x'; LARGE_BYTES])) };
    let deaf = |_| async {
        Ok::<_, poem::Error>(
            Response::builder().status(poem::http::StatusCode::PAYLOAD_TOO_LARGE).body("enough"),
        )
    };
    let routes = Route::new()
        .at("/deaf", poem::post(make(deaf)))
        .at("/", poem::get(make(peer)))
        .at("/scheme", poem::get(make(scheme)))
        .at("/slow", poem::get(make(slow)))
        .at("/large", poem::get(make(large)))
        .map_to_response();
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
    // The server may also close by a reset, when it left bytes unread.
    if let Err(error) = read {
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }
    String::from_utf8(text).unwrap()
}

#[tokio::test]
async fn requests_are_answered_and_carry_their_peer() {
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
    assert!(rest(&mut socket).await.contains("200 OK"), "another client was not served");
}

#[tokio::test]
async fn connections_beyond_the_cap_wait_for_a_slot() {
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
async fn a_peer_that_does_not_read_its_answers_loses_its_slot() {
    let limits = ServerLimits {
        connections_max: 1,
        write_stall_timeout: Duration::from_millis(300),
        ..ServerLimits::default()
    };
    let server = start(limits).await;
    let pipelined = "GET /large HTTP/1.1\r\nHost: x\r\n\r\n".repeat(100);
    let _deaf = send(server.address, &pipelined).await;
    let mut other = send(server.address, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
    assert!(rest(&mut other).await.contains("200 OK"), "the only slot is free again");
}

#[tokio::test]
async fn a_peer_that_reads_slowly_gets_its_whole_answer() {
    let limits = ServerLimits { write_stall_timeout: Duration::from_millis(500), ..ServerLimits::default() };
    let server = start(limits).await;
    let mut slow = send(server.address, "GET /large HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
    let mut part = vec![0; LARGE_BYTES / 8];
    for _ in 0..7 {
        tokio::time::sleep(Duration::from_millis(150)).await;
        slow.read_exact(&mut part).await.unwrap();
    }
    assert!(rest(&mut slow).await.len() > part.len(), "the rest and the length of the head");
}

#[tokio::test]
async fn one_network_gets_no_more_connections_than_its_cap_unless_it_is_a_trusted_proxy() {
    let limits = ServerLimits { per_network_max: 2, ..ServerLimits::default() };
    let request = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    let mut byte = [0; 1];
    let server = start(limits).await;
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut socket = send(server.address, request).await;
        socket.read_exact(&mut byte).await.unwrap();
        held.push(socket);
    }
    let mut third = TcpStream::connect(server.address).await.unwrap();
    assert_eq!(rest(&mut third).await, "", "closed at once");
    held.pop();
    let served = async {
        loop {
            let mut socket = TcpStream::connect(server.address).await.unwrap();
            // A closed socket may already refuse the request.
            let _ = socket.write_all(request.as_bytes()).await;
            if socket.read_exact(&mut byte).await.is_ok() {
                break;
            }
        }
    };
    tokio::time::timeout(WAIT_MAX, served).await.expect("a released slot is used again");
    let proxies = config::Http { trusted_proxies: vec!["127.0.0.0/8".parse().unwrap()], ..listen() };
    let server = start_with(&proxies, limits).await;
    let mut held = Vec::new();
    for _ in 0..5 {
        let mut socket = send(server.address, request).await;
        socket.read_exact(&mut byte).await.unwrap();
        held.push(socket);
    }
}

/// A shutdown that waits for its requests longer than a test does.
fn patient() -> ServerLimits {
    ServerLimits { shutdown_grace: WAIT_MAX * 10, ..ServerLimits::default() }
}

#[tokio::test]
async fn shutdown_lets_running_requests_finish_and_closes_idle_connections() {
    let mut server = start(patient()).await;
    let mut idle = TcpStream::connect(server.address).await.unwrap();
    let mut busy = send(server.address, "GET /slow HTTP/1.1\r\nHost: x\r\n\r\n").await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let mut fresh = TcpStream::connect(server.address).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    server.stop.take().unwrap().send(()).unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    fresh.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    assert!(rest(&mut fresh).await.starts_with("HTTP/1.1 200"), "it had connected before the end");
    assert!(rest(&mut busy).await.ends_with("slow"));
    assert_eq!(rest(&mut idle).await, "");
    tokio::time::timeout(WAIT_MAX, server.task).await.unwrap().unwrap();
    assert!(TcpStream::connect(server.address).await.is_err(), "the listener is closed");
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
async fn a_taken_address_and_a_missing_certificate_are_errors_with_the_fix() {
    let server = start(ServerLimits::default()).await;
    let taken = config::Http { listen: server.address, ..listen() };
    let error = Server::bind(&taken, ServerLimits::default()).await.unwrap_err();
    assert!(matches!(&error, HttpError::Listen { address, .. } if *address == server.address), "{error}");
    let error = error.to_string();
    assert!(error.contains(&server.address.to_string()) && error.contains("[http] listen"), "{error}");
    let cert = Some("no-such.pem".into());
    let tls = config::Http { tls_cert: cert.clone(), tls_key: cert, ..listen() };
    let error = Server::bind(&tls, ServerLimits::default()).await.unwrap_err();
    let HttpError::Certificate(CertificateError::Unreadable { section, setting, file, .. }) = error else {
        panic!("{error}")
    };
    assert_eq!((section, setting, file.to_str()), (Section::Http, "tls_cert", Some("no-such.pem")));
}

#[tokio::test]
async fn a_peer_that_sends_more_than_is_read_gets_its_answer() {
    let server = start(ServerLimits::default()).await;
    let body = vec![b'x'; 8 << 20];
    for connection in ["close", "keep-alive"] {
        let head = format!(
            "POST /deaf HTTP/1.1\r\nHost: x\r\nConnection: {connection}\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let mut socket = send(server.address, &head).await;
        // The answer is written long before the whole body was sent.
        socket.write_all(&body).await.expect("the server reads the body");
        let _ = socket.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
        let mut text = String::new();
        let read = tokio::time::timeout(WAIT_MAX, socket.read_to_string(&mut text)).await;
        read.expect("the server closes").expect("no reset");
        assert!(text.starts_with("HTTP/1.1 413") && text.contains("enough"), "{text}");
        assert_eq!(text.contains("127.0.0.1"), connection == "keep-alive", "{text}");
    }
}

#[tokio::test]
async fn a_peer_that_expects_100_continue_is_not_asked_to_send() {
    let server = start(ServerLimits::default()).await;
    let head = "POST /deaf HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n";
    let mut socket = send(server.address, head).await;
    assert!(rest(&mut socket).await.starts_with("HTTP/1.1 413"));
}

#[tokio::test]
async fn reading_a_body_that_never_ends_is_limited() {
    let server = start(ServerLimits::default()).await;
    let length = 4 * serving::LINGER_BYTES_MAX;
    let head = format!("POST /deaf HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n");
    let mut endless = send(server.address, &head).await;
    let part = vec![b'x'; 1 << 20];
    let mut sent = 0_u64;
    while sent < length && endless.write_all(&part).await.is_ok() {
        sent += part.len() as u64;
    }
    assert!(sent < length, "all of {length} bytes were taken");
    let mut silent = send(server.address, &head).await;
    let _ = silent.write_all(&part).await;
    assert!(rest(&mut silent).await.starts_with("HTTP/1.1 413"), "closed after a while");
}

#[test]
fn connections_use_a_fourth_of_the_open_files() {
    let of = |open_files| {
        let limits = ServerLimits::within(open_files);
        (limits.connections_max, limits.per_network_max)
    };
    assert_eq!(of(65_536), (CONNECTIONS_MAX, CONNECTIONS_PER_NETWORK_MAX));
    assert_eq!(of(u64::MAX), (CONNECTIONS_MAX, CONNECTIONS_PER_NETWORK_MAX));
    assert_eq!(of(4_096), (1_024, 512));
    assert_eq!(of(300), (75, 37));
    assert_eq!(of(0), (2, 1), "at least one connection is allowed");
}

#[test]
fn remedy_texts() {
    let text = |kind: io::ErrorKind| remedy(&io::Error::from(kind), "[http] listen");
    assert_eq!(text(io::ErrorKind::AddrInUse), "stop the other server or set [http] listen");
    assert_eq!(
        text(io::ErrorKind::AddrNotAvailable),
        "no network of this machine has the address; change [http] listen"
    );
    assert_eq!(
        text(io::ErrorKind::PermissionDenied),
        "only root and processes with CAP_NET_BIND_SERVICE may use ports below 1024; set a higher port in [http] listen, or \
         start the service by the unit of the release"
    );
}
