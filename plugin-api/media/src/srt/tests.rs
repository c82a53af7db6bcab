//! A listener and a caller that is written by hand, without a network.

use core::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bytes::BytesMut;

use super::calling::{conclusion, extension};
use super::connection::Over;
use super::crypto::wrapping;
use super::limits::{ACKS_OPEN_MAX, HELD_BYTES_MAX, LATENCY_MS_MIN, PAYLOAD_BYTES_MAX, SILENCE};
use super::wire::{self, Header, SEQUENCE, control, word};
use super::*;

const CALLER: u32 = 9;
const OWN: u32 = 1_000;
const FIRST: u32 = SEQUENCE - 1;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A connection that begins at 1 s, whose caller's clock is then at 0.
struct Rig {
    connection: Connection,
    now: Duration,
}

impl Rig {
    fn with(more: &[u32], keys: impl FnOnce(&Conclusion) -> Option<Keys>) -> Self {
        let datagram = conclusion(CALLER, 5, FIRST, 0, more);
        let Some(Request::Conclusion(asked)) = Request::parse(&datagram) else { panic!("no conclusion") };
        let (keys, now, peer) = (keys(&asked), ms(1_000), IpAddr::from([192, 0, 2, 7]));
        let accepted = Connection::accept(&asked, OWN, peer, keys, now, now);
        assert_eq!(destination(&accepted.answer), Some(CALLER));
        assert_eq!(calling::kind_and_socket(&accepted.answer), Some((u32::MAX, OWN)));
        Self { connection: accepted.connection, now }
    }

    fn new() -> Self {
        Self::with(&[], |_| None)
    }

    fn input(&mut self, datagram: &[u8]) {
        self.connection.input(BytesMut::from(datagram), self.now);
    }

    /// The packet `number` of the caller, which it sent first at this many milliseconds.
    fn data(&mut self, number: u32, at_ms: u32, flags: u32, payload: &[u8]) {
        let sequence = FIRST.wrapping_add(number) & SEQUENCE;
        let head =
            [sequence, 0xc000_0000 | flags, at_ms.wrapping_mul(1_000), OWN].map(u32::to_be_bytes).concat();
        self.input(&[&head, payload].concat());
    }

    fn at(&mut self, after_ms: u64) -> &mut Self {
        self.now = ms(1_000 + after_ms);
        self.connection.poll(self.now);
        self
    }

    fn given(&mut self) -> Vec<Option<u8>> {
        let now = self.now;
        let give = std::iter::from_fn(|| self.connection.give(now));
        give.map(|delivery| match delivery {
            Delivery::Payload(payload) => Some(payload[0]),
            Delivery::Lost => None,
        })
        .collect()
    }

    /// Type and content of the datagrams for the caller.
    fn output(&mut self) -> Vec<(u16, u32, Vec<u32>)> {
        let output = self.connection.take_output();
        output
            .iter()
            .map(|datagram| {
                let Some(Header::Control { kind, info, .. }) = Header::parse(datagram) else {
                    panic!("data")
                };
                (kind, info, wire::to_words(&datagram[16..]))
            })
            .collect()
    }
}

const REPEAT: u32 = 1 << 26;

#[test]
fn media_is_given_after_the_latency_and_acknowledged() {
    let mut rig = Rig::new();
    rig.data(0, 0, 0, b"a");
    rig.at(10).data(1, 10, 0, b"b");
    assert_eq!(rig.given(), []);
    rig.at(20);
    let acks: Vec<_> = rig.output().into_iter().map(|(kind, info, words)| (kind, info, words[0])).collect();
    assert_eq!(acks, [(wire::ACK, 1, SEQUENCE), (wire::ACK, 2, 0)]);
    rig.now = ms(1_000 + 50);
    rig.input(&control(wire::ACKACK, 0, 2, 50_000, OWN, &[]));
    assert_eq!(rig.connection.stats().rtt, ms(30));
    let latency = u64::from(LATENCY_MS_MIN);
    assert_eq!(rig.connection.next_at(), ms(1_000 + latency), "everything is confirmed");
    assert_eq!(rig.at(latency).given(), [Some(b'a')]);
    assert_eq!(rig.at(latency + 10).given(), [Some(b'b')]);
    let stats = rig.connection.stats();
    assert_eq!((stats.packets, stats.lost, stats.dropped, stats.latency), (2, 0, 0, ms(latency)));
}

