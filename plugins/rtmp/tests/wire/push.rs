//! Pushing to a server that accepts the stream, over real sockets.

use std::io::Write as _;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::server::{Conn, Quick, Server, assert_same, push_all, push_until_live, stream};
use bytes::{Buf as _, Bytes};
use satcast_driver_rtmp::{Rtmp, refusal};
use satcast_media::rtmp::chunk::{ChunkOutput, ChunkReader, ChunkWriter, Message, MessageHeader};
use satcast_media::rtmp::handshake;
use satcast_plugin_api::Codec;
use satcast_plugin_api::driver::{BATCH_PACKETS_MAX, State};
use satcast_plugin_api::testkit;
use serde_json::json;

const KEY: &str = "live_sesame0123456789";

#[test]
fn a_whole_stream_arrives_unchanged() {
    let kit = kit!(Rtmp);
    let server = Server::healthy();
    let dest = kit.open("rtmp", &json!({ "url": server.url("/live"), "key": KEY })).unwrap();
    let sent = stream(3_600_000, 3000);
    push_all(&dest, &sent);
    assert!(dest.wait_for_state(State::Live));
    dest.stop();
    dest.wait_for_end().unwrap();
    let seen = server.finish();
    assert_same(&seen, &sent);
    assert_eq!((seen.app.as_str(), seen.stream_key.as_str()), ("live", KEY));
    assert_eq!(seen.packets.len(), sent.len() + 2, "both codec configurations once");
    assert_eq!(seen.packets[0].payload.as_ref(), b"\x01avcC-record");
    assert_eq!((seen.metadata.len(), seen.metadata[0].audio_sample_rate), (1, Some(48_000)));
    assert!(seen.unpublished, "the end was announced");
    assert_eq!(dest.counter("bytes_sent"), seen.bytes);
    assert_eq!(dest.counter("packets_sent"), sent.len() as u64 + 2);
    assert_eq!((dest.counter("packets_skipped"), dest.leased_packets()), (0, 0));
    dest.report(|report| assert_eq!((report.states.len(), report.ends), (1, 1), "{report:?}"));
    testkit::assert_not_logged(KEY);
}

#[test]
fn every_codec_arrives() {
    let kit = kit!(Rtmp);
    for codec in [Codec::H264, Codec::Hevc, Codec::Av1, Codec::Aac, Codec::Opus] {
        let server = Server::healthy();
        let dest = kit.open("rtmp", &json!({ "url": server.url("/live/k") })).unwrap();
        dest.push(testkit::config(codec, b"any record"));
        let sent: Vec<_> = (0..50)
            .map(|index| testkit::media(codec, index, index as i64 * 20, false, Bytes::from(vec![0x32; 700])))
            .collect();
        sent.iter().for_each(|packet| dest.push(packet.clone()));
        assert!(dest.wait_for_state(State::Live));
        dest.stop();
        dest.wait_for_end().unwrap();
        let seen = server.finish();
        assert_same(&seen, &sent);
        assert_eq!(seen.packets[0].payload.as_ref(), b"any record", "{}", codec.name());
    }
}

/// A server from before Enhanced RTMP: like ours, with its codec lists made unreadable.
fn old_server() -> Server {
    Server::start(|conn| {
        conn.silent_about_codecs = true;
        conn.accept();
        conn.read_out();
    })
}

#[test]
fn an_unannounced_codec_is_refused_by_name_unless_forced() {
    let kit = kit!(Rtmp);
    for (codec, names) in [
        (Codec::Hevc, Some(["HEVC", "H.264"])),
        (Codec::Av1, Some(["AV1", "H.264"])),
        (Codec::Opus, Some(["Opus", "AAC"])),
        (Codec::H264, None),
        (Codec::Aac, None),
    ] {
        for force in [false, true] {
            let server = old_server();
            let config = json!({ "url": server.url("/live"), "key": KEY, "forceEnhanced": force });
            let dest = kit.open("rtmp", &config).unwrap();
            dest.push(testkit::config(codec, b"any record"));
            let sent: Vec<_> = (0..20)
                .map(|index| {
                    testkit::media(codec, index, index as i64 * 20, false, Bytes::from(vec![0x32; 700]))
                })
                .collect();
            sent.iter().for_each(|packet| dest.push(packet.clone()));
            if let Some(names) = names.filter(|_| !force) {
                let error = dest.wait_for_end().unwrap_err();
                assert_eq!(error.class, satcast_plugin_api::Class::Config, "{error}");
                assert!(names.iter().all(|name| error.message.contains(name)), "{error}");
                assert!(!error.message.contains(KEY), "{error}");
                assert!(server.finish().packets.is_empty(), "nothing was sent");
                let refused = json!({ "codec": codec.name(), "takes": ["h264", "aac"] });
                dest.report(|report| {
                    assert_eq!(
                        report.events.last(),
                        Some(&("codec_refused".to_owned(), refused.to_string()))
                    );
                });
                continue;
            }
            assert!(dest.wait_for_state(State::Live), "{}", codec.name());
            dest.stop();
            dest.wait_for_end().unwrap();
            assert_same(&server.finish(), &sent);
        }
    }
}

