//! The service's own wallet clients with third-party wallets: LNbits, and the Alby SDK's wallet service. This is the only test binary
//! that links the service; all others test it from outside.

use std::sync::Arc;
use std::time::{Duration, Instant};

use satcast_core::clock::Clock;
use satcast_core::ids::Msat;
use satcast_core::ids::WalletKind;
use satcast_money::wallet::Wallets;
use satcast_money::wallet::connection::Connection;
use satcast_money::wallet::lightning::{Fault, InvoiceState, Lightning};
use satcast_net::outbound::Guard;
use satcast_tests::lnbits::LnbitsServer;
use satcast_tests::nwc::NwcService;

const EXPIRY: Duration = Duration::from_secs(600);
/// The customer's first balance.
const FUNDS_SATS: u64 = 50_000;
const FUNDS: Msat = Msat(50_000_000);
/// A payment hash that no wallet knows.
const NO_HASH: &str = "0000000000000000000000000000000000000000000000000000000000000000";

fn open(kind: WalletKind, url: &str, secret: &str) -> Arc<dyn Lightning> {
    let guard = Guard::new(&["127.0.0.0/8".to_owned()]).expect("it works");
    let connection = Connection::checked(kind, url, secret, &guard).expect("it works");
    Wallets::new(guard, Clock::system()).open(&connection)
}

async fn timed<T>(what: &str, call: impl Future<Output = T>) -> T {
    let begin = Instant::now();
    let done = call.await;
    println!("{what}: {} ms", begin.elapsed().as_millis());
    done
}

/// Runs a future on the test's own thread, because the peers end with the thread that started them.
fn run(test: impl Future<Output = ()>) {
    tokio::runtime::Runtime::new().expect("it works").block_on(test);
}

/// An invoice of `operator` is paid by `customer`: once, although it is asked for twice.
async fn pays_once(
    name: &str,
    operator: &dyn Lightning,
    customer: &dyn Lightning,
    sats: i64,
    held: Msat,
) -> Msat {
    let amount = Msat(sats * 1_000);
    let made = timed("make_invoice", operator.make_invoice(amount, "refill of an account", EXPIRY)).await;
    let invoice = made.expect("it works");
    assert_eq!(invoice.amount, amount);
    assert_eq!(operator.lookup(&invoice.payment_hash).await.expect("it works"), InvoiceState::Open);
    assert_eq!(timed(&format!("{name} get_balance"), customer.balance()).await.expect("it works"), held);
    let paid = timed(&format!("{name} pay"), customer.pay(&invoice)).await.expect("it works");
    assert_eq!(paid.fee, Some(Msat(0)));
    let state =
        timed(&format!("{name} lookup"), operator.lookup(&invoice.payment_hash)).await.expect("it works");
    assert_eq!(state, InvoiceState::Settled { received: amount });
    let left = Msat(held.0 - amount.0);
    assert_eq!(customer.balance().await.expect("it works"), left);
    // Any answer to the second request is accepted, but nothing may be paid.
    let again = customer.pay(&invoice).await;
    assert!(again.is_ok(), "{again:?}");
    assert_eq!(customer.balance().await.expect("it works"), left);
    left
}

#[test]
fn lnbits_is_a_wallet() {
    let server = LnbitsServer::start();
    server.fund(&server.customer, FUNDS_SATS);
    run(lnbits_pays_and_receives(&server));
}

async fn lnbits_pays_and_receives(server: &LnbitsServer) {
    let operator = open(WalletKind::Lnbits, server.url(), &server.operator.admin_key);
    let customer = open(WalletKind::Lnbits, server.url(), &server.customer.admin_key);
    let left = pays_once("lnbits", &*operator, &*customer, 1_000, FUNDS).await;

    // The invoice key can read and create invoices, but cannot pay.
    let receiver = open(WalletKind::Lnbits, server.url(), &server.customer.invoice_key);
    assert_eq!(receiver.balance().await.expect("it works"), left);
    let invoice = operator.make_invoice(Msat(5_000), "one more", EXPIRY).await.expect("it works");
    let refused = receiver.pay(&invoice).await.expect_err("a refusal");
    assert_eq!((refused.fault, refused.certain), (Fault::Restricted, true), "{refused}");
    assert_eq!(operator.lookup(&invoice.payment_hash).await.expect("it works"), InvoiceState::Open);
    // An invoice of another wallet notifies only its owner.
    let other = customer.lookup(&invoice.payment_hash).await;
    assert!(!matches!(other, Ok(InvoiceState::Settled { .. } | InvoiceState::Open)), "{other:?}");
    assert_eq!(operator.lookup(NO_HASH).await.expect("it works"), InvoiceState::Unknown);

    let wrong = open(WalletKind::Lnbits, server.url(), "00000000000000000000000000000000");
    assert_eq!(wrong.balance().await.expect_err("a refusal").fault, Fault::Unauthorized);
    assert_eq!(wrong.pay(&invoice).await.expect_err("a refusal").fault, Fault::Unauthorized);
    let made = wrong.make_invoice(Msat(1_000), "x", EXPIRY).await.expect_err("a refusal");
    assert_eq!(made.fault, Fault::Unauthorized);

    let large =
        operator.make_invoice(Msat(60_000_000), "more than there is", EXPIRY).await.expect("it works");
    let refused = customer.pay(&large).await.expect_err("a refusal");
    assert_eq!((refused.fault, refused.certain), (Fault::InsufficientBalance, true), "{refused}");
    assert_eq!(customer.balance().await.expect("it works"), left);
}

