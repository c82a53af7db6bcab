//! `satcast doctor`: numbered checks of the real world. It changes nothing and leaves nothing behind.

use std::cmp::Ordering;
use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::path::Path;

use super::{CliError, drivers as command, inspect, print};
use crate::boot::{self, BucketRule};
use crate::data_dir;
use satcast_core::clock::Clock;
use satcast_core::config::{Config, Loaded};
use satcast_core::ids::UnixMillis;
use satcast_core::secret::Vault;
use satcast_drivers::State;
use satcast_money::wallet::lightning::Fault;
use satcast_net::acme::{Acme, Standing};
use satcast_net::certificates::{Certificates, Section};
use satcast_net::http::remedy;
use satcast_store::{Address, Inspector};

/// A clock before this is certainly wrong: the first day of this program's development.
const CLOCK_MIN: UnixMillis = UnixMillis(1_763_596_800_000);

/// Result of one check.
enum Finding {
    Ok(String),
    Note(String),
    Bad(String),
}

use Finding::{Bad, Note, Ok as Good};

pub(super) async fn run(loaded: &Loaded) -> Result<(), CliError> {
    let config = &loaded.config;
    let running = data_dir::is_locked(&config.data_dir);
    let mut findings = vec![
        ("configuration", configuration(loaded)),
        ("data folder", data_folder(&config.data_dir, running)),
        ("key file", key_file(config)),
        ("database", database(config).await),
        ("ledger", ledger(config).await),
        ("clock", clock()),
        ("drivers", drivers(config).await),
        ("wallet", wallet(config).await),
        ("http listener", listener(config.http.listen, "[http] listen", running)),
        ("rtmp listener", listener(config.ingest.rtmp_listen, "[ingest] rtmp_listen", running)),
    ];
    if let Some((address, cert, key)) = config.ingest.rtmps() {
        findings.push(("rtmps listener", listener(address, "[ingest] rtmps_listen", running)));
        if !config.acme.is_on() {
            findings.push(("certificate", certificate(Section::Ingest, cert, key)));
        }
    }
    if let Some(address) = config.ingest.srt_listen {
        let bound = UdpSocket::bind(address).map(drop);
        findings.push(("srt listener", opened(bound, address, "[ingest] srt_listen", running)));
    }
    if let Some(address) = config.ingest.webrtc_listen {
        let bound = UdpSocket::bind(address).map(drop);
        findings.push(("webrtc listener", opened(bound, address, "[ingest] webrtc_listen", running)));
    }
    if config.acme.is_on() {
        findings.push(("https certificate", ordered(config)));
    } else if let Some((cert, key)) = config.http.https() {
        findings.push(("https certificate", certificate(Section::Http, cert, key)));
    }
    if let Some(rule) = BucketRule::of(config).await {
        findings.push(("bucket rule", bucket(config, &rule)));
    }
    let mut bad = false;
    for (index, (name, finding)) in findings.iter().enumerate() {
        let (mark, text) = match finding {
            Good(text) => ("ok", text),
            Note(text) => ("note", text),
            Bad(text) => ("BAD", text),
        };
        bad |= matches!(finding, Bad(_));
        print(&format!("[{}] {name:<14} {mark:<5} {text}\n", index + 1))?;
    }
    if bad { Err(CliError::Printed) } else { Ok(()) }
}

fn configuration(loaded: &Loaded) -> Finding {
    let file = loaded.file.as_ref().map_or("defaults, no file".to_owned(), |file| file.display().to_string());
    match loaded.config.warnings().as_slice() {
        [] => Good(file),
        warnings => Note(format!("{file}: {}", warnings.join("; "))),
    }
}

fn data_folder(path: &Path, running: bool) -> Finding {
    if !path.is_dir() {
        return Note(format!("{} is created at the first run", path.display()));
    }
    match data_dir::check_mode(path).and_then(|()| data_dir::probe_write(path)) {
        Ok(()) if running => Good(format!("{}, in use by a running service", path.display())),
        Ok(()) => Good(format!("{}, writable", path.display())),
        Err(error) => Bad(error.to_string()),
    }
}

fn key_file(config: &Config) -> Finding {
    if config.secret_key.is_some() {
        return Good("secret_key of the configuration".to_owned());
    }
    let path = config.key_file();
    if !path.exists() && has_database(config) {
        let text = "is missing; the check of the database tells whether it is needed";
        return Note(format!("{} {text}", path.display()));
    }
    if !path.exists() {
        return Note(format!("{} is created at the first run", path.display()));
    }
    match Vault::load(&path) {
        Ok(_) => Good(path.display().to_string()),
        Err(error) => Bad(error.to_string()),
    }
}

/// Whether the database is a file that exists.
fn has_database(config: &Config) -> bool {
    matches!(Address::parse(config.database_url().expose()), Ok(Address::File(file)) if file.exists())
}

async fn database(config: &Config) -> Finding {
    match Address::parse(config.database_url().expose()) {
        Ok(Address::File(file)) if !file.exists() => {
            return Note(format!("{} is created at the first run", file.display()));
        }
        Ok(address @ Address::Server(_)) => match is_empty(&address).await {
            Ok(true) => return Note(format!("{address} gets its tables at the first run")),
            Ok(false) => {}
            Err(error) => return Bad(error.to_string()),
        },
        Ok(Address::File(_)) => {}
        Err(error) => return Bad(error.to_string()),
    }
    let database = match inspect(config).await {
        Ok(database) => database,
        Err(error) => return Bad(error.to_string()),
    };
    let finding = database_finding(config, &database).await;
    database.close().await;
    finding.unwrap_or_else(|error| Bad(error.to_string()))
}

