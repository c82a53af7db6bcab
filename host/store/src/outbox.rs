//! The outbox: what waits to be sent to webhooks, who sends it, and what came of it.
//!
//! A claim is a lease: whoever took a delivery has it alone until the lease ends, and a process that dies over it gives it
//! back by doing nothing. So everything is sent at least once, and most things once.

use std::collections::HashMap;

use super::DeliveryState;
use satcast_core::ids::{AccountId, DeliveryId, UnixMillis, WebhookId};
use satcast_core::secret::Redacted;

/// Deliveries that may wait for one webhook; later events are not sent to it until fewer do.
pub const WAITING_PER_WEBHOOK_MAX: i64 = 1_000;
/// Attempts of one delivery that are made without anybody asking.
pub const DELIVERY_TRIES_MAX: i64 = 10;
/// Attempts of one delivery that are kept.
pub const ATTEMPTS_KEPT_MAX: i64 = 20;

/// How many deliveries may be on their way at one time, so that a slow receiver keeps nobody else waiting. No `Quota`: the query that
/// claims decides, since what is on its way are leases in the database, those of a process that died included.
#[derive(Clone, Copy, Debug)]
pub struct SendingCaps {
    /// To one webhook.
    pub per_webhook: usize,
    /// To one host.
    pub per_host: usize,
    /// Of one account.
    pub per_account: usize,
}

/// A delivery to be sent now.
#[derive(Clone, Debug)]
pub struct DeliveryJob {
    /// Its id.
    pub delivery: DeliveryId,
    /// Where to.
    pub webhook: WebhookId,
    /// Whose that is.
    pub account: AccountId,
    /// Proves that it was taken; only its holder may say what came of it.
    pub claim: String,
    /// The event's id, the same in every attempt.
    pub event_id: String,
    /// The exact bytes to send.
    pub body: Vec<u8>,
    /// The url.
    pub url: Redacted<String>,
    /// What signs: the newest secret first, then one that was replaced a short time ago.
    pub secrets: Vec<Redacted<String>>,
    /// Attempts of the schedule before this one.
    pub tries: u32,
    /// Whether it is the owner's test, which says nothing about the health of a webhook.
    pub is_test: bool,
}

/// What an attempt says about its webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// Nothing.
    Unknown,
    /// It works.
    Good,
    /// It does not. With at least `failures` since its last success, the first of them at `since` or before, it is disabled.
    Bad {
        /// The latest time of the first failure.
        since: UnixMillis,
        /// Failed attempts.
        failures: i64,
        /// What the owner is told.
        reason: String,
    },
    /// It wants nothing any more and is disabled.
    Gone {
        /// What the owner is told.
        reason: String,
    },
}

/// What came of an attempt.
#[derive(Clone, Debug)]
pub struct Settled {
    /// When it began.
    pub at: UnixMillis,
    /// How long it took in milliseconds.
    pub duration_ms: i64,
    /// HTTP status; `None` when there was no answer.
    pub status: Option<u16>,
    /// The beginning of the answer's body.
    pub answer: String,
    /// What was wrong, in words for the owner; `None` when the receiver took it.
    pub error: Option<String>,
    /// When it is tried again; `None` when it is not.
    pub retry_at: Option<UnixMillis>,
    /// What it says about the webhook.
    pub health: Health,
}

impl Settled {
    /// What becomes of the delivery.
    pub fn state(&self) -> DeliveryState {
        match (&self.error, self.retry_at) {
            (None, _) => DeliveryState::Delivered,
            (Some(_), Some(_)) => DeliveryState::Pending,
            (Some(_), None) => DeliveryState::Failed,
        }
    }
}

/// Where a delivery goes, as far as caps are concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lane {
    pub(super) webhook: i64,
    pub(super) account: i64,
    pub(super) host: String,
    /// Its last attempt failed.
    pub(super) is_failing: bool,
}

/// Deliveries on their way at one time to webhooks whose last attempt failed: half of what one process sends. The others' places are
/// for those that work.
pub(super) const FAILING_MAX: usize = 32;

/// Which of `waiting` (the longest due first) may be sent beside those on their way.
pub(super) fn choose(
    waiting: Vec<(i64, Lane)>,
    sending: &[Lane],
    room: usize,
    caps: SendingCaps,
) -> Vec<i64> {
    let (mut webhooks, mut hosts, mut accounts) = (HashMap::new(), HashMap::new(), HashMap::new());
    let mut failing = sending.iter().filter(|lane| lane.is_failing).count();
    for lane in sending {
        *webhooks.entry(lane.webhook).or_insert(0_usize) += 1;
        *hosts.entry(lane.host.clone()).or_insert(0_usize) += 1;
        *accounts.entry(lane.account).or_insert(0_usize) += 1;
    }
    let mut chosen = Vec::new();
    for (id, lane) in waiting {
        let webhook = webhooks.entry(lane.webhook).or_insert(0);
        let host = hosts.entry(lane.host).or_insert(0);
        let account = accounts.entry(lane.account).or_insert(0);
        let fits = *webhook < caps.per_webhook && *host < caps.per_host && *account < caps.per_account;
        if fits && chosen.len() < room && (!lane.is_failing || failing < FAILING_MAX) {
            failing += usize::from(lane.is_failing);
            *webhook += 1;
            *host += 1;
            *account += 1;
            chosen.push(id);
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPS: SendingCaps = SendingCaps { per_webhook: 2, per_host: 3, per_account: 4 };

    fn lane(webhook: i64, host: &str, account: i64) -> Lane {
        Lane { webhook, account, host: host.to_owned(), is_failing: account < 0 }
    }

    fn waiting(lanes: &[Lane]) -> Vec<(i64, Lane)> {
        lanes.iter().cloned().enumerate().map(|(index, lane)| (index as i64, lane)).collect()
    }

    #[test]
    fn one_webhook_host_or_account_does_not_take_the_place_of_others() {
        let slow = lane(1, "slow", 1);
        let lanes = [slow.clone(), slow.clone(), slow.clone(), lane(2, "slow", 1), lane(3, "slow", 2)];
        assert_eq!(choose(waiting(&lanes), &[], 9, CAPS), [0, 1, 3], "two of a webhook, three of a host");
        let lanes = [lane(4, "a", 1), lane(5, "b", 1), lane(6, "c", 1), lane(7, "d", 2)];
        let sending = [slow.clone(), slow.clone()];
        assert_eq!(choose(waiting(&lanes), &sending, 9, CAPS), [0, 1, 3], "four of an account");
        assert_eq!(choose(waiting(&[slow.clone(), lane(8, "slow", 3)]), &sending, 9, CAPS), [1]);
    }

    #[test]
    fn those_that_fail_leave_places_for_those_that_work() {
        let failing = (1..=60).map(|id| lane(id, &id.to_string(), -id));
        let lanes: Vec<Lane> = failing.chain([lane(99, "works", 99)]).collect();
        let chosen = choose(waiting(&lanes), &[], 64, CAPS);
        assert_eq!((chosen.len(), chosen.last()), (FAILING_MAX + 1, Some(&60)));
        assert_eq!(choose(waiting(&lanes), &lanes[..40], 24, CAPS), [60], "beside those on their way, too");
    }

    #[test]
    fn no_more_are_chosen_than_there_is_room_for() {
        let lanes: Vec<Lane> = (0..9).map(|id| lane(id, &id.to_string(), id)).collect();
        assert_eq!(choose(waiting(&lanes), &[], 2, CAPS), [0, 1], "the longest due first");
        assert!(choose(waiting(&lanes), &[], 0, CAPS).is_empty());
    }
}
