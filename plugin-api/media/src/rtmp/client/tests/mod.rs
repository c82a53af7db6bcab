//! The client session with correct, unusual and hostile servers.

mod odd;

use bytes::Bytes;

use super::*;
use crate::Codec;
use crate::rtmp::amf0::Value;
use crate::rtmp::limits::{COMMAND_BYTES_MAX, OUTPUT_BYTES_MAX, STATUS_CHARS_MAX};
use crate::rtmp::message::{Command, Control};
use crate::testing::{Peer, object, outline};

fn config() -> ClientConfig {
    ClientConfig {
        app: "sekret-app".to_owned(),
        tc_url: "rtmp://sekret-host/sekret-app".to_owned(),
        stream_key: "sekret-key?sekret-token".to_owned(),
        ..ClientConfig::default()
    }
}

fn status(level: &str, code: &str, description: &str) -> Value {
    let text = |text: &str| Value::String(text.to_owned());
    object([("level", text(level)), ("code", text(code)), ("description", text(description))])
}

fn packet(codec: Codec, dts_ns: i64, bytes: usize) -> Packet {
    Packet::media(codec, false, dts_ns, dts_ns, Bytes::from(vec![7; bytes]))
}

struct Run {
    session: ClientSession,
    peer: Peer,
}

impl Run {
    /// A session after its handshake; `connect` is queued in the output.
    fn new() -> Self {
        let mut run = Run { session: ClientSession::new(config()), peer: Peer::new() };
        assert_eq!(run.session.output().len_bytes(), 1537);
        run.session.input(Bytes::from(Peer::handshake())).expect("valid");
        run
    }

    fn requesting() -> Self {
        let mut run = Run::new();
        run.send(0, "_result", 1.0, &[Value::Null, Value::Null]).expect("valid");
        run.send(0, "_result", 4.0, &[Value::Null, Value::Number(1.0)]).expect("valid");
        run.commands();
        run
    }

    fn publishing() -> Self {
        let mut run = Run::requesting();
        let start = status("status", "NetStream.Publish.Start", "");
        run.send(1, "onStatus", 0.0, &[Value::Null, start]).expect("valid");
        assert_eq!(run.events(), [ClientEvent::Publishing]);
        run
    }

    fn send(&mut self, stream: u32, name: &str, transaction: f64, args: &[Value]) -> Result<(), RtmpError> {
        let bytes = self.peer.command(stream, name, transaction, args);
        self.session.input(Bytes::from(bytes))
    }

    fn control(&mut self, control: Control) {
        let bytes = self.peer.control(control);
        self.session.input(Bytes::from(bytes)).expect("valid");
    }

    fn commands(&mut self) -> Vec<Command> {
        let bytes = self.session.output().take();
        self.peer.read_commands(bytes)
    }

    fn events(&mut self) -> Vec<ClientEvent> {
        std::iter::from_fn(|| self.session.poll_event()).collect()
    }
}

