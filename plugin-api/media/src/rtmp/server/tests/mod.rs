//! The server session with correct, unusual and hostile publishers.

mod ending;
mod limits;

use bytes::Bytes;

use super::*;
use crate::rtmp::amf0::{Amf0Error, Value};
use crate::rtmp::limits::*;
use crate::rtmp::message::{Control, MessageError};
use crate::testing::{Peer, object, outline};
use crate::{Codec, Role};

const AVC_CONFIG: &[u8] = b"\x17\x00\x00\x00\x00\x01\x64\x00\x1f";
const AVC_KEYFRAME: &[u8] = b"\x17\x01\x00\x00\x21\x00\x00\x00\x01\x65";
const AAC_DATA: &[u8] = b"\xaf\x01\x21\x22";

fn connect_object() -> Value {
    object([("app", Value::String("live/".to_owned())), ("flashVer", Value::String("x".to_owned()))])
}

/// Handshake, connect, releaseStream, FCPublish, createStream and publish, all at once.
fn pipelined(peer: &mut Peer, name: &str) -> Vec<u8> {
    let mut bytes = Peer::handshake();
    bytes.extend(peer.command(0, "connect", 1.0, &[connect_object()]));
    bytes.extend(peer.call(0, "releaseStream", 2.0, &[name]));
    bytes.extend(peer.call(0, "FCPublish", 3.0, &[name]));
    bytes.extend(peer.command(0, "createStream", 4.0, &[Value::Null]));
    bytes.extend(peer.call(1, "publish", 5.0, &[name, "live"]));
    bytes
}

struct Run {
    session: ServerSession,
    peer: Peer,
}

impl Run {
    fn new() -> Self {
        Run { session: ServerSession::new(ServerConfig::default()), peer: Peer::new() }
    }

    fn connected() -> Self {
        let mut run = Run::new();
        let mut bytes = Peer::handshake();
        bytes.extend(run.peer.command(0, "connect", 1.0, &[connect_object()]));
        run.input(bytes).expect("valid");
        run.events();
        run.commands();
        run
    }

    /// A session whose publish of `key` waits for a decision, and the request's id.
    fn requested() -> (Self, PublishId) {
        let mut run = Run::new();
        let bytes = pipelined(&mut run.peer, "key");
        run.input(bytes).expect("valid");
        let id = run.request();
        run.commands();
        (run, id)
    }

    fn publishing() -> Self {
        let (mut run, id) = Run::requested();
        run.session.accept_publish(id).expect("pending");
        run.commands();
        run
    }

    fn input(&mut self, bytes: Vec<u8>) -> Result<(), RtmpError> {
        self.session.input(Bytes::from(bytes))
    }

    fn media(&mut self, kind: u8, timestamp: u32, body: &[u8]) -> Result<(), RtmpError> {
        let bytes = self.peer.message(kind, 1, timestamp, body);
        self.input(bytes)
    }

    fn call(&mut self, name: &str, transaction: f64, args: &[Value]) -> Result<(), RtmpError> {
        let bytes = self.peer.command(0, name, transaction, args);
        self.input(bytes)
    }

    fn events(&mut self) -> Vec<ServerEvent> {
        std::iter::from_fn(|| self.session.poll_event()).collect()
    }

    fn request(&mut self) -> PublishId {
        let events = self.events();
        let id = events.iter().find_map(|event| match event {
            ServerEvent::PublishRequested { id, .. } => Some(*id),
            _ => None,
        });
        id.expect("publish was requested")
    }

    fn commands(&mut self) -> Vec<String> {
        let bytes = self.session.take_output();
        outline(&self.peer.read_commands(bytes))
    }
}

