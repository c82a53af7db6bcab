//! Random interleavings of destinations that start and stop, new minutes, pauses of the encoder, failed charges,
//! charges with a lost answer, and crashes inside a charge, compared with a simple model.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::billing::minutes::Minutes;
use crate::billing::testing::{Rig, chopped};
use satcast_core::ids::{DestinationId, Msat};
use satcast_core::secret::new_session_id;
use satcast_store::{Charged, MinuteCharge, NewSession};
use satcast_usage::Gate as _;

const FREE: u32 = 1;
const DESTINATIONS: u64 = 4;

/// A deterministic generator of numbers.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// The rule in its simplest form: the largest number of destinations at the same time in each minute.
#[derive(Default)]
struct Model {
    forwarding: BTreeSet<i64>,
    flows: bool,
    largest: BTreeMap<u64, usize>,
}

impl Model {
    fn see(&mut self, minute: u64) {
        let now = if self.flows { self.forwarding.len() } else { 0 };
        let largest = self.largest.entry(minute).or_default();
        *largest = (*largest).max(now);
    }

    fn paid_slots(&self) -> usize {
        self.largest.values().map(|largest| largest.saturating_sub(FREE as usize)).sum()
    }
}

/// Applies one step to both.
fn happen(dice: &mut Dice, now: &mut Duration, minutes: &mut Minutes, model: &mut Model) {
    let destination = DestinationId(i64::try_from(dice.roll(DESTINATIONS)).unwrap());
    match dice.roll(6) {
        0 | 1 => {
            minutes.starts(destination);
            model.forwarding.insert(destination.0);
        }
        2 => {
            minutes.pauses(destination);
            model.forwarding.remove(&destination.0);
        }
        3 => {
            model.flows = dice.roll(3) > 0;
            minutes.flows(model.flows);
        }
        _ => {
            *now += Duration::from_secs(dice.roll(90));
            while minutes.next_opening() <= *now {
                minutes.open_next();
                model.see(minutes.number());
            }
        }
    }
    model.see(minutes.number());
}

/// Number of cases, and the seed of the first; the environment variable multiplies the cases for long runs.
fn cases(short: u64) -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let first = number("SATCAST_SOAK_SEED").unwrap_or(0);
    let count = short * number("SATCAST_SOAK_ITERATIONS").unwrap_or(1);
    println!("seed: SATCAST_SOAK_SEED={first}, and {count} from it on");
    first..first + count
}

#[test]
fn soak_any_interleaving_of_toggles_minutes_failures_and_replays_comes_to_the_model() {
    for seed in cases(3_000) {
        let (mut dice, mut now) = (Dice(seed), Duration::from_secs(5));
        let mut minutes = Minutes::new(now, FREE);
        let mut model = Model { flows: true, ..Model::default() };
        let mut posted = BTreeMap::new();
        for step in 0..200 {
            happen(&mut dice, &mut now, &mut minutes, &mut model);
            let Some(due) = minutes.due() else { continue };
            let outcome = if step == 199 { 0 } else { dice.roll(4) };
            // 1: posted, but the answer is lost. 2 and 3: not posted.
            if outcome <= 1 {
                for slot in &due.slots {
                    let known = posted.insert((due.minute, slot.slot), slot.destination);
                    assert!(
                        known.is_none_or(|known| known == slot.destination),
                        "seed {seed}: another one's slot"
                    );
                }
            }
            if outcome == 0 {
                minutes.posted();
            }
        }
        for _ in 0..10_000 {
            let Some(due) = minutes.due() else { break };
            posted.extend(due.slots.iter().map(|slot| ((due.minute, slot.slot), slot.destination)));
            minutes.posted();
        }
        assert_eq!(posted.len(), model.paid_slots(), "seed {seed}");
        assert!(posted.keys().all(|(_, slot)| *slot >= FREE), "seed {seed}: a free slot was charged");
    }
}

#[test]
fn a_refused_destination_leaves_no_hole_and_is_charged_nowhere() {
    let mut minutes = Minutes::new(Duration::ZERO, 1);
    let ids = [1, 2, 3, 4].map(DestinationId);
    ids.iter().for_each(|id| minutes.starts(*id));
    minutes.posted();
    minutes.open_next();
    assert_eq!(minutes.waiting(), 2 + 3);
    assert_eq!(minutes.refused(), Some(ids[2]));
    let due = minutes.due().unwrap();
    assert_eq!((due.minute, due.slots[0].slot, due.slots[0].destination), (0, 2, ids[3]));
    minutes.posted();
    let due = minutes.due().unwrap();
    let slots: Vec<_> = due.slots.iter().map(|slot| (slot.slot, slot.destination.0)).collect();
    assert_eq!((due.minute, due.opening, slots), (1, true, vec![(1, 2), (2, 4)]));
    assert_eq!(minutes.refused(), None, "an opening is not refused by the slot");
    minutes.drop_queued();
    assert_eq!((minutes.waiting(), minutes.due()), (0, None));
}

#[test]
fn a_destination_in_the_slot_of_a_refused_one_takes_its_own_slot() {
    let mut minutes = Minutes::new(Duration::ZERO, 0);
    let ids = [1, 2].map(DestinationId);
    minutes.starts(ids[0]);
    minutes.pauses(ids[0]);
    minutes.starts(ids[1]);
    assert_eq!(minutes.waiting(), 1, "one at a time");
    assert_eq!(minutes.refused(), Some(ids[0]));
    assert_eq!(minutes.due().unwrap().slots[0].destination, ids[1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn soak_crashes_between_any_two_steps_of_a_charge_lose_nothing_and_repeat_nothing() {
    let rig = Rig::new(1_000_000_000).await;
    let mut balance = rig.balance().await;
    let mut cut = 0;
    for seed in cases(12) {
        let session = new_session_id();
        let terms = rig.billing.terms();
        let new =
            NewSession { id: session.clone(), stream_id: rig.stream, started_at: rig.clock.now(), terms };
        rig.store.begin_session(new).await.unwrap();
        let (mut dice, mut now) = (Dice(seed), Duration::ZERO);
        let mut minutes = Minutes::new(now, FREE);
        let mut model = Model { flows: true, ..Model::default() };
        for _ in 0..60 {
            happen(&mut dice, &mut now, &mut minutes, &mut model);
            while let Some(due) = minutes.due() {
                let slots = due.slots.iter().map(|slot| satcast_store::Slot {
                    // The ids of the model differ from those of the database.
                    destination: rig.destinations[usize::try_from(slot.destination.0).unwrap()],
                    ..*slot
                });
                let charge = MinuteCharge {
                    session: session.clone(),
                    minute: due.minute,
                    slots: slots.collect(),
                    price: Msat(2_000),
                    budget: None,
                    now: rig.clock.now(),
                };
                match chopped(rig.store.charge_minute(&charge), 1 + dice.roll(16)).await {
                    None => cut += 1,
                    Some(outcome) => {
                        assert!(matches!(outcome.unwrap(), Charged::Posted(_)));
                        minutes.posted();
                    }
                }
            }
        }
        let expected = i64::try_from(model.paid_slots()).unwrap() * 2_000;
        assert_eq!(rig.store.session_charges(&session).await.unwrap(), Msat(expected), "seed {seed}");
        balance -= expected;
        assert_eq!(rig.balance().await, balance, "seed {seed}");
    }
    assert!(cut > 0, "no charge was interrupted");
    rig.check().await;
}