#[test]
fn a_message_of_many_segments_arrives_whole() {
    let kit = kit!(Rtmp);
    let server = Server::healthy();
    let dest = kit.open("rtmp", &json!({ "url": server.url("/live/k") })).unwrap();
    let large: Bytes = (0..8_000_000_u32).map(|n| (n >> 7) as u8).collect();
    let sent: Vec<_> = (0..3)
        .map(|index| testkit::media(Codec::H264, index, index as i64 * 40, index == 0, large.clone()))
        .collect();
    sent.iter().for_each(|packet| dest.push(packet.clone()));
    assert!(dest.wait_for_state(State::Live));
    dest.stop();
    dest.wait_for_end().unwrap();
    assert_same(&server.finish(), &sent);
}

#[test]
fn a_connection_of_seven_weeks_crosses_both_timestamp_limits_without_a_jump() {
    let kit = kit!(Rtmp);
    let server = Server::healthy();
    let dest = kit.open("rtmp", &json!({ "url": server.url("/live/k") })).unwrap();
    // Extended timestamps begin at 2^24 - 1 ms, and the field wraps at 2^32 ms. A step of more than 2^31 ms would
    // count as a step back.
    let (extended, wrap) = (1_i64 << 24, 1_i64 << 32);
    let round = |border: i64| (-3..4).map(move |step| border + 20 * step);
    let times: Vec<i64> =
        [0].into_iter().chain(round(extended)).chain([1 << 31]).chain(round(wrap)).collect();
    let unit = |(index, ms): (usize, &i64)| {
        let codec = if index % 3 == 2 { Codec::Aac } else { Codec::H264 };
        // Several chunks, each of which repeats an extended timestamp.
        testkit::media(codec, index as u64, *ms, index == 0, Bytes::from(vec![0x33; 150_000]))
    };
    let sent: Vec<_> = times.iter().enumerate().map(unit).collect();
    push_all(&dest, &sent);
    assert!(dest.wait_for_state(State::Live));
    dest.stop();
    dest.wait_for_end().unwrap();
    assert_same(&server.finish(), &sent);
}

#[test]
fn other_tracks_are_skipped_and_counted() {
    let kit = kit!(Rtmp);
    let server = Server::healthy();
    let dest = kit.open("rtmp", &json!({ "url": server.url("/live/k") })).unwrap();
    let mut packets = stream(0, 30);
    packets.iter_mut().step_by(3).for_each(|packet| packet.track = 1);
    push_all(&dest, &packets);
    assert!(dest.wait_for_state(State::Live));
    dest.stop();
    dest.wait_for_end().unwrap();
    packets.retain(|packet| packet.track == 0);
    assert_eq!(server.finish().media().count(), 20);
    assert_eq!((dest.counter("packets_sent"), dest.counter("packets_skipped")), (22, 10));
}

#[test]
fn every_form_of_the_key_reaches_the_server() {
    let kit = kit!(Rtmp);
    for (path, key, app, name, query) in [
        ("/live/k1", None, "live", "k1", None),
        ("/app/inst/k1?t=a%20b&x=1", None, "app/inst", "k1", Some("t=a%20b&x=1")),
        ("/live", Some("k1?t=1&u=a/b"), "live", "k1", Some("t=1&u=a/b")),
        ("/live/inst/", Some("k 1"), "live/inst", "k 1", None),
    ] {
        let server = Server::healthy();
        let dest = kit.open("rtmp", &json!({ "url": server.url(path), "key": key })).unwrap();
        push_all(&dest, &stream(0, 3));
        assert!(dest.wait_for_state(State::Live));
        dest.stop();
        dest.wait_for_end().unwrap();
        let seen = server.finish();
        let got = (seen.app.as_str(), seen.stream_key.as_str(), seen.query.as_deref());
        assert_eq!(got, (app, name, query), "{path} {key:?}");
    }
}

#[test]
fn a_stop_flushes_everything_queued() {
    let kit = kit!(Rtmp);
    let server = Server::healthy();
    let dest = kit.open("rtmp", &json!({ "url": server.url("/live/k") })).unwrap();
    let sent = stream(0, 200);
    push_all(&dest, &sent[..100]);
    assert!(dest.wait_for_state(State::Live));
    sent[100..].iter().for_each(|packet| dest.push(packet.clone()));
    dest.stop();
    dest.wait_for_end().unwrap();
    assert_same(&server.finish(), &sent);
}

