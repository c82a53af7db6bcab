//! The service's own wallet clients against wallets that others wrote: LNbits, and the Alby SDK's wallet service. The one test
//! binary that links the service; everything else looks at it from outside.

use std::sync::Arc;
use std::time::{Duration, Instant};

use satcast::clock::Clock;
use satcast::ids::Msat;
use satcast::outbound::Guard;
use satcast::wallet::Wallets;
use satcast::wallet::connection::{Connection, WalletKind};
use satcast::wallet::lightning::{Fault, InvoiceState, Lightning};
use satcast_tests::lnbits::LnbitsServer;
use satcast_tests::nwc::NwcService;

const EXPIRY: Duration = Duration::from_secs(600);
const FEE_MAX: Msat = Msat(10_000);
/// What the customer begins with.
const FUNDS_SATS: u64 = 50_000;
const FUNDS: Msat = Msat(50_000_000);
/// A payment hash that no wallet knows.
const NO_HASH: &str = "0000000000000000000000000000000000000000000000000000000000000000";

fn open(kind: WalletKind, url: &str, secret: &str) -> Arc<dyn Lightning> {
    let guard = Guard::new(&["127.0.0.0/8".to_owned()]).unwrap();
    let connection = Connection::checked(kind, url, secret, &guard).unwrap();
    Wallets::new(guard, Clock::system()).open(&connection)
}

async fn timed<T>(what: &str, call: impl Future<Output = T>) -> T {
    let begin = Instant::now();
    let done = call.await;
    println!("{what}: {} ms", begin.elapsed().as_millis());
    done
}

