//! A scripted sender for tests: the other side of a connection, on a socket of its own.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use str0m::change::{SdpAnswer, SdpPendingOffer};
use str0m::format::Codec;
use str0m::media::{Direction, MediaKind, MediaTime, Mid};
use str0m::net::{Protocol, Receive};
use str0m::{Candidate, Event, Input, Output, Rtc, RtcConfig};
use tokio::net::UdpSocket;
use tokio::time::timeout;

use super::crypto::Identity;

/// Longest wait of a test.
const PATIENCE: Duration = Duration::from_secs(30);

/// A sender.
pub(in crate::ingest) struct Peer {
    rtc: Rtc,
    socket: UdpSocket,
    own: SocketAddr,
    pending: Option<SdpPendingOffer>,
    video: Mid,
    audio: Mid,
    codec: Codec,
    /// Its offer.
    pub(in crate::ingest) offer: String,
    pub(in crate::ingest) is_connected: bool,
    pub(in crate::ingest) is_closed: bool,
    /// Requests for keyframes that came.
    pub(in crate::ingest) asked: usize,
}

impl Peer {
    /// One that offers these codecs.
    pub(in crate::ingest) async fn with(codecs: impl FnOnce(RtcConfig) -> RtcConfig) -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let own = socket.local_addr().unwrap();
        let Identity { provider, certificate } = Identity::new().unwrap();
        let config = RtcConfig::new().set_crypto_provider(provider).set_dtls_cert(certificate);
        let mut rtc = codecs(config).build(Instant::now());
        rtc.add_local_candidate(Candidate::host(own, "udp").unwrap());
        let mut changes = rtc.sdp_api();
        let video = changes.add_media(MediaKind::Video, Direction::SendOnly, None, None, None);
        let audio = changes.add_media(MediaKind::Audio, Direction::SendOnly, None, None, None);
        let (offer, pending) = changes.apply().unwrap();
        let (offer, pending) = (offer.to_sdp_string(), Some(pending));
        let (is_connected, is_closed, asked) = (false, false, 0);
        let codec = Codec::H264;
        Self { rtc, socket, own, pending, video, audio, codec, offer, is_connected, is_closed, asked }
    }

    /// One that offers H.264 and Opus.
    pub(in crate::ingest) async fn new() -> Self {
        Self::with(|config| config.clear_codecs().enable_h264(true).enable_opus(true, false)).await
    }

    /// One that offers HEVC and Opus.
    pub(in crate::ingest) async fn hevc() -> Self {
        let with = |config: RtcConfig| config.clear_codecs().enable_h265(true).enable_opus(true, false);
        Self { codec: Codec::H265, ..Self::with(with).await }
    }

    /// One that offers AV1 and Opus.
    pub(in crate::ingest) async fn av1() -> Self {
        let with = |config: RtcConfig| config.clear_codecs().enable_av1(true).enable_opus(true, false);
        Self { codec: Codec::Av1, ..Self::with(with).await }
    }

    /// Takes the answer.
    pub(in crate::ingest) fn answered(&mut self, answer: &str) {
        let answer = SdpAnswer::from_sdp_string(answer).unwrap();
        self.rtc.sdp_api().accept_answer(self.pending.take().unwrap(), answer).unwrap();
    }

    /// Goes on until `reached` holds.
    pub(in crate::ingest) async fn until(&mut self, reached: impl Fn(&Self) -> bool) {
        let went = async {
            loop {
                let due = self.drain().await;
                if reached(self) {
                    return;
                }
                self.take(due).await;
            }
        };
        timeout(PATIENCE, went).await.expect("the state is reached in time");
    }

    /// Goes on for this long.
    pub(in crate::ingest) async fn for_a(&mut self, time: Duration) {
        let end = Instant::now() + time;
        self.until(move |_| Instant::now() >= end).await;
    }

    /// Sends a frame of this time in milliseconds.
    pub(in crate::ingest) async fn send(&mut self, kind: MediaKind, millis: u64, frame: &[u8]) {
        let (mid, codec) = match kind {
            MediaKind::Video => (self.video, self.codec),
            MediaKind::Audio => (self.audio, Codec::Opus),
        };
        let writer = self.rtc.writer(mid).unwrap();
        let pt = writer.payload_params().find(|params| params.spec().codec == codec).unwrap().pt();
        writer.write(pt, Instant::now(), MediaTime::from_millis(millis), frame).unwrap();
        self.drain().await;
    }

    async fn drain(&mut self) -> Instant {
        loop {
            match self.rtc.poll_output().unwrap() {
                Output::Timeout(due) => return due,
                Output::Transmit(datagram) => {
                    self.socket.send_to(&datagram.contents, datagram.destination).await.unwrap();
                }
                Output::Event(Event::Connected) => self.is_connected = true,
                Output::Event(Event::Closed) => self.is_closed = true,
                Output::Event(Event::KeyframeRequest(_)) => self.asked += 1,
                Output::Event(_) => {}
            }
        }
    }

    /// The next datagram, or the time that is due.
    async fn take(&mut self, due: Instant) {
        let mut block = [0; 2_048];
        let wait = due.saturating_duration_since(Instant::now()).min(Duration::from_millis(20));
        let received = timeout(wait, self.socket.recv_from(&mut block)).await;
        let now = Instant::now();
        let input = match received {
            Ok(Ok((bytes, from))) => Receive::new(Protocol::Udp, from, self.own, &block[..bytes])
                .ok()
                .map(|got| Input::Receive(now, got)),
            _ => None,
        };
        self.rtc.handle_input(input.unwrap_or(Input::Timeout(now))).unwrap();
    }
}
