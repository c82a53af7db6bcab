//! The meter of one session: it receives the changes of destinations, posts the charges one after the other, and orders
//! stops.
//!
//! Calls from `live` change the state under a lock; a task posts charges and opens minutes in time. While the database
//! fails, the session goes on and its charges are queued, in order, under the names of their first try. A failed try
//! may have been posted: that is harmless, because a name is posted once. Minutes that open meanwhile are checked
//! against the budget with the queued charges included; the balance is checked when they are posted. If the process
//! dies, its queued charges are lost: nobody is charged for minutes that were not recorded.

mod calls;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;
use tracing::field::Empty;

use super::limits::{Means, Short};
use super::minutes::{Due, Minutes, WAITING_MAX};
use super::{Inner, notices};
use satcast_core::ids::{AccountId, DestinationId, EndReason, Msat, Sats};
use satcast_store::{Charged, Limit, MinuteCharge, Notice, NoticeKind, StoreError, StreamLimits, Totals};
use satcast_usage::{Beginning, Held, Orders};

/// Wait after a charge that the database did not accept.
pub(super) const RETRY_WAIT: Duration = Duration::from_secs(1);
/// How often the balance is read while a destination is held for money.
const BALANCE_POLL: Duration = Duration::from_secs(5);
/// Shortest wait for a minute that may not open because another limit ends the session first.
const BLOCKED_WAIT: Duration = Duration::from_secs(1);

/// Most queued events for webhooks; further ones are only logged.
const NOTICES_WAITING_MAX: usize = 16;

pub(super) struct Meter {
    billing: Arc<Inner>,
    session: Beginning,
    state: Mutex<State>,
    changed: Notify,
    orders: watch::Sender<Orders>,
    done: CancellationToken,
}

struct State {
    minutes: Minutes,
    price: Msat,
    charged: Msat,
    balance: Option<Msat>,
    /// When the balance was last read for a destination that is held for money.
    asked: Duration,
    limits: StreamLimits,
    /// Destinations that are being opened and do not forward yet: each may take a slot.
    claims: BTreeSet<DestinationId>,
    /// Destinations that have reported that they forward. A held destination in this list has not seen its order yet.
    running: BTreeSet<DestinationId>,
    /// No minute opens and no destination starts any more.
    over: bool,
    /// The budget for which a warning was sent.
    warned: Option<Msat>,
    /// Queued events for webhooks, at most [`NOTICES_WAITING_MAX`].
    notices: VecDeque<Notice>,
}

enum Step {
    Post(Due, MinuteCharge),
    Notify(Notice),
    AskBalance,
    Wait(Duration),
    Done,
}

impl State {
    fn budget(&self) -> Option<Msat> {
        self.limits.max_sats.map(|sats| Sats(sats).to_msat().unwrap_or(Msat(i64::MAX)))
    }

    fn times(&self, slots: usize) -> Msat {
        Msat(self.price.0.saturating_mul(i64::try_from(slots).unwrap_or(i64::MAX)))
    }

    fn means(&self) -> Means {
        Means {
            charged: self.charged,
            waiting: self.times(self.minutes.waiting()),
            budget: self.budget(),
            balance: self.balance,
        }
    }

    fn rate(&self) -> Msat {
        self.times(self.minutes.paid())
    }

    /// Whether one more destination may run, beside those that forward and those that are being opened.
    fn check_one_more(&self) -> Result<(), Short> {
        let running = self.minutes.forwarding() + self.claims.len();
        self.means().allows(self.times((running + 1).saturating_sub(self.minutes.covered())))
    }
}

impl Meter {
    /// A meter whose task, [`Meter::run`], must be spawned.
    pub(super) fn new(billing: Arc<Inner>, session: Beginning, balance: Option<Msat>) -> Self {
        let terms = session.terms;
        // Without a price every slot is free.
        let free = if terms.price.0 > 0 { terms.free } else { u32::MAX };
        let (before, charged) = session
            .returning
            .as_ref()
            .map_or_else(Default::default, |before| (before.lasted, before.charged));
        let mut state = State {
            minutes: Minutes::resumed(session.began, before, free),
            price: terms.price,
            charged,
            balance,
            asked: Duration::ZERO,
            limits: session.limits,
            claims: BTreeSet::new(),
            running: BTreeSet::new(),
            over: false,
            warned: None,
            notices: VecDeque::new(),
        };
        // The node before has sent the warning.
        if charged.0 > 0 && state.means().is_near_budget() {
            state.warned = state.budget();
        }
        Self {
            billing,
            session,
            state: Mutex::new(state),
            changed: Notify::new(),
            orders: watch::Sender::default(),
            done: CancellationToken::new(),
        }
    }

