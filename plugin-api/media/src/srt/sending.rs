//! A sender and our receiver on a network that loses, delays and reorders, with a clock that is moved by hand; and
//! receivers that lie.

use core::net::{IpAddr, SocketAddr};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use bytes::BytesMut;

use super::calling::{conclusion, extension, kind_and_socket};
use super::connection::Over;
use super::limits::{
    CONTROL_MAX, HELD_BYTES_MAX, LATENCY_MS_MAX, LATENCY_MS_MIN, PACKETS_PER_KEY_MAX, PASSPHRASE_BYTES,
    REPORT_LOOKS_MAX, RTT_MAX, SEND_BYTES, SILENCE, SPARE_MAX, STREAM_ID_BYTES_MAX, UNSENT_BYTES_MAX,
    WINDOW_PACKETS,
};
use super::wire::{self, Header, SEQUENCE, after, control, word};
use super::*;

const LISTENER: u32 = 1_000;
const PEER: IpAddr = IpAddr::V4(core::net::Ipv4Addr::new(192, 0, 2, 7));

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn seed(number: u8) -> Seed {
    Seed { socket: 9, sequence: SEQUENCE - 50, salt: [number; 16], key: [number; 32] }
}

/// The next random number (splitmix64).
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut value = *state;
    value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

/// A network in one direction.
struct Link {
    state: u64,
    loss_permille: u64,
    delay_ms: u64,
    jitter_us: u64,
    number: u64,
    on_its_way: BinaryHeap<Reverse<(Duration, u64, Vec<u8>)>>,
}

impl Link {
    fn new(state: u64, loss_permille: u64, delay_ms: u64) -> Self {
        Self { state, loss_permille, delay_ms, jitter_us: 1_500, number: 0, on_its_way: BinaryHeap::new() }
    }

    fn put(&mut self, datagram: &[u8], now: Duration) {
        if random(&mut self.state) % 1_000 < self.loss_permille {
            return;
        }
        let jitter = Duration::from_micros(random(&mut self.state) % self.jitter_us);
        self.number += 1;
        self.on_its_way.push(Reverse((now + ms(self.delay_ms) + jitter, self.number, datagram.to_vec())));
    }

    fn take(&mut self, now: Duration) -> Option<Vec<u8>> {
        self.on_its_way.peek().filter(|Reverse((due, ..))| *due <= now)?;
        self.on_its_way.pop().map(|Reverse((.., datagram))| datagram)
    }
}

/// Calls our listener over the links; returns both ends and the time.
fn call(
    call: Call,
    passphrase: Option<&str>,
    to: &mut Link,
    back: &mut Link,
) -> (Sender, Connection, Duration) {
    let (cookies, address) = (Cookies::new(&[7; 16]), SocketAddr::new(PEER, 9));
    let mut caller = Caller::new(call, seed(3), PEER, ms(0)).expect("a call");
    let mut accepted: Option<Accepted> = None;
    for step in 0..20_000 {
        let now = ms(step);
        if let Some(datagram) = caller.poll(now) {
            to.put(&datagram, now);
        }
        while let Some(datagram) = to.take(now) {
            match Request::parse(&datagram).expect("a handshake") {
                Request::Induction(hello) => {
                    back.put(&hello.answer(cookies.make(address, now), PEER), now);
                }
                Request::Conclusion(asked) => {
                    assert!(cookies.is_valid(asked.cookie, address, now));
                    assert_eq!((asked.fault(), asked.stream_id()), (None, "live_key"));
                    let accepted = accepted.get_or_insert_with(|| {
                        let unwrapped = |material| Keys::unwrap(passphrase.expect("none"), material);
                        let keys =
                            asked.key_material().map(|material| unwrapped(material).expect("the same"));
                        Connection::accept(&asked, LISTENER, PEER, keys, now, now)
                    });
                    back.put(&accepted.answer.clone(), now);
                }
            }
        }
        while let Some(datagram) = back.take(now) {
            match caller.input(&datagram, now) {
                None => {}
                Some(Called::Refused(code)) => panic!("refused: {code}"),
                Some(Called::Accepted(sender)) => {
                    return (*sender, accepted.expect("accepted").connection, now);
                }
            }
        }
    }
    panic!("no connection");
}