#[test]
fn a_lost_packet_is_asked_for_at_once_and_then_again() {
    let mut rig = Rig::new();
    rig.data(0, 0, 0, b"a");
    rig.data(3, 3, 0, b"d");
    assert_eq!(rig.output(), [(wire::NAK, 0, vec![1 << 31 | SEQUENCE, 0])]);
    rig.at(5).data(1, 1, REPEAT, b"b");
    let naks = |rig: &mut Rig| -> Vec<Vec<u32>> {
        rig.output().into_iter().filter(|(kind, ..)| *kind == wire::NAK).map(|(.., words)| words).collect()
    };
    assert_eq!((naks(rig.at(50)), naks(rig.at(110)).len()), (vec![], 0), "not before half of the round trip");
    assert_eq!(naks(rig.at(155)), [[0]]);
    assert_eq!(rig.at(125).given(), [Some(b'a'), Some(b'b'), None, Some(b'd')]);
    let stats = rig.connection.stats();
    assert_eq!((stats.lost, stats.retransmitted, stats.dropped), (2, 1, 1));
    rig.data(2, 2, REPEAT, b"c");
    assert_eq!(rig.given(), [], "too late");
}

#[test]
fn a_reordered_packet_does_not_count_as_lost() {
    let mut rig = Rig::new();
    rig.data(1, 1, 0, b"b");
    rig.data(0, 0, 0, b"a");
    rig.data(0, 0, 0, b"a");
    let stats = rig.connection.stats();
    assert_eq!((stats.lost, stats.packets, stats.retransmitted), (0, 2, 0));
    assert_eq!(rig.at(200).given(), [Some(b'a'), Some(b'b')]);
}

#[test]
fn a_packet_that_the_caller_drops_is_not_asked_for() {
    let mut rig = Rig::new();
    rig.data(2, 2, 0, b"c");
    rig.input(&control(wire::DROP_REQUEST, 0, 1, 0, OWN, &[FIRST, SEQUENCE]));
    rig.output();
    rig.at(500);
    assert!(rig.output().iter().all(|(kind, ..)| *kind != wire::NAK));
    assert_eq!(rig.given(), [None, Some(b'c')]);
}

/// 20 hours of a clock that is 30 parts in a million too fast or too slow, which is 2.2 s, and 16 wraps.
#[test]
fn the_callers_clock_wraps_and_drifts() {
    for parts in [30, -30] {
        let mut rig = Rig::new();
        for number in 0..72_000u32 {
            let own_ms = u64::from(number) * 1_000;
            let callers_us = (own_ms * 1_000).wrapping_add_signed(own_ms as i64 * parts / 1_000) as u32;
            rig.at(own_ms);
            let sequence = FIRST.wrapping_add(number) & SEQUENCE;
            let head = [sequence, 0xc000_0000, callers_us, OWN].map(u32::to_be_bytes).concat();
            rig.input(&[&head[..], b"x"].concat());
            rig.at(own_ms + 10);
            for (kind, info, _) in rig.output() {
                if kind == wire::ACK {
                    let at = callers_us.wrapping_add(10_000);
                    rig.input(&control(wire::ACKACK, 0, info, at, OWN, &[]));
                }
            }
            let latency = u64::from(LATENCY_MS_MIN);
            assert_eq!(rig.at(own_ms + latency / 2).given(), [], "{number}");
            assert_eq!(rig.at(own_ms + latency * 3 / 2).given(), [Some(b'x')], "{number}");
        }
    }
}

#[test]
fn silence_and_shutdown_end_it_and_the_rest_is_given() {
    let mut rig = Rig::new();
    rig.data(0, 0, 0, b"a");
    rig.at(4_999);
    assert_eq!(rig.connection.over(), None);
    assert!(
        rig.output().iter().any(|(kind, ..)| *kind == wire::KEEP_ALIVE)
            || rig.connection.next_at() <= ms(7_000)
    );
    rig.at(SILENCE.as_millis() as u64);
    assert_eq!(rig.connection.over(), Some(Over::Silent));
    let mut rig = Rig::new();
    rig.data(0, 0, 0, b"a");
    rig.data(2, 0, 0, b"c");
    rig.input(&control(wire::SHUTDOWN, 0, 0, 0, OWN, &[0]));
    assert_eq!((rig.connection.over(), rig.given()), (Some(Over::Closed), vec![]));
    rig.now = Duration::MAX;
    assert_eq!(rig.given(), [Some(b'a'), None, Some(b'c')]);
    let mut rig = Rig::new();
    rig.connection.shut_down(rig.now);
    assert_eq!(rig.output(), [(wire::SHUTDOWN, 0, vec![0])]);
}

