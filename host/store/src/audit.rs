//! Who did what: a log that is only ever added to.
//!
//! A change that somebody asked for and its entry are one transaction: neither is there without the other. Entries are
//! kept for ever; one takes about 200 bytes.

use std::net::IpAddr;

use serde_json::Value;

use super::history::TimeRange;
use satcast_core::ids::{AccountId, KeyId, LoginId, UnixMillis};

/// Largest detail of an entry in bytes of its JSON. A larger one is left out, and the entry says so.
pub const AUDIT_DETAIL_BYTES_MAX: usize = 2_048;
/// Failed logins of one account that get an entry within an hour; further ones are in the service's log alone, so that a
/// guesser cannot fill the disk.
pub const FAILED_LOGINS_PER_HOUR_MAX: i64 = 20;
/// The same for all names together that no account has.
pub const UNKNOWN_LOGINS_PER_HOUR_MAX: i64 = 100;

/// What asked for a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// A permanent API key.
    Key(KeyId),
    /// Somebody who logged in.
    Login(LoginId),
    /// Somebody over the network who is not known yet: who tries to log in, or makes an account.
    Visitor,
    /// A command of the operator on the machine itself.
    Command,
    /// The service by itself.
    Service,
}

impl By {
    /// The name in the database and in the API.
    pub fn kind(self) -> &'static str {
        match self {
            By::Key(_) => "key",
            By::Login(_) => "session",
            By::Visitor => "visitor",
            By::Command => "command",
            By::Service => "service",
        }
    }

    /// Which key or session it is.
    pub fn id(self) -> Option<i64> {
        match self {
            By::Key(id) => Some(id.0),
            By::Login(id) => Some(id.0),
            By::Visitor | By::Command | By::Service => None,
        }
    }

    /// Reads the stored form; `None` for one that this release does not know.
    pub fn parse(kind: &str, id: Option<i64>) -> Option<Self> {
        match (kind, id) {
            ("key", Some(id)) => Some(By::Key(KeyId(id))),
            ("session", Some(id)) => Some(By::Login(LoginId(id))),
            ("visitor", None) => Some(By::Visitor),
            ("command", None) => Some(By::Command),
            ("service", None) => Some(By::Service),
            _ => None,
        }
    }
}

/// Where a change comes from, whoever's things it changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// What asked for it.
    pub by: By,
    /// The network address it came from; `None` for a command and for the service.
    pub address: Option<IpAddr>,
    /// When.
    pub now: UnixMillis,
}

impl Origin {
    /// A command of the operator.
    pub fn command(now: UnixMillis) -> Self {
        Self { by: By::Command, address: None, now }
    }

    /// The same for the things of one account.
    pub fn acting_for(self, account: AccountId) -> Actor {
        Actor { account, by: self.by, address: self.address, now: self.now }
    }
}

/// Who changes something of an account. Everything of another account is unknown to the change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Actor {
    /// Whose things it changes, and in whose log the entry stands.
    pub account: AccountId,
    /// What asked for it.
    pub by: By,
    /// The network address it came from; `None` for a command and for the service.
    pub address: Option<IpAddr>,
    /// When.
    pub now: UnixMillis,
}

impl Actor {
    /// A command of the operator.
    pub fn command(account: AccountId, now: UnixMillis) -> Self {
        Origin::command(now).acting_for(account)
    }

    /// Where the change comes from.
    pub fn origin(&self) -> Origin {
        Origin { by: self.by, address: self.address, now: self.now }
    }
}

/// What was done.
#[derive(Clone, Debug)]
pub struct Change {
    /// Its name, `<thing>.<done>`: `stream.created`.
    pub action: &'static str,
    /// The kind of thing that was changed, and which it was.
    pub target: (&'static str, Option<i64>),
    /// A JSON object with more; before and after for a change. Never a secret.
    pub detail: Value,
}

impl Change {
    /// A change of the thing with that id.
    pub fn new(action: &'static str, target: &'static str, id: i64, detail: Value) -> Self {
        Self { action, target: (target, Some(id)), detail }
    }
}

/// An entry of the log.
#[derive(Clone, Debug, PartialEq)]
pub struct AuditEntry {
    /// Its id.
    pub id: i64,
    /// When it was done.
    pub at: UnixMillis,
    /// In whose log it stands; `None` when it belongs to no account.
    pub account_id: Option<AccountId>,
    /// What asked for it.
    pub by: By,
    /// The name of what was done.
    pub action: String,
    /// The kind of thing.
    pub target_kind: String,
    /// Which it was.
    pub target_id: Option<i64>,
    /// More, as a JSON object.
    pub detail: Value,
    /// The network address it came from.
    pub address: Option<String>,
}

/// Which entries are wanted; an absent field matches all.
#[derive(Clone, Debug, Default)]
pub struct AuditFilter {
    /// In the log of this account; `None` for all accounts and what belongs to none.
    pub account: Option<AccountId>,
    /// The name of what was done.
    pub action: Option<String>,
    /// Done in this time.
    pub range: TimeRange,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actors_survive_their_stored_form_and_unknown_ones_are_refused() {
        let all = [By::Key(KeyId(7)), By::Login(LoginId(8)), By::Visitor, By::Command, By::Service];
        for by in all {
            assert_eq!(By::parse(by.kind(), by.id()), Some(by));
        }
        assert_eq!((By::parse("key", None), By::parse("wizard", None)), (None, None));
    }
}
