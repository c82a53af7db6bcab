//! Wallets and invoices: encrypted secrets, credit once, and a check that detects contradictions.

use super::*;
use crate::ledger::check::check;
use crate::{AccountChange, Close, MadeInvoice, NewWallet, NoRefill, RefillPlan, RefillRules, Stage};

const RULES: RefillRules =
    RefillRules { threshold: Msat(1_000), amount: Msat(5_000), daily_cap: Msat(9_000) };

pub(super) fn wallet() -> NewWallet {
    NewWallet {
        kind: "nwc",
        url: Redacted::new("nostr+walletconnect://hunter2hunter2".into()),
        secret: Redacted::new("hunter3hunter3".into()),
        rules: RULES,
    }
}

fn made(name: &str) -> MadeInvoice {
    MadeInvoice { bolt11: format!("ln{name}"), payment_hash: name.into(), expires_at: UnixMillis(9_000) }
}

/// A top-up of 5 sats that was made under the name.
pub(super) async fn top_up(rig: &Rig, account: AccountId, name: &str) -> i64 {
    let id = rig.store.begin_topup(&by(account), Msat(5_000), NOW, 9).await.unwrap().id;
    assert!(rig.store.invoice_made(id, &made(name), NOW).await.unwrap());
    id
}

#[tokio::test]
async fn the_wallet_of_a_disabled_account_is_not_refilled() {
    let rig = Rig::new().await;
    let account = rig.account("me", 0).await.unwrap();
    rig.store.connect_wallet(&by(account), wallet()).await.unwrap();
    let below = async || rig.store.wallets_below(NOW, 0, 9).await.unwrap().len();
    assert_eq!(below().await, 1);
    let change = AccountChange { disabled: Some(true), ..AccountChange::default() };
    rig.store.change_account(&by(account), change).await.unwrap();
    assert_eq!(below().await, 0);
}

#[tokio::test]
async fn wallet_secrets_are_encrypted_and_bound_to_their_row() {
    let rig = Rig::new().await;
    let account = rig.account("me", 0).await.unwrap();
    rig.store.connect_wallet(&by(account), wallet()).await.unwrap();
    let record = rig.store.wallet_of(account).await.unwrap().unwrap();
    assert_eq!((&record.url, &record.secret), (&wallet().url, &wallet().secret));
    assert!(!format!("{record:?}").contains("hunter"));
    let first = record.id;
    rig.store.connect_wallet(&by(account), wallet()).await.unwrap();
    assert_ne!(
        rig.store.wallet_of(account).await.unwrap().unwrap().id,
        first,
        "the new connection has a row of its own"
    );
    let count: i64 = engine::query_scalar("SELECT COUNT(*) FROM wallet_connections")
        .fetch_one(&rig.store.0.readers)
        .await
        .unwrap();
    assert_eq!(count, 1, "one for each account");
    engine::query("UPDATE wallet_connections SET secret_sealed = url_sealed")
        .execute(&rig.store.0.writer)
        .await
        .unwrap();
    assert!(rig.store.wallet_of(account).await.is_err(), "an address is no secret");
    rig.store.close().await;
    for entry in std::fs::read_dir(rig.path.parent().unwrap()).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        assert!(!bytes.windows(6).any(|window| window == b"hunter"));
    }
}