#[test]
fn a_wallet_of_the_alby_sdk_is_a_wallet() {
    let server = LnbitsServer::start();
    server.fund(&server.customer, FUNDS_SATS);
    let modern = NwcService::start(&server, &server.customer);
    let old = NwcService::start_nip04(&server, &server.customer);
    run(nwc_pays_and_receives(&server, &modern, &old));
}

async fn nwc_pays_and_receives(server: &LnbitsServer, modern: &NwcService, old: &NwcService) {
    let operator = open(WalletKind::Lnbits, server.url(), &server.operator.admin_key);
    let customer = open(WalletKind::Nwc, modern.uri(), "");
    let left = pays_once("nip44", &*operator, &*customer, 1_000, FUNDS).await;
    let older = open(WalletKind::Nwc, old.uri(), "");
    let left = pays_once("nip04", &*operator, &*older, 500, left).await;

    // The wallet can receive, too.
    let invoice = timed("nip44 make_invoice", customer.make_invoice(Msat(7_000), "back", EXPIRY))
        .await
        .expect("it works");
    assert_eq!(customer.lookup(&invoice.payment_hash).await.expect("it works"), InvoiceState::Open);
    assert_eq!(customer.lookup(NO_HASH).await.expect("it works"), InvoiceState::Unknown);

    let large =
        operator.make_invoice(Msat(60_000_000), "more than there is", EXPIRY).await.expect("it works");
    let refused = customer.pay(&large).await.expect_err("a refusal");
    assert_eq!((refused.fault, refused.certain), (Fault::InsufficientBalance, true), "{refused}");

    let small = operator.make_invoice(Msat(3_000), "small", EXPIRY).await.expect("it works");
    for (code, fault, certain) in [
        ("QUOTA_EXCEEDED", Fault::QuotaExceeded, true),
        ("RESTRICTED", Fault::Restricted, true),
        ("PAYMENT_FAILED", Fault::PaymentFailed, false),
        ("A_CODE_OF_TOMORROW", Fault::Internal, false),
    ] {
        modern.refuse(code);
        let refused = customer.pay(&small).await.expect_err("a refusal");
        assert_eq!((refused.fault, refused.certain), (fault, certain), "{code}: {refused}");
    }
    modern.behave();
    customer.pay(&small).await.expect("it works");
    assert_eq!(customer.balance().await.expect("it works"), Msat(left.0 - 3_000));
}

#[test]
fn an_unconfirmed_payment_is_found_and_not_repeated() {
    let server = LnbitsServer::start();
    server.fund(&server.customer, FUNDS_SATS);
    let mut service = NwcService::start(&server, &server.customer);
    run(an_unconfirmed_payment_is_found(&server, &mut service));
}

async fn an_unconfirmed_payment_is_found(server: &LnbitsServer, service: &mut NwcService) {
    let operator = open(WalletKind::Lnbits, server.url(), &server.operator.admin_key);
    let customer = open(WalletKind::Nwc, service.uri(), "");
    let invoice = operator.make_invoice(Msat(9_000), "kept silent about", EXPIRY).await.expect("it works");
    service.keep_silent();
    // The wallet does not answer the payment, but reports its result when asked.
    timed("nip44 pay without an answer", customer.pay(&invoice)).await.expect("it works");
    service.behave();
    customer.pay(&invoice).await.expect("it works");
    assert_eq!(customer.balance().await.expect("it works"), Msat(FUNDS.0 - 9_000));

    // No service answers on the relay, which still has the announcement.
    service.stop();
    let error = customer.balance().await.expect_err("a refusal");
    assert_eq!(error.fault, Fault::Timeout, "{error}");
}
