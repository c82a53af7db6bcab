use std::sync::atomic::{AtomicUsize, Ordering};

use reqwest::Method;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::*;
use crate::outbound::{Crowd, SLOW_LOOKUPS_OF_ASKER_MAX};

const LIMIT: Duration = Duration::from_secs(5);

fn guard(allow: &str) -> Guard {
    Guard::new(&[allow.to_owned()]).unwrap()
}

fn client(guard: Guard) -> Client {
    Client::with_roots(guard, LIMIT, RootCertStore::empty()).unwrap()
}

fn get(url: &str) -> Request {
    Request::new(Method::GET, url.parse().unwrap())
}

/// A server that keeps its connections open, counts them, and reports which of them has ended.
struct Server {
    url: String,
    connections: Arc<AtomicUsize>,
    ended: tokio::sync::mpsc::UnboundedReceiver<()>,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    async fn new() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("http://{}/hunter2", listener.local_addr().unwrap());
        let connections = Arc::<AtomicUsize>::default();
        let (count, (tell, ended)) = (connections.clone(), tokio::sync::mpsc::unbounded_channel());
        let task = tokio::spawn(async move {
            loop {
                let (mut socket, _) = listener.accept().await.unwrap();
                count.fetch_add(1, Ordering::SeqCst);
                let tell = tell.clone();
                tokio::spawn(async move {
                    let mut head = Vec::new();
                    while socket.read_buf(&mut head).await.is_ok_and(|read| read > 0) {
                        if head.ends_with(b"\r\n\r\n") {
                            head.clear();
                            socket
                                .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi")
                                .await
                                .unwrap();
                        }
                    }
                    let _ = tell.send(());
                });
            }
        });
        Self { url, connections, ended, task }
    }

    async fn asked_by(&self, client: &Client) {
        let mut body = Vec::new();
        client.send(get(&self.url)).await.unwrap().read(&mut body, 9).await.unwrap();
        assert_eq!(body, b"hi");
    }
}

#[tokio::test]
async fn a_connection_serves_again_and_ends_with_its_client() {
    let mut server = Server::new().await;
    let client = client(guard("127.0.0.1"));
    let mut asked = 0;
    // The connection returns to the pool shortly after the answer was read.
    while server.connections.load(Ordering::SeqCst) == asked {
        server.asked_by(&client).await;
        asked += 1;
        assert!(asked < 1_000, "no connection is kept");
        tokio::task::yield_now().await;
    }
    drop(client);
    for _ in 0..server.connections.load(Ordering::SeqCst) {
        server.ended.recv().await.unwrap();
    }
}

#[tokio::test]
async fn an_unused_connection_is_closed() {
    let mut server = Server::new().await;
    let client = client(guard("127.0.0.1"));
    server.asked_by(&client).await;
    assert!(2 * IDLE_KEPT <= Duration::from_secs(30));
    tokio::time::pause();
    server.ended.recv().await.unwrap();
    drop(client);
}

#[tokio::test]
async fn a_connection_that_is_kept_lets_no_other_guard_through() {
    let server = Server::new().await;
    let open = client(guard("127.0.0.1"));
    server.asked_by(&open).await;
    let error = client(guard("10.0.0.1")).send(get(&server.url)).await.unwrap_err();
    assert!(matches!(error, HttpError::Open(OpenError::Guard(GuardError::Refused(_)))), "{error}");
    assert_eq!(server.connections.load(Ordering::SeqCst), 1);
}

/// Sends these bytes as often as the client takes them.
async fn endless(first: &'static [u8], bytes: Vec<u8>) -> (String, JoinHandle<()>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}/hunter2", listener.local_addr().unwrap());
    let sending = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        socket.read_exact(&mut [0; 1]).await.unwrap();
        socket.write_all(first).await.unwrap();
        while socket.write_all(&bytes).await.is_ok() {
            tokio::task::yield_now().await;
        }
    });
    (url, sending)
}

#[tokio::test]
async fn an_endless_answer_is_cut() {
    let client = client(guard("127.0.0.1"));
    for bytes in [b"x: y\r\n".repeat(10), b"x".repeat(4_096)] {
        let (url, sending) = endless(b"HTTP/1.1 200 OK\r\nx: ", bytes).await;
        let error = client.send(get(&url)).await.unwrap_err();
        assert!(matches!(error, HttpError::Broke(_)), "{error}");
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
        sending.await.unwrap();
    }
    let (url, sending) = endless(b"HTTP/1.1 200 OK\r\n\r\n", b"x".repeat(4_096)).await;
    let mut answer = client.send(get(&url)).await.unwrap();
    let mut body = Vec::new();
    answer.read(&mut body, 9_999).await.unwrap();
    assert_eq!(body.len(), 9_999);
    drop(answer);
    sending.await.unwrap();
}

#[tokio::test]
async fn dropping_a_slow_answer_closes_its_connection() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let (begun, begins) = tokio::sync::oneshot::channel();
    let sending = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        socket.read_exact(&mut [0; 1]).await.unwrap();
        socket.write_all(b"HTTP/1.1 200 OK\r\nx: ").await.unwrap();
        begun.send(()).unwrap();
        while socket.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    let client = client(guard("127.0.0.1"));
    let asking = async {
        tokio::select! {
            answer = client.send(get(&url)) => drop(answer.unwrap()),
            () = async { begins.await.unwrap() } => {}
        }
    };
    asking.await;
    sending.await.unwrap();
}

#[tokio::test]
async fn the_error_of_a_broken_connection_has_no_url() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let client = client(guard("127.0.0.1"));
    let closing = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        socket.read_exact(&mut [0; 1]).await.unwrap();
    });
    let url = format!("http://{address}/hunter2?token=hunter2");
    let error = client.send(get(&url)).await.unwrap_err();
    assert!(matches!(&error, HttpError::Broke(words) if !words.is_empty()), "{error}");
    closing.await.unwrap();
    let refused = client.send(get(&url)).await.unwrap_err();
    assert_eq!(refused.to_string(), GuardError::connection_refused(address).to_string());
    for error in [error, refused] {
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_look_ups_of_requests_are_those_of_their_account() {
    let silent = guard("127.0.0.1").resolving(Arc::new(|_| Box::pin(std::future::pending())));
    let client = client(silent).asked_by(Asker::Account(1));
    let requests = (0..=SLOW_LOOKUPS_OF_ASKER_MAX).map(|number| {
        let client = client.clone();
        async move { client.send(get(&format!("https://{number}.example/"))).await.unwrap_err() }
    });
    let errors = futures_util::future::join_all(requests).await;
    let (own, silent): (Vec<_>, Vec<_>) = errors.iter().partition(|error| {
        matches!(
            error,
            HttpError::Open(OpenError::Guard(GuardError::NotLookedUp { because: Crowd::Own, .. }))
        )
    });
    assert_eq!((own.len(), silent.len()), (1, SLOW_LOOKUPS_OF_ASKER_MAX as usize));
    let no_server = |error: &&HttpError| {
        matches!(error, HttpError::Open(OpenError::Guard(GuardError::NameServer { .. })))
    };
    assert!(silent.iter().all(no_server), "{silent:?}");
}
