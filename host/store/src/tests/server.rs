//! PostgreSQL only: a server that goes away, belongs to another service, or aborts transactions.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sqlx::Connection as _;
use sqlx::postgres::PgConnection;
use tokio::time::timeout;

use super::*;
use crate::error::db;
use crate::ledger::check::check;
use crate::store::{Lock, TRIES_MAX, again};
use crate::{Address, Change, Charged, MinuteCharge, Owner, Server, Sharing, Slot};

/// The certificate authority of the server; set in the environment together with its address.
const AUTHORITY: &str = "SATCAST_TEST_POSTGRES_CA";
/// Longest wait for an expected event.
const PATIENCE: Duration = Duration::from_secs(60);

/// A database of the server; `None` if the tests run on SQLite.
async fn on_server() -> Option<(Rig, Server, Redacted<String>)> {
    testing::server()?;
    let rig = Rig::new().await;
    let url = testing::url(&rig.path).await;
    let Address::Server(server) = Address::parse(url.expose()).unwrap() else { panic!("a server") };
    Some((rig, server, url))
}

/// Number of charges, and how often all connections are cut in between.
const CHARGES: u64 = 60;
const CUTS: u64 = 15;

/// Ends every connection to the database but our own.
async fn cut(url: &Redacted<String>) {
    let mut connection = PgConnection::connect(url.expose()).await.unwrap();
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid()";
    sqlx::query(end).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn charges_that_are_repeated_over_cut_connections_are_made_once_each() {
    let Some((rig, _, url)) = on_server().await else { return };
    let account = rig.account("me", 1_000_000).await.unwrap();
    let (stream_id, destinations) = rig.stream(account, 1).await.unwrap();
    let (session, terms) = (new_session_id(), Terms { price: Msat(2_000), free: 0 });
    rig.store
        .begin_session(NewSession { id: session.clone(), stream_id, started_at: NOW, terms })
        .await
        .unwrap();
    let charged = Arc::new(AtomicU64::new(0));
    let cutter = {
        let charged = charged.clone();
        tokio::spawn(async move {
            let mut cuts = 0;
            while cuts < CUTS {
                // Somewhere among the next charges.
                while charged.load(Ordering::Acquire) < cuts * CHARGES / CUTS {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                cut(&url).await;
                cuts += 1;
            }
        })
    };
    let mut failures = 0;
    for minute in 0..CHARGES {
        let slots = vec![Slot { slot: 0, destination: destinations[0] }];
        let charge = MinuteCharge {
            session: session.clone(),
            minute,
            slots,
            price: Msat(2_000),
            budget: None,
            now: NOW,
        };
        loop {
            match rig.store.charge_minute(&charge).await {
                Ok(outcome) => break assert!(matches!(outcome, Charged::Posted(_)), "{outcome:?}"),
                Err(_) if failures < 10_000 => failures += 1,
                Err(error) => panic!("{error}"),
            }
        }
        charged.fetch_add(1, Ordering::Release);
    }
    cutter.await.unwrap();
    assert_eq!(rig.store.balance(account).await.unwrap(), Msat(1_000_000 - 2_000 * CHARGES.cast_signed()));
    let report = check(&rig.store.0.readers).await.unwrap();
    assert_eq!((report.transfers, report.faults), (1 + CHARGES.cast_signed(), vec![]));
}

#[tokio::test]
async fn a_database_has_one_owner_until_that_goes() {
    let Some((_rig, server, _)) = on_server().await else { return };
    let owner = Owner::take(&server, Sharing::Alone).await.unwrap();
    let refused = Owner::take(&server, Sharing::Alone).await.unwrap_err();
    assert!(matches!(refused, StoreError::Owned(_)), "{refused}");
    assert!(refused.to_string().contains("PostgreSQL"), "{refused}");
    drop(owner);
    Owner::take(&server, Sharing::Alone).await.unwrap();
}

#[tokio::test]
async fn nodes_share_a_database_that_a_service_has_alone_otherwise() {
    let Some((_rig, server, _)) = on_server().await else { return };
    let nodes = [
        Owner::take(&server, Sharing::Nodes).await.unwrap(),
        Owner::take(&server, Sharing::Nodes).await.unwrap(),
    ];
    assert!(matches!(Owner::take(&server, Sharing::Alone).await, Err(StoreError::Owned(_))));
    drop(nodes);
    let _alone = Owner::take(&server, Sharing::Alone).await.unwrap();
    assert!(matches!(Owner::take(&server, Sharing::Nodes).await, Err(StoreError::Owned(_))));
}

#[tokio::test]
async fn an_owner_whose_connection_is_cut_takes_the_database_again() {
    let Some((_rig, server, url)) = on_server().await else { return };
    let owner = Owner::take(&server, Sharing::Alone).await.unwrap();
    for _ in 0..2 {
        let mut connection = PgConnection::connect(url.expose()).await.unwrap();
        let holders = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2
            AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
        let before: i32 = sqlx::query_scalar(holders).fetch_one(&mut connection).await.unwrap();
        sqlx::query("SELECT pg_terminate_backend($1)").bind(before).execute(&mut connection).await.unwrap();
        let again = async {
            loop {
                let now: Option<i32> =
                    sqlx::query_scalar(holders).fetch_optional(&mut connection).await.unwrap();
                if now.is_some_and(|now| now != before) {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(PATIENCE, again).await.expect("taken again");
    }
    assert!(timeout(Duration::ZERO, owner.lost()).await.is_err(), "no other service had it");
}

#[tokio::test]
async fn a_replaced_owner_is_notified() {
    let Some((_rig, server, url)) = on_server().await else { return };
    let owner = Owner::take(&server, Sharing::Alone).await.unwrap();
    let mut other = PgConnection::connect(url.expose()).await.unwrap();
    let end =
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    sqlx::query(end).execute(&mut other).await.unwrap();
    sqlx::query("SELECT pg_advisory_lock(1935766627, 1634956334)").execute(&mut other).await.unwrap();
    timeout(PATIENCE, owner.lost()).await.expect("the owner is notified");
}

#[tokio::test]
async fn a_transaction_that_loses_to_others_runs_a_bounded_number_of_times() {
    let Some((rig, ..)) = on_server().await else { return };
    let Pool::Postgres(pool) = &rig.store.0.writer else { panic!("a server") };
    for (code, runs) in [("40P01", TRIES_MAX), ("40001", TRIES_MAX), ("22012", 1)] {
        let ran = Cell::new(0);
        let run = || {
            ran.set(ran.get() + 1);
            let sql = format!("DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '{code}'; END $$");
            async move { sqlx::raw_sql(AssertSqlSafe(sql)).execute(pool).await.map(drop).map_err(db("run")) }
        };
        assert!(again(run).await.is_err());
        assert_eq!(ran.get(), runs, "{code}");
    }
    let ran = Cell::new(0);
    let run = || {
        ran.set(ran.get() + 1);
        let sql = if ran.get() < TRIES_MAX {
            "DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '40P01'; END $$"
        } else {
            ""
        };
        async move { sqlx::raw_sql(sql).execute(pool).await.map(drop).map_err(db("run")) }
    };
    assert!(again(run).await.is_ok(), "the last try counts");
}

#[tokio::test]
async fn connections_have_limits_and_commits_are_as_configured() {
    let Some((rig, _, url)) = on_server().await else { return };
    let normal = open_url(url.expose(), Durability::Normal, 7).await.unwrap();
    for (pool, setting, expected) in [
        (&rig.store.0.writer, "statement_timeout", "30s"),
        (&rig.store.0.readers, "lock_timeout", "10s"),
        (&rig.store.0.writer, "idle_in_transaction_session_timeout", "5s"),
        (&rig.store.0.writer, "synchronous_commit", "on"),
        (&normal.0.writer, "synchronous_commit", "off"),
        (&rig.store.0.readers, "default_transaction_read_only", "on"),
        (&rig.store.0.writer, "application_name", "satcast"),
    ] {
        let shown = engine::query_scalar::<String>("SELECT current_setting($1)").bind(setting);
        assert_eq!(shown.fetch_one(pool).await.unwrap(), expected, "{setting}");
    }
    let write = engine::query("INSERT INTO accounts (name, created_ms) VALUES ('x', 0)");
    assert!(write.execute(&rig.store.0.readers).await.is_err(), "readers cannot write");
}

#[tokio::test]
async fn a_process_that_stops_inside_a_transaction_does_not_stop_the_others() {
    let Some((rig, ..)) = on_server().await else { return };
    let account = rig.account("me", 0).await.unwrap();
    let other = open_at(&rig.path, 7).await;
    let mut stopped = rig.store.begin_holding(Lock::Account(account)).await.unwrap();
    // It waits for the lock of the account, for less than its own limit.
    change_of(&other, account).await.unwrap();
    let late = engine::query("SELECT 1").execute(&mut stopped).await;
    assert!(late.is_err(), "its transaction was rolled back");
    drop(stopped);
    change_of(&rig.store, account).await.unwrap();
}

/// A change under the lock of the account.
async fn change_of(store: &Store, account: AccountId) -> Result<()> {
    store.record(&by(account), Change::new("account.tested", "account", account.0, json!({}))).await
}

#[tokio::test]
async fn a_refused_login_names_the_server_without_the_password() {
    let Some((_rig, _, url)) = on_server().await else { return };
    let wrong = format!("{}?sslmode=require", url.expose().replacen("correct-horse", "hunter2", 1));
    let missing = format!("{}_missing", url.expose());
    let nobody = "postgres://me:hunter2@127.0.0.1:1/satcast".to_owned();
    for (url, says) in
        [(wrong, "password authentication failed"), (missing, "does not exist"), (nobody, "127.0.0.1:1")]
    {
        let error = open_url(&url, Durability::Full, 7).await.unwrap_err();
        let text = format!("{error} {error:?}");
        assert!(text.contains(says) && text.contains("[database] url"), "{text}");
        assert!(!text.contains("hunter2") && !text.contains("battery"), "{text}");
    }
}

#[tokio::test]
async fn certificates_are_checked_when_the_address_says_so() {
    let Some((_rig, _, url)) = on_server().await else { return };
    let authority = std::env::var(AUTHORITY).expect("the certificate beside the server");
    let open = async |parameters: &str| {
        open_url(&format!("{}?{parameters}", url.expose()), Durability::Full, 7).await
    };
    let checked = open(&format!("sslmode=verify-full&sslrootcert={authority}")).await.unwrap();
    let encrypted = async |store: &Store| -> bool {
        let ask = engine::query_scalar("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()");
        ask.fetch_one(&store.0.writer).await.unwrap()
    };
    assert!(encrypted(&checked).await, "TLS is spoken");
    let unknown = open("sslmode=verify-full").await.unwrap_err().to_string();
    assert!(unknown.contains("TLS") || unknown.contains("certificate"), "{unknown}");
    let plain = open("sslmode=disable").await.unwrap();
    assert!(!encrypted(&plain).await);
}

#[tokio::test]
async fn a_database_in_another_encoding_is_refused() {
    let Some((_rig, _, url)) = on_server().await else { return };
    let mut connection = PgConnection::connect(url.expose()).await.unwrap();
    let (before, name) = url.expose().rsplit_once('/').unwrap();
    let latin = format!("{name}_latin");
    let make = format!("CREATE DATABASE {latin} ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0");
    sqlx::raw_sql(AssertSqlSafe(make)).execute(&mut connection).await.unwrap();
    let error = open_url(&format!("{before}/{latin}"), Durability::Full, 7).await.unwrap_err();
    assert!(error.to_string().contains("LATIN1"), "{error}");
}

#[test]
fn an_owned_database_text() {
    assert_eq!(
        StoreError::Owned("PostgreSQL, s at db:5432".into()).to_string(),
        "another satcast is running on PostgreSQL, s at db:5432; stop it or set another [database] url"
    );
}