/// Whether a server's database was never used.
async fn is_empty(address: &Address) -> Result<bool, CliError> {
    let database = Inspector::open(address).await?;
    let version = database.schema_version().await;
    database.close().await;
    Ok(version?.0 == 0)
}

async fn database_finding(config: &Config, database: &Inspector) -> Result<Finding, CliError> {
    let (current, newest) = database.schema_version().await?;
    if !Inspector::accepts(current) {
        let text = format!("schema {current} is newer than {newest}; use the release that wrote it");
        return Ok(Bad(text));
    }
    match data_dir::existing_vault(config)? {
        Some(vault) => database.check_key(&vault).await?,
        None if database.needs_key().await? => {
            let key_file = config.key_file();
            let text = format!("it needs its key file {}; restore it", key_file.display());
            return Ok(Bad(text));
        }
        None => {}
    }
    let text = format!("schema {current} of {newest}");
    Ok(match current.cmp(&newest) {
        Ordering::Less => Note(format!("{text}, migrated at the next start")),
        Ordering::Equal => Good(text),
        Ordering::Greater => Note(format!("{text}, migrated by a newer release; this one can use it")),
    })
}

async fn ledger(config: &Config) -> Finding {
    let Ok(database) = inspect(config).await else { return Note("no database".to_owned()) };
    let report = database.check_ledger().await;
    database.close().await;
    match report {
        Ok(report) if report.faults.is_empty() => Good(format!("{} transfers, sums agree", report.transfers)),
        Ok(report) => Bad(format!("{} faults; run: satcast ledger check", report.faults.len())),
        Err(error) => Bad(error.to_string()),
    }
}

fn clock() -> Finding {
    let now = Clock::system().now();
    if now < CLOCK_MIN {
        Bad(format!("{now} ms since 1970 is in the past; set the clock"))
    } else {
        Good("plausible".to_owned())
    }
}

async fn drivers(config: &Config) -> Finding {
    let summaries = match command::with(config, |drivers| drivers.summaries()).await {
        Ok(summaries) => summaries,
        Err(error) => return Bad(error.to_string()),
    };
    let loaded = summaries.iter().filter(|summary| summary.state == State::Loaded).count();
    let enabled = config.drivers.enabled.len();
    match summaries.iter().find_map(command::refusal) {
        Some(reason) => Bad(reason),
        None if loaded < enabled => Note(format!("{loaded} of {enabled}; see: satcast drivers")),
        None => Good(format!("{loaded} of {enabled}")),
    }
}

/// Whether the receiving wallet answers; one restricted to invoices answers without its balance.
async fn wallet(config: &Config) -> Finding {
    let wallet = match boot::receiving_wallet(config, &Clock::system()) {
        Ok(Some(wallet)) => wallet,
        Ok(None) => return Good("none, no credit is sold".to_owned()),
        Err(error) => return Bad(error.to_string()),
    };
    let kind = config.wallet.kind.as_deref().unwrap_or_default();
    match wallet.balance().await {
        Ok(balance) => Good(format!("{kind} answers, its balance is {} sats", balance.to_sats_floor())),
        Err(error) if matches!(error.fault, Fault::Restricted | Fault::NotSupported) => {
            Note(format!("{kind} answers, but does not report its balance: {error}"))
        }
        Err(error) => Bad(format!("{kind}: {error}; see [wallet]")),
    }
}

/// Whether browsers can play from the operator's bucket.
fn bucket(config: &Config, rule: &BucketRule) -> Finding {
    match (rule, rule.text(config)) {
        (_, None) => Good("browsers can play from the bucket".to_owned()),
        (BucketRule::Missing, Some(text)) => Bad(text),
        (_, Some(text)) => Note(text),
    }
}

fn certificate(section: Section, cert: &Path, key: &Path) -> Finding {
    match Certificates::objection(section, cert, key, Clock::system().now()) {
        Ok(None) => Good(format!("{}, with its key", cert.display())),
        Ok(Some(objection)) => Bad(format!("{} {objection}", cert.display())),
        Err(error) => Bad(error.to_string()),
    }
}

/// The certificate that the service orders; both ports have it.
fn ordered(config: &Config) -> Finding {
    let now = Clock::system().now();
    match Acme::standing(config) {
        Standing::Waiting(None) => {
            Note("none was ordered yet; the service orders it when it runs".to_owned())
        }
        Standing::Waiting(Some(failed)) => Bad(failed.text(now)),
        Standing::Held(Some(failed)) => Bad(format!("the current one is kept; {}", failed.text(now))),
        Standing::Held(None) => {
            let file = config.acme_file();
            certificate(Section::Http, &file, &file)
        }
    }
}

fn listener(address: SocketAddr, setting: &str, running: bool) -> Finding {
    opened(TcpListener::bind(address).map(drop), address, setting, running)
}

fn opened(bound: io::Result<()>, address: SocketAddr, setting: &str, running: bool) -> Finding {
    match bound {
        Ok(()) => Good(format!("{address} is free")),
        Err(_) if running => Good(format!("{address} is in use, probably by the running service")),
        Err(error) => Bad(format!("{address}: {error}; {}", remedy(&error, setting))),
    }
}