#[test]
fn encrypted_packets_are_read_and_others_refused() {
    let salt = *b"fedcba9876543210";
    let message = wrapping::message("correct horse", salt, 1, &[7; 32], 32);
    let material = KeyMaterial::parse(&message).expect("valid");
    let of_caller = Keys::unwrap("correct horse", &material).expect("unwrapped");
    let mut rig = Rig::with(&extension(3, &message), |asked| {
        let material = asked.key_material().expect("sent");
        assert!(Keys::unwrap("wrong horse", material).is_none());
        Keys::unwrap("correct horse", material)
    });
    let mut payload = *b"media";
    assert!(of_caller.decrypt(wire::Parity::Even, FIRST, &mut payload));
    let even = 1 << 27;
    rig.data(0, 0, even, &payload);
    rig.data(1, 0, 0, b"clear");
    rig.data(1, 0, 2 << 27, b"no such key");
    rig.data(1, 0, 3 << 27, b"impossible");
    assert_eq!(rig.connection.stats().refused, 3);
    assert_eq!(rig.at(200).given(), [Some(b'm')]);
    rig.output();
    let odd = wrapping::message("correct horse", salt, 2, &[8; 32], 32);
    rig.input(&control(wire::EXTENSION, 3, 0, 0, OWN, &wire::to_words(&odd)));
    assert_eq!(rig.output(), [(wire::EXTENSION, 0, wire::to_words(&odd))]);
    rig.data(1, 0, 2 << 27, b"later");
    assert_eq!(rig.connection.stats().refused, 3);
    rig.input(&control(wire::EXTENSION, 3, 0, 0, OWN, &wire::to_words(&odd)));
    assert_eq!(rig.output(), [], "keys are unwrapped once a second");
    rig.now += ms(1_000);
    rig.input(&control(wire::EXTENSION, 3, 0, 0, OWN, &[1, 2, 3]));
    assert_eq!(rig.output(), [(wire::EXTENSION, 0, vec![4 << 24])]);
    let mut plain = Rig::new();
    plain.data(0, 0, even, &payload);
    assert_eq!(plain.connection.stats().refused, 1);
}

#[test]
fn open_acknowledgements_and_payloads_are_limited() {
    let mut rig = Rig::new();
    for number in 0..3 * ACKS_OPEN_MAX as u32 {
        rig.data(number, number * 10, 0, b"x");
        rig.at(u64::from(number + 1) * 10);
        rig.given();
    }
    let acks: Vec<u32> =
        rig.output().into_iter().filter(|(kind, ..)| *kind == wire::ACK).map(|(_, info, _)| info).collect();
    assert!(acks.len() > 2 * ACKS_OPEN_MAX);
    rig.input(&control(wire::ACKACK, 0, acks[0], 0, OWN, &[]));
    assert_eq!(rig.connection.stats().rtt, ms(100), "forgotten");
    let before = rig.connection.stats().packets;
    rig.data(acks.len() as u32, 0, 0, &[0; PAYLOAD_BYTES_MAX + 1]);
    rig.data(acks.len() as u32, 0, 0, &[]);
    assert_eq!(rig.connection.stats().packets, before);
    assert!(rig.connection.held_bytes() <= HELD_BYTES_MAX);
}

#[test]
fn garbage_is_ignored() {
    let mut rig = Rig::new();
    for bytes in 0..64usize {
        for first in [0, 0x7f, 0x80, 0xff] {
            rig.input(&vec![first; bytes]);
        }
    }
    assert!(rig.connection.held_bytes() <= HELD_BYTES_MAX);
    assert!(Request::parse(&[0x80; 64]).is_none());
    let cookies = Cookies::new(&[1; 16]);
    assert!(!format!("{cookies:?}").contains('1'));
    let peer = SocketAddr::from(([192, 0, 2, 1], 9));
    assert_ne!(cookies.make(peer, ms(0)), cookies.make(SocketAddr::from(([192, 0, 2, 2], 9)), ms(0)));
    assert_eq!(word(&[1, 2], 0), None);
}
