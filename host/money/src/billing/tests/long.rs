//! A day of hours with playback in each, and a wall clock that is set forward and back.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::billing::HOURS_MAX;
use crate::billing::overage::{GB_BYTES, cost};
use crate::billing::testing::{Rig, START};
use satcast_core::ids::{HOUR_MS, Msat, UnixMillis};
use satcast_store::{Bandwidth, HourTerms, StreamLimits, TimeRange};

const HOURS: u64 = 24;
const PLAYBACK: HourTerms = HourTerms { price_per_gb: Msat(5_000), limit_bytes: 10 * GB_BYTES };
/// Hour of the session, and the jump of the wall clock.
const JUMPS: [(u64, i64); 5] =
    [(3, -2 * HOUR_MS), (7, 5 * HOUR_MS), (11, -1), (15, -HOUR_MS - 1_234), (19, 61_000)];

#[tokio::test]
async fn a_day_with_a_clock_that_jumps_costs_exactly_its_minutes_and_its_bytes() {
    let rig = Rig::new(100_000).await;
    let session =
        rig.begin_of(rig.stream, StreamLimits { max_sats: None, max_duration_minutes: Some(1_440) }).await;
    rig.store.begin_forwarding(&session.id, &rig.destinations[..3], rig.clock.now()).await.unwrap();
    for index in 0..3 {
        session.on(index).await;
    }
    let mut bytes_of = BTreeMap::<i64, u64>::new();
    for hour in 0..HOURS {
        for minute in 0..60 {
            session.at((hour * 60 + minute) * 60).await;
            match (hour % 2, minute) {
                (1, 0) => {
                    session.at(hour * 3_600 + 10).await;
                    session.off(2).await;
                }
                (0, 0) if hour > 0 => {
                    session.at(hour * 3_600 + 10).await;
                    session.on(2).await;
                }
                (_, 30) => {
                    let jump = JUMPS.iter().find(|(at, _)| *at == hour).map_or(0, |(_, by)| *by);
                    rig.clock.set_forward(jump);
                    let (hour_start, bytes) = (rig.clock.now().hour_start(), 10 * GB_BYTES + 123_456_789);
                    let (account, destination) = (rig.account, rig.destinations[0]);
                    let sent = Bandwidth { account, destination, hour_start, bytes };
                    rig.store.add_bandwidth(&[sent]).await.unwrap();
                    *bytes_of.entry(hour_start.0).or_default() += bytes;
                    rig.billing.bill_playback().await;
                }
                _ => {}
            }
        }
    }
    // The session's own timer ends it here; a minute that would open now is not charged.
    rig.clock.advance(Duration::from_secs(60));
    session.finish().await;
    // The third destination forwards in the first ten seconds of an odd hour, and from the tenth second of an even one.
    let minutes = i64::try_from(HOURS / 2).unwrap() * (60 * 4_000 + 4_000 + 59 * 2_000);
    let playback: i64 = bytes_of.values().map(|bytes| cost(*bytes, &PLAYBACK).0).sum();
    assert!(bytes_of.len() < 24, "two hours of the session were in one hour of the clock");
    assert_eq!(rig.store.overage_charges(rig.account, TimeRange::default()).await.unwrap(), Msat(playback));
    assert_eq!(session.msat().await, minutes + playback);
    assert_eq!(rig.balance().await, 100_000_000 - minutes - playback);
    rig.check().await;
}

#[tokio::test]
async fn a_pass_ends_after_so_many_hours_and_the_next_one_goes_on() {
    let rig = Rig::new(100).await;
    let most = HOURS_MAX * 2;
    let hour = |back: i64| UnixMillis(START.hour_start().0 - back * HOUR_MS);
    let (account, destination) = (rig.account, rig.destinations[0]);
    let sent: Vec<Bandwidth> = (0..most + 3)
        .map(|back| Bandwidth { account, destination, hour_start: hour(back), bytes: 1 })
        .collect();
    rig.store.add_bandwidth(&sent).await.unwrap();
    rig.billing.inner.pass(None, 2).await;
    assert_eq!(rig.store.unbilled_hours(None, 10).await.unwrap().len(), 3, "the newest ones wait");
    rig.billing.inner.pass(None, 2).await;
    assert_eq!(rig.store.unbilled_hours(None, 10).await.unwrap(), []);
}
