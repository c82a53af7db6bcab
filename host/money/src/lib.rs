//! What sessions cost, and where the money for it comes from.
//!
//! - [`billing`]: charges for minutes and for playback; knows nothing of wallets but that they may refill an account.
//! - [`wallet`]: top-ups and refills of prepaid credit from Lightning wallets.
//!
//! Of live sessions it knows only what they tell in [`satcast_usage`].

pub mod billing;
pub mod wallet;
