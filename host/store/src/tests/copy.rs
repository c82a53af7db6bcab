//! Copies of a file to a server: every row, or none. Without a server in the environment nothing is tested here.

use std::collections::BTreeMap;

use sqlx::Connection as _;
use sqlx::postgres::PgConnection;

use super::*;
use crate::copy::{Column, Kind, Table, copy, quoted, tables};
use crate::engine::without_nul;
use crate::{
    Address, Bandwidth, Copied, EventType, Health, HourDecision, HourFacts, HourTerms, IdempotentRequest,
    MinuteCharge, NewLogin, NewWebhook, OveragePart, Recorded, RecoveryBegun, Server, Settled, Slot,
};
use satcast_core::ids::HOUR_MS;
use satcast_core::secret::VaultError;

const HOUR: UnixMillis = UnixMillis(500_000 * HOUR_MS);
const LATER: UnixMillis = UnixMillis(9_000);

/// Rows of nodes, which a file has none of.
const NODES: &str = "INSERT INTO nodes (name, holder, advertise, epoch, lease_until_ms, version, started_ms)
    VALUES ('a', 'holder', 'http://127.0.0.1:1', 2, 0, '1', 1);
    INSERT INTO clips (account_id, stream_id, session_id, destination_id, driver, holder, file_name, title, state,
        price_msat, created_ms) SELECT 1, stream_id, id, 1, 'archive', '', 'clips/c.mp4', 'c', 'making', 0, 1
        FROM sessions LIMIT 1;
    INSERT INTO node_commands (node, session_id, end_reason, created_ms) SELECT 'a', MIN(id), NULL, 1 FROM sessions";

/// A file with rows in every table, and a new database of the server.
struct Pair {
    rig: Rig,
    account: AccountId,
    server: Server,
    url: Redacted<String>,
}

impl Pair {
    /// `None` if the tests run on SQLite.
    async fn new() -> Option<Self> {
        testing::server()?;
        let rig = files::rig().await;
        let account = fill(&rig).await;
        let url = testing::url(&rig.path.with_file_name("copy")).await;
        let pair = Self { rig, account, server: server(&url), url };
        pair.in_file(NODES).await;
        Some(pair)
    }

    async fn copy(&self) -> Result<Copied> {
        self.copy_with(7).await
    }

    async fn copy_with(&self, key: u8) -> Result<Copied> {
        copy(&self.rig.path, &self.server, &Vault::new(&[key; 32])).await
    }

    async fn in_file(&self, sql: &str) {
        script(&self.rig.store.0.writer, sql).await.unwrap();
    }

    async fn on_server(&self, sql: &str) {
        let mut connection = PgConnection::connect(self.url.expose()).await.unwrap();
        sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
    }

    /// Number of rows of each table of the server.
    async fn counts(&self) -> BTreeMap<String, i64> {
        let mut connection = PgConnection::connect(self.url.expose()).await.unwrap();
        let names = "SELECT CAST(tablename AS TEXT) FROM pg_tables WHERE schemaname = 'public'";
        let names: Vec<String> = sqlx::query_scalar(names).fetch_all(&mut connection).await.unwrap();
        let mut counts = BTreeMap::new();
        for name in names {
            let count = AssertSqlSafe(format!("SELECT COUNT(*) FROM {}", quoted(&name)));
            let count = sqlx::query_scalar(count).fetch_one(&mut connection).await.unwrap();
            counts.insert(name, count);
        }
        connection.close().await.unwrap();
        counts
    }
}

fn server(url: &Redacted<String>) -> Server {
    let Address::Server(server) = Address::parse(url.expose()).unwrap() else { panic!("a server") };
    server
}

