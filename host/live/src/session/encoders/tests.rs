use super::*;
use bytes::Bytes;
use satcast_media::{Codec, NANOS_PER_MILLI};

use crate::group::GROUP_BYTES_MAX;
use crate::hub::AUDIO_ONLY_AFTER_MS;
use EncoderRole::{Backup, Primary};

const SILENT: Duration = Duration::from_secs(2);
/// Time between two packets of an encoder.
const STEP_MS: u64 = 100;
/// Every tenth packet is a keyframe.
const GOP: u64 = 10;

fn packet(codec: Codec, at_ms: u64, keyframe: bool) -> Packet {
    let dts_ns = at_ms as i64 * NANOS_PER_MILLI;
    Packet::media(codec, keyframe, dts_ns, dts_ns, Bytes::from_static(b"media"))
}

fn config(record: &'static [u8]) -> Packet {
    Packet::configuration(Codec::H264, Bytes::from_static(record))
}

/// Encoders whose clock is moved by hand.
#[derive(Default)]
struct Rig {
    encoders: Encoders,
    now_ms: u64,
    times: FailoverTimes,
}

impl Rig {
    fn now(&self) -> Duration {
        Duration::from_millis(self.now_ms)
    }

    fn try_enter(&mut self, role: EncoderRole) -> Option<Entered> {
        let at = UnixMillis(self.now_ms as i64);
        let arrival = Arrival { role, address: None, via: Via::default(), at };
        self.encoders.enter(arrival, SILENT, self.now())
    }

    /// The number of an encoder that was accepted and has sent its configuration.
    fn enter(&mut self, role: EncoderRole) -> u64 {
        let number = self.try_enter(role).unwrap().number;
        self.take(role, number, &[config(b"v")]);
        number
    }

    fn take(&mut self, role: EncoderRole, number: u64, packets: &[Packet]) -> Turn {
        let (now, times) = (Duration::from_millis(self.now_ms), self.times);
        self.encoders.take((role, number), packets, now, times)
    }

    /// The encoders send in turn until `until_ms`; the failovers, and the times at which they happened. Packets are keyframes at
    /// whole seconds.
    fn send(&mut self, senders: &[(EncoderRole, u64)], until_ms: u64) -> Vec<(u64, Failover, Start)> {
        let mut seen = Vec::new();
        while self.now_ms < until_ms {
            self.now_ms += STEP_MS;
            for (role, number) in senders {
                let media = packet(Codec::H264, self.now_ms, self.now_ms.is_multiple_of(STEP_MS * GOP));
                if let Turn::TakesOver(taken) = self.take(*role, *number, &[media]) {
                    seen.push((self.now_ms, taken.failover.unwrap(), taken.start));
                }
            }
        }
        seen
    }

    /// The times at which an encoder takes over that sends until `until_ms`.
    fn send_any(&mut self, role: EncoderRole, number: u64, until_ms: u64) -> Vec<u64> {
        let mut seen = Vec::new();
        while self.now_ms < until_ms {
            self.now_ms += STEP_MS;
            let media = packet(Codec::H264, self.now_ms, self.now_ms.is_multiple_of(STEP_MS * GOP));
            if let Turn::TakesOver(_) = self.take(role, number, &[media]) {
                seen.push(self.now_ms);
            }
        }
        seen
    }

    fn active(&self) -> Option<EncoderRole> {
        self.encoders.active
    }
}

fn failover(from: EncoderRole, to: EncoderRole, reason: Reason) -> Failover {
    Failover { from, to, reason }
}

/// Decode times of the media in milliseconds.
fn times(start: &Start) -> Vec<i64> {
    let media = start.packets.iter().filter(|packet| !packet.is_config());
    media.map(|packet| packet.dts_ns / NANOS_PER_MILLI).collect()
}