#[test]
fn a_usual_publisher_is_answered_in_order() {
    let mut run = Run::new();
    let mut bytes = Peer::handshake();
    bytes.extend(run.peer.command(0, "connect", 1.0, &[connect_object()]));
    run.input(bytes).expect("valid");
    assert_eq!(run.events(), [ServerEvent::Connected { app: "live".to_owned() }]);
    let output = run.session.take_output();
    let messages = run.peer.read(output);
    let controls: Vec<Control> = messages[..3]
        .iter()
        .filter_map(|message| Control::parse(message.header.kind, &message.payload).expect("valid"))
        .collect();
    let expected =
        [Control::WindowSize(2_500_000), Control::PeerBandwidth(2_500_000), Control::SetChunkSize(60_000)];
    assert_eq!(controls, expected);
    let reply = Command::parse(kind::COMMAND, &messages[3].payload).expect("valid");
    assert_eq!(outline(std::slice::from_ref(&reply)), ["_result 1 NetConnection.Connect.Success"]);
    for place in &reply.args {
        let map = place.member("videoFourCcInfoMap").expect("capabilities");
        assert_eq!(map.member("hvc1").and_then(Value::number), Some(4.0));
        assert_eq!(place.member("capsEx").and_then(Value::number), Some(12.0));
    }

    // Answers to releaseStream and FCPublish wait for the decision, createStream does not.
    run.call("releaseStream", 2.0, &[Value::Null, Value::String("key".to_owned())]).expect("valid");
    run.call("FCPublish", 3.0, &[Value::Null, Value::String("key".to_owned())]).expect("valid");
    run.call("createStream", 4.0, &[Value::Null]).expect("valid");
    assert_eq!(run.commands(), ["_result 4 -"]);
    let publish = run.peer.call(1, "publish", 5.0, &["key?token=a%20b&x=1?y", "live"]);
    run.input(publish).expect("valid");
    assert_eq!(run.commands(), [""; 0]);
    let id = PublishId(1);
    let query = Some("token=a%20b&x=1?y".to_owned());
    let (app, stream_key) = ("live".to_owned(), "key".to_owned());
    assert_eq!(run.events(), [ServerEvent::PublishRequested { id, app, stream_key, query }]);

    run.session.accept_publish(id).expect("pending");
    let expected = [
        "_result 2 -",
        "onFCPublish 0 NetStream.Publish.Start",
        "_result 3 -",
        "onStatus 0 NetStream.Publish.Start",
    ];
    assert_eq!(run.commands(), expected);
    assert_eq!(run.session.accept_publish(id), Err(RtmpError::NoSuchRequest));
}

#[test]
fn everything_at_once_works_with_every_split() {
    let bytes = pipelined(&mut Peer::new(), "key");
    for split in 0..bytes.len() {
        let mut run = Run::new();
        run.input(bytes[..split].to_vec()).expect("valid");
        run.input(bytes[split..].to_vec()).expect("valid");
        let id = run.request();
        run.session.accept_publish(id).expect("pending");
        let commands = run.commands();
        assert_eq!(commands.len(), 6, "split at {split}: {commands:?}");
        assert_eq!(commands[1], "_result 4 -");
    }
}

#[test]
fn unusual_connects_are_accepted() {
    for (args, expected) in [
        (vec![object([("app", Value::String("a/b".to_owned()))])], "a/b"),
        (vec![object([])], ""),
        (vec![Value::Null], ""),
        (vec![], ""),
    ] {
        let mut run = Run::new();
        run.input(Peer::handshake()).expect("valid");
        run.call("connect", 1.0, &args).expect("valid");
        assert_eq!(run.events(), [ServerEvent::Connected { app: expected.to_owned() }]);
    }
}

#[test]
fn a_command_in_an_amf3_envelope_is_read() {
    let mut run = Run::new();
    run.input(Peer::handshake()).expect("valid");
    let command = Command { name: "connect".to_owned(), transaction: 1.0, args: vec![connect_object()] };
    let body = [&[0], &command.encode()[..]].concat();
    let bytes = run.peer.message(kind::COMMAND_AMF3, 0, 0, &body);
    run.input(bytes).expect("valid");
    assert_eq!(run.events().len(), 1);
}

#[test]
fn unreadable_values_after_command_arguments_are_ignored() {
    let mut run = Run::connected();
    let args = vec![Value::Null, Value::String("key".to_owned())];
    let mut publish = Command { name: "publish".to_owned(), transaction: 5.0, args }.encode();
    publish.extend([0x0d, 7]);
    for body in [&[2, 0, 6, b'o', b'n', 0xff][..], &[0x11], &publish] {
        let bytes = run.peer.message(kind::COMMAND, 1, 0, body);
        run.input(bytes).expect("passed over");
    }
    assert_eq!(run.request(), PublishId(1));
}

