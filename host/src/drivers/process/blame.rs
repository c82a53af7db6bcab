//! Whom the end of a child is laid to. What the child says of it is believed: a library that lies gets another of its users left alone, or
//! none, and it is the operator who enabled it.

use std::collections::BTreeSet;

/// Bit of a mark that names a call and not a destination.
pub(super) const CALL_MARK: u64 = 1 << 63;

/// Whom the end of a child is laid to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Blame {
    /// What it did for this account.
    Account(i64),
    /// What it did for somebody, and it is not known for whom.
    Somebody,
    /// The library itself: it did nothing for anybody.
    Nobody,
    /// The service, which could not give it what a process needs.
    Service,
}

/// What is known of the end.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Marked {
    /// Whose work it was; `None` = it is not known.
    pub(super) account: Option<i64>,
    /// The call that it was, if it was one.
    pub(super) call: Option<u64>,
}

impl Blame {
    /// The account, where it is one.
    pub(super) fn account(self) -> Option<i64> {
        match self {
            Self::Account(account) => Some(account),
            Self::Somebody | Self::Nobody | Self::Service => None,
        }
    }

    /// `marked` is what is known, `None` = nothing; `inside` are the accounts whose destinations and calls the child had, `None` among them
    /// for a call of which that is not known.
    pub(super) fn of(marked: Option<Marked>, inside: &BTreeSet<Option<i64>>) -> Self {
        if let Some(Marked { account, .. }) = marked {
            return account.map_or(Self::Somebody, Self::Account);
        }
        match (inside.len(), inside.first()) {
            (0, _) => Self::Nobody,
            (1, Some(Some(account))) => Self::Account(*account),
            _ => Self::Somebody,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_laid_to_who_was_at_work_then_to_the_only_one_inside() {
        let inside = |accounts: &[Option<i64>]| accounts.iter().copied().collect::<BTreeSet<_>>();
        let of = |account| Some(Marked { account, call: None });
        assert_eq!(Blame::of(of(Some(7)), &inside(&[Some(1), Some(7)])), Blame::Account(7));
        assert_eq!(Blame::of(of(None), &inside(&[Some(1)])), Blame::Somebody, "a call of nobody known");
        assert_eq!(Blame::of(None, &inside(&[Some(1)])), Blame::Account(1));
        assert_eq!(Blame::of(None, &inside(&[Some(1), Some(2)])), Blame::Somebody);
        assert_eq!(Blame::of(None, &inside(&[None])), Blame::Somebody);
        assert_eq!(Blame::of(None, &inside(&[])), Blame::Nobody);
    }
}