/// Makes rows in every table, as the service does.
async fn fill(rig: &Rig) -> AccountId {
    let store = &rig.store;
    let account = rig.account("me", 1_000_000).await.unwrap();
    rig.account("you", 0).await.unwrap();
    let owner = by(account);
    let odd = NewStream {
        srt_passphrase: Some(Redacted::new("correct horse".into())),
        allowed: Default::default(),
        label: "ä\u{1F600}\t\n\\N\"'\0".into(),
        stream_key: new_stream_key(),
        destinations: vec![target()],
        caps: CAPS,
    };
    store.create_stream(&owner, odd).await.unwrap();
    let (stream_id, other, hosted) = rig.hosted(account).await;
    store.set_slate(&owner, stream_id, slates::slate(), vec![0, 1, 255]).await.unwrap();
    fill_access(rig, account, hosted).await;
    let webhook = NewWebhook {
        stream_id: Some(stream_id),
        url: Redacted::new("https://a.example/hook".into()),
        host: "a.example".into(),
        events: EventType::ALL.to_vec(),
        secret: Some(Redacted::new("sixteen-or-more-characters".into())),
        cap: 1,
    };
    let webhook = store.create_webhook(&owner, webhook).await.unwrap();
    let job = store.begin_test(account, webhook, NOW, LATER).await.unwrap();
    let settled = Settled {
        at: NOW,
        duration_ms: 1,
        status: Some(200),
        answer: String::new(),
        error: None,
        retry_at: None,
        health: Health::Good,
    };
    assert_eq!(store.finish_deliveries(&[(job, settled)]).await.unwrap(), [true]);
    let (session, terms) = (new_session_id(), Terms { price: Msat(2_000), free: 0 });
    store.begin_session(NewSession { id: session.clone(), stream_id, started_at: NOW, terms }).await.unwrap();
    fill_money(rig, account, &session, &[other, hosted]).await;
    store.end_session(&session, LATER, EndReason::Stopped).await.unwrap();
    account
}

/// Logins, keys, links and a request with its answer. The newest login is gone again.
async fn fill_access(rig: &Rig, account_id: AccountId, hosted: DestinationId) {
    let (store, owner, origin) = (&rig.store, by(account_id), Origin::command(NOW));
    let login = |hash: u8| NewLogin { token_hash: [hash; 32], expires_at: LATER, verified: None };
    store.begin_login(&origin, account_id, login(1)).await.unwrap();
    let gone = store.begin_login(&origin, account_id, login(2)).await.unwrap();
    for (kind, destination_id, login) in
        [(KeyKind::Public, Some(hosted), None), (KeyKind::Permanent, None, Some(gone))]
    {
        let key = NewKey {
            login,
            kind,
            key: new_api_key(kind),
            scopes: Scopes::ALL,
            destination_id,
            label: "k".into(),
            caps: CAPS,
        };
        store.create_key(&owner, key).await.unwrap();
    }
    store.end_login(&owner, gone).await.unwrap();
    store.create_invite(&origin, &[3; 32], false, LATER).await.unwrap();
    let request = IdempotentRequest { account_id, request_hash: [4; 32], body_hash: [5; 32], now: NOW };
    let crate::Begun::New(name) = store.begin_request(request).await.unwrap() else { panic!("it is new") };
    store.finish_request(&name, 200, b"{}").await.unwrap();
}