/// Numbers of the packets that came, `None` for a gap; the ends after it.
struct Run {
    got: Vec<Option<u32>>,
    pushed: u32,
    sender: Sender,
    receiver: Connection,
}

/// Sends a packet each millisecond for `secs`, and goes on until everything is due.
fn run(wanted: Call, passphrase: Option<&str>, seed: u64, loss_permille: u64, secs: u64) -> Run {
    println!("seed {seed}");
    let (mut to, mut back) = (Link::new(seed, loss_permille, 100), Link::new(!seed, loss_permille, 100));
    let (mut sender, mut receiver, began) = call(wanted, passphrase, &mut to, &mut back);
    let (mut got, mut pushed, mut payload) = (Vec::new(), 0u32, [0; SEND_BYTES]);
    for step in 1..secs * 1_000 + 3_000 {
        let now = began + ms(step);
        if step < secs * 1_000 {
            payload[..4].copy_from_slice(&pushed.to_be_bytes());
            assert!(sender.push(&payload, now));
            pushed += 1;
        }
        sender.poll(now);
        sender.transmit(now, |datagram| {
            to.put(datagram, now);
            true
        });
        while let Some(datagram) = to.take(now) {
            receiver.input(BytesMut::from(&datagram[..]), now);
        }
        receiver.poll(now);
        receiver.take_output().iter().for_each(|datagram| back.put(datagram, now));
        while let Some(delivery) = receiver.give(now) {
            got.push(match delivery {
                Delivery::Payload(payload) => word(&payload, 0),
                Delivery::Lost => None,
            });
        }
        while let Some(datagram) = back.take(now) {
            sender.input(&datagram, now);
        }
    }
    Run { got, pushed, sender, receiver }
}

fn wanted(latency_ms: u16, secret: Option<(&str, usize)>) -> Call {
    let secret = secret.map(|(passphrase, bytes)| (passphrase.to_owned(), bytes));
    Call { stream_id: "live_key".to_owned(), latency_ms, secret }
}

#[test]
fn everything_arrives_in_order_over_a_bad_network() {
    for (number, secret) in [(1, None), (2, Some(("correct horse", 16))), (3, Some(("correct horse", 32)))] {
        let passphrase = secret.map(|(passphrase, _)| passphrase);
        let run = run(wanted(1_000, secret), passphrase, number, 50, 10);
        assert_eq!(run.got, (0..run.pushed).map(Some).collect::<Vec<_>>());
        let (sent, received) = (run.sender.stats(), run.receiver.stats());
        assert_eq!((sent.dropped, received.dropped, received.refused), (0, 0, 0));
        assert_eq!((sent.packets, sent.acknowledged), (u64::from(run.pushed), u64::from(run.pushed)));
        assert!((200..230).contains(&sent.rtt.as_millis()), "{sent:?}");
        // 5 % are lost, and about as many are overtaken.
        assert!((500..1_600).contains(&sent.retransmitted), "{sent:?}");
        assert_eq!(sent.latency, ms(1_000));
    }
}

#[test]
fn packets_that_come_too_late_are_counted_and_all_others_come_in_order() {
    for number in 10..14 {
        // The first repeat of a packet arrives 300 ms after it.
        let run = run(wanted(320, None), None, number, 120, 5);
        let came: Vec<u32> = run.got.iter().flatten().copied().collect();
        assert!(came.is_sorted() && came.windows(2).all(|pair| pair[0] != pair[1]));
        let received = run.receiver.stats();
        assert!(received.dropped > 0);
        assert_eq!(came.len() as u64 + received.dropped, u64::from(run.pushed));
        assert!(run.sender.is_empty());
    }
}

