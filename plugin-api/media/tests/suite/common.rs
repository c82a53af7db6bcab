//! A client and a server session in memory, and a seeded random generator.

use bytes::{Bytes, BytesMut};
use satcast_media::rtmp::client::{ClientConfig, ClientEvent, ClientSession};
use satcast_media::rtmp::server::{ServerConfig, ServerEvent, ServerSession};
use satcast_media::{Codec, Kind, Packet, Role};

pub(crate) const MS: i64 = satcast_media::NANOS_PER_MILLI;

/// Seeded xorshift generator.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Random(seed.max(1))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }
}

/// All bytes that each side of a session wrote.
pub(crate) struct Recording {
    pub(crate) client_bytes: Vec<u8>,
    pub(crate) server_bytes: Vec<u8>,
    pub(crate) packets: Vec<Packet>,
    /// Bytes the client had written when the publish was accepted.
    pub(crate) media_starts: usize,
}

/// Runs a publish of `packets` between both sessions; blocks are cut by `cut`, which gets the bytes left.
pub(crate) fn run(chunk_size: u32, packets: &[Packet], mut cut: impl FnMut(usize) -> usize) -> Recording {
    let mut client = ClientSession::new(ClientConfig {
        app: "live".to_owned(),
        tc_url: "rtmp://127.0.0.1/live".to_owned(),
        stream_key: "key?a=b".to_owned(),
        chunk_size,
        ..ClientConfig::default()
    });
    let mut server = ServerSession::new(ServerConfig { chunk_size, ..ServerConfig::default() });
    let mut recording =
        Recording { client_bytes: vec![], server_bytes: vec![], packets: vec![], media_starts: 0 };
    let mut waiting = packets.iter();
    let mut publishing = false;
    // Four exchanges start a publish; then one exchange per packet.
    for _ in 0..packets.len() + 20 {
        if publishing {
            match waiting.next() {
                Some(packet) => client.send(packet).expect("publishing"),
                None => client.end(),
            }
        }
        let bytes = client.output().take();
        recording.client_bytes.extend_from_slice(&bytes);
        feed(bytes, &mut cut, |block| server.input(block).expect("valid"));
        while let Some(event) = server.poll_event() {
            match event {
                ServerEvent::PublishRequested { id, stream_key, query, .. } => {
                    assert_eq!((stream_key.as_str(), query.as_deref()), ("key", Some("a=b")));
                    server.accept_publish(id).expect("pending");
                    recording.media_starts = recording.client_bytes.len();
                }
                ServerEvent::Packet(packet) => recording.packets.push(packet),
                _ => {}
            }
        }
        let bytes = server.take_output();
        recording.server_bytes.extend_from_slice(&bytes);
        feed(bytes, &mut cut, |block| client.input(block).expect("valid"));
        while let Some(event) = client.poll_event() {
            publishing |= event == ClientEvent::Publishing;
        }
    }
    recording
}

fn feed(bytes: Bytes, cut: &mut impl FnMut(usize) -> usize, mut take: impl FnMut(Bytes)) {
    let mut rest = BytesMut::from(&bytes[..]);
    while !rest.is_empty() {
        let count = cut(rest.len()).clamp(1, rest.len());
        take(rest.split_to(count).freeze());
    }
}

/// A codec configuration or access unit with a payload of `bytes`.
pub(crate) fn packet(
    codec: Codec,
    role: Role,
    keyframe: bool,
    dts_ms: i64,
    pts_ms: i64,
    bytes: usize,
) -> Packet {
    // 0x0a is a sequence header OBU: no temporal delimiter that would be removed.
    let payload: Vec<u8> = (0..bytes).map(|at| (at * 7) as u8 ^ 0x0a).collect();
    let (dts_ns, pts_ns) = (dts_ms * MS, pts_ms * MS);
    Packet { role, ..Packet::media(codec, keyframe, dts_ns, pts_ns, Bytes::from(payload)) }
}

/// Packets of all five codecs from `base_ms` on, payloads up to `largest` bytes.
pub(crate) fn programme(base_ms: i64, frames: i64, largest: usize, random: &mut Random) -> Vec<Packet> {
    let codecs = [Codec::H264, Codec::Hevc, Codec::Av1, Codec::Aac, Codec::Opus];
    let mut packets: Vec<Packet> =
        codecs.iter().map(|codec| packet(*codec, Role::Config, false, base_ms, base_ms, 40)).collect();
    for frame in 0..frames {
        let dts = base_ms + frame * 100 / 3;
        for codec in codecs {
            let video = codec.kind() == Kind::Video;
            let composed = matches!(codec, Codec::H264 | Codec::Hevc);
            let pts = dts + if composed { [0, 66, -33][frame as usize % 3] } else { 0 };
            let bytes = 1 + random.below(if video { largest } else { largest.min(600) });
            packets.push(packet(codec, Role::Data, video && frame % 30 == 0, dts, pts, bytes));
        }
    }
    packets
}
