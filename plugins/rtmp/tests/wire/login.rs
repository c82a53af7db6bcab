//! A server that asks for user and password: three connections, and the password is in none of them.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use satcast_driver_rtmp::target::Target;
use satcast_driver_rtmp::{Rtmp, refusal};
use satcast_media::rtmp::amf0::{Value, encode_all};
use satcast_media::rtmp::chunk::{ChunkOutput, ChunkWriter, MessageHeader};
use satcast_media::rtmp::server::{ServerConfig, ServerEvent, ServerSession};
use satcast_plugin_api::driver::State;
use satcast_plugin_api::testkit;
use serde_json::json;

use crate::server::{push_all, stream};

const NEED_AUTH: &str = "[ AccessManager.Reject ] : [ code=403 need auth; authmod=adobe ] : ";
const PROOF: &str = "[ AccessManager.Reject ] : [ authmod=adobe ] : \
                     ?reason=needauth&user=bob&salt=c2FsdA==&challenge=Y2g=&opaque=b3A=";
const LIMELIGHT_NEED_AUTH: &str = "[ AccessManager.Reject ] : [ code=403 need auth; authmod=llnw ] : ";
const LIMELIGHT_DIGEST: &str =
    "[ AccessManager.Reject ] : [ authmod=llnw ] : ?reason=needauth&user=bob&nonce=bm9uY2U=";
/// Some servers repeat an unknown app in their refusal.
const ECHO: &str = "no application ";
const FAILED: &str = "[ AccessManager.Reject ] : [ authmod=adobe ] : ?reason=authfailed&opaque=b3A=";

/// Code of every refusal here.
const CODE: &str = "NetConnection.Connect.Rejected";

/// Answers each of the first connections with a refusal, then accepts. Returns the bytes that each connection sent.
fn asking(refusals: &'static [&'static str], accepts: bool) -> (u16, JoinHandle<Vec<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let thread = std::thread::spawn(move || {
        let mut seen: Vec<_> =
            refusals.iter().map(|refusal| serve(listener.accept().unwrap().0, Some(refusal))).collect();
        if accepts {
            seen.push(serve(listener.accept().unwrap().0, None));
        }
        seen
    });
    (port, thread)
}

fn serve(mut socket: TcpStream, refusal: Option<&str>) -> Vec<u8> {
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut session = ServerSession::new(ServerConfig::default());
    let (mut seen, mut block) = (Vec::new(), vec![0; 65536]);
    while let Ok(count @ 1..) = socket.read(&mut block) {
        seen.extend_from_slice(&block[..count]);
        session.input(Bytes::copy_from_slice(&block[..count])).unwrap();
        while let Some(event) = session.poll_event() {
            match (event, refusal) {
                (ServerEvent::Connected { app, .. }, Some(refusal)) => {
                    // Drops the session's own answer.
                    drop(session.take_output());
                    let echoed = if refusal == ECHO { app } else { String::new() };
                    socket.write_all(&connect_error(&format!("{refusal}{echoed}"))).unwrap();
                    return seen;
                }
                (ServerEvent::PublishRequested { id, .. }, _) => session.accept_publish(id).unwrap(),
                _ => {}
            }
        }
        // A closed client is seen at the next read.
        let _ = socket.write_all(&session.take_output());
    }
    seen
}

/// `_error` for `connect`.
fn connect_error(description: &str) -> Vec<u8> {
    let field = |name: &str, text: &str| (name.to_owned(), Value::String(text.to_owned()));
    let status =
        Value::Object(vec![field("level", "error"), field("code", CODE), field("description", description)]);
    let values = [Value::String("_error".to_owned()), Value::Number(1.0), Value::Null, status];
    let payload = encode_all(&values);
    let mut output = ChunkOutput::default();
    let header = MessageHeader { chunk_stream: 3, timestamp: 0, kind: 20, stream: 0 };
    let mut writer = ChunkWriter::default();
    writer.write(&mut output, header, &payload, &Bytes::new()).unwrap();
    output.take().to_vec()
}

fn holds(sent: &[u8], text: &str) -> bool {
    sent.windows(text.len()).any(|part| part == text.as_bytes())
}

