//! Rounds and seeds of tests that have a short form (every run) and a long one (`cargo xtask soak`).

use std::time::{SystemTime, UNIX_EPOCH};

/// How many rounds to run: `SATCAST_SOAK_ITERATIONS`, or `short` without it.
///
/// # Panics
/// When the variable is set to something that is not a number.
#[must_use]
pub fn rounds(short: u64) -> u64 {
    number("SATCAST_SOAK_ITERATIONS").unwrap_or(short)
}

/// A seed, printed so that a failure can be repeated with `SATCAST_SOAK_SEED`.
///
/// # Panics
/// When the variable is set to something that is not a number.
#[must_use]
pub fn seed() -> u64 {
    let seed = number("SATCAST_SOAK_SEED").unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::from(now.subsec_nanos()) ^ now.as_secs()
    });
    println!("seed: SATCAST_SOAK_SEED={seed}");
    seed
}

/// The next of a sequence of uniform numbers below 2^64 (splitmix64): enough to vary a test, and reproducible.
pub fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} must be a number, not \"{text}\"")))
}