#[test]
fn a_connect_nested_20_000_deep_is_refused() {
    let mut run = Run::new();
    run.input(Peer::handshake()).expect("valid");
    let mut body = Command { name: "connect".to_owned(), transaction: 1.0, args: vec![] }.encode();
    for _ in 0..20_000 {
        body.extend_from_slice(&[3, 0, 1, b'a']);
    }
    let bytes = run.peer.message(kind::COMMAND, 0, 0, &body);
    assert_eq!(run.input(bytes), Err(RtmpError::Amf0(Amf0Error::TooDeep)));
    assert_eq!(run.input(vec![]), Err(RtmpError::Failed));
}

#[test]
fn media_becomes_packets_with_unwrapped_times() {
    let mut run = Run::publishing();
    run.media(kind::VIDEO, 0xffff_fff0, AVC_CONFIG).expect("valid");
    run.media(kind::VIDEO, 0xffff_fff0, AVC_KEYFRAME).expect("valid");
    run.media(kind::AUDIO, 0xffff_fff8, AAC_DATA).expect("valid");
    run.media(kind::VIDEO, 0x10, AVC_KEYFRAME).expect("valid");
    run.media(kind::AUDIO, 0xffff_ffff, AAC_DATA).expect("a small step back is no error");
    let packets: Vec<(Codec, Role, i64)> = run
        .events()
        .into_iter()
        .map(|event| match event {
            ServerEvent::Packet(packet) => (packet.codec, packet.role, packet.dts_ns / 1_000_000),
            other => panic!("{other:?}"),
        })
        .collect();
    let expected = [
        (Codec::H264, Role::Config, 0xffff_fff0),
        (Codec::H264, Role::Data, 0xffff_fff0),
        (Codec::Aac, Role::Data, 0xffff_fff8),
        (Codec::H264, Role::Data, 0x1_0000_0010),
        (Codec::Aac, Role::Data, 0xffff_ffff),
    ];
    assert_eq!(packets, expected);
}

#[test]
fn metadata_is_an_event_of_its_numbers() {
    let mut run = Run::publishing();
    let metadata = Metadata { width: Some(1280), audio_codec: Some(Codec::Aac), ..Metadata::default() };
    run.media(kind::DATA, 0, &metadata.encode()).expect("valid");
    run.media(kind::DATA, 0, b"\x02\x00\x05other").expect("skipped");
    run.media(kind::DATA, 0, b"\xff\xff").expect("skipped");
    assert_eq!(run.events(), [ServerEvent::Metadata(metadata)]);
    assert_eq!(run.session.stats().ignored_messages, 2);
}

#[test]
fn unsupported_media_is_counted() {
    let mut run = Run::publishing();
    for body in [&b""[..], b"\x12mp3", b"\x91vp09abc", b"\x96\x01hvc1\x07abc"] {
        run.media(kind::VIDEO, 0, body).expect("skipped");
    }
    for body in [&b"\x17"[..], b"\x91hv", b"\x97\xff"] {
        run.media(kind::VIDEO, 0, body).expect("skipped");
    }
    run.media(22, 0, b"aggregate").expect("skipped");
    let stats = run.session.stats();
    assert_eq!((stats.ignored_tags, stats.malformed_tags, stats.ignored_messages), (4, 3, 1));
    assert!(stats.bytes_in > 3073);
    let codecs = |run: &mut Run| {
        let events = run.events().into_iter();
        let named = events.map(|event| match event {
            ServerEvent::Foreign(codec) => (codec.kind, codec.to_string()),
            other => panic!("{other:?}"),
        });
        named.collect::<Vec<_>>()
    };
    assert_eq!(codecs(&mut run), [(Kind::Video, "Sorenson H.263".to_owned())], "once for each kind");
    run.media(kind::AUDIO, 0, b"\x2fmp3").expect("skipped");
    run.media(kind::AUDIO, 0, b"\x3fpcm").expect("skipped");
    assert_eq!(codecs(&mut run), [(Kind::Audio, "MP3".to_owned())]);
}