#[test]
fn the_backup_takes_over_at_its_next_keyframe_when_the_connection_ends() {
    for (unpublished, reason) in [(false, Reason::Disconnected), (true, Reason::Unpublished)] {
        let mut rig = Rig::default();
        let (primary, backup) = (rig.enter(Primary), rig.enter(Backup));
        assert!(rig.send(&[(Primary, primary), (Backup, backup)], 4_300).is_empty());
        let left = rig.encoders.leave(Primary, primary, unpublished).unwrap();
        assert_eq!(left, Left { was_active: true, was_last: false });
        let seen = rig.send(&[(Backup, backup)], 6_000);
        let [(5_000, change, start)] = &seen[..] else { panic!("{seen:?}") };
        assert_eq!(*change, failover(Primary, Backup, reason));
        assert_eq!(times(start), [5_000], "nothing from before the end of the other encoder");
        assert!(start.packets[0].is_config());
        assert_eq!((rig.active(), rig.encoders.failovers()), (Some(Backup), 1));
    }
}

#[test]
fn after_a_stall_the_backup_begins_with_what_it_has_kept_since() {
    let mut rig = Rig::default();
    let (primary, backup) = (rig.enter(Primary), rig.enter(Backup));
    rig.send(&[(Primary, primary), (Backup, backup)], 4_500);
    let seen = rig.send(&[(Backup, backup)], 8_000);
    let [(6_500, change, start)] = &seen[..] else { panic!("{seen:?}") };
    assert_eq!(*change, failover(Primary, Backup, Reason::Stalled));
    assert_eq!((times(start).first(), times(start).last()), (Some(&6_000), Some(&6_500)));
    assert_eq!(start.began, Duration::from_secs(6));
    // Late packets of the stalled encoder stay out.
    assert!(matches!(rig.take(Primary, primary, &[packet(Codec::H264, 8_000, true)]), Turn::Standby));
}

#[test]
fn the_primary_returns_after_it_was_steady_for_long_enough() {
    let mut rig = Rig::default();
    let (primary, backup) = (rig.enter(Primary), rig.enter(Backup));
    rig.send(&[(Primary, primary), (Backup, backup)], 3_000);
    rig.encoders.leave(Primary, primary, false).unwrap();
    rig.send(&[(Backup, backup)], 10_000);
    let primary = rig.enter(Primary);
    assert_eq!(rig.active(), Some(Backup), "accepted, on standby");
    assert!(rig.send(&[(Primary, primary), (Backup, backup)], 15_000).is_empty());
    // A stall: the time begins again.
    assert!(rig.send(&[(Backup, backup)], 17_500).is_empty());
    let seen = rig.send(&[(Primary, primary), (Backup, backup)], 40_000);
    let [(28_000, change, start)] = &seen[..] else { panic!("{seen:?}") };
    assert_eq!(*change, failover(Backup, Primary, Reason::Returned));
    assert_eq!(times(start), [28_000]);
    // The backup is on standby again, and knows its configuration.
    rig.encoders.leave(Primary, primary, false).unwrap();
    let seen = rig.send(&[(Backup, backup)], 42_000);
    let [(41_000, _, start)] = &seen[..] else { panic!("{seen:?}") };
    assert!(start.packets[0].is_config());
    assert_eq!(rig.encoders.failovers(), 3);
}

#[test]
fn the_primary_stays_on_standby_when_it_never_returns_by_itself() {
    let mut rig = Rig::default();
    rig.times.failback = None;
    let backup = rig.enter(Backup);
    assert_eq!(rig.active(), Some(Backup), "alone, it publishes at once");
    rig.send(&[(Backup, backup)], 1_000);
    let primary = rig.enter(Primary);
    assert!(rig.send(&[(Primary, primary), (Backup, backup)], 60_000).is_empty());
    rig.encoders.leave(Backup, backup, false).unwrap();
    let seen = rig.send(&[(Primary, primary)], 62_000);
    assert_eq!(seen[0].1, failover(Backup, Primary, Reason::Disconnected));
}

