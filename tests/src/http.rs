//! A minimal HTTP/1.1 client for details that other clients hide: the exact bytes of a body, an aborted request, a slow reader.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use flate2::read::GzDecoder;
use nix::sys::socket::{setsockopt, sockopt::RcvBuf};

/// Longest wait for the next bytes of an answer.
const READ_LIMIT: Duration = Duration::from_secs(20);
/// Receive buffer of a viewer that reads almost nothing: the smallest that the kernel allows.
const TINY_BUFFER_BYTES: usize = 4096;
/// Receive buffer of a viewer that gives up: large enough for unread data.
const SMALL_BUFFER_BYTES: usize = 64 * 1024;
/// Receive buffer of a viewer that reads everything.
const LARGE_BUFFER_BYTES: usize = 4 * 1024 * 1024;
/// Pause after which an answer counts as ended.
const DRAIN_LIMIT: Duration = Duration::from_secs(3);
/// Longest answer that is kept.
const BODY_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// An answer with its body as it was sent: without the framing of HTTP, still in its content encoding.
#[derive(Clone, Debug)]
pub struct Reply {
    /// HTTP status.
    pub status: u16,
    /// Headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body as received.
    pub body: Vec<u8>,
}

impl Reply {
    /// The value of a header.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The body as text, decompressed if needed.
    ///
    /// # Panics
    /// When it is not text, or has another content encoding than gzip.
    #[must_use]
    #[track_caller]
    pub fn text(&self) -> String {
        let bytes = match self.header("content-encoding") {
            None => self.body.clone(),
            Some("gzip") => {
                let mut plain = Vec::new();
                let read = GzDecoder::new(self.body.as_slice()).read_to_end(&mut plain);
                read.unwrap_or_else(|error| panic!("a broken gzip body: {error}"));
                plain
            }
            Some(other) => panic!("the answer has content encoding {other}, which was not requested"),
        };
        String::from_utf8(bytes).expect("a body in UTF-8")
    }

    /// Expects `status`.
    ///
    /// # Panics
    /// When it is another.
    #[track_caller]
    pub fn assert_status(&self, status: u16) {
        let body = String::from_utf8_lossy(&self.body);
        assert_eq!(self.status, status, "the answer was {}", body.chars().take(400).collect::<String>());
    }
}

/// A client with one connection, kept alive, and a count of the bytes of all bodies.
#[derive(Debug)]
pub struct Http {
    address: SocketAddr,
    connection: Option<BufReader<TcpStream>>,
    body_bytes: u64,
}

/// Host and port of an `http://` URL, and the rest.
///
/// # Panics
/// When it is no such URL with a literal address.
#[track_caller]
#[must_use]
pub fn split_url(url: &str) -> (SocketAddr, String) {
    let rest = url.strip_prefix("http://").unwrap_or_else(|| panic!("{url} is no http:// URL"));
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let address = host.parse().unwrap_or_else(|_| panic!("{host} is no address with a port"));
    (address, format!("/{path}"))
}

impl Http {
    /// A client of the server at `address`; it connects with the first request.
    #[must_use]
    pub fn new(address: SocketAddr) -> Self {
        Self { address, connection: None, body_bytes: 0 }
    }

    /// Bytes of all bodies received so far, including those of aborted requests.
    #[must_use]
    pub fn body_bytes(&self) -> u64 {
        self.body_bytes
    }

    /// Sets the count back to `count`, because some answers are free.
    pub fn forget_since(&mut self, count: u64) {
        self.body_bytes = count;
    }

    /// GET of `path` (with its query).
    ///
    /// # Panics
    /// When there is no answer.
    #[track_caller]
    pub fn get(&mut self, path: &str, headers: &[(&str, &str)]) -> Reply {
        self.request("GET", path, headers)
    }

    /// Any request without a body.
    ///
    /// # Panics
    /// When there is no answer.
    #[track_caller]
    pub fn request(&mut self, method: &str, path: &str, headers: &[(&str, &str)]) -> Reply {
        let used = self.connection.is_some();
        let reply = self.exchange(method, path, headers);
        // A server may close an idle connection. Only then the request is repeated.
        let reply = if reply.is_err() && used { self.exchange(method, path, headers) } else { reply };
        reply.unwrap_or_else(|error| panic!("{method} {}: {error}", without_query(path)))
    }

    fn exchange(&mut self, method: &str, path: &str, headers: &[(&str, &str)]) -> std::io::Result<Reply> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => BufReader::with_capacity(256 * 1024, connect(self.address)?),
        };
        connection.get_mut().write_all(head(self.address, method, path, headers).as_bytes())?;
        let mut reply = read_head(&mut connection)?;
        let bodyless = method == "HEAD" || matches!(reply.status, 204 | 304);
        if !bodyless {
            self.body_bytes += read_body(&mut connection, &mut reply)?;
        }
        if reply.header("connection") != Some("close") {
            self.connection = Some(connection);
        }
        Ok(reply)
    }

    /// A GET that is aborted: closes the connection after at least `bytes` of the body arrived, and returns the received bytes.
    ///
    /// # Panics
    /// When the answer is no 200 or shorter.
    #[track_caller]
    pub fn give_up_after(&mut self, path: &str, bytes: u64) -> u64 {
        let mut slow = Slow::with_buffer(self.address, path, SMALL_BUFFER_BYTES);
        assert_eq!(slow.status, 200, "the request to be aborted");
        let mut got = 0;
        while got < bytes {
            match slow.read() {
                Some(count) => got += count,
                None => panic!("the answer ended after {got} bytes"),
            }
        }
        self.body_bytes += got;
        got
    }
}

/// A GET whose answer is read slowly, with a small receive buffer.
#[derive(Debug)]
pub struct Slow {
    connection: BufReader<TcpStream>,
    /// HTTP status.
    pub status: u16,
}

