//! A receiver of webhooks.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::{Map, Value};

use crate::wait;

/// Longest wait for the rest of a request.
const REQUEST_LIMIT: Duration = Duration::from_secs(5);
const ACCEPTED: &str = "HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n";

/// A request of a webhook: its headers, names in lower case, and its body as text.
#[derive(Clone, Debug)]
pub struct Received {
    /// The requested path.
    pub path: String,
    /// Headers by name.
    pub headers: Map<String, Value>,
    /// The received body.
    pub body: String,
    /// When it was answered.
    pub at: Instant,
}

impl Received {
    /// The body as JSON.
    ///
    /// # Panics
    /// When it is none.
    #[must_use]
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).expect("a JSON body")
    }
}

/// Answers every request with 204, unless it was told to refuse, and records it; ends with the process.
#[derive(Debug)]
pub struct Receiver {
    address: SocketAddr,
    reply: Arc<Mutex<String>>,
    received: Arc<Mutex<Vec<Received>>>,
}

impl Receiver {
    /// Listens at a free port, or at the one of `address`.
    ///
    /// # Panics
    /// When it cannot.
    #[must_use]
    pub fn start(address: Option<SocketAddr>) -> Self {
        let wanted = address.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 0)));
        let listener = TcpListener::bind(wanted).expect("a port for the receiver");
        let address = listener.local_addr().expect("the receiver's address");
        let reply = Arc::new(Mutex::new(ACCEPTED.to_owned()));
        let received = Arc::new(Mutex::new(Vec::new()));
        let (told, noted) = (Arc::clone(&reply), Arc::clone(&received));
        std::thread::spawn(move || {
            for socket in listener.incoming().map_while(Result::ok) {
                // An incomplete request is ignored.
                if let Some(request) = take(socket, &told) {
                    noted.lock().push(request);
                }
            }
        });
        Self { address, reply, received }
    }

    /// Answers every request with `status` and `body` from now on.
    pub fn refuse(&self, status: u16, body: &str) {
        let length = body.len();
        *self.reply.lock() = format!(
            "HTTP/1.1 {status} Refused\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
        );
    }

    /// Answers with 204 again from now on.
    pub fn recover(&self) {
        *self.reply.lock() = ACCEPTED.to_owned();
    }

    /// Where webhooks are to be sent.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/in", self.address)
    }

    /// The requests so far.
    #[must_use]
    pub fn received(&self) -> Vec<Received> {
        self.received.lock().clone()
    }

    /// The number of requests so far.
    #[must_use]
    pub fn count(&self) -> usize {
        self.received.lock().len()
    }

    /// When each of them was answered.
    #[must_use]
    pub fn times(&self) -> Vec<Instant> {
        self.received.lock().iter().map(|received| received.at).collect()
    }

    /// Waits until `count` requests came.
    ///
    /// # Panics
    /// When they do not come in time.
    #[must_use]
    #[track_caller]
    pub fn wait_for(&self, count: usize) -> Vec<Received> {
        wait::until(&format!("{count} webhook requests"), || {
            let received = self.received();
            if received.len() >= count { Ok(received) } else { Err(format!("{} came", received.len())) }
        })
    }
}

fn take(mut socket: TcpStream, reply: &Mutex<String>) -> Option<Received> {
    socket.set_read_timeout(Some(REQUEST_LIMIT)).ok()?;
    let mut reader = BufReader::new(socket.try_clone().ok()?);
    let mut headers = Map::new();
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let path = line.split(' ').nth(1)?.to_owned();
    loop {
        line.clear();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.insert(name.to_ascii_lowercase(), value.into());
    }
    let length = headers.get("content-length")?.as_str()?.parse().ok()?;
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let reply = reply.lock().clone();
    socket.write_all(reply.as_bytes()).ok()?;
    Some(Received { path, headers, body: String::from_utf8(body).ok()?, at: Instant::now() })
}
