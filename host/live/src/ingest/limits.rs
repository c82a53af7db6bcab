//! Limits of one encoder, of one network, and of all strangers together at the ports for encoders.

use std::time::Duration;

/// Most connections at the same time.
pub const CONNECTIONS_MAX: usize = 4_096;
/// Connections may use one part in this many of the process's limit of open files.
pub const OPEN_FILES_PART: u64 = 8;
/// When the limit of open files reduces the connections, one network may have one part in this many of them.
const NETWORK_PART: usize = 2;
/// Strangers, whose publish is not accepted (yet), may have one part in this many of the connections, in all and per network. A flood
/// of them leaves the rest to admitted encoders, and its memory is bounded by this and [`SETUP_BYTES_MAX`].
pub const STRANGERS_PART: usize = 2;
/// Most connections at the same time from one IPv4 address or one IPv6 /64. High enough for a relay or NAT with hundreds of encoders.
pub const CONNECTIONS_PER_NETWORK_MAX: usize = 1_024;
/// Wrong stream keys per network and minute. After that, connections of the network are closed before the handshake until the minute
/// ends. Connections of a network with an encoder that publishes, or published within [`KNOWN_NETWORK_MS`], are still accepted, so that
/// a guesser does not lock out others behind the same address. Wrong keys are then answered after [`REFUSAL_DELAY_MS`].
pub const FAILED_KEYS_PER_MINUTE_MAX: u32 = 30;
/// How long after its last publish a network counts as one with admitted encoders.
pub const KNOWN_NETWORK_MS: u64 = 10 * 60 * 1000;
/// Delay of the answer to a wrong key when the network has used up its attempts; never beyond [`SETUP_TIMEOUT_MS`].
pub const REFUSAL_DELAY_MS: u64 = 5_000;
/// Warnings about refused, broken and hostile connections per minute; more are counted and summed up in one line.
pub const WARNINGS_PER_MINUTE_MAX: u32 = 60;
/// Time for handshake, connect and an accepted publish together.
pub const SETUP_TIMEOUT_MS: u64 = 10_000;
/// Time for a trusted proxy to send its PROXY protocol header.
pub const PROXY_HEADER_TIMEOUT_MS: u64 = 3_000;
/// Most connections of trusted proxies that have not sent their header, at the same time.
pub const PROXY_HEADERS_MAX: usize = 256;
/// Most bytes of a connection before its publish request. Encoders need less than 8 KiB. Nothing is read while the request is decided.
pub const SETUP_BYTES_MAX: u64 = 256 * 1024;
/// Time for the database and the live sessions to decide on a publish request.
pub const ADMISSION_TIMEOUT_MS: u64 = 5_000;
/// A new encoder is read as bytes arrive for this long, whatever the wait between reads is. Its tracks and its first GOP reach the
/// destinations at once, and most destinations connect within it.
pub const PROMPT_MS: u64 = 2_000;
/// It is read so for this long at most until its second keyframe came: the first segment ends there, and viewers wait for it.
pub const FIRST_GOP_MS: u64 = 10_000;
/// Time without a media packet after which a publisher is disconnected.
pub const IDLE_TIMEOUT_MS: u64 = 30_000;
/// Time for an encoder to read a reply.
pub const WRITE_TIMEOUT_MS: u64 = 5_000;
/// Most bytes of replies that wait for an encoder that does not read.
pub const REPLY_BYTES_MAX: usize = 256 * 1024;
/// Time for an encoder to read the last status and close the connection.
pub const LINGER_MS: u64 = 1_000;
/// Time for all connections to close at shutdown.
pub const SHUTDOWN_TIMEOUT_MS: u64 = 3_000;
/// Pause after a failed accept (no file handles left), so that the loop does not spin.
pub const ACCEPT_PAUSE_MS: u64 = 100;

/// Datagrams of one SRT caller or WHIP sender that wait for its task: those of 10 ms at 100 Mbit/s, ten times. More count as lost on
/// the way.
pub const DATAGRAMS_QUEUED_MAX: usize = 1_024;
/// Buffer of a UDP socket in bytes, as far as the system allows (`net.core.rmem_max`).
pub const UDP_RECEIVE_BUFFER_BYTES: usize = 4 * 1024 * 1024;
/// A refused SRT caller that repeats its question gets the same answer for this long. It keeps its slot as a stranger meanwhile.
pub const SRT_ANSWER_KEPT_MS: u64 = 3_000;

