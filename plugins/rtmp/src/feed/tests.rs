//! The feed against a server session in memory.

use bytes::Bytes;
use satcast_media::Role;
use satcast_media::rtmp::client::{ClientConfig, ClientEvent};
use satcast_media::rtmp::server::{ServerConfig, ServerEvent, ServerSession};

use super::*;

/// A client and the server it publishes to.
struct Pair {
    client: ClientSession,
    server: ServerSession,
    got: Vec<Packet>,
    metadata: Vec<Metadata>,
}

impl Pair {
    fn publishing() -> Self {
        let config = ClientConfig { app: "a".into(), stream_key: "k".into(), ..ClientConfig::default() };
        let mut pair = Pair {
            client: ClientSession::new(config),
            server: ServerSession::new(ServerConfig::default()),
            got: Vec::new(),
            metadata: Vec::new(),
        };
        for _ in 0..20 {
            pair.exchange();
            if pair.client.poll_event() == Some(ClientEvent::Publishing) {
                return pair;
            }
        }
        panic!("the publish was not accepted");
    }

    /// Carries pending output to the server and its answer back.
    fn exchange(&mut self) {
        self.server.input(self.client.output().take()).unwrap();
        while let Some(event) = self.server.poll_event() {
            match event {
                ServerEvent::PublishRequested { id, .. } => self.server.accept_publish(id).unwrap(),
                ServerEvent::Packet(packet) => self.got.push(packet),
                ServerEvent::Metadata(metadata) => self.metadata.push(metadata),
                ServerEvent::Connected { .. } | ServerEvent::Foreign(_) | ServerEvent::Unpublished => {}
            }
        }
        self.client.input(self.server.take_output()).unwrap();
    }

    /// Sends everything in as many rounds as the limit requires; returns their number.
    fn send(&mut self, feed: &mut Feed, packets: Vec<Packet>) -> u32 {
        feed.take(&mut { packets });
        let mut rounds = 0;
        while !feed.is_empty() {
            feed.fill(&mut self.client).unwrap();
            self.exchange();
            rounds += 1;
        }
        rounds
    }
}

fn data(codec: Codec, dts_ms: i64, payload: impl Into<Bytes>) -> Packet {
    Packet::media(codec, false, dts_ms * NANOS_PER_MILLI, (dts_ms + 40) * NANOS_PER_MILLI, payload.into())
}

fn record(codec: Codec, dts_ms: i64, payload: &'static [u8]) -> Packet {
    Packet { role: Role::Config, ..data(codec, dts_ms, payload) }
}

/// avcC of a 640x360 stream by x264.
const AVCC: &[u8] = &[
    0x01, 0x4d, 0x40, 0x1e, 0xff, 0xe1, 0x00, 0x18, 0x67, 0x4d, 0x40, 0x1e, 0xec, 0xa0, 0x50, 0x17, 0xfc,
    0xb8, 0x08, 0x80, 0x00, 0x00, 0x03, 0x00, 0x80, 0x00, 0x00, 0x1e, 0x07, 0x8b, 0x16, 0xcb, 0x01, 0x00,
    0x04, 0x68, 0xce, 0x3c, 0x80,
];
/// AudioSpecificConfig: AAC-LC, 48 kHz, stereo.
const ASC: &[u8] = &[0x11, 0x90];

fn times(packets: &[Packet]) -> Vec<(Role, i64, i64)> {
    let ms = |ns: i64| ns / NANOS_PER_MILLI;
    packets.iter().map(|packet| (packet.role, ms(packet.dts_ns), ms(packet.pts_ns))).collect()
}

#[test]
fn the_first_media_is_at_zero_and_configurations_carry_the_time_of_the_next_media() {
    let (mut pair, mut feed) = (Pair::publishing(), Feed::default());
    pair.send(&mut feed, vec![record(Codec::H264, 7, AVCC), record(Codec::Aac, 9, ASC)]);
    assert!(pair.got.is_empty(), "codec configurations wait for media");
    pair.send(&mut feed, vec![data(Codec::H264, 5000, "a"), data(Codec::H264, 5033, "b")]);
    pair.send(&mut feed, vec![record(Codec::H264, 9999, AVCC), data(Codec::H264, 5066, "c")]);
    let expected = [
        (Role::Config, 0, 0),
        (Role::Config, 0, 0),
        (Role::Data, 0, 40),
        (Role::Data, 33, 73),
        (Role::Config, 66, 66),
        (Role::Data, 66, 106),
    ];
    assert_eq!(times(&pair.got), expected);
    assert_eq!(feed.take_counts(), Counts { sent: 6, skipped: 0 });
    assert_eq!(feed.take_counts(), Counts::default());
}