#[tokio::test]
async fn an_invoice_is_credited_once_in_every_state() {
    let rig = Rig::new().await;
    let account = rig.account("me", 0).await.unwrap();
    let paid = top_up(&rig, account, "a").await;
    let settle = (0..8).map(|_| rig.store.settle_invoice(paid, Msat(5_000), NOW));
    let settled: Vec<bool> =
        futures_util::future::join_all(settle).await.into_iter().map(|settled| settled.unwrap()).collect();
    assert_eq!(settled.iter().filter(|settled| **settled).count(), 1);
    let late = top_up(&rig, account, "b").await;
    let close = Close { stage: Stage::Expired, due_at: None, fault: None, only_unmade: false, now: NOW };
    assert!(rig.store.close_invoice(late, &close).await.unwrap());
    assert!(!rig.store.close_invoice(late, &close).await.unwrap(), "once");
    assert!(rig.store.settle_invoice(late, Msat(6_000), NOW).await.unwrap(), "a late payment is credited");
    assert!(!rig.store.close_invoice(late, &close).await.unwrap(), "a settled invoice stays settled");
    let unmade = rig.store.begin_topup(&by(account), Msat(1), NOW, 9).await.unwrap().id;
    assert!(
        !rig.store.settle_invoice(unmade, Msat(1), NOW).await.unwrap(),
        "an invoice that was not made cannot be paid"
    );
    assert!(rig.store.close_invoice(unmade, &Close { stage: Stage::Failed, ..close }).await.unwrap());
    assert!(!rig.store.invoice_made(unmade, &made("c"), NOW).await.unwrap(), "the row was given up");
    assert_eq!(rig.store.balance(account).await.unwrap(), Msat(11_000));
    assert!(check(&rig.store.0.readers).await.unwrap().faults.is_empty());
}

#[tokio::test]
async fn refills_are_decided_on_the_facts_of_their_transaction() {
    let rig = Rig::new().await;
    let account = rig.account("me", 999).await.unwrap();
    let begin = async |plan: std::result::Result<RefillPlan, NoRefill>| {
        let facts = parking_lot::Mutex::new(None);
        let decide = |seen: &_| {
            *facts.lock() = Some(*seen);
            plan
        };
        let wallet = rig.store.wallet_of(account).await.unwrap().map_or(0, |wallet| wallet.id);
        let begun = rig.store.begin_refill(account, wallet, NOW, UnixMillis(0), NOW, &decide).await.unwrap();
        (begun, facts.into_inner())
    };
    let plan = Ok(RefillPlan { amount: Msat(5_000), fee_max: Msat(10_000) });
    assert_eq!(begin(plan).await, (Err(NoRefill::NotConnected), None));
    rig.store.connect_wallet(&by(account), wallet()).await.unwrap();
    let (refused, facts) = begin(Err(NoRefill::Capped)).await;
    let facts = facts.unwrap();
    assert_eq!((refused, facts.balance, facts.under_way), (Err(NoRefill::Capped), Msat(999), false));
    assert_eq!((facts.rules, facts.spent), (RULES, Msat(0)));
    let begun = begin(plan).await.0.unwrap();
    assert_eq!((begun.amount, begun.fee_max, begun.stage), (Msat(5_000), Msat(10_000), Stage::Created));
    let facts = begin(Err(NoRefill::UnderWay)).await.1.unwrap();
    assert_eq!((facts.under_way, facts.spent), (true, Msat(5_000)));
    // The schema prevents it even without a check by the caller.
    let old = rig.store.wallet_of(account).await.unwrap().unwrap();
    let second = rig.store.begin_refill(account, old.id, NOW, UnixMillis(0), NOW, &|_| plan).await;
    assert!(second.unwrap_err().to_string().to_lowercase().contains("unique"));
}

#[tokio::test]
async fn a_replaced_or_disconnected_wallet_pays_no_pending_refill() {
    let rig = Rig::new().await;
    let account = rig.account("me", 0).await.unwrap();
    let plan = Ok(RefillPlan { amount: Msat(5_000), fee_max: Msat(10_000) });
    for (name, replaced) in [("a", true), ("b", false)] {
        rig.store.connect_wallet(&by(account), wallet()).await.unwrap();
        let old = rig.store.wallet_of(account).await.unwrap().unwrap();
        let begun = rig.store.begin_refill(account, old.id, NOW, UnixMillis(0), NOW, &|_| plan).await;
        let begun = begun.unwrap().unwrap();
        if replaced {
            rig.store.connect_wallet(&by(account), wallet()).await.unwrap();
            let new = rig.store.wallet_of(account).await.unwrap().unwrap();
            assert!(new.id != old.id && new.created_at == old.created_at);
            let late = rig.store.begin_refill(account, old.id, NOW, UnixMillis(0), NOW, &|_| plan).await;
            assert_eq!(late.unwrap(), Err(NoRefill::NotConnected));
        } else {
            rig.store.disconnect_wallet(&by(account)).await.unwrap();
        }
        assert!(!rig.store.invoice_made(begun.id, &made(name), NOW).await.unwrap());
        let close = Close { stage: Stage::Failed, due_at: None, fault: None, only_unmade: true, now: NOW };
        assert!(rig.store.close_invoice(begun.id, &close).await.unwrap());
    }
}

