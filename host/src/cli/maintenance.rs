//! `satcast check-config`, `drivers`, `openapi`, `ledger check`, `migrate` and `backup`.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

use super::{CliError, inspect, open_store, print};
use crate::boot;
use crate::certificates::{Certificates, Section};
use crate::clock::Clock;
use crate::config::{Config, Loaded};
use crate::data_dir;
use crate::drivers::{Drivers, HostParts, LoadOptions, State};
use crate::outbound::Guard;
use crate::secret::new_uid;

/// Folder of backups inside the data folder.
const BACKUPS_FOLDER_NAME: &str = "backups";

pub(super) fn check_config(loaded: &Loaded) -> Result<(), CliError> {
    // What `run` would refuse; no wallet is asked anything.
    boot::receiving_wallet(&loaded.config, &Clock::system())
        .map_err(|error| CliError::Usage(error.to_string()))?;
    let file = loaded.file.as_ref().map_or("no file".to_owned(), |file| file.display().to_string());
    let mut text =
        format!("config ok: {file} ({} keys set, the others at their defaults)\n", loaded.keys_set);
    for warning in loaded.config.warnings() {
        let _ = writeln!(text, "warning: {warning}");
    }
    let ingest = loaded.config.ingest.rtmps().map(|(_, cert, key)| (Section::Ingest, cert, key));
    let http = loaded.config.http.https().map(|(cert, key)| (Section::Http, cert, key));
    for (section, cert, key) in [ingest, http].into_iter().flatten() {
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
        return print(&format!(
            "ledger ok: {} transfers of {} msat, {} balances and {} sessions are what their transfers come to, all accounts sum to 0\n",
            report.transfers, report.moved_msat, report.balances, report.sessions
        ));
    }
    let lines: Vec<String> = report.faults.iter().map(|fault| format!("ledger wrong: {fault}\n")).collect();
    print(&lines.concat())?;
    Err(CliError::Printed)
}

pub(super) async fn migrate(config: &Config) -> Result<(), CliError> {
    // Opening it is what migrates it.
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
        // The backup is written; a closed standard error takes nothing from it.
        let _ = writeln!(
            std::io::stderr(),
            "note: keep {} too, apart from it; its secrets cannot be read without",
            key_file.display()
        );
    }
    Ok(())
}

pub(super) async fn list_drivers(config: &Config) -> Result<(), CliError> {
    let summaries = with_drivers(config, |drivers| drivers.summaries()).await?;
    let mut text = format!("folder {}\n", config.drivers_dir().display());
    for summary in &summaries {
        let state = match &summary.state {
            State::Loaded => format!("loaded    {} serves {}", summary.version, summary.types.join(", ")),
            State::Failing(reason) => format!("failing   {reason}"),
            State::Disabled => "disabled  not in [drivers] enabled".to_owned(),
            State::Missing => "missing   enabled, but there is no such file".to_owned(),
            State::Refused(reason) => format!("refused   {reason}"),
        };
        let _ = writeln!(text, "{:<16} {state}", summary.id);
    }
    print(&text)
}

/// Prints the API document with the destination types of the drivers that load, and says which do not.
pub(super) async fn print_document(config: &Config) -> Result<(), CliError> {
    let (types, summaries) = with_drivers(config, |drivers| (drivers.schemas(), drivers.summaries())).await?;
    for summary in summaries {
        let reason = match summary.state {
            State::Loaded | State::Disabled => continue,
            State::Missing => "there is no such file".to_owned(),
            State::Refused(reason) | State::Failing(reason) => reason,
        };
        // Standard error may be closed; the document is whole without the note.
        let _ = writeln!(std::io::stderr(), "note: driver {} is not in the document: {reason}", summary.id);
    }
    print(&crate::api::document_text(&crate::api::document(&types)))
}

/// Loads the drivers as the service would, in this process and from a folder of its own, and looks at them.
pub(super) async fn with_drivers<T: Send + 'static>(
    config: &Config,
    look: impl FnOnce(&Drivers) -> T + Send + 'static,
) -> Result<T, CliError> {
    let guard = Guard::new(&Config::allow_texts(&config.outbound.allow))
        .map_err(|error| CliError::Usage(error.to_string()))?;
    let scratch = std::env::temp_dir().join(format!("satcast-drivers-{}", new_uid()));
    data_dir::prepare(&scratch)?;
    let parts = HostParts {
        guard,
        runtime: tokio::runtime::Handle::current(),
        clock: Clock::system(),
        data_dir: scratch.join("data"),
        recordings: Default::default(),
    };
    let exe = std::env::current_exe()?;
    let (config, images) = (config.clone(), scratch.join("images"));
    let loading = tokio::task::spawn_blocking(move || {
        look(&Drivers::load(&LoadOptions { config: &config, exe, images }, &parts))
    });
    let seen = loading.await.map_err(|error| CliError::Failed(error.to_string()));
    std::fs::remove_dir_all(&scratch)?;
    seen
}
