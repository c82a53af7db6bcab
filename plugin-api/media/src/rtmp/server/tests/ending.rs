//! The ways a publish is refused, ended and followed by another.

use super::*;

#[test]
fn every_end_command_is_one_event() {
    for name in ["FCUnpublish", "UnpublishStream", "closeStream", "deleteStream"] {
        let mut run = Run::publishing();
        let args = [Value::Null, Value::Number(1.0)];
        run.call(name, 6.0, &args).expect("valid");
        assert_eq!(run.events(), [ServerEvent::Unpublished], "{name}");
        assert_eq!(run.commands()[0], "onStatus 0 NetStream.Unpublish.Success");
        for again in ["FCUnpublish", "closeStream", "deleteStream"] {
            run.call(again, 7.0, &args).expect("valid");
        }
        run.media(kind::VIDEO, 0, AVC_KEYFRAME).expect("late media is skipped");
        assert_eq!(run.events(), [], "{name}");
    }
}

#[test]
fn another_publish_may_follow_on_the_same_connection() {
    let mut run = Run::publishing();
    run.media(kind::VIDEO, 0x9000_0000, AVC_KEYFRAME).expect("valid");
    run.call("FCUnpublish", 6.0, &[]).expect("valid");
    run.events();
    let bytes = run.peer.call(1, "publish", 8.0, &["key"]);
    run.input(bytes).expect("valid");
    let id = run.request();
    assert_eq!(id, PublishId(2));
    run.session.accept_publish(id).expect("pending");
    run.media(kind::VIDEO, 5, AVC_KEYFRAME).expect("valid");
    let events = run.events();
    assert!(matches!(&events[0], ServerEvent::Packet(packet) if packet.dts_ns == 5_000_000), "{events:?}");
}

#[test]
fn a_request_can_be_withdrawn() {
    let (mut run, id) = Run::requested();
    run.call("deleteStream", 7.0, &[Value::Null, Value::Number(1.0)]).expect("valid");
    assert_eq!(run.events(), [ServerEvent::Unpublished]);
    assert_eq!(run.session.accept_publish(id), Err(RtmpError::NoSuchRequest));
    run.call("createStream", 8.0, &[]).expect("the session continues");
}

#[test]
fn deleting_another_stream_does_not_end_the_publish() {
    let mut run = Run::publishing();
    run.call("createStream", 8.0, &[]).expect("valid");
    run.call("deleteStream", 0.0, &[Value::Null, Value::Number(2.0)]).expect("valid");
    assert_eq!(run.events(), []);
    // A stream id that was never created is treated as the running stream.
    run.call("deleteStream", 0.0, &[Value::Null, Value::Number(0.0)]).expect("valid");
    assert_eq!(run.events(), [ServerEvent::Unpublished]);
}

#[test]
fn a_second_publish_beside_the_first_is_refused() {
    let mut run = Run::publishing();
    let bytes = run.peer.call(2, "publish", 8.0, &["other"]);
    run.input(bytes).expect("valid");
    assert_eq!(
        (run.events(), run.commands()),
        (vec![], vec!["onStatus 0 NetStream.Publish.BadName".to_owned()])
    );
    run.media(kind::VIDEO, 0, AVC_KEYFRAME).expect("the first publish continues");
    assert_eq!(run.events().len(), 1);
}

#[test]
fn a_running_publish_can_be_ended() {
    for (code, level) in [("NetStream.Unpublish.Success", "status"), ("NetStream.Publish.Rejected", "error")]
    {
        let mut run = Run::publishing();
        run.session.end_publish(code, "stopped by its owner");
        let bytes = run.session.take_output();
        let commands = run.peer.read_commands(bytes);
        assert_eq!(commands[0].args[1].member("level").and_then(Value::text), Some(level));
        run.media(kind::VIDEO, 0, AVC_KEYFRAME).expect("ignored");
        assert_eq!(run.events(), []);
        run.session.end_publish(code, "twice");
        assert!(run.session.take_output().is_empty());
    }
}

#[test]
fn a_rejected_publisher_gets_a_status_and_is_then_ignored() {
    let (mut run, id) = Run::requested();
    run.session.reject_publish(PublishId(99), "x", "y");
    assert_eq!(run.commands(), [""; 0]);
    run.session.reject_publish(id, "NetStream.Publish.BadName", "in use");
    let code = "NetStream.Publish.BadName";
    assert_eq!(
        run.commands(),
        [format!("_error 2 {code}"), format!("_error 3 {code}"), format!("onStatus 0 {code}")]
    );
    run.input(vec![0xff; 10_000]).expect("ignored");
    assert_eq!((run.events().len(), run.session.accept_publish(id)), (0, Err(RtmpError::NoSuchRequest)));
    assert_eq!(run.session.held_bytes(), 0);
}
