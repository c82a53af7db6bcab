//! Random interleavings of refills, top-ups, payments, crashes and missing answers, compared with a simple model: money
//! that the receiving wallet got is credited once, and no daily cap is exceeded.

use std::collections::HashMap;

use super::*;
use crate::billing::testing::chopped;
use crate::wallet::lightning::Fault;

const RUNS: u64 = 24;
/// On a database server, where each step costs a way there and back.
const RUNS_ON_SERVER: u64 = 4;
const STEPS: usize = 60;

/// A deterministic generator of numbers.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

async fn play(seed: u64) {
    let rig = Rig::new(0).await;
    let mut dice = Dice(seed.wrapping_mul(7_919) + 1);
    let mut topups = rig.restarted();
    let rate = Msat(1_000_000);
    for _ in 0..STEPS {
        let polls = 1 + dice.roll(60);
        match dice.roll(12) {
            0..=3 => drop(chopped(topups.refill_once(rig.account(), rate), polls * 10).await),
            4 => drop(chopped(topups.refill_once(rig.account(), rate), polls).await),
            5 => {
                // Nobody can pay an invoice that a dying process did not show.
                let top_up = chopped(topups.top_up(&rig.actor(), Msat(100_000)), polls).await;
                let made = top_up.and_then(Result::ok).and_then(|top_up| top_up.made);
                rig.bank.state().shown.extend(made.map(|made| made.payment_hash));
            }
            6 => drop(chopped(topups.pass(), polls * 10).await),
            7 => {
                topups = rig.restarted();
                rig.base.store.ask_all_invoices(rig.now()).await.unwrap();
            }
            8 => {
                let kinds = [
                    Pays::Yes,
                    Pays::Unheard,
                    Pays::Silent,
                    Pays::Lies,
                    Pays::Fails(Fault::PaymentFailed),
                    Pays::Fails(Fault::Unreachable),
                ];
                let index = usize::try_from(dice.roll(6)).unwrap();
                rig.bank.set(URL, kinds[index]);
            }
            9 => {
                let silent = (dice.roll(2) == 0).then_some(Fault::Unreachable);
                rig.bank.state().tells_nothing = silent;
            }
            10 => rig.bank.pay_shown(),
            _ => rig.pass_time([1, 5, 60, 700, 4_000, 40_000][usize::try_from(dice.roll(6)).unwrap()]),
        }
    }
    rig.bank.state().tells_nothing = None;
    // Every invoice that can still be heard of is.
    for _ in 0..3 {
        rig.base.store.ask_all_invoices(rig.now()).await.unwrap();
        rig.pass_time(601);
        topups.pass().await;
    }
    let got: i64 =
        rig.bank.state().invoices.values().filter_map(|(.., received)| *received).map(|it| it.0).sum();
    let credited: i64 = rig.credits().await.iter().map(|(_, amount)| *amount).sum();
    assert_eq!(credited, got, "seed {seed}");
    let mut days: HashMap<i64, i64> = HashMap::new();
    for (at, amount) in rig.bank.state().payments.iter().filter(|(_, amount)| *amount == RULES.amount) {
        *days.entry(day_of(*at)).or_default() += amount.0;
    }
    assert!(days.values().all(|spent| *spent <= RULES.daily_cap.0), "seed {seed}: {days:?}");
    rig.base.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn received_money_is_credited_once_and_no_daily_cap_is_exceeded() {
    let runs = if satcast_store::testing::server().is_some() { RUNS_ON_SERVER } else { RUNS };
    for seed in 0..runs {
        play(seed).await;
    }
}