    pub(super) fn account(&self) -> AccountId {
        self.session.account
    }

    /// Slots that are not charged yet.
    pub(super) fn waiting(&self) -> usize {
        self.state.lock().minutes.waiting()
    }

    /// Cost of a full minute with the destinations that forward now.
    pub(super) fn rate(&self) -> Msat {
        self.state.lock().rate()
    }

    /// The rate, and when budget or balance end the session if `all` is the cost of a minute for the whole account.
    pub(super) fn forecast(&self, all: Msat) -> (Msat, Option<Duration>) {
        let state = self.state.lock();
        let rate = state.rate();
        (rate, state.means().ends_at(state.minutes.next_opening(), rate, all))
    }

    /// Posts charges and opens minutes until the session has ended and no charge is queued.
    pub(super) async fn run(self: Arc<Self>) {
        loop {
            match self.step() {
                Step::Post(due, charge) => self.post(&due, &charge).await,
                Step::Notify(notice) => self.store_notice(&notice).await,
                Step::AskBalance => self.ask_balance().await,
                Step::Wait(until) => tokio::select! {
                    () = self.changed.notified() => {}
                    () = self.billing.clock.sleep_until(until) => {}
                },
                Step::Done => break,
            }
        }
        self.billing.forget(&self.session.session);
        self.done.cancel();
    }

    fn step(&self) -> Step {
        let now = self.billing.clock.monotonic();
        let mut state = self.state.lock();
        self.advance(&mut state, now);
        if let Some(due) = state.minutes.due() {
            let charge = MinuteCharge {
                session: self.session.session.clone(),
                minute: due.minute,
                slots: due.slots.clone(),
                price: state.price,
                budget: state.budget(),
                now: self.billing.clock.now(),
            };
            return Step::Post(due, charge);
        }
        // After the charges, which are more urgent.
        if let Some(notice) = state.notices.pop_front() {
            return Step::Notify(notice);
        }
        if state.over {
            return Step::Done;
        }
        let next = state.minutes.next_opening();
        let mut until = if next <= now { now.saturating_add(BLOCKED_WAIT) } else { next };
        if self.orders.borrow().held.values().any(|held| *held == Held::InsufficientFunds) {
            let poll = state.asked.saturating_add(BALANCE_POLL);
            if poll <= now {
                return Step::AskBalance;
            }
            until = until.min(poll);
        }
        Step::Wait(until)
    }

    async fn post(&self, due: &Due, charge: &MinuteCharge) {
        let span = tracing::error_span!(
            "charge",
            minute = charge.minute,
            slots = charge.slots.len(),
            outcome = Empty
        );
        let outcome = self.billing.store.charge_minute(charge).instrument(span.clone()).await;
        span.record("outcome", outcome_name(&outcome));
        drop(span);
        let minute = charge.minute;
        let wait = {
            let mut state = self.state.lock();
            match outcome {
                Ok(Charged::Posted(totals)) => {
                    state.minutes.posted();
                    self.absorb(&mut state, totals);
                    false
                }
                Ok(Charged::OverBudget(totals)) => {
                    self.absorb(&mut state, totals);
                    self.refuse(&mut state, due, Short::Budget);
                    false
                }
                Ok(Charged::Insufficient(totals)) => {
                    self.absorb(&mut state, totals);
                    self.refuse(&mut state, due, Short::Funds);
                    false
                }
                Ok(Charged::NotOurs) => {
                    tracing::error!(
                        minute,
                        "a minute was not charged because another process has ended the session"
                    );
                    state.minutes.drop_queued();
                    self.end(&mut state, EndReason::Error);
                    false
                }
                Err(error) => {
                    self.billing.note_failure();
                    tracing::error!(minute, %error, "a minute cannot be charged; the charge is retried");
                    true
                }
            }
        };
        if wait {
            tokio::time::sleep(RETRY_WAIT).await;
        } else {
            self.billing.has_spent(self.session.account, Msat(0));
        }
    }

    async fn store_notice(&self, notice: &Notice) {
        if let Err(error) = self.billing.store.note(notice).await {
            tracing::error!(%error, "an event of the session cannot be stored; webhooks do not receive it");
        }
    }

    /// Queues an event for webhooks.
    fn queue_notice(&self, state: &mut State, what: NoticeKind) {
        if state.notices.len() < NOTICES_WAITING_MAX {
            let (session, at) = (self.session.session.clone(), self.billing.clock.now());
            state.notices.push_back(Notice { session, what, at });
            self.changed.notify_one();
        }
    }

