//! `satcast check-config`, `openapi`, `ledger check`, `node`, `migrate` and `backup`.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use super::{CliError, drivers, inspect, open_store, print};
use crate::boot;
use crate::data_dir;
use satcast_core::clock::Clock;
use satcast_core::config::{Config, Loaded};
use satcast_drivers::State;
use satcast_net::certificates::{Certificates, Section};
use satcast_store::{LedgerReport, RemovedNode};

/// Folder of backups inside the data folder.
const BACKUPS_FOLDER_NAME: &str = "backups";

pub(super) async fn check_config(loaded: &Loaded) -> Result<(), CliError> {
    // Checks what `run` checks; the wallet is not contacted.
    boot::receiving_wallet(&loaded.config, &Clock::system())
        .map_err(|error| CliError::Usage(error.to_string()))?;
    let unchecked = drivers::check(&loaded.config).await?;
    let file = loaded.file.as_ref().map_or("no file".to_owned(), |file| file.display().to_string());
    let mut text =
        format!("config ok: {file} ({} keys set, the others at their defaults)\n", loaded.keys_set);
    for warning in loaded.config.warnings().into_iter().chain(unchecked) {
        let _ = writeln!(text, "warning: {warning}");
    }
    let ingest = loaded.config.ingest.rtmps().map(|(_, cert, key)| (Section::Ingest, cert, key));
    let http = loaded.config.http.https().map(|(cert, key)| (Section::Http, cert, key));
    // The file of an ordered certificate is made by the service.
    let files = if loaded.config.acme.is_on() { [None, None] } else { [ingest, http] };
    for (section, cert, key) in files.into_iter().flatten() {
        let objection = Certificates::objection(section, cert, key, Clock::system().now());
        if let Some(objection) = objection.map_err(|error| CliError::Usage(error.to_string()))? {
            let _ = writeln!(text, "warning: {section}.tls_cert {} {objection}", cert.display());
        }
    }
    print(&text)
}

pub(super) async fn check_ledger(config: &Config) -> Result<(), CliError> {
    let database = inspect(config).await?;
    let report = database.check_ledger().await;
    database.close().await;
    let report = report?;
    if report.faults.is_empty() {
        return print(&ledger_ok(&report));
    }
    let lines: Vec<String> = report.faults.iter().map(|fault| format!("ledger wrong: {fault}\n")).collect();
    print(&lines.concat())?;
    Err(CliError::Printed)
}

pub(super) async fn list_nodes(config: &Config) -> Result<(), CliError> {
    let database = inspect(config).await?;
    let nodes = database.nodes().await;
    database.close().await;
    let nodes = nodes?;
    if nodes.is_empty() {
        return print("no nodes; a service without [cluster] node uses its database alone\n");
    }
    let lines = nodes.iter().map(|node| {
        format!(
            "{}\t{}\t{} sessions\t{} recordings to upload\tlease {} s\t{}\t{}\n",
            node.name,
            node.state.as_str(),
            node.sessions,
            node.recordings,
            node.lease_left.as_secs(),
            node.version,
            node.advertise
        )
    });
    print(&lines.collect::<String>())
}

/// `deadline`: seconds after which its streams move.
pub(super) async fn drain_node(config: &Config, name: &str, deadline: u32) -> Result<(), CliError> {
    let store = open_store(config).await?;
    let drained = store.drain_node(name, Duration::from_secs(deadline.into())).await;
    store.close().await;
    drained?;
    let moves = match deadline {
        0 => "its streams move then".to_owned(),
        secs => format!("its streams move after {secs} s"),
    };
    print(&format!("{name} takes no new publishers once it has renewed its lease; {moves}\n"))
}

pub(super) async fn undrain_node(config: &Config, name: &str) -> Result<(), CliError> {
    let store = open_store(config).await?;
    let taken_back = store.undrain_node(name).await;
    store.close().await;
    taken_back?;
    print(&format!("{name} takes new publishers again once it has renewed its lease\n"))
}

pub(super) async fn remove_node(config: &Config, name: &str) -> Result<(), CliError> {
    let store = open_store(config).await?;
    let removed = async { store.remove_node(name, store.time().await?).await }.await;
    store.close().await;
    let RemovedNode { sessions, recordings, refunds } = removed?;
    print(&format!(
        "{name} is removed: {sessions} sessions ended, {recordings} recordings failed, {refunds} paid retries refunded\n"
    ))
}

/// A line about a ledger without faults.
pub(super) fn ledger_ok(report: &LedgerReport) -> String {
    format!(
        "ledger ok: {} transfers of {} msat, {} balances and {} sessions match their transfers, all accounts sum to 0\n",
        report.transfers, report.moved_msat, report.balances, report.sessions
    )
}

pub(super) async fn migrate(config: &Config) -> Result<(), CliError> {
    // Opening the database migrates it.
    open_store(config).await?.close().await;
    let database = inspect(config).await?;
    let version = database.schema_version().await;
    database.close().await;
    let (current, newest) = version?;
    print(&format!("schema {current} of {newest}\n"))
}

pub(super) async fn backup(config: &Config, file: Option<&Path>) -> Result<(), CliError> {
    let database = inspect(config).await?;
    let target = match file {
        Some(file) => file.to_owned(),
        None => {
            let folder = config.data_dir.join(BACKUPS_FOLDER_NAME);
            data_dir::prepare(&folder)?;
            folder.join(format!("satcast-{}.db", Clock::system().now()))
        }
    };
    let written = database.backup(&target).await;
    database.close().await;
    written?;
    print(&format!("{}\n", target.display()))?;
    if config.secret_key.is_none() {
        let key_file = config.key_file();
        // The backup is complete, even if standard error is closed.
        let _ = writeln!(
            std::io::stderr(),
            "note: also keep {} in another place; without it the secrets in the backup cannot be read",
            key_file.display()
        );
    }
    Ok(())
}

/// Prints the API document with the destination types of the drivers that load, and lists those that do not.
pub(super) async fn print_document(config: &Config) -> Result<(), CliError> {
    let (types, summaries) =
        drivers::with(config, |drivers| (drivers.schemas(), drivers.summaries())).await?;
    for summary in summaries {
        let reason = match summary.state {
            State::Loaded | State::Disabled => continue,
            State::Missing => "there is no such file".to_owned(),
            State::Refused(reason) | State::Failing(reason) => reason,
        };
        // Standard error may be closed; the document is complete without the note.
        let _ = writeln!(std::io::stderr(), "note: driver {} is not in the document: {reason}", summary.id);
    }
    print(&satcast_web::api::document_text(&satcast_web::api::document(&types)))
}
