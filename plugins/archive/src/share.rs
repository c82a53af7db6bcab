//! Who may take how much of what all recordings share: the local disk, the journal. Pure: no I/O, no clock.

use std::collections::{HashMap, VecDeque};

/// One of so many shares is what everybody can count on.
const SHARES: u64 = 4;

/// Whose a recording is, as far as the host says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Owner {
    /// An account.
    Account(i64),
    /// Of an unknown account: a destination is the least that is one owner's for sure.
    Destination(i64),
}

impl Owner {
    /// 0 = the host did not say the account.
    pub(crate) fn new(account_id: i64, destination_id: i64) -> Self {
        match account_id {
            0 => Owner::Destination(destination_id),
            account_id => Owner::Account(account_id),
        }
    }
}

/// Whether who has `own` of `all` that is taken may take `more` of `limit`. The last quarter is kept for those who have less than a
/// quarter: one who takes ever more stops at three quarters, and stops nobody else.
pub(crate) fn admits(limit: u64, all: u64, own: u64, more: u64) -> bool {
    let share = limit / SHARES;
    let (all, own) = (all.saturating_add(more), own.saturating_add(more));
    all <= limit && (own <= share || all <= limit - share)
}

/// What goes of `all` until no more than `limit` is left, where each has an owner and a size, and what may go at all is there. It is always
/// the first of the owner who has most, so that nobody's goes because of somebody else who has more.
pub(crate) fn surplus<T>(all: Vec<(Owner, u64, Option<T>)>, limit: u64) -> Vec<T> {
    let (mut total, mut gone) = (0_u64, Vec::new());
    let mut piles: HashMap<Owner, (u64, VecDeque<(u64, T)>)> = HashMap::new();
    for (owner, size, it) in all {
        let (has, goes) = piles.entry(owner).or_default();
        (total, *has) = (total.saturating_add(size), has.saturating_add(size));
        goes.extend(it.map(|it| (size, it)));
    }
    while total > limit {
        let with_some = piles.values_mut().filter(|(_, goes)| !goes.is_empty());
        let Some((has, goes)) = with_some.max_by_key(|(has, _)| *has) else { break };
        let Some((size, it)) = goes.pop_front() else { break };
        (total, *has) = (total.saturating_sub(size), has.saturating_sub(size));
        gone.push(it);
    }
    gone
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_owner_leaves_a_quarter_to_others_and_everybody_has_a_quarter() {
        // Limit, taken by all, of it by who asks, more.
        for (all, own, more, expected) in [
            (0, 0, 75, true),
            (75, 75, 1, false),
            (75, 74, 0, true),
            (74, 74, 1, true),
            (75, 0, 25, true),
            (75, 0, 26, false),
            (99, 24, 1, true),
            (99, 25, 1, false),
            (100, 0, 1, false),
            (100, 0, 0, true),
            (0, 0, u64::MAX, false),
        ] {
            assert_eq!(admits(100, all, own, more), expected, "{all} {own} {more}");
        }
        assert!(admits(1, 0, 0, 1) && !admits(1, 1, 1, 1) && !admits(0, 0, 0, 1));
    }

    #[test]
    fn what_goes_is_the_oldest_of_who_has_most() {
        let small = [(1, 10, "a1"), (2, 60, "b1"), (2, 60, "b2"), (1, 10, "a2"), (2, 60, "b3")];
        let mut all: Vec<_> =
            small.map(|(account, size, name)| (Owner::new(account, 0), size, Some(name))).into();
        all.push((Owner::new(0, 7), 500, None));
        assert_eq!(surplus(all, 570), ["b1", "b2", "b3"]);
        assert!(surplus(vec![(Owner::Account(1), 9, Some("x"))], 9).is_empty());
    }

    #[test]
    fn an_unknown_account_is_told_by_its_destination() {
        assert_eq!(Owner::new(3, 7), Owner::new(3, 8));
        assert_ne!(Owner::new(0, 7), Owner::new(0, 8));
        assert_ne!(Owner::new(0, 7), Owner::new(7, 0));
    }
}