/// Charges for minutes, playback and a retry of an upload, and a paid top-up.
async fn fill_money(rig: &Rig, account: AccountId, session: &SessionId, destinations: &[DestinationId]) {
    let store = &rig.store;
    store.begin_forwarding(session, destinations, NOW).await.unwrap();
    let slots = vec![Slot { slot: 0, destination: destinations[0] }];
    let minute = MinuteCharge {
        session: session.clone(),
        minute: 0,
        slots,
        price: Msat(2_000),
        budget: None,
        now: NOW,
    };
    store.charge_minute(&minute).await.unwrap();
    let sent = Bandwidth { account, destination: destinations[1], hour_start: HOUR, bytes: 1_000 };
    store.add_bandwidth(&[sent]).await.unwrap();
    let decide = |facts: &HourFacts| {
        let part = |served: &crate::Served| OveragePart {
            session: served.session.as_ref().map(|session| session.id.clone()),
            destination: served.destination,
            charge: Msat(1_000),
            waive: Msat(500),
        };
        HourDecision { parts: facts.served.iter().map(part).collect(), ..HourDecision::default() }
    };
    let terms = HourTerms { price_per_gb: Msat(1), limit_bytes: 0 };
    store.bill_hour(account, HOUR, terms, NOW, &decide).await.unwrap();
    let report = recoveries::failed_report(destinations[1], session.clone());
    let recorded = store.record_archive(report, &|_| true, NOW).await.unwrap();
    let Recorded::Taken(archive) = recorded else { panic!("{recorded:?}") };
    let begun = store.begin_recovery(&by(account), archive, 0, Msat(360_000)).await.unwrap();
    assert!(matches!(begun, RecoveryBegun::Begun(_)), "{begun:?}");
    store.connect_wallet(&by(account), wallets::wallet()).await.unwrap();
    let paid = wallets::top_up(rig, account, "a").await;
    assert!(store.settle_invoice(paid, Msat(5_000), NOW).await.unwrap());
}

/// The rows of a table in a form and an order that are the same for both engines.
async fn rows(pool: &Pool, table: &Table) -> Vec<String> {
    let sql: &'static str = format!("SELECT * FROM {}", quoted(&table.name)).leak();
    let found = engine::query(sql).fetch_all(pool).await.unwrap();
    let cell = |row: &engine::Row, column: &Column| {
        let name = column.name.as_str();
        match column.kind {
            Kind::Integer => format!("{:?}", row.try_get::<Option<i64>>(name).unwrap()),
            Kind::Text => {
                let text = row.try_get::<Option<String>>(name).unwrap();
                format!("{:?}", text.as_deref().map(without_nul))
            }
            Kind::Bytes => format!("{:?}", row.try_get::<Option<Vec<u8>>>(name).unwrap()),
        }
    };
    let line = |row: &engine::Row| {
        let cells: Vec<String> = table.columns.iter().map(|column| cell(row, column)).collect();
        cells.join(" ")
    };
    let mut lines: Vec<String> = found.iter().map(line).collect();
    lines.sort_unstable();
    lines
}

#[tokio::test]
async fn a_copy_has_every_row_and_goes_on_where_the_original_ended() {
    let Some(pair) = Pair::new().await else { return };
    let copied = pair.copy().await.unwrap();
    for table in &copied.tables {
        assert!(table.read > 0 && table.read == table.written, "{table:?}");
    }
    let store = open_url(pair.url.expose(), Durability::Normal, 7).await.unwrap();
    let (Pool::Sqlite(file), Pool::Postgres(server)) = (&pair.rig.store.0.readers, &store.0.readers) else {
        panic!("one of each")
    };
    let (mut from, mut to) = (file.acquire().await.unwrap(), server.acquire().await.unwrap());
    let tables = tables(&mut from, &mut to).await.unwrap();
    drop((from, to));
    assert_eq!(tables.len(), copied.tables.len());
    for table in &tables {
        let (original, copy) =
            (rows(&pair.rig.store.0.readers, table).await, rows(&store.0.readers, table).await);
        assert_eq!(original, copy, "{}", table.name);
    }
    assert!(copied.ledger.transfers > 5 && copied.ledger.sessions == 1, "{:?}", copied.ledger);
    let balance = store.balance(pair.account).await.unwrap();
    assert_eq!(balance, pair.rig.store.balance(pair.account).await.unwrap());
    // The id of a login that is gone is not given again.
    let login = NewLogin { token_hash: [9; 32], expires_at: LATER, verified: None };
    let login = store.begin_login(&Origin::command(NOW), pair.account, login).await.unwrap();
    assert_eq!(login.0, 3);
    assert_eq!(rig_account(&store, "new").await.0, 3);
    assert!(script(&store.0.writer, "UPDATE transfers SET amount_msat = 1").await.is_err());
    let again = pair.copy().await;
    assert!(matches!(&again, Err(StoreError::NotEmpty { table, .. }) if table == "accounts"), "{again:?}");
}

