use bytes::Bytes;
use satcast_plugin_api::host::Delivery;
use satcast_plugin_api::{Codec, Packet};

use super::*;
use crate::drivers::process::notes::{BATCH_PACKETS_MAX, Note, RELEASES_MAX};

fn note() -> Note {
    let packet = Packet::configuration(Codec::Opus, Bytes::from_static(b"payload"));
    let packet = Packet { track: 3, source: 4, sequence: 5, dts_ns: -6, pts_ns: i64::MIN, ..packet };
    Note::of(&Delivery { packet: packet.into(), discontinuity: true }, 8, 128)
}

#[test]
fn packets_survive_the_way() {
    let batch = Batch { dest: 9, packets: vec![note(); BATCH_PACKETS_MAX] };
    let Ok(Message::Media(read)) = read::<ToChild>(&batch.bytes()) else { panic!("no media") };
    assert_eq!((read.dest, &read.packets), (9, &batch.packets));
    let packet = read.packets[0].packet(Bytes::from_static(b"payload")).unwrap();
    assert!(packet.is_config() && packet.discontinuity && !packet.keyframe);
    assert_eq!((packet.track, packet.dts_ns, packet.pts_ns, packet.codec), (3, -6, i64::MIN, Codec::Opus));
}

#[test]
fn demands_survive_the_way() {
    let demand = Demand { wanted: 1, abandoned: 2, released: (0..RELEASES_MAX as u64).collect() };
    let Ok(Message::Demand(read)) = read::<ToHost>(&demand.bytes()) else { panic!("no demand") };
    assert_eq!(read, demand);
}

#[test]
fn errors_survive_the_way() {
    let error = Error::auth("no").retry_after(Duration::from_millis(1500));
    assert_eq!(Error::from(Failure::from(error.clone())), error);
}

#[test]
fn what_is_cut_long_or_nonsense_is_refused() {
    let over = Demand { released: vec![1; RELEASES_MAX + 1], ..Demand::default() }.bytes();
    let batch = Batch { dest: 1, packets: vec![note(); BATCH_PACKETS_MAX + 1] }.bytes();
    let good = text(&ToHost::Retract { dest: 1, name: "a".into() });
    let mut bad: Vec<&[u8]> =
        vec![b"", b"\x00", b"\x09{}", b"\x01", b"\x01{\"Log\":3}", b"\x01\xff\xfe", b"\x03abc"];
    bad.extend([&over[..], &batch[..], &batch[..20], &good[..good.len() - 1]]);
    for bytes in bad {
        assert!(read::<ToHost>(bytes).is_err(), "{:?}", &bytes[..bytes.len().min(20)]);
    }
    // Numbers that no field can hold, and nesting without end.
    for json in ["{\"Counted\":{\"dest\":-1,\"name\":\"a\",\"added\":1}}", &"[".repeat(100_000)] {
        let bytes = [&[FORM_TEXT], json.as_bytes()].concat();
        assert!(read::<ToHost>(&bytes).is_err());
    }
}