/// A sender with a receiver that is written by hand. Its connection begins at 1 s.
struct Rig {
    sender: Sender,
    now: Duration,
}

impl Rig {
    fn new() -> Self {
        let datagram = conclusion(9, 5, SEQUENCE - 1, 0, &[]);
        let Some(Request::Conclusion(asked)) = Request::parse(&datagram) else { panic!("no conclusion") };
        let now = ms(1_000);
        let (answer, sender) = Sender::accept(&asked, LISTENER, PEER, None, 300, now);
        assert_eq!(kind_and_socket(&answer), Some((u32::MAX, LISTENER)));
        Self { sender, now }
    }

    fn at(&mut self, after_ms: u64) -> &mut Self {
        self.now = ms(1_000 + after_ms);
        self.sender.poll(self.now);
        self
    }

    fn push(&mut self, count: usize) {
        (0..count).for_each(|_| assert!(self.sender.push(&[7; SEND_BYTES], self.now)));
    }

    fn sent(&mut self) -> Vec<Vec<u8>> {
        let mut sent = Vec::new();
        self.sender.transmit(self.now, |datagram| {
            sent.push(datagram.to_vec());
            true
        });
        sent
    }

    /// Numbers of the data packets that leave, and whether they are repeats.
    fn numbers(&mut self) -> Vec<(u32, bool)> {
        let headers = self.sent().into_iter().filter_map(|datagram| Header::parse(&datagram));
        headers
            .filter_map(|header| match header {
                Header::Data { sequence, is_repeat, .. } => Some((sequence, is_repeat)),
                Header::Control { .. } => None,
            })
            .collect()
    }

    fn tell(&mut self, kind: u16, info: u32, content: &[u32]) {
        self.sender.input(&control(kind, 0, info, 0, LISTENER, content), self.now);
    }
}

const FIRST: u32 = SEQUENCE - 1;

#[test]
fn acknowledgements_and_reports_that_lie_change_nothing() {
    let mut rig = Rig::new();
    rig.push(4);
    assert_eq!(rig.numbers(), [(FIRST, false), (SEQUENCE, false), (0, false), (1, false)]);
    rig.push(1);
    for wrong in [after(FIRST, 5), after(FIRST, 6), SEQUENCE / 2] {
        rig.tell(wire::ACK, 1, &[wrong, 0, 0, 0]);
        rig.tell(wire::NAK, 0, &[wrong]);
    }
    rig.tell(wire::NAK, 0, &[1 << 31 | 1, FIRST]);
    rig.tell(wire::NAK, 0, &[1 << 31 | FIRST]);
    rig.tell(wire::NAK, 0, &[1 << 31 | FIRST, SEQUENCE / 2]);
    rig.sender.input(&control(wire::ACK, 0, 1, 0, LISTENER + 1, &[after(FIRST, 4), 0, 0, 9]), rig.now);
    for bytes in 0..64usize {
        for first in [0, 0x7f, 0x80, 0xff] {
            rig.sender.input(&vec![first; bytes], rig.now);
        }
    }
    assert_eq!(rig.sender.stats().acknowledged, 0);
    assert_eq!(rig.at(200).numbers(), [(2, false)], "nothing was repeated");
    rig.tell(wire::NAK, 0, &[FIRST, 1 << 31, 1]);
    assert_eq!(rig.numbers(), [(FIRST, true), (0, true), (1, true)]);
    rig.tell(wire::NAK, 0, &[FIRST, 0]);
    assert_eq!(rig.at(220).numbers(), [], "their repeats are on the way");
    rig.tell(wire::ACK, 7, &[0, 30_000, 1_000, 4_000]);
    let answer = rig.sent();
    let confirmed = Header::Control { kind: wire::ACKACK, subtype: 0, info: 7, timestamp: 220_000 };
    assert_eq!(Header::parse(&answer[0]), Some(confirmed));
    assert_eq!((rig.sender.stats().acknowledged, rig.sender.stats().rtt), (2, ms(30)));
    rig.tell(wire::ACK, 8, &[0, u32::MAX, u32::MAX, 0]);
    assert_eq!(rig.sender.stats().rtt, RTT_MAX);
    rig.tell(wire::ACK, 0, &[after(FIRST, 5)]);
    assert!(rig.sender.is_empty(), "a light acknowledgement counts too");
    assert_eq!(rig.sent().len(), 1, "and is not confirmed");
    rig.tell(wire::NAK, 0, &[1 << 31 | FIRST, 1]);
    let answer = rig.sent();
    assert!(matches!(Header::parse(&answer[0]), Some(Header::Control { kind: wire::DROP_REQUEST, .. })));
    assert_eq!((word(&answer[0], 16), word(&answer[0], 20)), (Some(FIRST), Some(1)), "they are gone");
}

