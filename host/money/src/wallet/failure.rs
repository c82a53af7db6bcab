//! Error texts for the owner of the wallet. The wallet's own words are never repeated: they may hold an invoice, a key
//! or text of strangers.

use std::fmt;
use std::time::Duration;

use super::bolt11::Bolt11Error;
use super::lightning::{Fault, WalletError};
use satcast_net::outbound::GuardError;
use satcast_net::outbound::http::{HttpError, OpenError};

/// Longest time to read a balance.
pub const BALANCE_TIMEOUT: Duration = Duration::from_secs(3);
/// Longest time to look up an invoice or a payment.
pub const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest time to make an invoice.
pub const INVOICE_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest time to pay. The last [`LOOKUP_TIMEOUT`] of it is reserved for a lookup of the payment.
pub const PAY_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest time to connect, within each of these: if it is exceeded, nothing was sent.
pub const CONNECT_TIMEOUT: Duration = Duration::from_millis(2_500);

/// Time limits of the calls; tests use shorter ones.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) connect: Duration,
    pub(super) balance: Duration,
    pub(super) lookup: Duration,
    pub(super) invoice: Duration,
    pub(super) pay: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        let (connect, balance, lookup) = (CONNECT_TIMEOUT, BALANCE_TIMEOUT, LOOKUP_TIMEOUT);
        Self { connect, balance, lookup, invoice: INVOICE_TIMEOUT, pay: PAY_TIMEOUT }
    }
}

/// The request to a wallet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    Balance,
    Pay,
    MakeInvoice,
    Lookup,
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Balance => "report its balance",
            Self::Pay => "pay an invoice",
            Self::MakeInvoice => "create an invoice",
            Self::Lookup => "look up an invoice",
        })
    }
}

/// Reason why there was no readable answer.
#[derive(Debug)]
pub(super) enum Trouble {
    Open(OpenError),
    /// Connecting took too long.
    OpenLate,
    /// The connection broke, or was unusable, before the request was sent.
    BrokeBefore,
    Late,
    /// The connection broke after the request was sent.
    Broke,
    /// An answer, or data before it, above its limit.
    TooMuch,
}

impl From<HttpError> for Trouble {
    fn from(error: HttpError) -> Self {
        match error {
            HttpError::Open(error) => Self::Open(error),
            HttpError::Broke(_) => Self::Broke,
        }
    }
}

impl Trouble {
    /// Whether the request may have arrived.
    pub(super) fn is_after(&self) -> bool {
        matches!(self, Self::Late | Self::Broke | Self::TooMuch)
    }
}

/// A wallet's name in texts, e.g. `the LNbits wallet at wallet.example.com`.
#[derive(Clone, Debug)]
pub(super) struct Name(pub(super) String);

impl Name {
    /// A fault with the text for every kind of wallet. Certain, unless the wallet was asked to pay.
    pub(super) fn fault(&self, task: Task, fault: Fault) -> WalletError {
        let name = &self.0;
        let message = match fault {
            Fault::AddressRefused => {
                format!("{name} has an address that this service may not connect to; ask the operator")
            }
            Fault::Unreachable => {
                format!("{name} cannot be reached; check that the wallet runs and that its address is right")
            }
            Fault::Timeout if task == Task::Pay => format!(
                "{name} did not report whether it paid; check the wallet, and do not pay again until the invoice has expired"
            ),
            Fault::Timeout => {
                format!("{name} did not answer in time; check that the wallet runs, then try again")
            }
            Fault::Unauthorized => {
                format!("{name} does not accept the key; connect the wallet again with a valid key")
            }
            Fault::Restricted => {
                format!(
                    "{name} does not allow this connection to {task}; connect the wallet again with a key that has this right"
                )
            }
            Fault::InsufficientBalance => {
                format!(
                    "the balance of {name} is too small for the amount and its fee; add funds to the wallet"
                )
            }
            Fault::QuotaExceeded => {
                format!(
                    "the budget of this connection in {name} is used up; raise the budget in the wallet, or wait"
                )
            }
            Fault::RateLimited => format!("{name} gets too many requests; try again in some minutes"),
            Fault::PaymentFailed => {
                format!(
                    "{name} could not make the payment; look in the wallet for the reason, then try again"
                )
            }
            Fault::NotSupported => {
                format!("{name} does not {task} for this service; connect another wallet")
            }
            Fault::Internal => {
                format!(
                    "{name} failed to {task}, or sent an invalid answer; look in the wallet for the reason"
                )
            }
        };
        WalletError { fault, message, certain: task != Task::Pay }
    }

    /// The same for a fault that proves that nothing was paid.
    pub(super) fn proven(&self, task: Task, fault: Fault) -> WalletError {
        WalletError { certain: true, ..self.fault(task, fault) }
    }

    /// The error for trouble on the connection.
    pub(super) fn trouble(&self, task: Task, trouble: Trouble) -> WalletError {
        match trouble {
            Trouble::Open(OpenError::Guard(GuardError::Refused(refused))) => WalletError {
                message: format!("{} has an address that this service may not connect to: {refused}", self.0),
                ..self.proven(task, Fault::AddressRefused)
            },
            Trouble::Open(OpenError::Guard(GuardError::NotLookedUp { because, .. })) => WalletError {
                message: format!("{} was not reached, because {because}; try again in a minute", self.0),
                ..self.proven(task, Fault::Unreachable)
            },
            Trouble::Open(OpenError::Name | OpenError::Tls(_)) => WalletError {
                message: format!(
                    "{} cannot be reached: its TLS certificate is not valid for its name; renew the certificate",
                    self.0
                ),
                ..self.proven(task, Fault::Unreachable)
            },
            Trouble::Open(OpenError::Guard(_)) | Trouble::OpenLate | Trouble::BrokeBefore => {
                self.proven(task, Fault::Unreachable)
            }
            Trouble::Late | Trouble::Broke => self.fault(task, Fault::Timeout),
            Trouble::TooMuch => self.fault(task, Fault::Internal),
        }
    }

    /// The wallet made an invoice that differs from the request.
    pub(super) fn bad_invoice(&self, why: Bolt11Error) -> WalletError {
        let message = format!(
            "{} created an invoice that is not usable: the invoice {why}; look in the wallet for the reason",
            self.0
        );
        WalletError { fault: Fault::Internal, message, certain: true }
    }

    /// An invoice that is not sent to the wallet.
    pub(super) fn not_payable(&self, why: Bolt11Error) -> WalletError {
        let message =
            format!("{} was not asked to pay, because the invoice {why}; create a new invoice", self.0);
        WalletError { fault: Fault::PaymentFailed, message, certain: true }
    }
}