#[test]
fn one_encoder_of_each_role_is_connected() {
    let mut rig = Rig::default();
    let (primary, backup) = (rig.enter(Primary), rig.enter(Backup));
    for role in EncoderRole::ALL {
        assert!(rig.try_enter(role).is_none(), "{role:?}");
    }
    rig.now_ms += 1_999;
    assert!(rig.try_enter(Backup).is_none());
    rig.now_ms += 1;
    let newer = rig.try_enter(Backup).unwrap();
    assert!(!newer.is_active, "it replaces the silent one on standby");
    assert_eq!(rig.encoders.leave(Backup, backup, false), None, "it was replaced");
    assert!(matches!(rig.take(Backup, backup, &[packet(Codec::H264, 0, true)]), Turn::Standby));
    let left = rig.encoders.leave(Backup, newer.number, false);
    assert_eq!(left, Some(Left { was_active: false, was_last: false }));
    let left = rig.encoders.leave(Primary, primary, false);
    assert_eq!(left, Some(Left { was_active: true, was_last: true }));
}

#[test]
fn an_encoder_that_returns_first_is_no_failover() {
    let mut rig = Rig::default();
    let (primary, _backup) = (rig.enter(Primary), rig.enter(Backup));
    rig.send(&[(Primary, primary)], 1_000);
    rig.encoders.leave(Primary, primary, false).unwrap();
    let primary = rig.enter(Primary);
    let Turn::TakesOver(taken) = rig.take(Primary, primary, &[packet(Codec::H264, 0, true)]) else {
        panic!("the backup sends nothing")
    };
    assert_eq!((taken.failover, rig.encoders.failovers()), (None, 0));
}

#[test]
fn a_backup_without_video_takes_over_with_its_next_packets() {
    let mut rig = Rig::default();
    let (primary, backup) = (rig.enter(Primary), rig.try_enter(Backup).unwrap().number);
    rig.send(&[(Primary, primary)], 1_000);
    rig.encoders.leave(Primary, primary, false).unwrap();
    let mut first = None;
    for _ in 0..AUDIO_ONLY_AFTER_MS as u64 / STEP_MS + 5 {
        rig.now_ms += STEP_MS;
        let audio = packet(Codec::Aac, rig.now_ms, false);
        if let Turn::TakesOver(taken) = rig.take(Backup, backup, &[audio]) {
            first = Some((rig.now_ms, times(&taken.start)));
        }
    }
    assert_eq!(first, Some((3_100, vec![3_100])), "when it is clear that no video comes");
}

#[test]
fn what_is_kept_has_a_limit_and_a_new_configuration_drops_it() {
    let large = Packet { payload: vec![0; GROUP_BYTES_MAX + 1].into(), ..packet(Codec::H264, 1_500, true) };
    let frame = packet(Codec::H264, 1_520, false);
    for kept in [[large, frame], [packet(Codec::H264, 1_500, true), config(b"w")]] {
        let mut rig = Rig::default();
        let (primary, backup) = (rig.enter(Primary), rig.enter(Backup));
        rig.send(&[(Primary, primary)], 1_000);
        rig.now_ms = 1_500;
        rig.take(Backup, backup, &kept);
        rig.now_ms = 3_500;
        let turn = rig.take(Backup, backup, &[packet(Codec::H264, 3_500, false)]);
        assert!(matches!(turn, Turn::Standby), "no keyframe is kept");
        let turn = rig.take(Backup, backup, &[packet(Codec::H264, 3_600, true)]);
        assert!(matches!(turn, Turn::TakesOver(_)));
    }
}

#[test]
fn only_encoders_of_such_an_address_are_disconnected() {
    let mut rig = Rig::default();
    let mut enter = |role, address: &str| {
        let address = Some(address.parse().unwrap());
        let arrival = Arrival { role, address, via: Via::default(), at: UnixMillis(0) };
        rig.encoders.enter(arrival, SILENT, Duration::ZERO).unwrap()
    };
    let (primary, backup) = (enter(Primary, "192.0.2.1"), enter(Backup, "192.0.2.2"));
    let is = |one: &str| {
        let one: IpAddr = one.parse().unwrap();
        move |address| address == one
    };
    let closed = codes::wrong_address();
    assert!(!rig.encoders.close_if(&closed, is("192.0.2.2")), "one on standby leaves alone");
    assert_eq!(
        (backup.closed.borrow().clone(), primary.closed.borrow().clone()),
        (Some(closed.clone()), None)
    );
    assert!(rig.encoders.close_if(&closed, is("192.0.2.1")));
    assert!(rig.encoders.is_empty());
}