impl Slow {
    /// Sends the request and reads the head of the answer.
    ///
    /// # Panics
    /// When there is none.
    #[track_caller]
    #[must_use]
    pub fn get(address: SocketAddr, path: &str) -> Self {
        Self::with_buffer(address, path, TINY_BUFFER_BYTES)
    }

    #[track_caller]
    fn with_buffer(address: SocketAddr, path: &str, bytes: usize) -> Self {
        let socket = connect(address).expect("a connection");
        setsockopt(&socket, RcvBuf, &bytes).expect("a small receive buffer");
        let mut connection = BufReader::with_capacity(4096, socket);
        let request = head(address, "GET", path, &[]);
        connection.get_mut().write_all(request.as_bytes()).expect("a request");
        let reply = read_head(&mut connection).expect("an answer");
        Self { connection, status: reply.status }
    }

    /// Reads the rest: until the end, until nothing arrived for [`DRAIN_LIMIT`], or until more than `most` bytes were read. Returns the
    /// number of bytes.
    ///
    /// # Panics
    /// When the socket is no more.
    pub fn drain(&mut self, most: u64) -> u64 {
        let socket = self.connection.get_ref();
        setsockopt(socket, RcvBuf, &LARGE_BUFFER_BYTES).expect("a large receive buffer");
        socket.set_read_timeout(Some(DRAIN_LIMIT)).expect("a read time-out");
        let mut taken = 0;
        while taken <= most
            && let Some(count) = self.read()
        {
            taken += count;
        }
        taken
    }

    /// Reads available bytes, up to 4 KiB; `None` when the server has closed or reset the connection.
    pub fn read(&mut self) -> Option<u64> {
        let count = self.connection.fill_buf().map(<[u8]>::len).ok().filter(|count| *count > 0)?;
        self.connection.consume(count);
        Some(count as u64)
    }
}

fn connect(address: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = TcpStream::connect(address)?;
    socket.set_read_timeout(Some(READ_LIMIT))?;
    socket.set_write_timeout(Some(READ_LIMIT))?;
    socket.set_nodelay(true)?;
    Ok(socket)
}

fn head(address: SocketAddr, method: &str, path: &str, headers: &[(&str, &str)]) -> String {
    let lines: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    format!("{method} {path} HTTP/1.1\r\nhost: {address}\r\n{lines}\r\n")
}

fn read_head(connection: &mut impl BufRead) -> std::io::Result<Reply> {
    let status_line = line(connection)?;
    let status = status_line.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.ok_or_else(|| invalid("no status line"))?;
    let mut headers = Vec::new();
    loop {
        let line = line(connection)?;
        if line.is_empty() {
            return Ok(Reply { status, headers, body: Vec::new() });
        }
        let (name, value) = line.split_once(':').ok_or_else(|| invalid("a header without a colon"))?;
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
}

/// Reads the body into `reply`; gives its length without the framing.
fn read_body(connection: &mut impl BufRead, reply: &mut Reply) -> std::io::Result<u64> {
    if reply.header("transfer-encoding") == Some("chunked") {
        loop {
            let size = line(connection)?;
            let size = u64::from_str_radix(size.split(';').next().unwrap_or_default(), 16);
            let size = size.map_err(|_| invalid("a chunk without a size"))?;
            take(connection, size, &mut reply.body)?;
            line(connection)?;
            if size == 0 {
                return Ok(reply.body.len() as u64);
            }
        }
    }
    let length = reply.header("content-length").and_then(|length| length.parse().ok());
    let length = length.ok_or_else(|| invalid("an answer without its length"))?;
    take(connection, length, &mut reply.body)?;
    Ok(length)
}

fn take(connection: &mut impl BufRead, count: u64, into: &mut Vec<u8>) -> std::io::Result<()> {
    if count > BODY_BYTES_MAX {
        return Err(invalid("the body is longer than the limit of this client"));
    }
    let read = connection.take(count).read_to_end(into)? as u64;
    if read == count { Ok(()) } else { Err(std::io::ErrorKind::UnexpectedEof.into()) }
}

/// A line without its end.
fn line(connection: &mut impl BufRead) -> std::io::Result<String> {
    let mut line = String::new();
    if connection.take(64 * 1024).read_line(&mut line)? == 0 {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}

fn invalid(what: &str) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::InvalidData, what)
}

/// The path without its query, because messages must not contain a key.
fn without_query(path: &str) -> &str {
    path.split('?').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(bytes: &[u8]) -> std::io::Result<(Reply, u64)> {
        let mut reader = bytes;
        let mut reply = read_head(&mut reader)?;
        let count = read_body(&mut reader, &mut reply)?;
        Ok((reply, count))
    }

    #[test]
    fn bodies_are_counted_without_their_framing() {
        let (plain, count) = reply(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcdef").unwrap();
        assert_eq!((plain.status, plain.body.as_slice(), count), (200, &b"abc"[..], 3));
        let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n";
        let (chunked, count) = reply(chunked).unwrap();
        assert_eq!((chunked.body.as_slice(), count), (&b"abc"[..], 3));
    }

    #[test]
    fn half_an_answer_is_an_error() {
        assert!(reply(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab").is_err());
        assert!(reply(b"HTTP/1.1 200 OK\r\n\r\nab").is_err());
        assert!(reply(b"HTTP/1.1 200 OK\r\nContent").is_err());
    }

    #[test]
    fn urls_are_split() {
        let (address, path) = split_url("http://127.0.0.1:8080/hls/x/index.m3u8?apiKey=k");
        assert_eq!((address.port(), path.as_str()), (8080, "/hls/x/index.m3u8?apiKey=k"));
    }
}
