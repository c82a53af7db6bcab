//! A receiver with scripted answers, which records its requests.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use super::Shared;

/// Behaviour of a receiver.
#[derive(Clone, Debug)]
pub(super) enum Reply {
    /// Status and further headers, each with its line end, and a body.
    Status(u16, &'static str, &'static str),
    /// Reads the request and never answers.
    Silent,
    /// Closes with a reset.
    Reset,
    /// 200 and a body without end.
    Endless,
    /// 200, the beginning of a body, and then nothing.
    Stalled,
}

/// A received request.
#[derive(Clone, Debug)]
pub(super) struct Received {
    pub(super) line: String,
    pub(super) headers: BTreeMap<String, String>,
    pub(super) body: Vec<u8>,
}

pub(super) struct Receiver {
    pub(super) address: SocketAddr,
    reply: Shared<Reply>,
    received: Shared<Vec<Received>>,
    task: JoinHandle<()>,
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Receiver {
    pub(super) async fn new(reply: Reply) -> Self {
        Self::at("127.0.0.1", reply, None).await
    }

    /// At another local address, with TLS if given.
    pub(super) async fn at(host: &str, reply: Reply, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind((host, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let reply = Arc::new(Mutex::new(reply));
        let received = Arc::new(Mutex::new(Vec::new()));
        let (shown, noted) = (reply.clone(), received.clone());
        let task = tokio::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                let (reply, received, tls) = (shown.clone(), noted.clone(), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        Some(tls) => {
                            // A client that does not trust the certificate disconnects.
                            if let Ok(stream) = tls.accept(socket).await {
                                serve(stream, &reply, &received).await;
                            }
                        }
                        None if matches!(*reply.lock(), Reply::Reset) => reset(&socket),
                        None => serve(socket, &reply, &received).await,
                    }
                });
            }
        });
        Self { address, reply, received, task }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/in?token=t", self.address)
    }

    pub(super) fn answer(&self, reply: Reply) {
        *self.reply.lock() = reply;
    }

    pub(super) fn received(&self) -> Vec<Received> {
        self.received.lock().clone()
    }
}

fn reset(socket: &TcpStream) {
    socket2::SockRef::from(socket).set_linger(Some(std::time::Duration::ZERO)).unwrap();
}

async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    reply: &Shared<Reply>,
    received: &Shared<Vec<Received>>,
) {
    let Some(request) = read(&mut stream).await else { return };
    received.lock().push(request);
    let reply = reply.lock().clone();
    // Errors of a client that has disconnected.
    match reply {
        Reply::Status(status, headers, body) => {
            let length = body.len();
            let text = format!(
                "HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
            );
            let _ = stream.write_all(text.as_bytes()).await;
            let _ = stream.shutdown().await;
        }
        Reply::Endless => {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await;
            while stream.write_all(&[b'x'; 4_096]).await.is_ok() {}
        }
        Reply::Stalled => {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc").await;
            let _ = stream.read(&mut [0; 1]).await;
        }
        Reply::Silent | Reply::Reset => {
            let _ = stream.read(&mut [0; 1]).await;
        }
    }
}

async fn read<S: AsyncRead + Unpin>(stream: &mut S) -> Option<Received> {
    let mut bytes = Vec::new();
    let head = loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let text = String::from_utf8(bytes[..head].to_vec()).unwrap();
    let mut lines = text.split("\r\n");
    let line = lines.next()?.to_owned();
    let headers: BTreeMap<String, String> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let length: usize = headers.get("content-length")?.parse().ok()?;
    let mut body = bytes.split_off(head + 4);
    while body.len() < length {
        if stream.read_buf(&mut body).await.ok()? == 0 {
            return None;
        }
    }
    Some(Received { line, headers, body })
}
