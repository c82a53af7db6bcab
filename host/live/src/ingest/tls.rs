//! TLS of one encoder's connection, between the socket and the read block. It owns no socket.

use std::io::{self, ErrorKind, Read, Write as _};
use std::ops::Range;
use std::sync::Arc;

use bytes::BytesMut;
use tokio_rustls::rustls::{self, ServerConfig, ServerConnection};

/// Encrypted bytes of one read: a little more than a record. The TLS library itself would read a quarter of it.
const READ_BYTES: usize = 20 * 1024;

/// The server's side of TLS on one connection.
pub(super) struct Tls {
    session: ServerConnection,
    /// Encrypted bytes; those in `unread` are not decrypted yet.
    raw: Box<[u8]>,
    unread: Range<usize>,
}

impl Tls {
    /// # Errors
    /// The configuration is not usable; loading has already checked that.
    pub(super) fn new(config: Arc<ServerConfig>) -> Result<Self, rustls::Error> {
        let session = ServerConnection::new(config)?;
        Ok(Self { session, raw: vec![0; READ_BYTES].into(), unread: 0..0 })
    }

    /// Fills `block` with decrypted bytes from a non-blocking socket. A short read means that the socket has no more bytes, as without
    /// TLS. Zero after the encoder's close notify.
    pub(super) fn read(&mut self, socket: &mut impl Read, block: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        loop {
            let end = match self.session.reader().read(&mut block[filled..]) {
                Ok(0) => Ok(0),
                Ok(bytes) => {
                    filled += bytes;
                    if filled == block.len() {
                        return Ok(filled);
                    }
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => match self.decrypt_more(socket) {
                    Ok(()) => continue,
                    Err(error) => Err(error),
                },
                Err(error) => Err(error),
            };
            // Bytes before the end are returned first. The next read returns the end again.
            return if filled > 0 { Ok(filled) } else { end };
        }
    }

    fn decrypt_more(&mut self, socket: &mut impl Read) -> io::Result<()> {
        if self.unread.is_empty() {
            match socket.read(&mut self.raw)? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                bytes => self.unread = 0..bytes,
            }
        }
        let mut left = &self.raw[self.unread.clone()];
        self.session.read_tls(&mut left)?;
        self.unread.start = self.unread.end - left.len();
        let processed = self.session.process_new_packets();
        processed.map(drop).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))
    }

    /// Whether TLS has bytes to send, even without new plain bytes.
    pub(super) fn has_output(&self) -> bool {
        self.session.wants_write()
    }

    /// Encrypts `plain` and appends it to `sent`, with pending TLS messages.
    pub(super) fn seal(&mut self, plain: &[u8], sent: &mut BytesMut) -> io::Result<()> {
        // The writer takes a bounded part at a time, and takes more after that part was written out.
        let mut left = plain;
        loop {
            let taken = self.session.writer().write(left)?;
            left = &left[taken..];
            let mut moved = false;
            while self.session.wants_write() {
                moved |= self.session.write_tls(&mut Appending(sent))? > 0;
            }
            if left.is_empty() {
                return Ok(());
            }
            if taken == 0 && !moved {
                return Err(ErrorKind::WriteZero.into());
            }
        }
    }

    /// Encrypts the last bytes and appends the close notify.
    pub(super) fn seal_end(&mut self, plain: &[u8], sent: &mut BytesMut) -> io::Result<()> {
        self.seal(plain, sent)?;
        self.session.send_close_notify();
        self.seal(&[], sent)
    }
}

struct Appending<'a>(&'a mut BytesMut);

impl io::Write for Appending<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Explains an error of [`Tls::read`] if it is a TLS error, not a socket error.
pub(super) fn explained(error: &io::Error) -> Option<String> {
    let error = error.get_ref()?.downcast_ref::<rustls::Error>()?;
    Some(match error {
        rustls::Error::InvalidMessage(_) => {
            "the encoder does not use TLS on the RTMPS port; use rtmps:// with this port, or rtmp:// with the RTMP port".to_owned()
        }
        rustls::Error::AlertReceived(alert) => {
            format!("the encoder does not accept the certificate: {alert:?}")
        }
        error => format!("TLS failed: {error}"),
    })
}