#[test]
fn the_slate_begins_when_no_encoder_sends_and_the_next_keyframe_ends_it() {
    let stall = FailoverTimes::default().stall;
    let mut rig = Rig::default();
    let primary = rig.enter(Primary);
    rig.send(&[(Primary, primary)], 3_000);
    assert_eq!(rig.encoders.lost_at(stall), Some(Duration::from_millis(5_000)));
    assert_eq!(rig.encoders.begin_slate(rig.now(), stall), None, "it sends");
    rig.encoders.leave(Primary, primary, false).unwrap();
    assert_eq!(rig.encoders.lost_at(stall), Some(Duration::ZERO));
    let slate = rig.encoders.begin_slate(rig.now(), stall).unwrap();
    assert!(slate > primary && rig.encoders.plays_slate(slate));
    // The encoder that returns is on standby until its keyframe.
    let primary = rig.try_enter(Primary).unwrap();
    assert!(!primary.is_active && primary.number > slate);
    rig.now_ms = 3_100;
    let turn = rig.take(Primary, primary.number, &[config(b"v"), packet(Codec::H264, 3_100, false)]);
    assert!(matches!(turn, Turn::Standby) && rig.encoders.has_slate());
    let Turn::TakesOver(taken) = rig.take(Primary, primary.number, &[packet(Codec::H264, 3_200, true)])
    else {
        panic!("a keyframe")
    };
    assert_eq!((times(&taken.start), taken.failover), (vec![3_200], None));
    assert!(taken.start.packets[0].is_config());
    assert_eq!((rig.active(), rig.encoders.has_slate()), (Some(Primary), false));
    assert!(!rig.encoders.end_slate(slate), "it has ended");
}

#[test]
fn a_stalled_encoder_gives_its_place_to_the_slate_and_a_backup_that_sends_prevents_it() {
    let stall = FailoverTimes::default().stall;
    let mut rig = Rig::default();
    let (primary, backup) = (rig.enter(Primary), rig.enter(Backup));
    rig.send(&[(Primary, primary), (Backup, backup)], 1_000);
    rig.send(&[(Backup, backup)], 4_000);
    assert_eq!(rig.active(), Some(Backup));
    rig.encoders.leave(Primary, primary, false).unwrap();
    rig.now_ms = 5_999;
    assert_eq!(rig.encoders.begin_slate(rig.now(), stall), None);
    rig.now_ms = 6_000;
    let slate = rig.encoders.begin_slate(rig.now(), stall).unwrap();
    assert_eq!(rig.active(), None);
    let seen = rig.send_any(Backup, backup, 8_000);
    assert_eq!(seen, [7_000], "its next keyframe, once");
    assert!(!rig.encoders.plays_slate(slate));
    // Ended before the encoder returns: it takes over in the same way.
    rig.now_ms = 20_000;
    let slate = rig.encoders.begin_slate(rig.now(), stall).unwrap();
    assert!(rig.encoders.end_slate(slate) && !rig.encoders.has_slate());
    assert_eq!(rig.send_any(Backup, backup, 21_500), [21_000]);
    rig.encoders.leave(Backup, backup, true).unwrap();
    assert_eq!(rig.encoders.lost_at(stall), None, "it ended its publish");
}

#[test]
fn an_encoder_that_stops_during_the_slate_ends_it_if_it_is_the_last_one() {
    let stall = FailoverTimes::default().stall;
    let mut rig = Rig::default();
    let (primary, backup) = (rig.enter(Primary), rig.enter(Backup));
    rig.send(&[(Primary, primary)], 1_000);
    rig.now_ms = 4_000;
    let slate = rig.encoders.begin_slate(rig.now(), stall).unwrap();
    rig.encoders.leave(Primary, primary, true).unwrap();
    assert!(rig.encoders.plays_slate(slate), "another one is connected");
    rig.encoders.leave(Backup, backup, true).unwrap();
    assert!(!rig.encoders.plays_slate(slate));
    assert!(rig.encoders.end_slate(slate));
}