#[test]
fn a_login_is_proved_and_never_sent() {
    let kit = kit!(Rtmp);
    let (port, server) = asking(&[NEED_AUTH, PROOF], true);
    let url = format!("rtmp://bob:hunter2%21@127.0.0.1:{port}/live");
    let dest = kit.open("rtmp", &json!({ "url": url, "key": "k-0123456789" })).unwrap();
    push_all(&dest, &stream(0, 10));
    assert!(dest.wait_for_state(State::Live));
    dest.stop();
    dest.wait_for_end().unwrap();
    let seen = server.join().unwrap();
    assert_eq!(seen.len(), 3);
    assert!(!holds(&seen[0], "authmod") && !holds(&seen[0], "bob"), "nothing before the server asks");
    assert!(holds(&seen[1], "live?authmod=adobe&user=bob") && !holds(&seen[1], "response="));
    assert!(holds(&seen[2], "&response=") && holds(&seen[2], "&opaque=b3A="));
    assert!(seen.iter().all(|sent| !holds(sent, "hunter2")));
    testkit::assert_not_logged("hunter2");
}

#[test]
fn a_login_is_proved_to_limelight_too() {
    let kit = kit!(Rtmp);
    let (port, server) = asking(&[LIMELIGHT_NEED_AUTH, LIMELIGHT_DIGEST], true);
    let url = format!("rtmp://bob:hunter2%21@127.0.0.1:{port}/live");
    let dest = kit.open("rtmp", &json!({ "url": url, "key": "k-0123456789" })).unwrap();
    push_all(&dest, &stream(0, 10));
    assert!(dest.wait_for_state(State::Live));
    dest.stop();
    dest.wait_for_end().unwrap();
    let seen = server.join().unwrap();
    assert_eq!(seen.len(), 3);
    assert!(holds(&seen[1], "live?authmod=llnw&user=bob") && !holds(&seen[1], "response="));
    assert!(holds(&seen[2], "&nonce=bm9uY2U=&cnonce=") && holds(&seen[2], "&nc=00000001&response="));
    assert!(seen.iter().all(|sent| !holds(sent, "hunter2")));
    testkit::assert_not_logged("hunter2");
}

#[test]
fn login_proofs_are_not_repeated() {
    let kit = kit!(Rtmp);
    for (refusals, own) in [
        (&[NEED_AUTH, PROOF, ECHO] as &[&str], "challenge"),
        (&[LIMELIGHT_NEED_AUTH, LIMELIGHT_DIGEST, ECHO], "cnonce"),
    ] {
        let (port, server) = asking(refusals, false);
        let url = format!("rtmp://bob:hunter2@127.0.0.1:{port}/live");
        let dest = kit.open("rtmp", &json!({ "url": url, "key": "k-0123456789" })).unwrap();
        let error = dest.wait_for_end().unwrap_err();
        assert!(error.message.contains("live?authmod="), "{error}");
        assert!(error.message.contains(&format!("&{own}=***&")), "{error}");
        assert!(error.message.contains("&response=***"), "{error}");
        let seen = server.join().unwrap();
        let sent = String::from_utf8_lossy(&seen[2]);
        let response = sent.split_once("&response=").unwrap().1;
        assert!(!error.message.contains(&response[..8]), "{error}");
        testkit::assert_not_logged(&response[..8]);
    }
}

#[test]
fn a_wrong_login_and_a_missing_one_are_reported() {
    let kit = kit!(Rtmp);
    for (login, refusals) in [
        ("bob:hunter2@", &[NEED_AUTH, PROOF, FAILED] as &[&str]),
        ("bob:hunter2@", &[NEED_AUTH, PROOF, PROOF]),
        ("", &[NEED_AUTH]),
        ("", &[LIMELIGHT_NEED_AUTH]),
    ] {
        let (port, server) = asking(refusals, false);
        let url = format!("rtmp://{login}127.0.0.1:{port}/live");
        let dest = kit.open("rtmp", &json!({ "url": url, "key": "k-0123456789" })).unwrap();
        let error = dest.wait_for_end().unwrap_err();
        let target = Target::parse(&url, Some("k-0123456789")).unwrap();
        let expected = match refusals.last() {
            Some(&PROOF) => refusal::asks_again(&target),
            last => refusal::refused(&target, &[], CODE, last.unwrap()),
        };
        assert_eq!(error, expected);
        assert!(!error.message.contains("hunter2"), "{error}");
        assert_eq!(server.join().unwrap().len(), refusals.len());
    }
}