#[test]
fn media_before_the_decision_is_held() {
    let (mut run, id) = Run::requested();
    let metadata = Metadata { width: Some(640), ..Metadata::default() };
    run.media(kind::DATA, 0, &metadata.encode()).expect("held");
    run.media(kind::VIDEO, 7, AVC_KEYFRAME).expect("held");
    assert_eq!((run.events(), run.session.held_bytes() > 0), (vec![], true));
    run.session.accept_publish(id).expect("pending");
    let events = run.events();
    assert_eq!(events[0], ServerEvent::Metadata(metadata));
    assert!(matches!(&events[1], ServerEvent::Packet(packet) if packet.dts_ns == 7_000_000));
    assert_eq!((events.len(), run.session.held_bytes()), (2, 0));
}

#[test]
fn media_without_a_publish_is_refused() {
    let mut run = Run::new();
    run.input(Peer::handshake()).expect("valid");
    let result = run.media(kind::VIDEO, 0, AVC_CONFIG);
    assert_eq!(result, Err(RtmpError::Order { what: "media", before: "connect" }));
    let result = Run::connected().media(kind::AUDIO, 0, AAC_DATA);
    assert_eq!(result, Err(RtmpError::Order { what: "media", before: "publish" }));
    let mut run = Run::new();
    run.input(Peer::handshake()).expect("valid");
    let result = run.call("createStream", 1.0, &[]);
    assert_eq!(result, Err(RtmpError::Order { what: "a command", before: "connect" }));
}

#[test]
fn other_calls_are_answered() {
    let mut run = Run::connected();
    for (name, expected) in [
        ("_checkbw", "_result 9 -"),
        ("getStreamLength", "_result 9 -"),
        ("play", "onStatus 0 NetStream.Play.Failed"),
        ("connect", "_error 9 NetConnection.Call.Failed"),
        ("unknownCall", "_error 9 NetConnection.Call.Failed"),
        ("FCUnpublish", "_result 9 -"),
    ] {
        run.call(name, 9.0, &[Value::Null]).expect("valid");
        assert_eq!(run.commands(), [expected], "{name}");
    }
    for name in ["_result", "onStatus", "deleteStream"] {
        run.call(name, 9.0, &[Value::Null]).expect("valid");
    }
    run.call("unknownCall", 0.0, &[]).expect("no answer needed");
    assert_eq!(run.commands(), [""; 0]);
}

#[test]
fn late_release_calls_of_a_running_publish_are_answered_at_once() {
    let mut run = Run::publishing();
    run.call("FCPublish", 9.0, &[Value::Null]).expect("valid");
    assert_eq!(run.commands(), ["onFCPublish 0 NetStream.Publish.Start", "_result 9 -"]);
}

#[test]
fn publishing_needs_no_name() {
    for args in [vec![Value::Null], vec![Value::Null, Value::Null], vec![]] {
        let mut run = Run::connected();
        run.call("publish", 5.0, &args).expect("valid");
        let events = run.events();
        let [ServerEvent::PublishRequested { stream_key, query, .. }] = &events[..] else {
            panic!("{events:?}")
        };
        assert_eq!((stream_key.as_str(), query), ("", &None));
    }
}

#[test]
fn broken_control_messages_end_the_session() {
    let mut run = Run::publishing();
    let bytes = run.peer.message(kind::SET_CHUNK_SIZE, 0, 0, &[0; 4]);
    assert_eq!(run.input(bytes), Err(RtmpError::Message(MessageError::ChunkSize)));
    let mut run = Run::publishing();
    let bytes = run.peer.message(kind::ABORT, 0, 0, &[0; 3]);
    assert_eq!(run.input(bytes), Err(RtmpError::Message(MessageError::Truncated(kind::ABORT))));
}

#[test]
fn debug_prints_no_names() {
    let mut run = Run::new();
    let bytes = pipelined(&mut run.peer, "sekret-key?sekret-token");
    run.input(bytes).expect("valid");
    let mut text = format!("{:?}", run.session);
    text.push_str(&format!("{:?}", run.events()));
    assert!(text.contains("PublishRequested(PublishId(1))"), "{text}");
    assert!(!text.contains("sekret") && !text.contains("live"), "{text}");
}