/// Longest offer of a WHIP sender in bytes. Those of browsers have about 8 KiB.
pub const WHIP_OFFER_BYTES_MAX: usize = 64 * 1024;
/// Most media sections of an offer.
pub const WHIP_SECTIONS_MAX: usize = 8;
/// Offers that wait for the port; more are refused.
pub const WHIP_OFFERS_QUEUED_MAX: usize = 64;
/// Addresses from which one WHIP sender may send at the same time; the oldest is forgotten for a new one. Browsers try every network
/// of their machine.
pub const WHIP_ADDRESSES_MAX: usize = 8;
/// Addresses that one WHIP sender may have in all. ICE keeps each until the end, and looks through them for every request.
pub const WHIP_ADDRESSES_TRIED_MAX: usize = 256;
/// A connected WHIP sender from which nothing comes for this long has left. Senders check their connection every few seconds.
pub const WHIP_SILENCE_MS: u64 = 10_000;
/// A WHIP sender is asked for a keyframe when the newest one is this old. Segments of HLS begin with keyframes, and browsers send one
/// only when they are asked. With the way there and back, and a second request, segments last for two seconds at most, which is the
/// target of HLS.
pub const WHIP_KEYFRAME_EVERY_MS: u64 = 1_500;
/// Least time between two requests for a keyframe: one that is lost, or whose answer is, comes again.
pub const WHIP_KEYFRAME_REQUESTS_MS: u64 = 400;

/// The limits in force; tests shorten them.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    pub(crate) connections_max: usize,
    pub(crate) connections_per_network_max: usize,
    pub(crate) failed_keys_max: u32,
    pub(crate) refusal_delay: Duration,
    pub(crate) warnings_max: u32,
    pub(crate) setup: Duration,
    pub(crate) proxy_header: Duration,
    pub(crate) setup_bytes_max: u64,
    pub(crate) admission: Duration,
    pub(crate) prompt: Duration,
    pub(crate) first_gop: Duration,
    pub(crate) idle: Duration,
    pub(crate) write: Duration,
    pub(crate) reply_bytes_max: usize,
    pub(crate) linger: Duration,
    pub(crate) shutdown: Duration,
    pub(crate) silence: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: CONNECTIONS_MAX,
            connections_per_network_max: CONNECTIONS_PER_NETWORK_MAX,
            failed_keys_max: FAILED_KEYS_PER_MINUTE_MAX,
            refusal_delay: Duration::from_millis(REFUSAL_DELAY_MS),
            warnings_max: WARNINGS_PER_MINUTE_MAX,
            setup: Duration::from_millis(SETUP_TIMEOUT_MS),
            proxy_header: Duration::from_millis(PROXY_HEADER_TIMEOUT_MS),
            setup_bytes_max: SETUP_BYTES_MAX,
            admission: Duration::from_millis(ADMISSION_TIMEOUT_MS),
            prompt: Duration::from_millis(PROMPT_MS),
            first_gop: Duration::from_millis(FIRST_GOP_MS),
            idle: Duration::from_millis(IDLE_TIMEOUT_MS),
            write: Duration::from_millis(WRITE_TIMEOUT_MS),
            reply_bytes_max: REPLY_BYTES_MAX,
            linger: Duration::from_millis(LINGER_MS),
            shutdown: Duration::from_millis(SHUTDOWN_TIMEOUT_MS),
            silence: Duration::from_millis(WHIP_SILENCE_MS),
        }
    }
}

impl Limits {
    /// Reduces the connection limits to fit the process's limit of open files.
    pub(crate) fn within(mut self, open_files: u64) -> Self {
        let files = usize::try_from(open_files / OPEN_FILES_PART).unwrap_or(usize::MAX).max(NETWORK_PART);
        self.connections_max = self.connections_max.min(files);
        self.connections_per_network_max =
            self.connections_per_network_max.min(self.connections_max / NETWORK_PART);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_most_open_files_to_others() {
        let of = |open_files| {
            let limits = Limits::default().within(open_files);
            (limits.connections_max, limits.connections_per_network_max)
        };
        assert_eq!(of(65_536), (CONNECTIONS_MAX, CONNECTIONS_PER_NETWORK_MAX));
        assert_eq!(of(4_096), (512, 256));
        assert_eq!(of(300), (37, 18));
        assert_eq!(of(0), (2, 1));
    }
}
