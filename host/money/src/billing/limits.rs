//! Rules for budgets and balances. Pure.

use std::time::Duration;

use super::minutes::MINUTE;
use satcast_core::ids::Msat;

/// Used part of a budget, in percent, at which its owner is warned.
pub const WARNED_AT_PERCENT: i128 = 80;

/// Reason why a destination may not forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Short {
    /// The session would exceed its budget.
    Budget,
    /// The balance is too small.
    Funds,
}

/// The money that a session may still spend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Means {
    /// Charged so far.
    pub charged: Msat,
    /// Sum of the charges that are not posted yet.
    pub waiting: Msat,
    /// Limit of the session's total cost.
    pub budget: Option<Msat>,
    /// The balance when it was read last; `None` before.
    pub balance: Option<Msat>,
}

impl Means {
    fn spent(&self) -> i128 {
        i128::from(self.charged.0) + i128::from(self.waiting.0)
    }

    /// Whether a minute that costs `opening` may open. A used-up budget ends the session even if the minute costs
    /// nothing. The balance is checked when the charge is posted.
    pub fn may_open(&self, opening: Msat) -> bool {
        self.budget.is_none_or(|budget| {
            let budget = i128::from(budget.0);
            self.spent() < budget && self.spent() + i128::from(opening.0) <= budget
        })
    }

    /// Whether `cost` more fits the budget, and the balance as far as it is known.
    ///
    /// # Errors
    /// The reason.
    pub fn allows(&self, cost: Msat) -> Result<(), Short> {
        if cost.0 <= 0 {
            return Ok(());
        }
        let cost = i128::from(cost.0);
        if self.budget.is_some_and(|budget| self.spent() + cost > i128::from(budget.0)) {
            return Err(Short::Budget);
        }
        let left = |balance: Msat| i128::from(balance.0) - i128::from(self.waiting.0);
        if self.balance.is_some_and(|balance| left(balance) < cost) { Err(Short::Funds) } else { Ok(()) }
    }

    /// Whether the session has exceeded a budget that was lowered: then it ends at once.
    pub fn is_exceeded(&self) -> bool {
        self.budget.is_some_and(|budget| self.spent() > i128::from(budget.0))
    }

    /// Whether most of the budget is used.
    pub fn is_near_budget(&self) -> bool {
        self.budget.is_some_and(|budget| self.spent() * 100 >= i128::from(budget.0) * WARNED_AT_PERCENT)
    }

    /// The monotonic time at which the session will end for budget or balance, if nothing changes: the opening of the
    /// first minute that it cannot pay. `rate` is the session's cost of a minute, `all` the cost of a minute for the
    /// whole account.
    pub fn ends_at(&self, next_opening: Duration, rate: Msat, all: Msat) -> Option<Duration> {
        let whole =
            |left: i128, rate: Msat| u32::try_from(left.max(0) / i128::from(rate.0)).unwrap_or(u32::MAX);
        let by_budget = self.budget.and_then(|budget| {
            let left = i128::from(budget.0) - self.spent();
            if rate.0 > 0 { Some(whole(left, rate)) } else { (left <= 0).then_some(0) }
        });
        let left = |balance: Msat| i128::from(balance.0) - i128::from(self.waiting.0);
        let by_balance =
            self.balance.filter(|_| rate.0 > 0).map(|balance| whole(left(balance), Msat(all.0.max(rate.0))));
        let minutes = [by_budget, by_balance].into_iter().flatten().min()?;
        Some(next_opening.saturating_add(MINUTE.saturating_mul(minutes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn means(charged: i64, budget: Option<i64>, balance: i64) -> Means {
        let (charged, waiting) = (Msat(charged), Msat(500));
        Means { charged, waiting, budget: budget.map(Msat), balance: Some(Msat(balance)) }
    }

    #[test]
    fn a_used_up_budget_opens_no_minute_even_if_it_costs_nothing() {
        let opens = |charged, cost| means(charged, Some(8_000), 0).may_open(Msat(cost));
        assert_eq!([opens(3_500, 4_000), opens(3_501, 4_000)], [true, false], "queued charges count");
        assert_eq!([opens(7_499, 0), opens(7_500, 0)], [true, false]);
        assert!(means(i64::MAX, None, 0).may_open(Msat(i64::MAX)), "the balance is checked by the charge");
    }

    #[test]
    fn charges_are_allowed_up_to_budget_and_balance() {
        let allows = |cost| means(1_000, Some(4_000), 2_500).allows(Msat(cost));
        assert_eq!([allows(0), allows(2_000)], [Ok(()), Ok(())]);
        assert_eq!([allows(2_001), allows(2_501)], [Err(Short::Funds), Err(Short::Budget)]);
        assert_eq!(Means { balance: None, ..means(1_000, None, 0) }.allows(Msat(i64::MAX)), Ok(()));
        let exceeded = |charged| means(charged, Some(4_000), 0).is_exceeded();
        assert_eq!([exceeded(3_500), exceeded(3_501)], [false, true]);
    }

    #[test]
    fn owners_are_warned_at_80_percent() {
        let near = |charged| means(charged, Some(10_000), 0).is_near_budget();
        assert_eq!([near(7_499), near(7_500)], [false, true]);
    }

    #[test]
    fn the_end_is_the_opening_of_the_first_minute_that_cannot_be_paid() {
        let next = Duration::from_secs(60);
        let ends = |budget, balance, rate, all| {
            let ends = means(500, budget, balance).ends_at(next, Msat(rate), Msat(all));
            ends.map(|at| at.as_secs())
        };
        assert_eq!(ends(Some(9_000), 100_000, 4_000, 4_000), Some(180), "two minutes more");
        assert_eq!(ends(Some(9_000), 4_500, 4_000, 4_000), Some(120));
        assert_eq!(ends(None, 24_500, 4_000, 8_000), Some(240), "others of the account spend as well");
        assert_eq!([ends(None, 0, 0, 0), ends(Some(9_000), 0, 0, 0)], [None, None]);
        assert_eq!(ends(Some(1_000), 0, 0, 0), Some(60), "the next minute cannot be paid");
    }
}
