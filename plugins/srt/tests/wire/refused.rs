//! Receivers that refuse, and configurations that cannot be used.

use satcast_driver_srt::refusal;
use satcast_media::srt::Reason;
use satcast_plugin_api::testkit;
use satcast_plugin_api::{Class, Codec};
use serde_json::json;

use crate::kit::{Behaviour, Receiver, stream};

#[test]
fn the_reason_of_a_receiver_decides_how_it_is_tried_again() {
    let kit = kit!(json!({}));
    for (reason, class) in [
        (Reason::BadSecret, Class::Auth),
        (Reason::Unsecure, Class::Auth),
        (Reason::Unauthorized, Class::Auth),
        (Reason::Conflict, Class::Remote),
        (Reason::Overload, Class::Remote),
        (Reason::Filter, Class::Remote),
    ] {
        let receiver = Receiver::start(Behaviour { refuse: Some(reason), ..Behaviour::default() });
        let config = json!({ "url": receiver.url(), "streamid": "sesame", "passphrase": "correct horse" });
        let dest = kit.open("srt", &config).unwrap();
        let error = dest.wait_for_end().unwrap_err();
        assert_eq!(error, refusal::refused(&receiver.url()[6..], reason.code()));
        assert_eq!(error.class, class);
        receiver.finish();
    }
    testkit::assert_not_logged("sesame");
}

#[test]
fn codecs_without_a_place_in_transport_streams_are_refused() {
    let kit = kit!(json!({}));
    let receiver = Receiver::start(Behaviour::default());
    let dest = kit.open("srt", &json!({ "url": receiver.url() })).unwrap();
    stream(3).into_iter().for_each(|packet| dest.push(packet));
    dest.push(testkit::config(Codec::Av1, &[0x81, 5, 12, 0]));
    assert_eq!(dest.wait_for_end().unwrap_err().class, Class::Config);
    receiver.finish();
}

#[test]
fn a_listener_opens_only_the_ports_of_the_operator() {
    let kit = kit!(json!({ "listener_ports": "20001-20003" }));
    for (port, is_open) in [(20_000, false), (20_001, true), (20_003, true), (20_004, false)] {
        let config = json!({ "url": format!("srt://:{port}"), "mode": "listener" });
        match (kit.validate("srt", &config), is_open) {
            (Ok(()), true) => {}
            (Err(error), false) => {
                assert_eq!(error, refusal::closed_port(port));
                assert!(kit.open("srt", &config).is_err(), "also where it was stored before");
            }
            (outcome, _) => panic!("{port}: {outcome:?}"),
        }
    }
}

#[test]
fn no_port_is_open_by_default() {
    let kit = kit!(json!({}));
    let config = json!({ "url": "srt://:20001?mode=listener" });
    assert_eq!(kit.validate("srt", &config), Err(refusal::closed_port(20_001)));
}
