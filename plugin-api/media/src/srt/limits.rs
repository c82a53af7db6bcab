//! Limits on the memory and work that the other side of an SRT connection can cause. Each has a test that reaches it (named beside it).

use std::ops::RangeInclusive;
use std::time::Duration;

/// Latency that a connection has at least, in milliseconds; a caller that asks for more gets more. Test: `tests`.
pub const LATENCY_MS_MIN: u16 = 120;
/// Longest latency that a connection gets. Test: `tests`.
pub const LATENCY_MS_MAX: u16 = 8_000;
/// Packets between the oldest that is missing and the newest that is taken, which is the window that a caller is told.
/// Test: `buffer::tests`.
pub const WINDOW_PACKETS: usize = 8_192;
/// Most payload of one datagram in bytes (1,500 bytes of Ethernet less headers). Test: `tests`.
pub const PAYLOAD_BYTES_MAX: usize = 1_456;
/// Most payload that one connection holds in bytes. Test: `buffer::tests`.
pub const HELD_BYTES_MAX: usize = WINDOW_PACKETS * PAYLOAD_BYTES_MAX;
/// Longest `streamid` in bytes (3.2.1.3). Test: `handshake::tests`.
pub const STREAM_ID_BYTES_MAX: usize = 512;
/// Words in one report of lost packets: as many as fit into a datagram. Test: `buffer::tests`.
pub const NAK_WORDS_MAX: usize = PAYLOAD_BYTES_MAX / 4;
/// Acknowledgements that wait for their confirmation; the oldest are forgotten. Test: `tests`.
pub const ACKS_OPEN_MAX: usize = 1_024;
/// A connection whose caller sends nothing for this long is over. Callers send a keep-alive each second. Test: `tests`.
pub const SILENCE: Duration = Duration::from_secs(5);
/// A cookie is valid for this long, and for as long again. Test: `handshake::tests`.
pub const COOKIE_WINDOW: Duration = Duration::from_secs(30);
/// Payload of a packet that is sent, in bytes: seven packets of a transport stream. Test: `sending`.
pub const SEND_BYTES: usize = 7 * crate::ts::PACKET_BYTES;
/// Least datagram that a receiver must take, with the headers of SRT, UDP and IP, as handshakes count it. Test: `sending`.
pub(super) const MTU_MIN: u32 = SEND_BYTES as u32 + 16 + 28;
/// Bytes that wait to be sent before a sender asks for no more media. Test: `sending`.
pub const UNSENT_BYTES_MAX: usize = 64 * 1024;
/// Longest round-trip time that a receiver is believed. Test: `sending`.
pub const RTT_MAX: Duration = Duration::from_secs(10);
/// Control packets that wait to be sent; answers beyond it are left out. Test: `sending`.
pub const CONTROL_MAX: usize = 64;
/// Looks at packets that reports of lost ones cost until the sender is polled again; reports beyond it are ignored, and
/// come again. Test: `sending`.
pub const REPORT_LOOKS_MAX: usize = WINDOW_PACKETS;
/// Packets whose memory is kept for later ones. Test: `sending`.
pub const SPARE_MAX: usize = 64;
/// Packets that are encrypted with one key before the connection is over: numbers must not come twice, and they have
/// 31 bits. Test: `sending`.
pub const PACKETS_PER_KEY_MAX: u64 = 1 << 30;
/// Bytes of a passphrase (`SRTO_PASSPHRASE` of libsrt). Test: `sending`.
pub const PASSPHRASE_BYTES: RangeInclusive<usize> = 10..=79;
