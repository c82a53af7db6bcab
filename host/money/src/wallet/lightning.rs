//! The interface of all wallets, and their errors.

use std::time::Duration;

use async_trait::async_trait;

use satcast_core::ids::{Msat, UnixMillis};

/// A BOLT11 invoice that a wallet made, or that was parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invoice {
    /// The BOLT11 text in lower case.
    pub bolt11: String,
    /// Payment hash, 64 lower-case hexadecimal digits: it identifies the invoice in every wallet.
    pub payment_hash: String,
    /// The requested amount; above zero.
    pub amount: Msat,
    pub expires_at: UnixMillis,
}

/// The receiving wallet's answer about an invoice that it made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvoiceState {
    /// It is not paid, and may still be paid.
    Open,
    /// It is paid.
    Settled {
        /// The received amount; if the wallet does not report one, the invoice's amount.
        received: Msat,
    },
    /// It expired or was cancelled, and can no longer be paid.
    Expired,
    /// The wallet does not know it.
    Unknown,
}

/// The answer of a paying wallet. It proves nothing to the receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paid {
    /// The fee of the payment; `None` if the wallet does not report it.
    pub fee: Option<Msat>,
}

/// Reason why a wallet failed. The owner of the wallet sees its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The address guard refuses the wallet's address.
    AddressRefused,
    /// It cannot be reached, or the connection broke before the request was sent.
    Unreachable,
    /// No answer in time, or the connection broke after the request was sent. A payment may still succeed.
    Timeout,
    /// The secret is wrong or revoked.
    Unauthorized,
    /// The secret does not allow this: an invoice key cannot pay.
    Restricted,
    /// The wallet's balance is too small.
    InsufficientBalance,
    /// The wallet's own budget for this connection is used up.
    QuotaExceeded,
    /// Too many requests.
    RateLimited,
    /// No route was found, or the fee would exceed its limit.
    PaymentFailed,
    /// The wallet does not support this.
    NotSupported,
    /// An invalid answer, or a failure without a known code.
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

/// A failure as a text for the owner of the wallet; holds no secret and no invoice.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct WalletError {
    pub fault: Fault,
    /// The wallet, what happened, and what to do next.
    pub message: String,
    /// Whether this call certainly paid nothing. With `false` the outcome is open: only the receiving wallet knows.
    pub certain: bool,
}

/// One wallet. Every call ends within the wallet's time-out, and may be dropped at any time.
#[async_trait]
pub trait Lightning: Send + Sync {
    /// The wallet's balance.
    ///
    /// # Errors
    /// [`WalletError`].
    async fn balance(&self) -> Result<Msat, WalletError>;
    /// Pays an invoice. Paying the same invoice again has no effect. None of the protocols supports a limit of the fee:
    /// [`Paid::fee`] is checked afterwards.
    ///
    /// # Errors
    /// [`WalletError`]; unless it is `certain`, the payment may have succeeded or may still succeed.
    async fn pay(&self, invoice: &Invoice) -> Result<Paid, WalletError>;
    /// Makes an invoice over whole sats that can be paid for `expiry`.
    ///
    /// # Errors
    /// [`WalletError`]; also if the returned invoice differs from the request.
    async fn make_invoice(&self, amount: Msat, memo: &str, expiry: Duration) -> Result<Invoice, WalletError>;
    /// The state of an invoice that this wallet made.
    ///
    /// # Errors
    /// [`WalletError`]: then nothing is known.
    async fn lookup(&self, payment_hash: &str) -> Result<InvoiceState, WalletError>;
}
