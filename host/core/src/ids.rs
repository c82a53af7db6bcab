//! Newtypes for identifiers, times and amounts, and the reasons a session can end.
//!
//! A number that crosses a module boundary has its own type: a stream id is never mistaken for an account id,
//! and an amount names its unit. Nothing here does I/O.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Largest integer that every JSON reader holds exactly (2^53 - 1); ids, amounts and times stay below it.
pub const JSON_INTEGER_MAX: i64 = 9_007_199_254_740_991;

/// Milliseconds in a clock hour.
pub const HOUR_MS: i64 = 3_600_000;

/// Millisats in one sat.
pub const MSAT_PER_SAT: i64 = 1_000;

macro_rules! integer_newtype {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub i64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl From<i64> for $name {
            fn from(value: i64) -> Self {
                Self(value)
            }
        }
    )*};
}

integer_newtype! {
    /// An account: the owner of streams, keys and credit.
    AccountId;
    /// A stream, which the API calls a stream key (`streamKeyId`).
    StreamId;
    /// A destination of a stream.
    DestinationId;
    /// An API key.
    KeyId;
    /// A login session; not a live session.
    LoginId;
    /// A webhook: an address that receives events.
    WebhookId;
    /// One event on its way to one webhook.
    DeliveryId;
    /// Milliseconds since the Unix epoch, UTC, of the wall clock: for records and display, never for intervals.
    UnixMillis;
    /// An amount in thousandths of a sat, the unit of the ledger.
    Msat;
    /// An amount in whole sats, the unit of prices and of the API.
    Sats;
}

impl UnixMillis {
    /// Start of the UTC clock hour, the unit of bandwidth accounting.
    pub fn hour_start(self) -> Self {
        Self(self.0.saturating_sub(self.0.rem_euclid(HOUR_MS)))
    }

    /// Whole seconds since the Unix epoch, rounded down.
    pub fn to_secs_floor(self) -> i64 {
        self.0.div_euclid(1_000)
    }
}

impl Sats {
    /// The same amount in millisats; `None` when it does not fit.
    pub fn to_msat(self) -> Option<Msat> {
        self.0.checked_mul(MSAT_PER_SAT).map(Msat)
    }
}

impl Default for Msat {
    /// Nothing.
    fn default() -> Self {
        Self(0)
    }
}

impl Msat {
    /// Whole sats contained in the amount, rounded down (towards minus infinity).
    pub fn to_sats_floor(self) -> Sats {
        Sats(self.0.div_euclid(MSAT_PER_SAT))
    }
}

/// A live session: `ses_` and 22 base62 characters, made by [`crate::secret::new_session_id`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SessionId(pub String);

impl SessionId {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a session ended; the API shows the text of [`EndReason::as_str`] as `lastEndReason`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EndReason {
    /// The encoder disconnected and did not return within the reconnect window.
    Unpublished,
    /// The owner stopped the stream.
    Stopped,
    /// The stream's `maxSats` was reached.
    MaxSats,
    /// The stream's `maxDurationMinutes` was reached.
    MaxDuration,
    /// The account's balance does not cover the next minute.
    InsufficientFunds,
    /// The stream key was rotated or the stream deleted.
    KeyRevoked,
    /// An operator disabled the account.
    AccountDisabled,
    /// The service was shut down.
    Shutdown,
    /// The service crashed, or a node lost its database: the next start or another node ended the session at its last
    /// heartbeat.
    Interrupted,
    /// An internal error ended the session.
    Error,
}

impl EndReason {
    /// Every reason, in the order of the declaration.
    pub const ALL: [EndReason; 10] = [
        EndReason::Unpublished,
        EndReason::Stopped,
        EndReason::MaxSats,
        EndReason::MaxDuration,
        EndReason::InsufficientFunds,
        EndReason::KeyRevoked,
        EndReason::AccountDisabled,
        EndReason::Shutdown,
        EndReason::Interrupted,
        EndReason::Error,
    ];

    /// The name used in the API, in the database and in logs.
    pub fn as_str(self) -> &'static str {
        match self {
            EndReason::Unpublished => "unpublished",
            EndReason::Stopped => "stopped",
            EndReason::MaxSats => "max_sats",
            EndReason::MaxDuration => "max_duration",
            EndReason::InsufficientFunds => "insufficient_funds",
            EndReason::KeyRevoked => "key_revoked",
            EndReason::AccountDisabled => "account_disabled",
            EndReason::Shutdown => "shutdown",
            EndReason::Interrupted => "interrupted",
            EndReason::Error => "error",
        }
    }

    /// The reason with that name, or `None`.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == name)
    }
}

impl fmt::Display for EndReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Kinds of wallets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WalletKind {
    /// Nostr Wallet Connect, NIP-47.
    Nwc,
    /// An LNbits instance.
    Lnbits,
    /// A phoenixd node.
    Phoenixd,
}

impl WalletKind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Nwc, Self::Lnbits, Self::Phoenixd];

    /// The name in the API, the configuration and the database.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Nwc => "nwc",
            Self::Lnbits => "lnbits",
            Self::Phoenixd => "phoenixd",
        }
    }

    /// The kind of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }
}

impl fmt::Display for WalletKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sats_and_millisats_convert_without_loss_and_round_down() {
        assert_eq!(Sats(10).to_msat(), Some(Msat(10_000)));
        assert_eq!(Sats(i64::MAX).to_msat(), None);
        assert_eq!(Msat(6_172).to_sats_floor(), Sats(6));
        assert_eq!(Msat(-1).to_sats_floor(), Sats(-1));
    }

    #[test]
    fn hours_begin_on_the_clock_and_seconds_are_whole() {
        assert_eq!(UnixMillis(7_199_999).hour_start(), UnixMillis(3_600_000));
        assert_eq!(UnixMillis(7_200_000).hour_start(), UnixMillis(7_200_000));
        assert_eq!(UnixMillis(-1).hour_start(), UnixMillis(-3_600_000));
        assert_eq!((UnixMillis(1_999).to_secs_floor(), UnixMillis(-1).to_secs_floor()), (1, -1));
    }

    #[test]
    fn every_end_reason_survives_its_name() {
        for reason in EndReason::ALL {
            assert_eq!(EndReason::parse(reason.as_str()), Some(reason));
        }
        assert_eq!(EndReason::parse("Stopped"), None);
    }
}
