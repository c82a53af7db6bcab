//! Wallets against servers and relays with scripted behaviour.

use std::sync::Arc;
use std::time::Duration;

use super::connection::Connection;
use super::failure::Limits;
use super::lightning::{Invoice, Lightning, WalletError};
use super::{Wallets, bolt11};
use satcast_core::clock::Clock;
use satcast_core::ids::UnixMillis;
use satcast_core::ids::WalletKind;
use satcast_net::outbound::Guard;

mod bolt11_text;
mod connections;
mod http_server;
mod lnbits;
mod nwc;
mod nwc_hostile;
mod phoenixd;
mod relay;

/// The time of every test's clock.
const NOW: UnixMillis = UnixMillis(1_800_000_000_000);
/// How long the invoices of the tests can be paid.
const EXPIRY: Duration = Duration::from_secs(600);

fn guard() -> Guard {
    Guard::new(&["127.0.0.0/8".to_owned()]).unwrap()
}

fn open_with(kind: WalletKind, url: &str, secret: &str, limits: Limits) -> Arc<dyn Lightning> {
    let wallets = Wallets::with_limits(guard(), Clock::manual(NOW), limits);
    wallets.open(&Connection::checked(kind, url, secret, &guard()).unwrap())
}

fn open(kind: WalletKind, url: &str, secret: &str) -> Arc<dyn Lightning> {
    open_with(kind, url, secret, Limits::default())
}

/// Short limits, for tests that exceed them.
fn short() -> Limits {
    let short = Duration::from_millis(400);
    Limits { connect: short / 2, balance: short, lookup: short, invoice: short, pay: short * 3 }
}

/// An invoice over this amount that can be paid for [`EXPIRY`] from [`NOW`].
fn invoice(msat: i64) -> Invoice {
    bolt11::read(&bolt11_text::Recipe::new(msat).text()).unwrap()
}

/// Errors must not quote the wallet: no invoice, no secret, and nothing of its own words.
#[track_caller]
fn assert_discreet(error: &WalletError, secrets: &[&str]) {
    let text = format!("{error} {error:?}");
    assert!(!text.contains("lnb") && !text.contains("hunter2"), "{text}");
    for secret in secrets {
        assert!(!text.contains(secret), "{text}");
    }
    let advice = [';', ','].iter().any(|mark| error.message.contains(*mark));
    assert!(error.message.starts_with("the ") && advice, "{text}");
}

#[test]
fn time_limits_have_their_documented_values() {
    let limits = Limits::default();
    assert_eq!(
        [limits.connect, limits.balance, limits.lookup, limits.invoice, limits.pay],
        [
            super::CONNECT_TIMEOUT,
            super::BALANCE_TIMEOUT,
            super::LOOKUP_TIMEOUT,
            super::INVOICE_TIMEOUT,
            super::PAY_TIMEOUT
        ]
    );
    assert!(super::CONNECT_TIMEOUT < super::BALANCE_TIMEOUT, "a failed connection is reported as such");
    assert!(super::LOOKUP_TIMEOUT * 3 < super::PAY_TIMEOUT, "paying looks up before and after");
}

#[test]
fn memos_are_cut_between_characters() {
    let long = "ä".repeat(super::MEMO_CHARS_MAX + 1);
    assert_eq!(super::setup::memo_cut(&long).chars().count(), super::MEMO_CHARS_MAX);
    assert_eq!(super::setup::memo_cut("short"), "short");
}
