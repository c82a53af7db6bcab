//! Calling a receiver.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use satcast_driver_srt::refusal;
use satcast_media::Codec;
use satcast_media::srt::Over;
use satcast_plugin_api::Class;
use satcast_plugin_api::driver::State;
use satcast_plugin_api::testkit;
use serde_json::json;

use crate::kit::{Behaviour, Receiver, free_port, payloads, push_in_time, stream};

const STREAM_ID: &str = "#!::r=sesame0123,m=publish";
const PASSPHRASE: &str = "correct horse";

#[test]
fn a_whole_stream_arrives_unchanged_with_every_key_length_and_over_losses() {
    let kit = kit!(json!({}));
    for (key_bytes, loss_percent) in [(0, 0), (16, 0), (32, 8)] {
        let passphrase = (key_bytes > 0).then(|| PASSPHRASE.to_owned());
        let receiver = Receiver::start(Behaviour {
            passphrase: passphrase.clone(),
            loss_percent,
            ..Behaviour::default()
        });
        let mut config = json!({ "url": receiver.url(), "streamid": STREAM_ID, "latency": 700 });
        if let Some(passphrase) = passphrase {
            config["passphrase"] = passphrase.into();
            config["pbkeylen"] = key_bytes.into();
        }
        let dest = kit.open("srt", &config).unwrap();
        let sent = stream(60);
        push_in_time(&dest, &sent);
        assert!(dest.wait_for_state(State::Live));
        dest.stop();
        dest.wait_for_end().unwrap();
        let seen = receiver.wait();
        for codec in [Codec::H264, Codec::Aac] {
            assert_eq!(payloads(&seen.packets, codec), payloads(&sent, codec), "{key_bytes} {loss_percent}");
        }
        assert_eq!((seen.stream_id.as_str(), seen.gaps, seen.dropped), (STREAM_ID, 0, 0));
        assert_eq!(seen.latency.as_millis(), 700);
        // The notice of the end is sent once, and is lost like any datagram.
        assert!(seen.over == Some(Over::Closed) || loss_percent > 0, "{:?}", seen.over);
        assert_eq!(dest.counter("packets_sent"), sent.len() as u64 - 2);
        assert!(dest.counter("bytes_sent") > 100_000);
        // A busy machine may repeat packets that only came late.
        assert!(dest.counter("packets_retransmitted") > 0 || loss_percent == 0);
        assert_eq!((dest.counter("packets_skipped"), dest.leased_packets()), (0, 0));
    }
    testkit::assert_not_logged("sesame0123");
    testkit::assert_not_logged(PASSPHRASE);
}

#[test]
fn the_first_gop_that_waits_in_the_host_arrives_whole() {
    let kit = kit!(json!({}));
    let receiver = Receiver::start(Behaviour::default());
    let dest = kit.open("srt", &json!({ "url": receiver.url() })).unwrap();
    let sent = stream(600);
    sent.iter().for_each(|packet| dest.push(packet.clone()));
    assert!(dest.wait_for_state(State::Live));
    assert!(kit.wait_until(&dest, |_| dest.counter("packets_sent") == sent.len() as u64 - 2));
    dest.stop();
    let _may_be_late = dest.wait_for_end();
    let seen = receiver.wait();
    let (got, sent) = (payloads(&seen.packets, Codec::H264), payloads(&sent, Codec::H264));
    assert_eq!(got.len(), sent.len());
    assert_eq!((got, seen.gaps), (sent, 0));
}

#[test]
fn a_hostile_receiver_disturbs_nothing() {
    let kit = kit!(json!({}));
    let receiver = Receiver::start(Behaviour { is_hostile: true, loss_percent: 3, ..Behaviour::default() });
    let dest = kit.open("srt", &json!({ "url": receiver.url(), "latency": 500 })).unwrap();
    let sent = stream(50);
    push_in_time(&dest, &sent);
    dest.stop();
    dest.wait_for_end().unwrap();
    let seen = receiver.wait();
    assert_eq!(payloads(&seen.packets, Codec::H264), payloads(&sent, Codec::H264));
}

#[test]
fn nobody_and_nothing_at_the_other_side_are_network_failures() {
    let kit = kit!(json!({}));
    let closed = format!("srt://127.0.0.1:{}", free_port());
    let dest = kit.open("srt", &json!({ "url": closed })).unwrap();
    assert_eq!(dest.wait_for_end().unwrap_err(), refusal::nothing_listens(&closed[6..]));
    // A socket that is open and says nothing.
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let dest = kit.open("srt", &json!({ "url": format!("srt://{address}") })).unwrap();
    let error = dest.wait_for_end().unwrap_err();
    assert_eq!(error, refusal::no_answer(address, Duration::from_millis(1_500)));
    let dest = kit.open("srt", &json!({ "url": format!("srt://{address}") })).unwrap();
    dest.stop();
    dest.wait_for_end().unwrap();
}

#[test]
fn a_flood_of_datagrams_does_not_delay_the_end_of_a_call() {
    let kit = kit!(json!({}));
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let address = socket.local_addr().unwrap();
    let dest = kit.open("srt", &json!({ "url": format!("srt://{address}") })).unwrap();
    let over = AtomicBool::new(false);
    let error = std::thread::scope(|scope| {
        scope.spawn(|| {
            let (_, from) = socket.recv_from(&mut [0; 256]).unwrap();
            while !over.load(Ordering::Relaxed) {
                // The driver may have gone.
                let _gone = socket.send_to(&[0; 32], from);
            }
        });
        let ended = dest.wait_for_end();
        over.store(true, Ordering::Relaxed);
        ended.unwrap_err()
    });
    assert_eq!(error, refusal::no_answer(address, Duration::from_millis(1_500)));
}

#[test]
fn a_receiver_that_takes_nothing_or_leaves_ends_the_destination() {
    let kit = kit!(json!({}));
    let receiver = Receiver::start(Behaviour { is_deaf: true, ..Behaviour::default() });
    let dest = kit.open("srt", &json!({ "url": receiver.url() })).unwrap();
    push_in_time(&dest, &stream(50));
    assert_eq!(dest.wait_for_end().unwrap_err(), refusal::stalled(&receiver.url()[6..]));
    dest.report(|report| assert!(report.states.iter().all(|(state, _)| *state != State::Live)));
    assert_eq!(receiver.wait().over, Some(Over::Closed), "it is told");

    let receiver = Receiver::start(Behaviour::default());
    let (dest, address) = (kit.open("srt", &json!({ "url": receiver.url() })).unwrap(), receiver.url());
    push_in_time(&dest, &stream(20));
    assert!(dest.wait_for_state(State::Live));
    // Its socket is closed: the system says so, or nothing comes any more.
    receiver.finish();
    push_in_time(&dest, &stream(20));
    let error = dest.wait_for_end().unwrap_err();
    assert_eq!(error, refusal::nothing_listens(&address[6..]));
    assert_eq!(error.class, Class::Network);
}

#[test]
fn a_stream_without_media_is_not_live() {
    let kit = kit!(json!({}));
    let receiver = Receiver::start(Behaviour::default());
    let dest = kit.open("srt", &json!({ "url": receiver.url() })).unwrap();
    push_in_time(&dest, &stream(10));
    assert!(dest.wait_for_state(State::Live));
    assert!(dest.wait_for_state(State::Connecting));
    dest.report(|report| assert_eq!(report.states.last().unwrap().1, Some(refusal::no_media())));
    push_in_time(&dest, &stream(10));
    assert!(dest.wait_for_state(State::Live));
    dest.stop();
    dest.wait_for_end().unwrap();
    receiver.finish();
}