#[test]
fn floods_of_reports_and_acknowledgements_are_answered_within_limits() {
    let mut rig = Rig::new();
    for step in 0..2_000 {
        rig.now += ms(1);
        rig.push(if step % 10 == 0 { 3 } else { 0 });
        rig.sender.poll(rig.now);
        rig.sent();
    }
    let mut repeats = 0;
    for step in 0..1_000 {
        rig.now += ms(1);
        for _ in 0..50 {
            rig.tell(wire::NAK, 0, &[1 << 31 | FIRST, after(FIRST, 599)]);
            rig.tell(wire::ACK, step, &[FIRST, 0, 0, 8_000]);
        }
        rig.sender.poll(rig.now);
        let sent = rig.sent();
        let data = sent.iter().filter(|datagram| datagram[0] & 0x80 == 0).count();
        assert!(sent.len() - data <= CONTROL_MAX);
        repeats += data;
    }
    // As much as the media, and what was saved up in a second.
    let bytes = repeats * SEND_BYTES;
    assert!((250_000..=3 * 450_000).contains(&bytes), "{bytes}");
}

#[test]
fn reports_cost_a_limited_number_of_looks_until_the_next_poll() {
    let mut rig = Rig::new();
    rig.push(6);
    assert_eq!(rig.numbers().len(), 6);
    rig.at(200);
    for _ in 0..REPORT_LOOKS_MAX / 4 {
        rig.tell(wire::NAK, 0, &[wire::RANGE | FIRST, after(FIRST, 3)]);
    }
    rig.tell(wire::NAK, 0, &[after(FIRST, 4)]);
    let first_four = [0, 1, 2, 3].map(|number| (after(FIRST, number), true));
    assert_eq!(rig.numbers(), first_four, "nothing of the last report");
    rig.at(201).tell(wire::NAK, 0, &[after(FIRST, 4)]);
    assert_eq!(rig.numbers(), [(after(FIRST, 4), true)]);
}

#[test]
fn packets_leave_in_time_or_are_given_up() {
    let mut rig = Rig::new();
    rig.push(2);
    assert_eq!(rig.numbers().len(), 2);
    assert_eq!(rig.at(349).numbers(), []);
    assert!(rig.sender.next_at() <= ms(1_350), "the last one may be lost");
    assert_eq!(rig.at(350).numbers(), [(SEQUENCE, true)]);
    rig.at(1_000);
    assert_eq!((rig.sender.is_empty(), rig.sender.stats().dropped), (true, 2));
    // The receiver takes two packets, and then says nothing.
    rig.tell(wire::ACK, 1, &[after(FIRST, 2), 1_000, 0, 0]);
    rig.push(5);
    assert_eq!(rig.numbers().len(), 2);
    assert!(!rig.sender.take_overrun());
    rig.at(2_000);
    assert!(rig.sender.take_overrun() && !rig.sender.take_overrun());
    assert_eq!((rig.sender.is_empty(), rig.sender.stats().dropped), (true, 7));
    rig.push(1);
    assert_eq!(rig.numbers(), [(after(FIRST, 4), false)], "numbers that nobody saw are used again");
    rig.at(1_000 + SILENCE.as_millis() as u64);
    assert_eq!((rig.sender.over(), rig.sender.has_room()), (Some(Over::Silent), false));
    let mut rig = Rig::new();
    rig.tell(wire::SHUTDOWN, 0, &[0]);
    assert_eq!((rig.sender.over(), rig.sender.push(&[1], rig.now)), (Some(Over::Closed), false));
}