#[test]
fn audio_before_its_video_is_not_moved_and_no_time_is_negative() {
    let (mut pair, mut feed) = (Pair::publishing(), Feed::default());
    pair.send(&mut feed, vec![data(Codec::H264, -500, "v"), data(Codec::Aac, -520, "a")]);
    pair.send(&mut feed, vec![data(Codec::Aac, -600, "late"), data(Codec::Aac, 480, "b")]);
    let dts: Vec<i64> = times(&pair.got).iter().map(|(_, dts, _)| *dts).collect();
    assert_eq!(dts, [20, 0, 0, 1000]);
}

#[test]
fn the_newest_configuration_of_a_kind_wins() {
    let (mut pair, mut feed) = (Pair::publishing(), Feed::default());
    pair.send(&mut feed, vec![record(Codec::Aac, 0, &[0x12, 0x10]), record(Codec::Aac, 0, ASC)]);
    pair.send(&mut feed, vec![data(Codec::Aac, 0, "x")]);
    assert_eq!(pair.got.len(), 2);
    assert_eq!(pair.got[0].payload, ASC);
}

#[test]
fn metadata_precedes_the_configurations_and_repeats_only_when_it_changes() {
    let (mut pair, mut feed) = (Pair::publishing(), Feed::default());
    pair.send(&mut feed, vec![record(Codec::H264, 0, AVCC), record(Codec::Aac, 0, ASC)]);
    pair.send(&mut feed, vec![data(Codec::H264, 0, "v"), record(Codec::H264, 0, AVCC)]);
    pair.send(&mut feed, vec![data(Codec::H264, 33, "v")]);
    assert_eq!(pair.metadata.len(), 1);
    let said = pair.metadata[0];
    assert_eq!((said.width, said.height, said.video_codec), (Some(640), Some(360), Some(Codec::H264)));
    let audio = (said.audio_sample_rate, said.audio_channels, said.audio_codec);
    assert_eq!(audio, (Some(48_000), Some(2), Some(Codec::Aac)));
    pair.send(&mut feed, vec![record(Codec::H264, 0, b"unreadable"), data(Codec::H264, 66, "v")]);
    assert_eq!(pair.metadata.len(), 2);
    assert_eq!((pair.metadata[1].width, pair.metadata[1].video_codec), (None, Some(Codec::H264)));
    assert_eq!(pair.got.last().map(|packet| packet.payload.clone()), Some(Bytes::from_static(b"v")));
}

#[test]
fn chunk_output_exceeds_the_limit_by_at_most_one_message() {
    let (mut pair, mut feed) = (Pair::publishing(), Feed::default());
    let payload = Bytes::from(vec![1; 100_000]);
    feed.take(&mut (0..64).map(|index| data(Codec::H264, index, payload.clone())).collect());
    let end = feed.fill(&mut pair.client).unwrap();
    let waiting = pair.client.output().len_bytes();
    assert!((OUTPUT_BYTES_MAX..OUTPUT_BYTES_MAX + 110_000).contains(&waiting), "{waiting}");
    assert!(end.is_some_and(|end| end > 100_000 && end < pair.client.output().total_bytes()));
    assert!(!feed.is_empty());
    assert_eq!(feed.fill(&mut pair.client), Ok(None), "the output is full");
    assert_eq!(pair.client.output().len_bytes(), waiting);
    let rounds = pair.send(&mut feed, Vec::new());
    assert!((5..=8).contains(&rounds), "{rounds}");
    assert_eq!(pair.got.len(), 64);
    assert!(pair.got.iter().all(|packet| packet.payload == payload));
}

#[test]
fn the_memory_of_a_full_batch_is_given_back() {
    let (mut pair, mut feed) = (Pair::publishing(), Feed::default());
    feed.take(&mut (0..64).map(|index| data(Codec::Aac, index, "a")).collect());
    assert!(feed.batch.capacity() >= 64);
    pair.send(&mut feed, Vec::new());
    assert_eq!(pair.got.len(), 64);
    assert!((1..2 * PACKETS_KEPT).contains(&feed.batch.capacity()), "{}", feed.batch.capacity());
}

#[test]
fn packets_that_the_protocol_cannot_carry_are_skipped_and_counted() {
    let (mut pair, mut feed) = (Pair::publishing(), Feed::default());
    let huge = Bytes::from(vec![0; satcast_media::rtmp::limits::MESSAGE_BYTES_MAX]);
    pair.send(&mut feed, vec![data(Codec::H264, 0, huge), data(Codec::H264, 1, "x")]);
    assert_eq!(pair.got.len(), 1);
    assert_eq!(feed.take_counts(), Counts { sent: 1, skipped: 1 });
}
