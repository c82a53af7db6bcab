//! From what went wrong to words for the owner of the wallet. Nothing that the wallet itself wrote is repeated: it may hold
//! an invoice, a key or a stranger's text.

use std::fmt;
use std::time::Duration;

use super::bolt11::Bolt11Error;
use super::lightning::{Fault, WalletError};
use satcast_net::outbound::GuardError;
use satcast_net::outbound::http::{HttpError, OpenError};

/// Longest time for a balance.
pub const BALANCE_TIMEOUT: Duration = Duration::from_secs(3);
/// Longest time to look up an invoice or a payment.
pub const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest time to make an invoice.
pub const INVOICE_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest time to pay. The last [`LOOKUP_TIMEOUT`] of it is kept for asking what became of a payment.
pub const PAY_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest wait for a connection, within each of these: when it is over, nothing was sent.
pub const CONNECT_TIMEOUT: Duration = Duration::from_millis(2_500);

/// How long each kind of call may take; tests take less.
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

/// What a wallet was asked.
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
            Self::Balance => "tell its balance",
            Self::Pay => "pay an invoice",
            Self::MakeInvoice => "make an invoice",
            Self::Lookup => "look up an invoice",
        })
    }
}

/// Why no answer came that could be read.
#[derive(Debug)]
pub(super) enum Trouble {
    /// There was no connection.
    Open(OpenError),
    /// The connection took too long.
    OpenLate,
    /// It broke, or was no good, before the request was sent.
    BrokeBefore,
    /// No answer in time.
    Late,
    /// The connection broke after the request was sent.
    Broke,
    /// An answer, or noise before it, above its limit.
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

/// A wallet's name in sentences, e.g. `the LNbits wallet at wallet.example.com`.
#[derive(Clone, Debug)]
pub(super) struct Name(pub(super) String);

impl Name {
    /// A fault in the words that fit every wallet. Certain unless it was asked to pay.
    pub(super) fn fault(&self, task: Task, fault: Fault) -> WalletError {
        let name = &self.0;
        let message = match fault {
            Fault::AddressRefused => format!("{name} may not be reached from here; ask the operator"),
            Fault::Unreachable => {
                format!("{name} cannot be reached; check that it runs and that its address is right")
            }
            Fault::Timeout if task == Task::Pay => format!(
                "{name} did not say whether it paid; look there, and pay nothing again until the invoice has run out"
            ),
            Fault::Timeout => format!("{name} did not answer in time; check that it runs, then try again"),
            Fault::Unauthorized => {
                format!("{name} does not accept the key; connect it again with a valid one")
            }
            Fault::Restricted => {
                format!("{name} does not let this connection {task}; connect it again with a key that may")
            }
            Fault::InsufficientBalance => {
                format!("{name} holds too little for the amount and its fee; add funds to it")
            }
            Fault::QuotaExceeded => {
                format!("{name} has used up what this connection may spend; raise its budget there, or wait")
            }
            Fault::RateLimited => format!("{name} gets too many requests; try again in some minutes"),
            Fault::PaymentFailed => {
                format!("{name} could not make the payment; look there for the reason, then try again")
            }
            Fault::NotSupported => {
                format!("{name} does not {task} for this service; connect another wallet")
            }
            Fault::Internal => {
                format!("{name} failed to {task}, or answered what cannot be used; look there for the reason")
            }
        };
        WalletError { fault, message, certain: task != Task::Pay }
    }

    /// The same for a fault that proves that nothing was paid.
    pub(super) fn proven(&self, task: Task, fault: Fault) -> WalletError {
        WalletError { certain: true, ..self.fault(task, fault) }
    }

    /// What trouble on the way means.
    pub(super) fn trouble(&self, task: Task, trouble: Trouble) -> WalletError {
        match trouble {
            Trouble::Open(OpenError::Guard(GuardError::Refused(refused))) => WalletError {
                message: format!("{} may not be reached from here: {refused}", self.0),
                ..self.proven(task, Fault::AddressRefused)
            },
            Trouble::Open(OpenError::Guard(GuardError::NotLookedUp { because, .. })) => WalletError {
                message: format!("{} was not reached, because {because}; try again in a minute", self.0),
                ..self.proven(task, Fault::Unreachable)
            },
            Trouble::Open(OpenError::Name | OpenError::Tls(_)) => WalletError {
                message: format!(
                    "{} cannot be reached: its TLS certificate is not valid for its name; mend it there",
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

    /// An invoice that the wallet made, and that is not what was asked for.
    pub(super) fn bad_invoice(&self, why: Bolt11Error) -> WalletError {
        let message = format!("{} made an invoice that {why}; look there for the reason", self.0);
        WalletError { fault: Fault::Internal, message, certain: true }
    }

    /// An invoice that is not given to the wallet.
    pub(super) fn not_payable(&self, why: Bolt11Error) -> WalletError {
        let message = format!("{} was not asked to pay, because the invoice {why}; make a new one", self.0);
        WalletError { fault: Fault::PaymentFailed, message, certain: true }
    }
}
