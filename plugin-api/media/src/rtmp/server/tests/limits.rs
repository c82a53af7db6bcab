//! Every limit of the server session, at the limit and beyond.

use super::*;

#[test]
fn names_are_limited() {
    for (bytes, fits) in [(NAME_BYTES_MAX, true), (NAME_BYTES_MAX + 1, false)] {
        let name = "n".repeat(bytes);
        let mut run = Run::connected();
        let publish = run.peer.call(1, "publish", 5.0, &[&name]);
        let error = RtmpError::NameTooLong { what: "publish name", bytes };
        assert_eq!(run.input(publish), if fits { Ok(()) } else { Err(error) });
        let mut run = Run::new();
        run.input(Peer::handshake()).expect("valid");
        let result = run.call("connect", 1.0, &[object([("app", Value::String(name))])]);
        let error = RtmpError::NameTooLong { what: "app", bytes };
        assert_eq!(result, if fits { Ok(()) } else { Err(error) });
    }
}

#[test]
fn commands_and_data_are_limited() {
    let text = |bytes: usize| Value::String("n".repeat(bytes));
    let mut run = Run::connected();
    let spare =
        COMMAND_BYTES_MAX - Command { name: "x".into(), transaction: 0.0, args: vec![] }.encode().len();
    run.call("x", 0.0, &[text(spare - 5)]).expect("at the limit");
    let result = run.call("x", 0.0, &[text(spare - 4)]);
    assert_eq!(result, Err(RtmpError::CommandTooLong { bytes: COMMAND_BYTES_MAX + 1 }));

    let mut run = Run::publishing();
    let mut body = Metadata { width: Some(1), ..Metadata::default() }.encode();
    let long = crate::rtmp::amf0::encode_all(&[text(DATA_BYTES_MAX - body.len() - 5)]);
    body.extend_from_slice(&long);
    run.media(kind::DATA, 0, &body).expect("at the limit");
    assert_eq!(run.events().len(), 1);
    body.push(5);
    run.media(kind::DATA, 0, &body).expect("skipped");
    assert_eq!((run.events().len(), run.session.stats().ignored_messages), (0, 1));
}

#[test]
fn message_streams_are_limited() {
    let mut run = Run::connected();
    for _ in 0..MESSAGE_STREAMS_MAX {
        run.call("createStream", 4.0, &[]).expect("within the limit");
    }
    assert_eq!(run.commands().len(), MESSAGE_STREAMS_MAX as usize);
    assert_eq!(run.call("createStream", 4.0, &[]), Err(RtmpError::TooManyStreams));
}

#[test]
fn held_calls_are_limited() {
    let mut run = Run::connected();
    for transaction in 0..HELD_CALLS_MAX + 3 {
        run.call("releaseStream", transaction as f64 + 10.0, &[]).expect("held or skipped");
    }
    assert_eq!(run.session.stats().ignored_messages, 3);
    let publish = run.peer.call(1, "publish", 5.0, &["key"]);
    run.input(publish).expect("valid");
    let id = run.request();
    run.session.accept_publish(id).expect("pending");
    assert_eq!(run.commands().len(), HELD_CALLS_MAX + 1);
}

#[test]
fn held_media_is_limited_in_bytes_and_messages() {
    let (mut run, _) = Run::requested();
    run.media(kind::VIDEO, 0, &vec![0; HELD_MEDIA_BYTES_MAX]).expect("at the limit");
    assert_eq!(run.media(kind::VIDEO, 0, &[0]), Err(RtmpError::HeldMediaFull));
    let (mut run, _) = Run::requested();
    for _ in 0..HELD_MEDIA_MESSAGES_MAX {
        run.media(kind::VIDEO, 0, &[0]).expect("within the limit");
    }
    assert_eq!(run.media(kind::VIDEO, 0, &[0]), Err(RtmpError::HeldMediaFull));
}

#[test]
fn waiting_events_are_limited() {
    let mut run = Run::publishing();
    for _ in 0..EVENTS_MAX {
        run.media(kind::AUDIO, 0, AAC_DATA).expect("within the limit");
    }
    assert_eq!(run.media(kind::AUDIO, 0, AAC_DATA), Err(RtmpError::EventsFull));
}

#[test]
fn time_is_limited() {
    let mut run = Run::publishing();
    let mut timestamp = 0u32;
    let mut count = 0;
    let error = loop {
        let bytes = run.peer.message(kind::AUDIO, 1, timestamp, AAC_DATA);
        if let Err(error) = run.input(bytes) {
            break error;
        }
        run.events();
        timestamp = timestamp.wrapping_add(0x7fff_ffff);
        count += 1;
    };
    assert_eq!((error, count), (RtmpError::TimestampRange, TIME_MS_MAX / 0x7fff_ffff + 1));
}
