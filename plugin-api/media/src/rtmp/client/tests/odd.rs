//! Servers with texts and types outside the specification.

use super::*;

/// A status whose description is in Latin-1, with a value of an unknown type after it.
fn odd_status(peer: &mut Peer, level: &str, code: &str) -> Bytes {
    let args = vec![Value::Null, status(level, code, "gr@n")];
    let mut body = Command { name: "onStatus".to_owned(), transaction: 0.0, args }.encode();
    let at = body.iter().position(|byte| *byte == b'@').expect("the mark");
    body[at] = 0xfc;
    body.extend([0x11, 1, 2, 3]);
    Bytes::from(peer.message(kind::COMMAND, 1, 0, &body))
}

#[test]
fn a_status_in_another_encoding_is_read_and_does_not_end_publishing() {
    let mut run = Run::requesting();
    let start = odd_status(&mut run.peer, "status", "NetStream.Publish.Start");
    run.session.input(start).expect("read");
    assert_eq!(run.events(), [ClientEvent::Publishing]);
    let notice = odd_status(&mut run.peer, "warning", "NetStream.Odd");
    run.session.input(notice).expect("passed over");
    let unreadable = run.peer.message(kind::COMMAND, 1, 0, &[2, 0, 8, b'o', b'n', 0xff]);
    run.session.input(Bytes::from(unreadable)).expect("passed over");
    assert_eq!(run.events(), []);
    run.session.send(&packet(Codec::Aac, 0, 1)).expect("still publishing");
    let refusal = odd_status(&mut run.peer, "error", "NetStream.Publish.Denied");
    run.session.input(refusal).expect("read");
    let (code, description) = ("NetStream.Publish.Denied".to_owned(), "gr\u{fffd}n".to_owned());
    assert_eq!(run.events(), [ClientEvent::Rejected { code, description }]);
}
