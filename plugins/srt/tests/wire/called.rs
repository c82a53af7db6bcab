//! Called by receivers.

use std::net::UdpSocket;
use std::time::Duration;

use satcast_driver_srt::{CALLERS_MAX, UNWRAPS_PER_SEC_MAX, refusal};
use satcast_media::srt::{Over, Reason, calling};
use satcast_media::{Codec, Packet};
use satcast_plugin_api::driver::State;
use satcast_plugin_api::testkit::{TestDestination, Testkit};
use serde_json::{Value, json};

use crate::kit::{call, free_port, payloads, push_in_time, stream};

fn settings(port: u16) -> Value {
    json!({ "listener_ports": [port], "listener_address": "127.0.0.1" })
}

fn open(kit: &Testkit, port: u16, more: &Value) -> TestDestination {
    let mut config = json!({ "url": format!("srt://:{port}"), "mode": "listener", "latency": 200 });
    config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    kit.open("srt", &config).unwrap()
}

/// Streams for some seconds, while `body` runs.
fn while_streaming<R: Send>(dest: &TestDestination, sent: &[Packet], body: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| {
        let body = scope.spawn(body);
        push_in_time(dest, sent);
        dest.stop();
        body.join().unwrap()
    })
}

#[test]
fn each_caller_gets_the_stream_from_a_keyframe_on() {
    let port = free_port();
    let kit = kit!(settings(port));
    let (dest, sent) = (open(&kit, port, &json!({})), stream(100));
    let seen = while_streaming(&dest, &sent, || {
        std::thread::scope(|scope| {
            let first = scope.spawn(|| call(port, "", &[], usize::MAX));
            std::thread::sleep(std::time::Duration::from_millis(1_100));
            let second = call(port, "anything", &[], usize::MAX);
            [first.join().unwrap(), second]
        })
    });
    dest.wait_for_end().unwrap();
    let sent = payloads(&sent, Codec::H264);
    for (number, seen) in seen.into_iter().enumerate() {
        let got = payloads(&seen.packets, Codec::H264);
        assert!(got.len() > 20, "{}", got.len());
        assert_eq!(got[..], sent[sent.len() - got.len()..], "up to the end");
        assert_eq!((sent.len() - got.len()) % 12, 0, "from a keyframe on");
        assert!(number == 0 || got.len() < sent.len() - 20, "it came later");
        assert_eq!((seen.over, seen.latency.as_millis()), (Some(Over::Closed), 200));
    }
    dest.report(|report| {
        let states: Vec<State> = report.states.iter().map(|(state, _)| *state).collect();
        assert_eq!(states, [State::Connecting, State::Live], "{report:?}");
        assert_eq!(report.states[0].1, Some(refusal::no_caller(format!("port {port}"))));
    });
}

#[test]
fn callers_without_the_stream_id_or_passphrase_are_refused() {
    let port = free_port();
    let kit = kit!(settings(port));
    let secrets = json!({ "streamid": "sesame", "passphrase": "correct horse" });
    let (dest, sent) = (open(&kit, port, &secrets), stream(30));
    let refused = while_streaming(&dest, &sent, || {
        let keys = calling::extension(3, &[0; 16]);
        [("wrong", &[][..]), ("", &[]), ("sesame", &[]), ("#!::m=request,r=sesame", &[]), ("sesame", &keys)]
            .map(|(id, more)| call(port, id, more, usize::MAX).refused)
    });
    let unsecure = Some(Reason::Unsecure.code());
    let unauthorized = Some(Reason::Unauthorized.code());
    assert_eq!(refused, [unauthorized, unauthorized, unsecure, unsecure, Some(Reason::Rogue.code())]);
    dest.wait_for_end().unwrap();
    dest.report(|report| assert!(report.states.iter().all(|(state, _)| *state != State::Live)));
}

#[test]
fn callers_of_one_destination_are_limited() {
    let port = free_port();
    let kit = kit!(settings(port));
    let (dest, sent) = (open(&kit, port, &json!({})), stream(110));
    let seen = while_streaming(&dest, &sent, || {
        std::thread::scope(|scope| {
            let callers: Vec<_> = (0..CALLERS_MAX).map(|_| scope.spawn(|| call(port, "", &[], 1))).collect();
            let callers: Vec<_> = callers.into_iter().map(|caller| caller.join().unwrap()).collect();
            // They have left without a word, and count until they are silent for long enough.
            (callers, call(port, "", &[], 1))
        })
    });
    assert!(seen.0.iter().all(|seen| !seen.packets.is_empty()));
    assert_eq!(seen.1.refused, Some(Reason::Overload.code()));
    let _may_be_late = dest.wait_for_end();
    assert!(UNWRAPS_PER_SEC_MAX > CALLERS_MAX as u32);
}

#[test]
fn an_answer_that_is_sent_again_says_how_late_it_is() {
    let port = free_port();
    let kit = kit!(settings(port));
    let dest = open(&kit, port, &json!({}));
    assert!(dest.wait_for_state(State::Connecting));
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(("127.0.0.1", port)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let ask = |datagram: &[u8]| {
        socket.send(datagram).unwrap();
        loop {
            let mut block = [0; 2_048];
            let bytes = socket.recv(&mut block).unwrap();
            // Not a sign of life.
            if calling::kind_and_socket(&block[..bytes]).is_some() {
                return block[..bytes].to_vec();
            }
        }
    };
    let cookie = calling::cookie(&ask(&calling::induction(9))).unwrap();
    let conclusion = calling::conclusion(9, cookie, 500, 200, &[]);
    let first = ask(&conclusion);
    std::thread::sleep(Duration::from_millis(300));
    let mut second = ask(&conclusion);
    let late_micros = u32::from_be_bytes([second[8], second[9], second[10], second[11]]);
    assert!((300_000..5_000_000).contains(&late_micros), "{late_micros}");
    second[8..12].fill(0);
    assert_eq!(first, second);
    dest.stop();
    dest.wait_for_end().unwrap();
}

#[test]
fn a_port_belongs_to_one_destination_at_a_time() {
    let port = free_port();
    let kit = kit!(settings(port));
    let first = open(&kit, port, &json!({}));
    assert!(first.wait_for_state(State::Connecting));
    let second = open(&kit, port, &json!({}));
    let in_use = std::io::Error::from(std::io::ErrorKind::AddrInUse);
    assert_eq!(second.wait_for_end().unwrap_err(), refusal::not_opened(port, &in_use));
    first.stop();
    first.wait_for_end().unwrap();
    let third = open(&kit, port, &json!({}));
    assert!(third.wait_for_state(State::Connecting));
    third.stop();
    third.wait_for_end().unwrap();
}