#[tokio::test]
async fn an_invoice_is_not_closed_by_a_caller_that_does_not_know_it() {
    let rig = Rig::new().await;
    let account = rig.account("me", 0).await.unwrap();
    let topup = top_up(&rig, account, "a").await;
    let close = Close { stage: Stage::Failed, due_at: None, fault: None, only_unmade: true, now: NOW };
    assert!(!rig.store.close_invoice(topup, &close).await.unwrap());
    assert!(rig.store.settle_invoice(topup, Msat(5_000), NOW).await.unwrap());
}

#[tokio::test]
async fn due_invoices_are_claimed_longest_due_first_and_once() {
    let rig = Rig::new().await;
    let account = rig.account("me", 0).await.unwrap();
    let (first, second) = (top_up(&rig, account, "a").await, top_up(&rig, account, "b").await);
    rig.store.ask_invoice_at(first, Some(UnixMillis(700))).await.unwrap();
    rig.store.ask_invoice_at(second, Some(UnixMillis(600))).await.unwrap();
    assert_eq!(rig.store.next_invoice_due().await.unwrap(), Some(UnixMillis(600)));
    let claim = async |limit| {
        let claimed = rig.store.claim_invoices(NOW, UnixMillis(5_000), limit).await.unwrap();
        claimed.into_iter().map(|invoice| invoice.id).collect::<Vec<_>>()
    };
    assert_eq!((claim(1).await, claim(9).await, claim(9).await), (vec![second], vec![first], vec![]));
    rig.store.ask_all_invoices(NOW).await.unwrap();
    rig.store.ask_invoice_at(first, None).await.unwrap();
    assert_eq!(claim(9).await, [second]);
}

/// The check's faults after `sql` was run directly on the database.
async fn faults_after(rig: &Rig, sql: &'static str) -> Vec<String> {
    script(&rig.store.0.writer, sql).await.unwrap();
    let report = check(&rig.store.0.readers).await.unwrap();
    report.faults.iter().map(ToString::to_string).collect()
}

#[tokio::test]
async fn the_check_compares_paid_invoices_with_their_transfers() {
    let rig = Rig::new().await;
    let account = rig.account("me", 0).await.unwrap();
    let paid = top_up(&rig, account, "a").await;
    top_up(&rig, account, "b").await;
    rig.store.settle_invoice(paid, Msat(5_000), NOW).await.unwrap();
    assert_eq!(faults_after(&rig, "").await, [""; 0]);
    let amount = "UPDATE wallet_invoices SET credited_msat = 5001 WHERE id = 1";
    let text = "invoice 1 was credited 5001 msat, and its transfer moves 5000 msat";
    assert_eq!(faults_after(&rig, amount).await, [text]);
    let unpaid =
        "UPDATE wallet_invoices SET state = 'expired', credited_msat = NULL, settled_ms = NULL WHERE id = 1";
    let text = "transfer 1 credits 5000 msat of an invoice that was not paid";
    assert_eq!(faults_after(&rig, unpaid).await, [text]);
    let invented = "UPDATE wallet_invoices SET state = 'settled', credited_msat = 5000, settled_ms = 1";
    let text = "invoice 2 was credited 5000 msat without a transfer";
    assert_eq!(faults_after(&rig, invented).await, [text]);
}
