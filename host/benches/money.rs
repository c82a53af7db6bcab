//! Database cost of billing: charges per second, and the tick at which the minutes of many sessions begin together.
//!
//! `cargo xtask bench money`: on SQLite, with commits that survive power loss and without, and on a PostgreSQL server that is
//! started for it, where tasks that charge different accounts need not wait for each other.

use std::time::{Duration, Instant};

use satcast_core::config::Durability;
use satcast_core::ids::{DestinationId, Msat, SessionId, UnixMillis};
use satcast_core::secret::{Redacted, Vault, new_session_id, new_stream_key};
use satcast_store::{
    Actor, Caps, Charged, MinuteCharge, NewAccount, NewDestination, NewSession, NewStream, OpenOptions,
    Origin, Slot, Store, Terms, open,
};

/// The server's address, as the unit tests find it.
const SERVER: &str = "SATCAST_TEST_POSTGRES";
/// Duration of a measurement.
const WINDOW: Duration = Duration::from_secs(3);
/// Sessions whose minutes begin together.
const SESSIONS: usize = 1_000;
/// Accounts of those sessions.
const ACCOUNTS: usize = 100;
const TASKS: [usize; 2] = [1, 8];
const NOW: UnixMillis = UnixMillis(1_800_000_000_000);
const PRICE: Msat = Msat(2_000);
const CAPS: Caps = Caps { destinations_per_stream: 1, streams_per_account: 1_000, keys_per_account: 1 };

/// A session that is charged.
#[derive(Clone)]
struct Charging {
    session: SessionId,
    destination: DestinationId,
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        for (name, durability) in [("full", Durability::Full), ("normal", Durability::Normal)] {
            let folder = tempfile::tempdir().expect("a folder");
            let url = format!("sqlite:{}", folder.path().join("money.db").display());
            measure(&format!("SQLite, durability {name}"), &url, durability).await;
            if let Ok(server) = std::env::var(SERVER) {
                let url = database(&server, name).await;
                measure(&format!("PostgreSQL, durability {name}"), &url, durability).await;
            }
        }
    });
}

/// A new database of the server.
async fn database(server: &str, name: &str) -> String {
    use sqlx::Connection as _;
    let (before, _) = server.rsplit_once('/').expect("the name of a database");
    let mut connection = sqlx::PgConnection::connect(server).await.expect("the server");
    let make = sqlx::AssertSqlSafe(format!("CREATE DATABASE money_{name} TEMPLATE template0"));
    sqlx::raw_sql(make).execute(&mut connection).await.expect("a database");
    format!("{before}/money_{name}?sslmode=disable")
}

async fn measure(name: &str, url: &str, durability: Durability) {
    let url = Redacted::new(url.to_owned());
    let options = OpenOptions { url, durability, vault: Vault::new(&[7; 32]), low_balance: Msat(0) };
    let store = open(options).await.expect("the database");
    let sessions = sessions(&store).await;
    for tasks in TASKS {
        println!(
            "{name}: {tasks} tasks make {:.0} charges a second",
            charges(&store, &sessions, tasks).await
        );
    }
    let took = tick(&store, &sessions).await;
    println!("{name}: the minutes of {SESSIONS} sessions are charged in {:.0} ms", took.as_secs_f64() * 1e3);
    store.close().await;
}

/// Sessions, each with a destination, distributed over the accounts.
async fn sessions(store: &Store) -> Vec<Charging> {
    let mut sessions = Vec::with_capacity(SESSIONS);
    for account in 0..ACCOUNTS {
        let new = NewAccount {
            name: format!("account {account}"),
            password_hash: None,
            operator: false,
            initial_credit: Msat(1_000_000_000_000),
        };
        let account = store.create_account(&Origin::command(NOW), new).await.expect("an account");
        let actor = Actor::command(account, NOW);
        for _ in 0..SESSIONS / ACCOUNTS {
            let destination = NewDestination {
                kind: "rtmp".into(),
                platform: "rtmp".into(),
                config: serde_json::json!({"url": "rtmp://a/b", "key": "c"}),
                has_playback: false,
                delays: Default::default(),
            };
            let stream = NewStream {
                srt_passphrase: None,
                allowed: Default::default(),
                label: "charged".into(),
                stream_key: new_stream_key(),
                destinations: vec![destination],
                caps: CAPS,
            };
            let (stream_id, destinations) = store.create_stream(&actor, stream).await.expect("a stream");
            let (session, terms) = (new_session_id(), Terms { price: PRICE, free: 0 });
            let new = NewSession { id: session.clone(), stream_id, started_at: NOW, terms };
            store.begin_session(new).await.expect("a session");
            sessions.push(Charging { session, destination: destinations[0] });
        }
    }
    sessions
}

async fn charge(store: &Store, charging: &Charging, minute: u64) {
    let slots = vec![Slot { slot: 0, destination: charging.destination }];
    let session = charging.session.clone();
    let charge = MinuteCharge { session, minute, slots, price: PRICE, budget: None, now: NOW };
    let charged = store.charge_minute(&charge).await.expect("a charge");
    assert!(matches!(charged, Charged::Posted(_)), "{charged:?}");
}

/// Charges per second of `tasks` tasks, each for a session of another account.
async fn charges(store: &Store, sessions: &[Charging], tasks: usize) -> f64 {
    let began = Instant::now();
    let tasks: Vec<_> = (0..tasks)
        .map(|task| {
            let (store, charging) = (store.clone(), sessions[task * (SESSIONS / ACCOUNTS)].clone());
            // No minute of earlier tasks.
            let first = tasks as u64 * 1_000_000;
            tokio::spawn(async move {
                let mut count = 0_u64;
                while began.elapsed() < WINDOW {
                    charge(&store, &charging, first + count).await;
                    count += 1;
                }
                count
            })
        })
        .collect();
    let mut count = 0;
    for task in tasks {
        count += task.await.expect("a task");
    }
    count as f64 / began.elapsed().as_secs_f64()
}

/// Time to charge one minute of every session when all begin together.
async fn tick(store: &Store, sessions: &[Charging]) -> Duration {
    let began = Instant::now();
    let tasks: Vec<_> = sessions
        .iter()
        .map(|charging| {
            let (store, charging) = (store.clone(), charging.clone());
            tokio::spawn(async move { charge(&store, &charging, 0).await })
        })
        .collect();
    for task in tasks {
        task.await.expect("a task");
    }
    began.elapsed()
}