/// Starts what blocks, on a thread that blocks.
async fn blocking<T: Send + 'static>(start: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(start).await.unwrap()
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
    let invoice = made.unwrap();
    assert_eq!(invoice.amount, amount);
    assert_eq!(operator.lookup(&invoice.payment_hash).await.unwrap(), InvoiceState::Open);
    assert_eq!(timed(&format!("{name} get_balance"), customer.balance()).await.unwrap(), held);
    let paid = timed(&format!("{name} pay"), customer.pay(&invoice, FEE_MAX)).await.unwrap();
    assert_eq!(paid.fee, Some(Msat(0)));
    let state = timed(&format!("{name} lookup"), operator.lookup(&invoice.payment_hash)).await.unwrap();
    assert_eq!(state, InvoiceState::Settled { received: amount });
    let left = Msat(held.0 - amount.0);
    assert_eq!(customer.balance().await.unwrap(), left);
    // What it answers the second time is its own affair; that it pays nothing is not.
    let again = customer.pay(&invoice, FEE_MAX).await;
    assert!(again.is_ok(), "{again:?}");
    assert_eq!(customer.balance().await.unwrap(), left);
    left
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lnbits_is_a_wallet() {
    let server = blocking(LnbitsServer::start).await;
    let operator = open(WalletKind::Lnbits, server.url(), &server.operator.admin_key);
    let customer = open(WalletKind::Lnbits, server.url(), &server.customer.admin_key);
    let server = blocking(move || {
        server.fund(&server.customer, FUNDS_SATS);
        server
    })
    .await;
    let left = pays_once("lnbits", &*operator, &*customer, 1_000, FUNDS).await;

    // The invoice key sees, and makes invoices; it does not pay.
    let receiver = open(WalletKind::Lnbits, server.url(), &server.customer.invoice_key);
    assert_eq!(receiver.balance().await.unwrap(), left);
    let invoice = operator.make_invoice(Msat(5_000), "one more", EXPIRY).await.unwrap();
    let refused = receiver.pay(&invoice, FEE_MAX).await.unwrap_err();
    assert_eq!((refused.fault, refused.certain), (Fault::Restricted, true), "{refused}");
    assert_eq!(operator.lookup(&invoice.payment_hash).await.unwrap(), InvoiceState::Open);
    // Another wallet's invoice tells nobody but its owner.
    let other = customer.lookup(&invoice.payment_hash).await;
    assert!(!matches!(other, Ok(InvoiceState::Settled { .. } | InvoiceState::Open)), "{other:?}");
    assert_eq!(operator.lookup(NO_HASH).await.unwrap(), InvoiceState::Unknown);

    let wrong = open(WalletKind::Lnbits, server.url(), "00000000000000000000000000000000");
    assert_eq!(wrong.balance().await.unwrap_err().fault, Fault::Unauthorized);
    assert_eq!(wrong.pay(&invoice, FEE_MAX).await.unwrap_err().fault, Fault::Unauthorized);
    let made = wrong.make_invoice(Msat(1_000), "x", EXPIRY).await.unwrap_err();
    assert_eq!(made.fault, Fault::Unauthorized);

    let large = operator.make_invoice(Msat(60_000_000), "more than there is", EXPIRY).await.unwrap();
    let refused = customer.pay(&large, FEE_MAX).await.unwrap_err();
    assert_eq!((refused.fault, refused.certain), (Fault::InsufficientBalance, true), "{refused}");
    assert_eq!(customer.balance().await.unwrap(), left);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wallet_of_the_alby_sdk_is_a_wallet() {
    let (server, modern, old) = blocking(|| {
        let server = LnbitsServer::start();
        server.fund(&server.customer, FUNDS_SATS);
        let modern = NwcService::start(&server, &server.customer);
        let old = NwcService::start_nip04(&server, &server.customer);
        (server, modern, old)
    })
    .await;
    let operator = open(WalletKind::Lnbits, server.url(), &server.operator.admin_key);
    let customer = open(WalletKind::Nwc, modern.uri(), "");
    let left = pays_once("nip44", &*operator, &*customer, 1_000, FUNDS).await;
    let older = open(WalletKind::Nwc, old.uri(), "");
    let left = pays_once("nip04", &*operator, &*older, 500, left).await;

    // It receives, too.
    let invoice =
        timed("nip44 make_invoice", customer.make_invoice(Msat(7_000), "back", EXPIRY)).await.unwrap();
    assert_eq!(customer.lookup(&invoice.payment_hash).await.unwrap(), InvoiceState::Open);
    assert_eq!(customer.lookup(NO_HASH).await.unwrap(), InvoiceState::Unknown);

    let large = operator.make_invoice(Msat(60_000_000), "more than there is", EXPIRY).await.unwrap();
    let refused = customer.pay(&large, FEE_MAX).await.unwrap_err();
    assert_eq!((refused.fault, refused.certain), (Fault::InsufficientBalance, true), "{refused}");

    let small = operator.make_invoice(Msat(3_000), "small", EXPIRY).await.unwrap();
    for (code, fault, certain) in [
        ("QUOTA_EXCEEDED", Fault::QuotaExceeded, true),
        ("RESTRICTED", Fault::Restricted, true),
        ("PAYMENT_FAILED", Fault::PaymentFailed, false),
        ("A_CODE_OF_TOMORROW", Fault::Internal, false),
    ] {
        modern.refuse(code);
        let refused = customer.pay(&small, FEE_MAX).await.unwrap_err();
        assert_eq!((refused.fault, refused.certain), (fault, certain), "{code}: {refused}");
    }
    modern.behave();
    customer.pay(&small, FEE_MAX).await.unwrap();
    assert_eq!(customer.balance().await.unwrap(), Msat(left.0 - 3_000));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_payment_that_nobody_confirmed_is_found_and_not_made_again() {
    let (server, mut service) = blocking(|| {
        let server = LnbitsServer::start();
        server.fund(&server.customer, FUNDS_SATS);
        let service = NwcService::start(&server, &server.customer);
        (server, service)
    })
    .await;
    let operator = open(WalletKind::Lnbits, server.url(), &server.operator.admin_key);
    let customer = open(WalletKind::Nwc, service.uri(), "");
    let invoice = operator.make_invoice(Msat(9_000), "kept silent about", EXPIRY).await.unwrap();
    service.keep_silent();
    // The wallet does not answer the payment, and says when asked what became of it.
    timed("nip44 pay without an answer", customer.pay(&invoice, FEE_MAX)).await.unwrap();
    service.behave();
    customer.pay(&invoice, FEE_MAX).await.unwrap();
    assert_eq!(customer.balance().await.unwrap(), Msat(FUNDS.0 - 9_000));

    // Nobody answers on a relay that still has the announcement.
    service.stop();
    let error = customer.balance().await.unwrap_err();
    assert_eq!(error.fault, Fault::Timeout, "{error}");
}