#[test]
fn the_commands_have_the_order_of_common_encoders() {
    let mut run = Run::new();
    let commands = run.commands();
    assert_eq!(outline(&commands), ["connect 1 -"]);
    let properties = &commands[0].args[0];
    for (name, expected) in [
        ("app", "sekret-app"),
        ("type", "nonprivate"),
        ("flashVer", "FMLE/3.0 (compatible; Satcast)"),
        ("tcUrl", "rtmp://sekret-host/sekret-app"),
    ] {
        assert_eq!(properties.member(name).and_then(Value::text), Some(expected));
    }
    assert!(matches!(properties.member("fourCcList"), Some(Value::StrictArray(list)) if list.len() == 5));

    run.send(0, "_result", 1.0, &[Value::Null, status("status", "x", "")]).expect("valid");
    let output = run.session.output().take();
    let messages = run.peer.read(output);
    let controls: Vec<_> =
        messages.iter().filter_map(|m| Control::parse(m.header.kind, &m.payload).expect("valid")).collect();
    assert_eq!(controls, [Control::WindowSize(2_500_000), Control::SetChunkSize(60_000)]);
    let commands: Vec<Command> = messages[2..]
        .iter()
        .map(|message| Command::parse(message.header.kind, &message.payload).expect("valid"))
        .collect();
    assert_eq!(outline(&commands), ["releaseStream 2 -", "FCPublish 3 -", "createStream 4 -"]);
    assert_eq!(commands[0].text(1), Some("sekret-key?sekret-token"));

    // No answer to releaseStream and FCPublish, as nginx-rtmp does.
    run.send(0, "_result", 4.0, &[Value::Null, Value::Number(7.0)]).expect("valid");
    let output = run.session.output().take();
    let messages = run.peer.read(output);
    assert_eq!(messages[0].header.stream, 7);
    let publish = Command::parse(messages[0].header.kind, &messages[0].payload).expect("valid");
    assert_eq!((publish.text(1), publish.text(2)), (Some("sekret-key?sekret-token"), Some("live")));
    assert_eq!(run.events(), []);
    // Other statuses do not start it.
    let other = status("status", "NetStream.Publish.Reset", "");
    run.send(7, "onStatus", 0.0, &[Value::Null, other]).expect("valid");
    assert_eq!(run.events(), []);
    let start = status("status", "NetStream.Publish.Start", "");
    run.send(7, "onStatus", 0.0, &[Value::Null, start]).expect("valid");
    assert_eq!(run.events(), [ClientEvent::Publishing]);

    run.session.end();
    let commands = run.commands();
    assert_eq!(outline(&commands), ["FCUnpublish 6 -", "deleteStream 7 -"]);
    assert_eq!(commands[1].number(1), Some(7.0));
    assert_eq!(run.session.send(&packet(Codec::Aac, 0, 1)), Err(RtmpError::NotPublishing));
    run.session.end();
    assert!(run.session.output().is_empty());
}

#[test]
fn the_codec_list_can_be_left_out() {
    let mut session = ClientSession::new(ClientConfig { enhanced: false, ..config() });
    session.input(Bytes::from(Peer::handshake())).expect("valid");
    let commands = Peer::new().read_commands(session.output().take());
    assert_eq!(commands[0].args[0].member("fourCcList"), None);
}

#[test]
fn every_split_of_the_servers_bytes_gives_the_same() {
    let mut peer = Peer::new();
    let mut bytes = Peer::handshake();
    bytes.extend(peer.control(Control::SetChunkSize(4096)));
    bytes.extend(peer.command(0, "_result", 1.0, &[Value::Null, status("status", "x", "connected")]));
    bytes.extend(peer.command(0, "_result", 4.0, &[Value::Null, Value::Number(1.0)]));
    let start = status("status", "NetStream.Publish.Start", "");
    bytes.extend(peer.command(1, "onStatus", 0.0, &[Value::Null, start]));
    for split in 0..bytes.len() {
        let mut session = ClientSession::new(config());
        session.input(Bytes::copy_from_slice(&bytes[..split])).expect("valid");
        session.input(Bytes::copy_from_slice(&bytes[split..])).expect("valid");
        assert_eq!(session.poll_event(), Some(ClientEvent::Publishing), "split at {split}");
    }
}

