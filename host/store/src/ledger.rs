//! What a check of the ledger says.

use std::fmt;

/// Result of recomputing the ledger.
///
/// A sound report proves that every transfer moves an allowed amount between two different accounts that exist, that
/// every customer has a ledger account whose stored balance is what its transfers come to, that stored balances and
/// recomputed house accounts together are zero, that what is kept of sessions, of destinations in them, and of clock hours of
/// playback is what their transfers come to, that every invoice which was paid has its transfer and every transfer of the
/// receiving wallet its invoice, that every paid retry of an upload has its charge, given back or not as it ended, and that the triggers which keep transfers from being changed are in place. It cannot prove that the transfers are the ones that were once posted: whoever may write to the file can
/// change an amount and the balance together, and only a comparison with a backup shows that.
#[derive(Clone, Debug, Default)]
pub struct LedgerReport {
    /// Number of transfers.
    pub transfers: i64,
    /// Sum of all transfers in millisats.
    pub moved_msat: i64,
    /// Number of customers' balances that were recomputed.
    pub balances: i64,
    /// Number of sessions whose charges were recomputed.
    pub sessions: i64,
    /// Everything that is wrong; empty for a sound ledger.
    pub faults: Vec<LedgerFault>,
}

/// One place where the ledger is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LedgerFault {
    /// Two amounts that must be the same are not.
    Amount {
        /// What was compared, with names or ids.
        place: String,
        /// What the transfers say, in millisats.
        expected_msat: i64,
        /// What is stored, in millisats.
        found_msat: i64,
    },
    /// A rule is broken; what and where, in words.
    Rule(String),
}

impl fmt::Display for LedgerFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Amount { place, expected_msat, found_msat } => {
                write!(f, "{place}: expected {expected_msat} msat, found {found_msat} msat")
            }
            Self::Rule(text) => f.write_str(text),
        }
    }
}