#[test]
fn what_a_sender_holds_is_limited() {
    let mut rig = Rig::new();
    assert!(!rig.sender.push(&[0; SEND_BYTES + 1], rig.now) && !rig.sender.push(&[], rig.now));
    let mut count = 0;
    while rig.sender.has_room() {
        rig.push(1);
        count += 1;
    }
    assert!((UNSENT_BYTES_MAX / SEND_BYTES..UNSENT_BYTES_MAX / SEND_BYTES + 2).contains(&count), "{count}");
    rig.push(WINDOW_PACKETS - count);
    assert!(!rig.sender.push(&[7; SEND_BYTES], rig.now));
    assert!(rig.sender.held_bytes() <= HELD_BYTES_MAX);
    rig.sender.discard();
    assert!(rig.sender.is_empty() && rig.sender.take_overrun() && rig.sender.has_room());
    // The system is full: the packet stays.
    rig.push(1);
    rig.sender.transmit(rig.now, |_| false);
    assert_eq!((rig.sender.stats().packets, rig.numbers()), (0, vec![(FIRST, false)]));
    rig.push(2 * SPARE_MAX);
    for _ in 0..100 {
        rig.now += ms(10);
        rig.sent();
    }
    rig.tell(wire::ACK, 1, &[after(FIRST, 2 * SPARE_MAX + 1), 1_000, 0, 8_000]);
    assert_eq!(rig.sender.spares(), SPARE_MAX);
    assert!(rig.sender.is_empty());
}

#[test]
fn a_key_encrypts_a_limited_number_of_packets() {
    let (mut to, mut back) = (Link::new(1, 0, 1), Link::new(2, 0, 1));
    let secret = Some(("correct horse", 16));
    let (mut sender, ..) = call(wanted(120, secret), Some("correct horse"), &mut to, &mut back);
    sender.wear(PACKETS_PER_KEY_MAX - 2);
    assert!(sender.push(&[1], ms(1)) && sender.over().is_none() && sender.push(&[1], ms(1)));
    assert_eq!((sender.over(), sender.push(&[1], ms(1))), (Some(Over::Worn), false));
}

#[test]
fn a_call_has_limits_and_ends_with_the_reason_of_the_listener() {
    for (length, good) in [(9, false), (10, true), (79, true), (80, false)] {
        assert_eq!(PASSPHRASE_BYTES.contains(&length), good);
        let secret = "x".repeat(length);
        for (bytes, fits) in [(16, true), (32, true), (0, false), (33, false)] {
            let call = wanted(0, Some((&secret, bytes)));
            assert_eq!(Caller::new(call, seed(1), PEER, ms(0)).is_some(), good && fits, "{length} {bytes}");
        }
    }
    let long = Call { stream_id: "é".repeat(STREAM_ID_BYTES_MAX), latency_ms: u16::MAX, secret: None };
    let mut caller = Caller::new(long, seed(1), PEER, ms(0)).expect("a call");
    assert!(caller.poll(ms(0)).is_some() && caller.poll(ms(1)).is_none());
    let Some(Request::Induction(hello)) = caller.poll(ms(250)).as_deref().and_then(Request::parse) else {
        panic!("no induction")
    };
    let refusal = |code: u32| {
        let mut answer = hello.answer(7, PEER);
        answer[16 + 20..16 + 24].copy_from_slice(&(1_000 + code).to_be_bytes());
        answer
    };
    assert!(caller.input(&refusal(10), ms(251)).is_none(), "nothing was asked yet");
    assert!(caller.input(&hello.answer(77, PEER), ms(251)).is_none());
    let Some(Request::Conclusion(asked)) = caller.poll(ms(251)).as_deref().and_then(Request::parse) else {
        panic!("no conclusion")
    };
    assert_eq!((asked.cookie, asked.latency_ms()), (77, LATENCY_MS_MAX));
    assert_eq!((asked.fault(), asked.stream_id().len()), (None, STREAM_ID_BYTES_MAX));
    for code in [Reason::Unauthorized.code(), 1_404, 0, 999_999] {
        match caller.input(&refusal(code), ms(300)) {
            Some(Called::Refused(refused)) => assert_eq!(refused, code),
            other => panic!("{other:?}"),
        }
    }
    for bytes in 0..96usize {
        for first in [0, 0x7f, 0x80, 0xff] {
            assert!(caller.input(&vec![first; bytes], ms(300)).is_none());
        }
    }
}

