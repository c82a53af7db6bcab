//! What every wallet can do, and how it fails.

use std::time::Duration;

use async_trait::async_trait;

use satcast_core::ids::{Msat, UnixMillis};

/// A BOLT11 invoice that a wallet made, or that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invoice {
    /// The invoice as text, lower case.
    pub bolt11: String,
    /// Payment hash, 64 lower-case hexadecimal digits: the invoice's name in every wallet.
    pub payment_hash: String,
    /// What it asks for; above zero.
    pub amount: Msat,
    /// When it can no longer be paid.
    pub expires_at: UnixMillis,
}

/// What the receiving wallet says about an invoice of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvoiceState {
    /// Nobody has paid it yet; it may still be paid.
    Open,
    /// The money is there.
    Settled {
        /// What was received, as the wallet says; a wallet that does not say gives the invoice's amount.
        received: Msat,
    },
    /// It ran out or was cancelled, and can no longer be paid.
    Expired,
    /// The wallet does not know it.
    Unknown,
}

/// What a paying wallet answered. No proof for the one who receives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paid {
    /// What the payment cost above the amount; `None` when the wallet does not say.
    pub fee: Option<Msat>,
}

/// Why a wallet did not do what it was asked. The name is shown to the owner of the wallet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The address guard refuses the wallet's address.
    AddressRefused,
    /// It cannot be reached, or the connection broke before the request was sent.
    Unreachable,
    /// No answer in time, or the connection broke after the request was sent. A payment may yet go through.
    Timeout,
    /// The secret is wrong or was taken back.
    Unauthorized,
    /// The secret does not allow this: an invoice key cannot pay.
    Restricted,
    /// The wallet holds too little.
    InsufficientBalance,
    /// The wallet's own budget for this connection is used up.
    QuotaExceeded,
    /// Too many requests.
    RateLimited,
    /// The payment found no way, or the fee would be above its limit.
    PaymentFailed,
    /// The wallet does not do this.
    NotSupported,
    /// An answer that makes no sense, or a failure the wallet gives no name.
    Internal,
}

impl Fault {
    /// Every fault.
    pub const ALL: [Self; 11] = [
        Self::AddressRefused,
        Self::Unreachable,
        Self::Timeout,
        Self::Unauthorized,
        Self::Restricted,
        Self::InsufficientBalance,
        Self::QuotaExceeded,
        Self::RateLimited,
        Self::PaymentFailed,
        Self::NotSupported,
        Self::Internal,
    ];

    /// The name in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AddressRefused => "address_refused",
            Self::Unreachable => "unreachable",
            Self::Timeout => "timeout",
            Self::Unauthorized => "unauthorized",
            Self::Restricted => "restricted",
            Self::InsufficientBalance => "insufficient_balance",
            Self::QuotaExceeded => "quota_exceeded",
            Self::RateLimited => "rate_limited",
            Self::PaymentFailed => "payment_failed",
            Self::NotSupported => "not_supported",
            Self::Internal => "internal",
        }
    }
}

/// A failure in words for the owner of the wallet; holds no secret and no invoice.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct WalletError {
    /// What kind.
    pub fault: Fault,
    /// Who, what, and what to do next.
    pub message: String,
    /// Whether nothing can have been paid by this very call. `false` leaves it open: only the receiving wallet knows.
    pub certain: bool,
}

/// One wallet. Every call ends by itself, within the wallet's time-out, and may be dropped at any time.
#[async_trait]
pub trait Lightning: Send + Sync {
    /// What the wallet holds.
    ///
    /// # Errors
    /// [`WalletError`].
    async fn balance(&self) -> Result<Msat, WalletError>;
    /// Pays an invoice. Asking again for an invoice that was paid pays nothing. None of the protocols has a place for a limit of
    /// the fee: [`Paid::fee`] is judged afterwards.
    ///
    /// # Errors
    /// [`WalletError`]; unless it is `certain`, the payment may have gone or may yet go through.
    async fn pay(&self, invoice: &Invoice) -> Result<Paid, WalletError>;
    /// Makes an invoice over whole sats that can be paid for `expiry`.
    ///
    /// # Errors
    /// [`WalletError`]; also when the invoice that came back is not what was asked for.
    async fn make_invoice(&self, amount: Msat, memo: &str, expiry: Duration) -> Result<Invoice, WalletError>;
    /// What became of an invoice that this wallet made.
    ///
    /// # Errors
    /// [`WalletError`]: nothing is known then.
    async fn lookup(&self, payment_hash: &str) -> Result<InvoiceState, WalletError>;
}