#[test]
fn a_paused_encoder_continues_on_the_same_connection() {
    let kit = kit!(Quick);
    let server = Server::healthy();
    let dest = kit.open("rtmp", &json!({ "url": server.url("/live/k") })).unwrap();
    let sent = stream(0, 60);
    push_all(&dest, &sent[..30]);
    assert!(dest.wait_for_state(State::Live));
    assert!(dest.wait_for_state(State::Connecting), "no media for a while");
    sent[30..].iter().for_each(|packet| dest.push(packet.clone()));
    assert!(dest.wait_for_state(State::Live));
    dest.stop();
    dest.wait_for_end().unwrap();
    assert_same(&server.finish(), &sent);
    dest.report(|report| {
        assert_eq!(report.states[1].1, Some(refusal::no_media()));
    });
}

#[test]
fn an_accepted_destination_without_media_is_not_live() {
    let kit = kit!(Quick);
    let server = Server::healthy();
    let dest = kit.open("rtmp", &json!({ "url": server.url("/live/k") })).unwrap();
    assert!(dest.wait_for_state(State::Connecting));
    dest.push(testkit::config(Codec::H264, b"record"));
    std::thread::sleep(Duration::from_millis(100));
    dest.stop();
    dest.wait_for_end().unwrap();
    dest.report(|report| assert!(report.states.iter().all(|(state, _)| *state == State::Connecting)));
    assert!(server.finish().packets.is_empty());
}

#[test]
fn a_server_that_pauses_reading_gets_everything() {
    let kit = kit!(Quick);
    let (resume, resumed) = mpsc::channel();
    let server = Server::start(move |conn| {
        conn.accept();
        conn.until(|seen| seen.packets.len() > 3);
        resumed.recv().unwrap();
        conn.read_out();
    });
    let dest = kit.open("rtmp", &json!({ "url": server.url("/live/k") })).unwrap();
    let mut sent = bulk(1000);
    push_all(&dest, &sent);
    assert!(dest.wait_for_state(State::Live));
    assert!(dest.wait_for_state(State::Connecting), "the server takes no data");
    let leased = dest.leased_packets();
    assert!((1..=BATCH_PACKETS_MAX as u64).contains(&leased), "{leased} packets in flight");
    resume.send(()).unwrap();
    push_until_live(&dest, &mut sent);
    let all = sent.len() as u64 + 2;
    let until = Instant::now() + testkit::WAIT_MAX;
    while dest.counter("packets_sent") < all && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    dest.stop();
    dest.wait_for_end().unwrap();
    assert_same(&server.finish(), &sent);
    assert_eq!(dest.leased_packets(), 0);
}

/// More than the socket buffers of loopback hold; one payload shared by all.
fn bulk(count: u64) -> Vec<satcast_plugin_api::Packet> {
    let payload = Bytes::from(vec![7; 64 * 1024]);
    (0..count)
        .map(|index| testkit::media(Codec::H264, index, index as i64, index == 0, payload.clone()))
        .collect()
}

#[test]
fn pings_and_acknowledgements_are_answered() {
    let kit = kit!(Rtmp);
    let server = Server::start(|conn| {
        conn.seen.raw = Some(Vec::new());
        conn.accept();
        control(conn, 5, &[0, 0, 0x10, 0]);
        for _ in 0..400 {
            control(conn, 4, &[0, 6, 1, 2, 3, 4]);
        }
        conn.read_out();
    });
    let dest = kit.open("rtmp", &json!({ "url": server.url("/live/k") })).unwrap();
    let sent = stream(0, 300);
    push_all(&dest, &sent);
    assert!(dest.wait_for_state(State::Live));
    std::thread::sleep(Duration::from_millis(300));
    dest.stop();
    dest.wait_for_end().unwrap();
    let seen = server.finish();
    assert_same(&seen, &sent);
    let messages = messages(seen.raw.as_deref().unwrap());
    let pongs = messages.iter().filter(|message| message.payload.as_ref() == [0, 7, 1, 2, 3, 4]);
    assert_eq!(pongs.count(), 400);
    let acks: Vec<u32> = messages
        .iter()
        .filter(|message| message.header.kind == 3)
        .map(|message| message.payload.clone().get_u32())
        .collect();
    assert!(!acks.is_empty() && acks.is_sorted(), "{acks:?}");
}

/// Sends one protocol control message (RTMP 1.0, 5.4 and 6.2).
fn control(conn: &mut Conn, kind: u8, payload: &[u8]) {
    let mut output = ChunkOutput::default();
    let header = MessageHeader { chunk_stream: 2, timestamp: 0, kind, stream: 0 };
    ChunkWriter::default().write(&mut output, header, payload, &Bytes::new()).unwrap();
    conn.stream.write_all(&output.take()).unwrap();
}

/// The messages in everything a client sent.
fn messages(raw: &[u8]) -> Vec<Message> {
    let handshake_bytes = 1 + 2 * handshake::BLOCK_BYTES;
    let mut block = Bytes::copy_from_slice(&raw[handshake_bytes..]);
    let (mut reader, mut messages) = (ChunkReader::default(), Vec::new());
    while let Some(message) = reader.read(&mut block).unwrap() {
        if message.header.kind == 1 {
            reader.set_chunk_size(message.payload.clone().get_u32() as usize);
        }
        messages.push(message);
    }
    messages
}