#[test]
fn an_answer_without_the_right_keys_is_a_refusal() {
    let mut caller =
        Caller::new(wanted(120, Some(("correct horse", 32))), seed(1), PEER, ms(0)).expect("a call");
    let Some(Request::Induction(hello)) = caller.poll(ms(0)).as_deref().and_then(Request::parse) else {
        panic!("no induction")
    };
    caller.input(&hello.answer(77, PEER), ms(1));
    let sent = caller.poll(ms(1)).expect("a conclusion");
    let Some(Request::Conclusion(asked)) = Request::parse(&sent) else { panic!("no conclusion") };
    let mut clear = calling_without_keys(&asked);
    for (more, reason) in [
        (vec![], Reason::Unsecure),
        (extension(4, &[3, 0, 0, 0]), Reason::Unsecure),
        (extension(4, &[0, 0, 0, 3]), Reason::Unsecure),
        (extension(4, &[4, 0, 0, 0]), Reason::BadSecret),
    ] {
        let length = clear.len();
        more.iter().for_each(|word| clear.extend(word.to_be_bytes()));
        match caller.input(&clear, ms(2)) {
            Some(Called::Refused(code)) => assert_eq!(code, reason.code()),
            other => panic!("{other:?}"),
        }
        clear.truncate(length);
    }
    let small = [&clear[..16 + 12], &1_300u32.to_be_bytes(), &clear[16 + 16..]].concat();
    assert!(
        matches!(caller.input(&small, ms(2)), Some(Called::Refused(code)) if code == Reason::Rogue.code())
    );
}

/// An answer that accepts, as from a listener that ignores the keys.
fn calling_without_keys(asked: &Conclusion) -> Vec<u8> {
    let plain = conclusion(asked.caller, asked.cookie, 5, 0, &[]);
    let Some(Request::Conclusion(plain)) = Request::parse(&plain) else { panic!("no conclusion") };
    Connection::accept(&plain, LISTENER, PEER, None, ms(0), ms(0)).answer
}

#[test]
fn latency_is_what_one_side_asks_for_at_least() {
    for (ours, theirs, agreed) in
        [(0, 0, LATENCY_MS_MIN), (300, 200, 300), (200, 300, 300), (1, u16::MAX, LATENCY_MS_MAX)]
    {
        let mut datagram = conclusion(9, 5, 7, theirs, &[]);
        let Some(Request::Conclusion(asked)) = Request::parse(&datagram) else { panic!("no conclusion") };
        assert!(asked.takes_packets());
        datagram[16 + 12..16 + 16].copy_from_slice(&1_359u32.to_be_bytes());
        assert!(
            matches!(Request::parse(&datagram), Some(Request::Conclusion(asked)) if !asked.takes_packets())
        );
        let (answer, sender) = Sender::accept(&asked, LISTENER, PEER, None, ours, ms(0));
        assert_eq!(sender.stats().latency, ms(agreed.into()));
        // Words of the extension: head, version, flags, latency.
        assert_eq!(word(&answer, 16 + 48 + 12).map(|word| word as u16), Some(agreed));
    }
}