#[test]
fn a_refusal_at_any_step_is_one_event() {
    let refused = |description: &str| {
        let code = "NetConnection.Connect.Rejected".to_owned();
        vec![ClientEvent::Rejected { code, description: description.to_owned() }]
    };
    let information = |text: &str| vec![Value::Null, status("error", "NetConnection.Connect.Rejected", text)];
    let mut run = Run::new();
    run.send(0, "_error", 1.0, &information("no")).expect("valid");
    assert_eq!(run.events(), refused("no"));
    run.send(0, "_error", 1.0, &information("again")).expect("ignored");
    assert_eq!(run.events(), []);

    let mut run = Run::new();
    run.send(0, "_result", 1.0, &[Value::Null, Value::Null]).expect("valid");
    for transaction in [2.0, 3.0] {
        run.send(0, "_error", transaction, &information("not needed")).expect("valid");
    }
    assert_eq!(run.events(), []);
    run.send(0, "_error", 4.0, &information("no stream")).expect("valid");
    assert_eq!(run.events(), refused("no stream"));

    let mut run = Run::requesting();
    run.send(1, "onStatus", 0.0, &information("bad key")).expect("valid");
    assert_eq!(run.events(), refused("bad key"));

    let mut run = Run::publishing();
    run.send(1, "onStatus", 0.0, &information("over")).expect("valid");
    assert_eq!(run.events(), refused("over"));
    assert_eq!(run.session.send(&packet(Codec::Aac, 0, 1)), Err(RtmpError::NotPublishing));
}

#[test]
fn a_refusal_without_an_object_is_an_event() {
    let mut run = Run::new();
    run.send(0, "_error", 1.0, &[Value::String("go away".to_owned())]).expect("valid");
    let expected = ClientEvent::Rejected { code: String::new(), description: "go away".to_owned() };
    assert_eq!(run.events(), [expected]);
    let mut run = Run::new();
    run.send(0, "_error", 1.0, &[]).expect("valid");
    assert_eq!(run.events(), [ClientEvent::Rejected { code: String::new(), description: String::new() }]);
}

#[test]
fn the_servers_text_is_bounded_and_holds_no_secret() {
    let mut run = Run::requesting();
    let text =
        "key sekret-key at rtmp://sekret-host/sekret-app\r\n\u{1b}[31m is unknown: sekret-key?sekret-token";
    let bad = status("error", "NetStream.Publish.BadName\n", text);
    run.send(1, "onStatus", 0.0, &[Value::Null, bad]).expect("valid");
    let expected = ClientEvent::Rejected {
        code: "NetStream.Publish.BadName".to_owned(),
        description: "key **** at ****[31m is unknown: ****".to_owned(),
    };
    assert_eq!(run.events(), [expected]);

    let mut run = Run::requesting();
    let long = status("error", &"c".repeat(1000), &"é".repeat(1000));
    run.send(1, "onStatus", 0.0, &[Value::Null, long]).expect("valid");
    let events = run.events();
    let [ClientEvent::Rejected { code, description }] = &events[..] else { panic!("{events:?}") };
    assert_eq!((code.chars().count(), description.chars().count()), (STATUS_CHARS_MAX, STATUS_CHARS_MAX));
}

#[test]
fn a_name_too_short_to_be_secret_is_not_masked() {
    for (name, expected) in [("tes", "stream test is in use"), ("test", "stream **** is in use")] {
        let mut session = ClientSession::new(ClientConfig { stream_key: name.to_owned(), ..config() });
        session.input(Bytes::from(Peer::handshake())).expect("valid");
        let refusal = status("error", "x", "stream test is in use");
        let bytes = Peer::new().command(0, "_error", 1.0, &[Value::Null, refusal]);
        session.input(Bytes::from(bytes)).expect("valid");
        let expected = ClientEvent::Rejected { code: "x".to_owned(), description: expected.to_owned() };
        assert_eq!(session.poll_event(), Some(expected));
    }
}

#[test]
fn an_end_by_the_server_without_error_is_peer_closed() {
    for code in ["NetStream.Unpublish.Success", "NetConnection.Connect.Closed"] {
        let mut run = Run::publishing();
        run.send(1, "onStatus", 0.0, &[Value::Null, status("status", code, "bye")]).expect("valid");
        let expected = ClientEvent::PeerClosed { code: code.to_owned(), description: "bye".to_owned() };
        assert_eq!(run.events(), [expected]);
    }
    let mut run = Run::publishing();
    run.send(0, "close", 0.0, &[Value::Null]).expect("valid");
    assert!(matches!(&run.events()[..], [ClientEvent::PeerClosed { .. }]));
}

