//! Lightning wallets: those of customers, which refill prepaid credit, and the operator's, which receives.
//!
//! - [`connection`]: which wallet, with its secret; how it is written and shown.
//! - [`lightning`]: what every wallet can do, whatever it speaks, and how it fails.
//!
//! A charge never waits for a wallet: charges take ledger credit, and wallets only refill it. Only what the operator's wallet
//! says was received is credited; what a paying wallet answers is never proof of anything.

pub mod connection;
pub mod lightning;
