//! Prices of sessions, and how accounts pay for them.
//!
//! - [`billing`]: charges for minutes and for playback; it knows wallets only as something that may refill an account.
//! - [`wallet`]: top-ups and refills of prepaid credit from Lightning wallets.
//!
//! It knows live sessions only through the calls of [`satcast_usage`].

pub mod billing;
pub mod wallet;