#[test]
fn acknowledgements_are_unwrapped_and_cut_to_the_written_total() {
    let mut run = Run::publishing();
    run.session.link.output.take();
    let written = run.session.output().total_bytes();
    let acknowledged = |run: &mut Run, bytes: u32| {
        run.control(Control::Acknowledgement(bytes));
        run.events()
    };
    assert_eq!(acknowledged(&mut run, 1000), [ClientEvent::Acknowledged { bytes: 1000 }]);
    assert!(!run.session.acknowledges_wrongly());
    assert_eq!(acknowledged(&mut run, 900), []);
    assert!(run.session.acknowledges_wrongly());
    assert_eq!(acknowledged(&mut run, 1_000_000), [ClientEvent::Acknowledged { bytes: written }]);
    // Only the newest is kept.
    let mut run = Run::publishing();
    for bytes in [10, 20, 30] {
        run.control(Control::Acknowledgement(bytes));
    }
    assert_eq!(run.events(), [ClientEvent::Acknowledged { bytes: 30 }]);
    assert!(!run.session.acknowledges_wrongly());
    run.control(Control::Acknowledgement(30));
    assert!(run.session.acknowledges_wrongly(), "a repeated count");
    let mut run = Run::publishing();
    run.control(Control::Acknowledgement(1_000_000));
    assert!(run.session.acknowledges_wrongly(), "more than the written total");
}

#[test]
fn acknowledgements_pass_the_32_bit_wrap() {
    let mut run = Run::publishing();
    (run.session.acknowledged, run.session.acknowledged_low) = (u64::from(u32::MAX) - 10, u32::MAX - 10);
    // This test cannot write more than 4 GiB, so the count is cut to the written total.
    run.control(Control::Acknowledgement(5));
    let written = run.session.output().total_bytes();
    assert_eq!(run.events(), [ClientEvent::Acknowledged { bytes: written }]);
}

#[test]
fn pings_and_bandwidth_are_answered_and_input_acknowledged() {
    let mut run = Run::publishing();
    run.session.output().take();
    run.control(Control::Ping(77));
    let output = run.session.output().take();
    assert_eq!(run.peer.read(output)[0].payload, [0, 7, 0, 0, 0, 77][..]);
    run.control(Control::PeerBandwidth(10_000));
    run.control(Control::WindowSize(10_000));
    let filler = run.peer.message(18, 1, 0, &[0; 6000]);
    run.session.input(Bytes::from(filler)).expect("data is skipped");
    let output = run.session.output().take();
    let kinds: Vec<u8> = run.peer.read(output).iter().map(|message| message.header.kind).collect();
    assert_eq!(kinds, [kind::WINDOW_SIZE, kind::ACKNOWLEDGEMENT]);
}

#[test]
fn times_are_whole_milliseconds_that_wrap() {
    let mut run = Run::publishing();
    run.commands();
    let ms = 1_000_000;
    let times = [-5 * ms, 33_900_000, ((1 << 32) - 1) * ms, ((1 << 32) + 20) * ms];
    for dts_ns in times {
        run.session.send(&packet(Codec::H264, dts_ns, 3000)).expect("publishing");
    }
    let output = run.session.output().take();
    let read: Vec<u32> = run.peer.read(output).iter().map(|message| message.header.timestamp).collect();
    assert_eq!(read, [0, 33, u32::MAX, 20]);
}

#[test]
fn metadata_is_a_data_message_of_its_numbers() {
    let mut run = Run::publishing();
    run.commands();
    let metadata = Metadata { width: Some(1920), video_codec: Some(Codec::Av1), ..Metadata::default() };
    run.session.send_metadata(&metadata).expect("publishing");
    let output = run.session.output().take();
    let messages = run.peer.read(output);
    assert_eq!((messages[0].header.kind, messages[0].header.stream), (kind::DATA, 1));
    assert!(messages[0].payload.windows(13).any(|part| part == b"@setDataFrame"));
    assert_eq!(Metadata::parse(kind::DATA, &messages[0].payload), Some(metadata));
}