    async fn ask_balance(&self) {
        let balance = self.billing.store.balance(self.session.account).await;
        let now = self.billing.clock.monotonic();
        // Held destinations would spend more.
        self.billing.has_spent(self.session.account, self.session.terms.price);
        let mut state = self.state.lock();
        state.asked = now;
        match balance {
            Ok(balance) => {
                state.balance = Some(balance);
                self.review(&state);
            }
            Err(error) => {
                tracing::error!(%error, "the balance cannot be read; it is read again in a few seconds");
            }
        }
    }

    /// Opens the minutes that have begun by `now`, as far as the budget allows.
    fn advance(&self, state: &mut State, now: Duration) {
        while !state.over && state.minutes.next_opening() <= now {
            let number = state.minutes.number().saturating_add(1);
            // The session's own timer ends it at this very moment.
            let longest = state.limits.max_duration_minutes.and_then(|minutes| u64::try_from(minutes).ok());
            if longest.is_some_and(|minutes| number >= minutes) {
                return;
            }
            if !state.means().may_open(state.rate()) {
                self.end(state, EndReason::MaxSats);
            } else if state.minutes.waiting() + state.minutes.paid() > WAITING_MAX {
                tracing::error!(session = %self.session.session, "too many charges are queued for the database; the session ends");
                self.end(state, EndReason::Error);
            } else {
                state.minutes.open_next();
                self.review(state);
            }
        }
    }

    /// A charge is refused. If it is for the opening of a minute, the session ends; if it is for a destination that
    /// started inside one, that destination is held.
    fn refuse(&self, state: &mut State, due: &Due, short: Short) {
        if due.opening {
            state.minutes.drop_queued();
            self.end(
                state,
                match short {
                    Short::Budget => EndReason::MaxSats,
                    Short::Funds => EndReason::InsufficientFunds,
                },
            );
        } else if let Some(destination) = state.minutes.refused() {
            self.hold(destination, short);
        }
        self.changed.notify_one();
    }

    fn hold(&self, destination: DestinationId, short: Short) {
        let held = match short {
            Short::Budget => Held::Budget,
            Short::Funds => Held::InsufficientFunds,
        };
        let changed =
            self.orders.send_if_modified(|orders| orders.held.insert(destination, held) != Some(held));
        if changed {
            let session = &self.session.session;
            tracing::warn!(%session, %destination, reason = held.as_str(), "the destination is held");
            // The task polls the balance for destinations that are held for money.
            self.changed.notify_one();
        }
    }

    fn release(&self, destination: DestinationId) {
        self.orders.send_if_modified(|orders| orders.held.remove(&destination).is_some());
    }

    /// Lets held destinations try again if one may run now. Those that lose the race are held again. A destination that
    /// still forwards because it has not seen its hold stays held until it stops: otherwise it would forward uncounted.
    fn review(&self, state: &State) {
        if state.over || state.check_one_more().is_err() {
            return;
        }
        self.orders.send_if_modified(|orders| {
            let before = orders.held.len();
            orders.held.retain(|destination, _| state.running.contains(destination));
            orders.held.len() < before
        });
    }

    fn end(&self, state: &mut State, reason: EndReason) {
        state.over = true;
        if matches!(reason, EndReason::MaxSats | EndReason::InsufficientFunds) {
            notices::limit_reached(&self.session, reason, state.charged);
        }
        self.orders.send_if_modified(|orders| {
            let first = orders.end.is_none();
            orders.end.get_or_insert(reason);
            first
        });
        self.changed.notify_one();
    }

    /// Takes over the totals of a charge, and warns the owner when a limit is near.
    fn absorb(&self, state: &mut State, totals: Totals) {
        (state.charged, state.balance) = (totals.charged, Some(totals.balance));
        let means = state.means();
        if means.is_near_budget() && state.warned != means.budget {
            state.warned = means.budget;
            notices::limit_warning(&self.session, totals.charged, state.limits.max_sats);
            self.queue_notice(state, NoticeKind::LimitWarning(Limit::MaxSats));
        }
        self.review(state);
    }
}

/// The outcome of a charge in its trace.
fn outcome_name(outcome: &Result<Charged, StoreError>) -> &'static str {
    match outcome {
        Ok(Charged::Posted(_)) => "posted",
        Ok(Charged::OverBudget(_)) => "over_budget",
        Ok(Charged::Insufficient(_)) => "insufficient_funds",
        Ok(Charged::NotOurs) => "not_ours",
        Err(_) => "failed",
    }
}

#[cfg(any(test, feature = "testing"))]
impl Meter {
    /// Whether every reported change is posted, and every minute that has begun is open.
    pub(super) fn is_settled(&self) -> bool {
        let state = self.state.lock();
        let opened = state.over || state.minutes.next_opening() > self.billing.clock.monotonic();
        opened && state.minutes.waiting() == 0
    }
}
