//! Connected wallets, and the invoices by which credit is bought: top-ups that somebody pays, and refills that a connected
//! wallet pays.
//!
//! A row is written before a wallet is asked, and every step is one transaction. Credit, the invoice's end and the audit
//! entry are one as well, so that an invoice is credited once, whatever repeats.

use satcast_core::ids::{AccountId, Msat, UnixMillis};
use satcast_core::secret::Redacted;

/// Longest text of a failure that is kept, in characters.
pub const WALLET_ERROR_CHARS_MAX: usize = 300;
/// Refills that failed one after the other at which the owner is told.
pub const FAILURES_TOLD: i64 = 3;

/// When and by how much credit is refilled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefillRules {
    /// Below this it is refilled.
    pub threshold: Msat,
    /// By so much, above zero.
    pub amount: Msat,
    /// At most so much in a UTC day, without what payments cost.
    pub daily_cap: Msat,
}

/// A wallet to be connected.
#[derive(Clone, Debug)]
pub struct NewWallet {
    /// What it speaks, as [`WalletKind::as_str`](crate::wallet::connection::WalletKind::as_str) names it.
    pub kind: &'static str,
    /// Where it is; may be its secret.
    pub url: Redacted<String>,
    /// Its secret; may be empty.
    pub secret: Redacted<String>,
    /// When it refills.
    pub rules: RefillRules,
}

/// A connected wallet.
#[derive(Clone, Debug)]
pub struct WalletRecord {
    /// Its row.
    pub id: i64,
    /// Whose it is.
    pub account: AccountId,
    /// What it speaks.
    pub kind: String,
    /// Where it is.
    pub url: Redacted<String>,
    /// Its secret.
    pub secret: Redacted<String>,
    /// When it refills.
    pub rules: RefillRules,
    /// Refills that failed since the last one that did not.
    pub failures: i64,
    /// No refill begins before.
    pub retry_at: UnixMillis,
    /// What went wrong last, and nothing went well since.
    pub last_error: Option<WalletFault>,
    /// When a refill was credited last.
    pub last_refill_at: Option<UnixMillis>,
    /// When it was first connected.
    pub created_at: UnixMillis,
}

/// Why a refill failed, for the owner of the wallet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WalletFault {
    /// A name for programs.
    pub code: String,
    /// A sentence for people; no secret. Cut at [`WALLET_ERROR_CHARS_MAX`].
    pub text: String,
}

/// What an invoice is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Somebody pays it.
    TopUp,
    /// The connected wallet pays it.
    Refill,
}

impl Purpose {
    /// The name in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TopUp => "topup",
            Self::Refill => "refill",
        }
    }

    /// The purpose with that name.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::TopUp, Self::Refill].into_iter().find(|purpose| purpose.as_str() == name)
    }
}

/// How far an invoice is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The receiving wallet has not made it yet.
    Created,
    /// It can be paid.
    Open,
    /// The connected wallet was asked to pay it; whether it did is not known.
    Paying,
    /// It was paid and credited.
    Settled,
    /// It was not paid in time.
    Expired,
    /// It was not made, or the connected wallet certainly did not pay it.
    Failed,
}

impl Stage {
    /// Every stage.
    pub const ALL: [Self; 6] =
        [Self::Created, Self::Open, Self::Paying, Self::Settled, Self::Expired, Self::Failed];

    /// The name in the database and the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Open => "open",
            Self::Paying => "paying",
            Self::Settled => "settled",
            Self::Expired => "expired",
            Self::Failed => "failed",
        }
    }

    /// The stage with that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|stage| stage.as_str() == name)
    }

    /// Whether it has not ended in any way.
    pub fn is_under_way(self) -> bool {
        matches!(self, Self::Created | Self::Open | Self::Paying)
    }
}

/// An invoice that the receiving wallet made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MadeInvoice {
    /// The invoice as text.
    pub bolt11: String,
    /// Its name in every wallet.
    pub payment_hash: String,
    /// When it can no longer be paid.
    pub expires_at: UnixMillis,
}

/// An invoice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvoiceRecord {
    /// Its row.
    pub id: i64,
    /// Whose credit it buys.
    pub account: AccountId,
    /// What it is for.
    pub purpose: Purpose,
    /// How far it is.
    pub stage: Stage,
    /// What it asks for.
    pub amount: Msat,
    /// What its payment may cost above that; zero for a top-up.
    pub fee_max: Msat,
    /// What the receiving wallet made; `None` before.
    pub made: Option<MadeInvoice>,
    /// What was credited.
    pub credited: Option<Msat>,
    /// When its row was written.
    pub created_at: UnixMillis,
    /// When it was credited.
    pub settled_at: Option<UnixMillis>,
}

/// What is known when a refill may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefillFacts {
    /// The account's credit.
    pub balance: Msat,
    /// The owner's rules.
    pub rules: RefillRules,
    /// No refill before.
    pub retry_at: UnixMillis,
    /// A refill has not ended, or how it ended is not known.
    pub under_way: bool,
    /// Refills of the day, but for those that certainly failed.
    pub spent: Msat,
}

/// Why no refill begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRefill {
    /// No wallet is connected.
    NotConnected,
    /// The credit is not below the threshold.
    Enough,
    /// One is under way.
    UnderWay,
    /// The last one failed a short time ago.
    Resting,
    /// The day's cap is used up.
    Capped,
}

/// A refill that begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefillPlan {
    /// By so much.
    pub amount: Msat,
    /// What the payment may cost above it.
    pub fee_max: Msat,
}

/// Decides whether a refill begins; no I/O, no clock.
pub type DecideRefill<'a> =
    &'a (dyn Fn(&RefillFacts) -> std::result::Result<RefillPlan, NoRefill> + Send + Sync);

/// What a refill failed with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefillFault {
    /// In words.
    pub fault: WalletFault,
    /// When the next refill may begin.
    pub retry_at: UnixMillis,
    /// Whether the connected wallet is to blame, so that it counts.
    pub counts: bool,
}

/// Name of the fault of a wallet whose payment cost more than it may.
pub const FEE_TOO_HIGH: &str = "fee_too_high";

/// How an invoice ends without money.
#[derive(Clone, Debug)]
pub struct Close {
    /// [`Stage::Expired`] or [`Stage::Failed`].
    pub stage: Stage,
    /// When the receiving wallet is asked once more, as it may have got the money after all.
    pub due_at: Option<UnixMillis>,
    /// What the owner of its connection is shown.
    pub fault: Option<RefillFault>,
    /// Only if the receiving wallet made no invoice for it meanwhile: one that somebody may have is never closed by who does not
    /// know of it.
    pub only_unmade: bool,
    /// When.
    pub now: UnixMillis,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_and_purposes_survive_their_names() {
        for stage in Stage::ALL {
            assert_eq!(Stage::parse(stage.as_str()), Some(stage));
        }
        for purpose in [Purpose::TopUp, Purpose::Refill] {
            assert_eq!(Purpose::parse(purpose.as_str()), Some(purpose));
        }
        assert_eq!((Stage::parse("lost"), Purpose::parse("")), (None, None));
    }
}