#[test]
fn nothing_is_sent_before_the_start() {
    let mut run = Run::requesting();
    assert_eq!(run.session.send(&packet(Codec::Aac, 0, 1)), Err(RtmpError::NotPublishing));
    assert_eq!(run.session.send_metadata(&Metadata::default()), Err(RtmpError::NotPublishing));
    assert!(run.session.output().is_empty());
}

#[test]
fn an_invalid_stream_id_is_refused() {
    for id in [Value::Null, Value::Number(-1.0), Value::Number(f64::NAN), Value::Number(1e10)] {
        let mut run = Run::new();
        run.send(0, "_result", 1.0, &[Value::Null, Value::Null]).expect("valid");
        let result = run.send(0, "_result", 4.0, &[Value::Null, id]);
        assert!(matches!(result, Err(RtmpError::NoStreamId)), "{result:?}");
    }
}

#[test]
fn debug_prints_no_names() {
    let run = Run::publishing();
    let mut text = format!("{:?} {:?}", config(), run.session);
    let mut fresh = Run::new();
    let (reader, output) = (Peer::new(), fresh.session.output());
    text.push_str(&format!("{output:?}"));
    let bytes = output.take();
    let commands = { reader }.read_commands(bytes);
    text.push_str(&format!("{commands:?}"));
    assert!(text.contains("chunk_size: 60000"), "{text}");
    assert!(!text.contains("sekret"), "{text}");
}

#[test]
fn a_count_is_unwrapped_with_the_written_total() {
    const WRAP: u64 = 1 << 32;
    let written = WRAP + 1000;
    assert_eq!(unwrapped(WRAP - 10, u32::MAX - 9, 5, written), Some(WRAP + 5));
    assert_eq!(unwrapped(WRAP + 5, 5, 900, written), Some(WRAP + 900));
    // A count that restarts early and continues from there.
    assert_eq!(unwrapped(0xf000_0000, 0xf000_0000, 8000, 0xf000_2000), Some(0xf000_0000 + 8000));
    assert_eq!(unwrapped(0xf000_1f40, 8000, 16_000, 0xf001_0000), Some(0xf000_0000 + 16_000));
    assert_eq!(unwrapped(5000, 5000, 4999, written), None);
    assert_eq!(unwrapped(5000, 5000, 5000, written), None);
    assert_eq!(
        unwrapped(5000, 5000, 9000, 8000),
        Some(9000),
        "a count over the written total is returned unchanged; the session cuts it"
    );
}

mod limits {
    use super::*;

    #[test]
    fn waiting_output_is_limited() {
        let mut run = Run::publishing();
        run.commands();
        let large = packet(Codec::H264, 0, 4 * 1024 * 1024);
        let error = (0..9).find_map(|_| run.session.send(&large).err());
        assert_eq!(error, Some(RtmpError::OutputFull));
        let waiting = run.session.output().len_bytes();
        assert!((OUTPUT_BYTES_MAX - 5 * 1024 * 1024..=OUTPUT_BYTES_MAX).contains(&waiting), "{waiting}");
        run.session.output().advance(waiting);
        assert_eq!(run.session.send(&large), Ok(()));
    }

    #[test]
    fn the_servers_commands_are_limited() {
        let mut run = Run::new();
        let text = Value::String("n".repeat(COMMAND_BYTES_MAX));
        let result = run.send(0, "x", 0.0, &[text]);
        assert!(matches!(result, Err(RtmpError::CommandTooLong { .. })), "{result:?}");
        assert_eq!(run.session.input(Bytes::new()), Err(RtmpError::Failed));
    }
}
