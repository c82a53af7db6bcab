//! What a check of the ledger says.

use std::fmt;

/// Result of recomputing the ledger.
#[derive(Clone, Debug, Default)]
pub struct LedgerReport {
    /// Number of transfers.
    pub transfers: i64,
    /// Sum of all debits in millisats.
    pub debits_msat: i64,
    /// Sum of all credits in millisats.
    pub credits_msat: i64,
    /// Number of customers' balances that were recomputed.
    pub balances: i64,
    /// Everything that is wrong; empty for a sound ledger.
    pub faults: Vec<LedgerFault>,
}

/// One place where the ledger is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerFault {
    /// What was compared, with names or ids.
    pub place: String,
    /// What the transfers say, in millisats.
    pub expected_msat: i64,
    /// What is stored, in millisats.
    pub found_msat: i64,
}

impl fmt::Display for LedgerFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: expected {} msat, found {} msat", self.place, self.expected_msat, self.found_msat)
    }
}
