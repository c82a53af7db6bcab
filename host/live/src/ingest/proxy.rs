//! The PROXY protocol (versions 1 and 2): the client's address from a trusted proxy. Its header precedes all other bytes, also TLS.

use std::io;
use std::net::{IpAddr, SocketAddr};

use tokio::io::{AsyncRead, AsyncReadExt as _};

/// Longest header of version 1 with its line break, in bytes (2.1 of its specification).
const LINE_BYTES_MAX: usize = 107;
/// Longest accepted variable part of a version 2 header, in bytes. Addresses need 36; extensions of proxies at most a few hundred.
const REST_BYTES_MAX: usize = 1024;
/// Start of version 2.
const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// Start of version 1.
const LINE_START: &[u8] = b"PROXY ";
/// Bytes read to find the version. Headers of both versions are longer.
const START_BYTES: usize = SIGNATURE.len();
/// Length of the fixed part of version 2 after the signature: version and command, family and protocol, length.
const FIXED_BYTES: usize = 4;

/// Why the address is not known. The texts hold no text of the peer.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    /// The connection ended before the first byte: a port check of the proxy.
    #[error("the proxy closed the connection without sending anything")]
    Nothing,
    /// The first bytes are no header.
    #[error(
        "the proxy sent no PROXY protocol header; enable it on the proxy, or remove the proxy from [ingest] proxy_protocol_from"
    )]
    Missing,
    /// Too long, an unknown version, or not as specified.
    #[error("the PROXY protocol header is malformed: {0}")]
    Malformed(&'static str),
    /// The connection ended or failed.
    #[error("the connection ended within the PROXY protocol header: {0}")]
    Io(#[from] io::Error),
}

/// Reads the header and no byte after it. `None`: the proxy connects for itself, e.g. for a health check, or does not know the client.
///
/// # Errors
/// Any [`Fault`]; close the connection then.
pub(super) async fn read(socket: &mut (impl AsyncRead + Unpin)) -> Result<Option<SocketAddr>, Fault> {
    let mut start = [0; START_BYTES];
    let Ok(read @ 1..) = socket.read(&mut start).await else { return Err(Fault::Nothing) };
    socket.read_exact(&mut start[read..]).await?;
    if start == SIGNATURE {
        return read_second(socket).await;
    }
    if !start.starts_with(LINE_START) {
        return Err(Fault::Missing);
    }
    let mut line = start.to_vec();
    while !line.ends_with(b"\r\n") {
        if line.len() == LINE_BYTES_MAX {
            return Err(Fault::Malformed("its line has no end"));
        }
        line.push(socket.read_u8().await?);
    }
    first(&line)
}

async fn read_second(socket: &mut (impl AsyncRead + Unpin)) -> Result<Option<SocketAddr>, Fault> {
    let mut fixed = [0; FIXED_BYTES];
    socket.read_exact(&mut fixed).await?;
    let [command, family, high, low] = fixed;
    let bytes = usize::from(u16::from_be_bytes([high, low]));
    if bytes > REST_BYTES_MAX {
        return Err(Fault::Malformed("it is too long"));
    }
    let mut rest = vec![0; bytes];
    socket.read_exact(&mut rest).await?;
    second(command, family, &rest)
}

/// Version 1: one line of text.
fn first(line: &[u8]) -> Result<Option<SocketAddr>, Fault> {
    let malformed = Fault::Malformed("its line is not as specified");
    let Some(text) = std::str::from_utf8(line).ok().and_then(|text| text.strip_suffix("\r\n")) else {
        return Err(malformed);
    };
    let parts: Vec<&str> = text.split(' ').collect();
    let (source, port) = match parts[..] {
        ["PROXY", "UNKNOWN", ..] => return Ok(None),
        ["PROXY", "TCP4", source, _, port, _] => (source.parse().map(IpAddr::V4).ok(), port),
        ["PROXY", "TCP6", source, _, port, _] => (source.parse().map(IpAddr::V6).ok(), port),
        _ => return Err(malformed),
    };
    let port = port.parse().ok();
    source.zip(port).map(|address| Some(SocketAddr::from(address))).ok_or(malformed)
}

/// Version 2 after its signature. `rest`: the variable part.
fn second(command: u8, family: u8, rest: &[u8]) -> Result<Option<SocketAddr>, Fault> {
    match command {
        0x20 => return Ok(None),
        0x21 => {}
        _ => return Err(Fault::Malformed("it has another version or command")),
    }
    // Both addresses, then both ports; the client's is the first of each.
    let (bytes, source, port) = match family {
        0x00 => return Ok(None),
        0x11 => (12, fixed::<4>(rest, 0).map(IpAddr::from), fixed(rest, 8)),
        0x21 => (36, fixed::<16>(rest, 0).map(IpAddr::from), fixed(rest, 32)),
        _ => return Err(Fault::Malformed("it holds no TCP address")),
    };
    match source.zip(port).filter(|_| rest.len() >= bytes) {
        Some((source, port)) => Ok(Some(SocketAddr::new(source, u16::from_be_bytes(port)))),
        None => Err(Fault::Malformed("it is shorter than its addresses")),
    }
}

/// `BYTES` bytes from `at` on.
fn fixed<const BYTES: usize>(rest: &[u8], at: usize) -> Option<[u8; BYTES]> {
    rest.get(at..at + BYTES)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The parsed header, and the number of bytes left after it.
    async fn said(bytes: &[u8]) -> (Result<Option<SocketAddr>, Fault>, usize) {
        let mut socket = bytes;
        let said = read(&mut socket).await;
        (said, socket.len())
    }

    fn v2(what: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let length = (rest.len() as u16).to_be_bytes();
        [&SIGNATURE[..], &[what, family], &length, rest].concat()
    }

    #[tokio::test]
    async fn both_versions_name_the_client_and_no_byte_after_them_is_read() {
        let four = [203, 0, 113, 7, 10, 0, 0, 1, 0x30, 0x39, 7, 0x8f];
        let mut six = [0; 36];
        six[..2].copy_from_slice(&[0x20, 1]);
        six[15] = 7;
        six[32..34].copy_from_slice(&[0x30, 0x39]);
        let with_more = [&four[..], &[4, 0, 1, 0]].concat();
        for (header, client) in [
            (b"PROXY TCP4 203.0.113.7 10.0.0.1 12345 1935\r\n".to_vec(), Some("203.0.113.7:12345")),
            (b"PROXY TCP6 2001::7 ::1 12345 1935\r\n".to_vec(), Some("[2001::7]:12345")),
            (b"PROXY UNKNOWN\r\n".to_vec(), None),
            (b"PROXY UNKNOWN ff:: what ever\r\n".to_vec(), None),
            (v2(0x21, 0x11, &four), Some("203.0.113.7:12345")),
            (v2(0x21, 0x11, &with_more), Some("203.0.113.7:12345")),
            (v2(0x21, 0x21, &six), Some("[2001::7]:12345")),
            (v2(0x20, 0x11, &four), None),
            (v2(0x20, 0, &[]), None),
            (v2(0x21, 0, &[]), None),
        ] {
            let (said, left) = said(&[&header[..], b"\x03rtmp"].concat()).await;
            assert_eq!(
                (said.unwrap(), left),
                (client.map(|client| client.parse().unwrap()), 5),
                "{header:?}"
            );
        }
    }

    #[tokio::test]
    async fn a_missing_header_differs_from_a_malformed_one() {
        let (said_of_rtmp, left) = said(&[3; 1537]).await;
        assert!(matches!(said_of_rtmp, Err(Fault::Missing)), "{said_of_rtmp:?}");
        assert_eq!(left, 1537 - START_BYTES);
        let endless = [b"PROXY TCP4 ".to_vec(), vec![b'1'; 1000]].concat();
        let (said_of_endless, left) = said(&endless).await;
        assert!(matches!(said_of_endless, Err(Fault::Malformed("its line has no end"))));
        assert_eq!(left, endless.len() - LINE_BYTES_MAX);
        for line in [
            "PROXY TCP4 2001::7 ::1 1 2\r\n",
            "PROXY TCP6 203.0.113.7 10.0.0.1 1 2\r\n",
            "PROXY TCP4 203.0.113.7 10.0.0.1 65536 2\r\n",
            "PROXY TCP4 203.0.113.7 10.0.0.1 1\r\n",
            "PROXY TCP4 203.0.113.7 10.0.0.1 1 2 3\r\n",
            "PROXY UDP4 203.0.113.7 10.0.0.1 1 2\r\n",
            "PROXY \u{fffd}\u{fffd}\u{fffd}\r\n",
        ] {
            assert!(matches!(said(line.as_bytes()).await.0, Err(Fault::Malformed(_))), "{line}");
        }
        for header in [
            v2(0x11, 0x11, &[0; 12]),
            v2(0x22, 0x11, &[0; 12]),
            v2(0x21, 0x12, &[0; 12]),
            v2(0x21, 0x31, &[0; 216]),
            v2(0x21, 0x11, &[0; 11]),
            v2(0x21, 0x21, &[0; 35]),
            v2(0x21, 0x11, &[0; REST_BYTES_MAX + 1]),
        ] {
            assert!(matches!(said(&header).await.0, Err(Fault::Malformed(_))), "{header:?}");
        }
        assert!(said(&v2(0x21, 0x11, &[0; REST_BYTES_MAX])).await.0.is_ok());
    }

    #[tokio::test]
    async fn cut_and_scrambled_headers_do_no_harm() {
        let whole = v2(0x21, 0x11, &[9; 40]);
        assert!(matches!(said(&[]).await.0, Err(Fault::Nothing)));
        for end in 1..whole.len() {
            assert!(matches!(said(&whole[..end]).await.0, Err(Fault::Io(_))), "{end}");
        }
        let mut seed = 1_u32;
        for _ in 0..20_000 {
            let mut bytes = if seed & 1 == 0 {
                whole.clone()
            } else {
                b"PROXY TCP4 1.1.1.1 2.2.2.2 3 4\r\n\r\n".to_vec()
            };
            for _ in 0..3 {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let at = (seed >> 16) as usize % bytes.len();
                bytes[at] = (seed >> 8) as u8;
            }
            // No panic.
            let _ = said(&bytes).await;
        }
    }
}
