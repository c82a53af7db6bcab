//! `satcast migrate --to`: copies the SQLite database of a stopped service to a PostgreSQL server.

use std::fmt::Write as _;
use std::time::Duration;

use super::maintenance::ledger_ok;
use super::{CliError, inspect, print};
use crate::data_dir;
use satcast_core::clock::Clock;
use satcast_core::config::Config;
use satcast_core::secret::VaultError;
use satcast_store::{Address, Copied, Owner, Server, Sharing, StoreError};

pub(super) async fn run(config: &Config, to: &str) -> Result<(), CliError> {
    let target = Server::from_command_line(to).map_err(|error| CliError::Usage(format!("--to: {error}")))?;
    let source = Address::parse(config.database_url().expose())?;
    let Address::File(file) = &source else {
        let text =
            format!("--to copies a SQLite file, but the service uses {source}; copy that with pg_dump");
        return Err(CliError::Usage(text));
    };
    let database = inspect(config).await?;
    let version = database.schema_version().await;
    database.close().await;
    let _folder = data_dir::lock(&config.data_dir)?;
    let _database = data_dir::lock_database(file)?;
    let (current, newest) = version?;
    if current != newest {
        let text = format!(
            "the schema of {source} is {current}, and this release copies schema {newest}; run: satcast migrate"
        );
        return Err(CliError::Failed(text));
    }
    let vault = data_dir::existing_vault(config)?.ok_or_else(|| VaultError::Missing(config.key_file()))?;
    // No service may start on the copy before it is complete.
    let _owner = Owner::take(&target, Sharing::Alone).await.map_err(at_target)?;
    let clock = Clock::system();
    let copied = satcast_store::copy(file, &target, &vault).await.map_err(at_target)?;
    print(&summary(&copied, clock.monotonic()))?;
    print(&format!("copied {source} to {target}\n{}", next_steps(config)))
}

/// The text of the store is about the configured database, and the target is not.
fn at_target(error: StoreError) -> CliError {
    match error {
        StoreError::Unreachable { server, source } => CliError::Failed(format!(
            "cannot connect to {server}: {source}; check that the server runs, the address of --to, and the password in \
             PGPASSWORD or ~/.pgpass"
        )),
        error => error.into(),
    }
}

/// The rows of each table on both sides, the speed, and the ledger.
fn summary(copied: &Copied, took: Duration) -> String {
    let mut text = format!("{:<24}{:>14}{:>14}\n", "table", "SQLite", "PostgreSQL");
    for table in &copied.tables {
        let _ = writeln!(text, "{:<24}{:>14}{:>14}", table.name, table.read, table.written);
    }
    let rows: i64 = copied.tables.iter().map(|table| table.written).sum();
    let rate = i128::from(rows) * 1_000 / i128::try_from(took.as_millis()).unwrap_or(i128::MAX).max(1);
    let _ = writeln!(text, "{rows} rows in {} ms, {rate} a second", took.as_millis());
    text.push_str("both databases: ");
    text.push_str(&ledger_ok(&copied.ledger));
    text
}

fn next_steps(config: &Config) -> String {
    let folder = config.data_dir.display();
    let key = match &config.secret_key {
        Some(_) => "secret_key".to_owned(),
        None => config.key_file().display().to_string(),
    };
    format!(
        "next: set the address as [database] url in satcast.toml, with the password, and start the service\n\
         keep: {key}, which reads the stored secrets, and {folder} with the recordings that wait for their upload\n\
         the SQLite file was not changed; it is a backup of this moment, and no longer used\n"
    )
}