async fn rig_account(store: &Store, name: &str) -> AccountId {
    let account =
        NewAccount { name: name.into(), password_hash: None, operator: false, initial_credit: Msat(1) };
    store.create_account(&Origin::command(NOW), account).await.unwrap()
}

#[tokio::test]
async fn a_copy_that_fails_or_is_cut_off_leaves_nothing_and_can_be_repeated() {
    let Some(pair) = Pair::new().await else { return };
    let before = pair.counts().await;
    for fault in
        ["RAISE EXCEPTION 'injected'", "PERFORM pg_terminate_backend(pg_backend_pid()), pg_sleep(60)"]
    {
        pair.on_server(&format!(
            "CREATE FUNCTION fault() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {fault}; RETURN NEW; END $$;
            CREATE TRIGGER fault BEFORE INSERT ON webhook_attempts FOR EACH ROW EXECUTE FUNCTION fault()"
        ))
        .await;
        let failed = pair.copy().await;
        assert!(
            matches!(&failed, Err(StoreError::CopyFailed { table, .. }) if table == "webhook_attempts"),
            "{failed:?}"
        );
        assert_eq!(pair.counts().await, before);
        pair.on_server("DROP FUNCTION fault CASCADE").await;
    }
    assert!(pair.copy().await.unwrap().ledger.faults.is_empty());
}

#[tokio::test]
async fn a_copy_that_would_be_wrong_is_refused_and_leaves_nothing() {
    let Some(pair) = Pair::new().await else { return };
    let before = pair.counts().await;
    let other_key = pair.copy_with(8).await;
    assert!(matches!(&other_key, Err(StoreError::Vault(VaultError::OtherKey))), "{other_key:?}");
    let left_out = async |place: &str| {
        let refused = pair.copy().await;
        assert!(matches!(&refused, Err(StoreError::NotCopied { what, .. }) if what == place), "{refused:?}");
    };
    pair.in_file("CREATE TABLE stray (id INTEGER)").await;
    left_out("stray.id").await;
    pair.in_file("DROP TABLE stray").await;
    pair.on_server("CREATE TABLE stray (id BIGINT)").await;
    left_out("stray.id").await;
    pair.on_server("DROP TABLE stray; ALTER TABLE accounts ADD COLUMN odd BOOLEAN").await;
    left_out("accounts.odd").await;
    pair.in_file("ALTER TABLE accounts ADD COLUMN odd INTEGER").await;
    left_out("accounts.odd").await;
    pair.in_file("ALTER TABLE accounts DROP COLUMN odd").await;
    pair.on_server("ALTER TABLE accounts DROP COLUMN odd").await;
    pair.in_file("UPDATE ledger_accounts SET balance_msat = 1 WHERE name = 'customer:2'").await;
    let faulty = pair.copy().await;
    assert!(matches!(&faulty, Err(StoreError::FaultyLedger(2))), "{faulty:?}");
    assert_eq!(pair.counts().await, before);
}

#[tokio::test]
async fn a_database_of_another_program_gets_no_tables() {
    let Some(pair) = Pair::new().await else { return };
    let (before, name) = pair.url.expose().rsplit_once('/').unwrap();
    let other = format!("{name}_other");
    pair.on_server(&format!("CREATE DATABASE {other} TEMPLATE template0")).await;
    let url = Redacted::new(format!("{before}/{other}"));
    let other = Pair { server: server(&url), url, ..pair };
    other.on_server("CREATE TABLE strange (id BIGINT)").await;
    let refused = other.copy().await;
    assert!(matches!(&refused, Err(StoreError::NotEmpty { table, .. }) if table == "strange"), "{refused:?}");
    assert_eq!(other.counts().await.into_keys().collect::<Vec<_>>(), ["strange"]);
    other.on_server("DROP TABLE strange").await;
    other.copy().await.unwrap();
}
