//! An HTTP server with scripted answers, which records its requests.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// One answer.
#[derive(Clone, Debug)]
pub(super) enum Reply {
    Json(u16, Value),
    /// Status, further headers each with its line end, and a body.
    Text(u16, String, String),
    /// Reads the request and never answers.
    Silent,
    /// Reads the request and resets the connection.
    Reset,
    /// 200, the beginning of a body, and then nothing.
    Stalled,
}

/// A received request.
#[derive(Clone, Debug)]
pub(super) struct Received {
    /// Method and path.
    pub(super) line: String,
    pub(super) headers: BTreeMap<String, String>,
    pub(super) body: String,
}

type Script = Arc<Mutex<HashMap<String, VecDeque<Reply>>>>;
type Log = Arc<Mutex<Vec<Received>>>;

pub(super) struct Server {
    address: SocketAddr,
    script: Script,
    received: Log,
    /// Notified when the client of a [`Reply::Silent`] has disconnected.
    left: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    pub(super) async fn new() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (script, received, left) = (Script::default(), Log::default(), Arc::<Notify>::default());
        let (answers, noted, seen) = (script.clone(), received.clone(), left.clone());
        let task = tokio::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                tokio::spawn(serve(socket, answers.clone(), noted.clone(), seen.clone()));
            }
        });
        Self { address, script, received, left, task }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/base/", self.address)
    }

    /// The answers to `METHOD /path`, one after the other; the last is repeated.
    pub(super) fn on(&self, line: &str, replies: impl IntoIterator<Item = Reply>) {
        let (method, path) = line.split_once(' ').unwrap();
        let replies = replies.into_iter().collect();
        self.script.lock().insert(format!("{method} /base{path}"), replies);
    }

    /// Waits until a client without an answer disconnects.
    pub(super) async fn left_alone(&self) {
        self.left.notified().await;
    }

    pub(super) fn received(&self) -> Vec<Received> {
        self.received.lock().clone()
    }

    /// Methods and paths received since the last call.
    pub(super) fn take_lines(&self) -> Vec<String> {
        let taken = std::mem::take(&mut *self.received.lock());
        taken.into_iter().map(|request| request.line.replace(" /base", " ")).collect()
    }
}

async fn serve(mut socket: TcpStream, script: Script, received: Log, left: Arc<Notify>) {
    let Some(request) = read(&mut socket).await else { return };
    let reply = {
        let mut script = script.lock();
        let replies = script.get_mut(&request.line);
        replies.and_then(
            |replies| if replies.len() > 1 { replies.pop_front() } else { replies.front().cloned() },
        )
    };
    received.lock().push(request);
    let (status, headers, body) = match reply {
        None => (404, String::new(), "no such path in this test".to_owned()),
        Some(Reply::Json(status, json)) => {
            (status, "content-type: application/json\r\n".to_owned(), json.to_string())
        }
        Some(Reply::Text(status, headers, body)) => (status, headers, body),
        Some(Reply::Silent) => {
            let _ = socket.read(&mut [0; 1]).await;
            left.notify_one();
            return;
        }
        Some(Reply::Reset) => {
            socket2::SockRef::from(&socket).set_linger(Some(std::time::Duration::ZERO)).unwrap();
            return;
        }
        Some(Reply::Stalled) => {
            let _ = socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{\"a\"").await;
            let _ = socket.read(&mut [0; 1]).await;
            return;
        }
    };
    let length = body.len();
    let text = format!(
        "HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
    );
    // Errors of a client that has disconnected.
    let _ = socket.write_all(text.as_bytes()).await;
    let _ = socket.shutdown().await;
}

async fn read(socket: &mut TcpStream) -> Option<Received> {
    let mut bytes = Vec::new();
    let head = loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end;
        }
        if socket.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let text = String::from_utf8(bytes[..head].to_vec()).unwrap();
    let mut lines = text.split("\r\n");
    let line = lines.next()?.trim_end_matches(" HTTP/1.1").to_owned();
    let headers: BTreeMap<String, String> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let length: usize = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = bytes.split_off(head + 4);
    while body.len() < length {
        if socket.read_buf(&mut body).await.ok()? == 0 {
            return None;
        }
    }
    Some(Received { line, headers, body: String::from_utf8(body).unwrap() })
}
