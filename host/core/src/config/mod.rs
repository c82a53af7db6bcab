//! Configuration: one typed value built from defaults, file, environment and flags, checked before anything starts.
//!
//! `default.toml` is the single source of every default and of the commented file that `satcast config` prints.
//! An error is one sentence with its position and the fix. Nothing here opens a socket or touches the data folder.

mod acme;
mod archive;
mod check;
mod driver;
mod ingest;
mod load;
mod reload;
#[cfg(test)]
mod tests;
mod value;
mod wallet;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use serde::Deserialize;
use url::Url;

pub use acme::Acme;
pub use archive::ARCHIVE_TABLE;
pub use driver::{DriverSettings, Isolation, ProcessLimits, QueueLimits, SPOOL_MB_DEFAULT};
pub use ingest::{IngestAddresses, WHIP_PATH};
pub use load::nearest;
pub use load::{ConfigError, DEFAULT_FILE_NAME, Flags, Loaded};
pub use reload::{Changes, Current};
pub use value::AllowEntry;
pub use wallet::Wallet;

use crate::ids::{Msat, Sats};
use crate::secret::Redacted;

/// The commented configuration file with every key at its default.
pub const DEFAULT_TOML: &str = include_str!("default.toml");
/// Name of the database file inside the data folder.
const DATABASE_FILE_NAME: &str = "satcast.db";
/// Name of the key file inside the data folder.
const KEY_FILE_NAME: &str = "secret.key";
/// Name of the file inside the data folder with the link that makes the first account.
const SETUP_LINK_FILE_NAME: &str = "setup-link";
/// Name of the drivers folder beside the binary.
const DRIVERS_FOLDER_NAME: &str = "drivers";

/// The whole configuration; each key is described in `default.toml`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Address under which browsers and players reach the service; no path, query or trailing slash. By default that of the HTTP
    /// listener.
    #[serde(deserialize_with = "value::url")]
    pub public_url: Url,
    /// Data folder; relative paths are relative to the working folder.
    pub data_dir: PathBuf,
    /// Key of the stored secrets instead of the key file, 64 hexadecimal digits.
    #[serde(default, deserialize_with = "value::secret")]
    pub secret_key: Option<Redacted<String>>,
    /// The HTTP listener.
    pub http: Http,
    /// The listeners for encoders.
    pub ingest: Ingest,
    /// Certificates from an authority.
    pub acme: Acme,
    /// The database.
    pub database: Database,
    /// Several nodes on one database.
    pub cluster: Cluster,
    /// Drivers to load, and their folder.
    pub drivers: Drivers,
    /// Settings of single drivers by their id.
    #[serde(default)]
    pub driver: BTreeMap<String, DriverSettings>,
    /// Registration of accounts.
    pub accounts: Accounts,
    /// Prices in whole sats.
    pub pricing: Pricing,
    /// How the service is paid.
    pub billing: Billing,
    /// The operator's receiving wallet, and the limits of invoices.
    pub wallet: Wallet,
    /// Webhooks.
    pub webhooks: Webhooks,
    /// The address guard.
    pub outbound: Outbound,
    /// The operator's S3 store for recordings.
    pub archive: Archive,
    /// Caps per account and stream.
    pub limits: Limits,
    /// Logging.
    pub log: Log,
    /// Traces.
    pub telemetry: Telemetry,
    /// Warnings about variables that look like settings and are not.
    #[serde(skip)]
    pub unknown_variables: Vec<String>,
}

/// `[http]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Http {
    /// Address of the API and of playback.
    #[serde(deserialize_with = "value::address")]
    pub listen: SocketAddr,
    /// Certificate chain in PEM; requires `tls_key`. With it `listen` serves https only.
    pub tls_cert: Option<PathBuf>,
    /// Private key in PEM.
    pub tls_key: Option<PathBuf>,
    /// Proxies whose `X-Forwarded-For` is trusted.
    #[serde(deserialize_with = "value::networks")]
    pub trusted_proxies: Vec<IpNet>,
}

/// `[ingest]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ingest {
    /// Address for RTMP.
    #[serde(deserialize_with = "value::address")]
    pub rtmp_listen: SocketAddr,
    /// Address for RTMP over TLS.
    #[serde(default, deserialize_with = "value::optional_address")]
    pub rtmps_listen: Option<SocketAddr>,
    /// Address for SRT, a UDP port.
    #[serde(default, deserialize_with = "value::optional_address")]
    pub srt_listen: Option<SocketAddr>,
    /// Address for the media of WHIP, a UDP port. Offers come to the HTTP port.
    #[serde(default, deserialize_with = "value::optional_address")]
    pub webrtc_listen: Option<SocketAddr>,
    /// Addresses of this machine for WHIP encoders; empty: those of `webrtc_listen`, or of the interface.
    #[serde(deserialize_with = "value::addresses")]
    pub webrtc_addresses: Vec<IpAddr>,
    /// Certificate chain in PEM for RTMPS.
    pub tls_cert: Option<PathBuf>,
    /// Private key in PEM for RTMPS.
    pub tls_key: Option<PathBuf>,
    /// Proxies that must begin each connection with a PROXY protocol header, which is trusted.
    #[serde(deserialize_with = "value::networks")]
    pub proxy_protocol_from: Vec<IpNet>,
    /// Seconds within which a reconnecting encoder continues its session, 0 to 300.
    pub reconnect_window_secs: u64,
    /// Cooldown in seconds before a stopped stream may be published again, 0 to 3600.
    pub refuse_quiet_secs: u64,
    /// Milliseconds between reads of a publishing connection, 0 to 1000.
    pub read_batch_ms: u64,
    /// Milliseconds without media after which the backup encoder takes over, 1500 to 10000.
    pub failover_stall_ms: u64,
    /// Seconds for which the primary encoder must publish before it takes over again, 0 to 3600; 0 is never.
    pub failback_secs: u64,
}

/// `[database]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Database {
    /// `sqlite:FILE` or `postgres://USER:PASSWORD@HOST:PORT/DATABASE`; `None` is the file in the data folder. May contain a
    /// password, therefore redacted.
    #[serde(default, deserialize_with = "value::secret")]
    pub url: Option<Redacted<String>>,
    /// Durability of commits.
    pub durability: Durability,
}

/// The failures that a committed transaction survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// Power loss (SQLite `synchronous = FULL`, PostgreSQL `synchronous_commit = on`).
    Full,
    /// The end of the process; the last commits may be lost with the power (`NORMAL`, `off`).
    Normal,
}

/// `[cluster]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cluster {
    /// Unique name of this node; `None`: this service uses its database alone.
    #[serde(default, deserialize_with = "value::plain_text")]
    pub node: Option<String>,
    /// Address of the API of this node for the other nodes; set with `node`.
    #[serde(default, deserialize_with = "value::optional_url")]
    pub advertise: Option<Url>,
    /// The same secret on every node; set with `node`.
    #[serde(default, deserialize_with = "value::secret")]
    pub secret: Option<Redacted<String>>,
    /// Seconds after which a node without its database counts as lost, 10 to 300.
    pub lease_secs: u64,
}

/// `[drivers]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Drivers {
    /// Folder of driver libraries; `None` is `drivers` beside the binary.
    pub dir: Option<PathBuf>,
    /// Ids of the drivers to load.
    #[serde(deserialize_with = "value::names")]
    pub enabled: Vec<String>,
}

/// `[accounts]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Accounts {
    /// Whether anyone may create an account in the dashboard.
    pub open_registration: bool,
}

/// `[pricing]`, whole sats
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pricing {
    /// Per minute and paid destination.
    pub cost_per_platform: i64,
    /// Destinations of a session that cost nothing.
    pub free_platforms: i64,
    /// Free playback in GB (10^9 bytes) per account and clock hour.
    pub bandwidth_limit_gb_per_hour: i64,
    /// Per GB above `bandwidth_limit_gb_per_hour`.
    pub bandwidth_overage_sats_per_gb: i64,
    /// Per attempt to upload a failed recording again.
    pub archive_recovery_sats: i64,
    /// Per clip, charged when it is ready.
    pub clip_sats: i64,
}

/// `[billing]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Billing {
    /// How the service is paid.
    pub mode: BillingMode,
    /// Credit of a new account in sats.
    pub initial_credit_sats: i64,
    /// A charge that takes a balance below this many sats sends `balance.low`; 0 = never.
    pub low_balance_sats: i64,
}

/// How the service is paid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BillingMode {
    /// Prepaid credit in the ledger.
    Credit,
    /// Prepaid credit that connected wallets refill.
    Wallet,
    /// Free of charge.
    Off,
}

/// `[webhooks]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Webhooks {
    /// Targets that the address guard allows, also over http.
    #[serde(deserialize_with = "value::allow_list")]
    pub allow_targets: Vec<AllowEntry>,
}

/// `[outbound]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outbound {
    /// Targets that the address guard allows.
    #[serde(deserialize_with = "value::allow_list")]
    pub allow: Vec<AllowEntry>,
}

/// `[archive]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Archive {
    /// Address of the S3 service.
    #[serde(default, deserialize_with = "value::optional_url")]
    pub endpoint: Option<Url>,
    /// Region name.
    #[serde(default, deserialize_with = "value::plain_text")]
    pub region: Option<String>,
    /// Bucket name.
    #[serde(default, deserialize_with = "value::plain_text")]
    pub bucket: Option<String>,
    /// Access key id.
    #[serde(default, deserialize_with = "value::secret")]
    pub access_key: Option<Redacted<String>>,
    /// Secret access key.
    #[serde(default, deserialize_with = "value::secret")]
    pub secret_key: Option<Redacted<String>>,
    /// Prefix of every object name.
    pub prefix: String,
    /// Bucket in the path, as most stores expect, instead of in the host name.
    pub force_path_style: bool,
    /// Where viewers get uploaded recordings from.
    pub playback: ArchivePlayback,
}

/// `[archive] playback`
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum ArchivePlayback {
    /// From this service, which reads the store.
    Service,
    /// From the store, by signed addresses.
    Signed,
}

/// `[limits]`, 1 to 100,000 each
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Destinations of one stream.
    pub destinations_per_stream: i64,
    /// Streams of one account.
    pub streams_per_account: i64,
    /// Webhooks of one account.
    pub webhooks_per_account: i64,
    /// API keys of one account.
    pub keys_per_account: i64,
    /// Clips of one account.
    pub clips_per_account: i64,
}

/// `[log]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Log {
    /// A level or a filter in the syntax of tracing's `EnvFilter`.
    pub level: String,
    /// Format of log lines.
    pub format: LogFormat,
}

/// Format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Text for people.
    Text,
    /// One JSON object per line.
    Json,
}

/// `[telemetry]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Telemetry {
    /// Address of a collector that takes OTLP over HTTP, without `/v1/traces`; `None`: no traces.
    #[serde(default, deserialize_with = "value::optional_url")]
    pub otlp_endpoint: Option<Url>,
    /// Part of the traces that is sent, 0 to 1. A trace that a caller has begun follows the decision of the caller.
    pub sample_ratio: f64,
    /// `service.name` of the traces, 1 to 64 characters.
    pub service_name: String,
}

impl Http {
    /// Certificate and key; `None` when https is not served.
    pub fn https(&self) -> Option<(&Path, &Path)> {
        Some((self.tls_cert.as_deref()?, self.tls_key.as_deref()?))
    }
}

impl Ingest {
    /// Address, certificate and key of RTMPS; `None` when it is not served.
    pub fn rtmps(&self) -> Option<(SocketAddr, &Path, &Path)> {
        Some((self.rtmps_listen?, self.tls_cert.as_deref()?, self.tls_key.as_deref()?))
    }
}

impl Config {
    /// Builds and checks the configuration. `file` is the `--config` flag; without it `satcast.toml` in the
    /// working folder is used if it exists. `env` is the process environment (names without the
    /// `SATCAST_` prefix are ignored).
    ///
    /// # Errors
    /// The first fault found, as one sentence with its position and the fix.
    pub fn load(
        file: Option<&Path>,
        env: impl IntoIterator<Item = (String, String)>,
        flags: &Flags,
    ) -> Result<Loaded, ConfigError> {
        let mut loaded = load::load(file, env, flags)?;
        check::check(&loaded.config)?;
        loaded.config.use_acme();
        Ok(loaded)
    }

    /// The database address, with the default in the data folder filled in.
    pub fn database_url(&self) -> Redacted<String> {
        let in_data_dir =
            || Redacted::new(format!("sqlite:{}", self.data_dir.join(DATABASE_FILE_NAME).display()));
        self.database.url.clone().unwrap_or_else(in_data_dir)
    }

    /// The key file used when `secret_key` is not set.
    pub fn key_file(&self) -> PathBuf {
        self.data_dir.join(KEY_FILE_NAME)
    }

    /// The file with the link that makes the first account; there is none once an account exists.
    pub fn setup_link_file(&self) -> PathBuf {
        self.data_dir.join(SETUP_LINK_FILE_NAME)
    }

    /// The drivers folder, by default beside the running binary.
    pub fn drivers_dir(&self) -> PathBuf {
        let beside_binary = || {
            let binary = std::env::current_exe().unwrap_or_default();
            binary.parent().unwrap_or(Path::new("")).join(DRIVERS_FOLDER_NAME)
        };
        self.drivers.dir.clone().unwrap_or_else(beside_binary)
    }

    /// `public_url` without a trailing slash, for appending a path.
    pub fn public_base(&self) -> &str {
        self.public_url.as_str().trim_end_matches('/')
    }

    /// Credit of a new account; zero unless `billing.mode` is `credit`.
    pub fn initial_credit(&self) -> Msat {
        match self.billing.mode {
            BillingMode::Credit => Sats(self.billing.initial_credit_sats).to_msat().unwrap_or(Msat(0)),
            BillingMode::Wallet | BillingMode::Off => Msat(0),
        }
    }

    /// The limit below which `balance.low` is sent.
    pub fn low_balance(&self) -> Msat {
        match self.billing.mode {
            BillingMode::Off => Msat(0),
            BillingMode::Credit | BillingMode::Wallet => {
                Sats(self.billing.low_balance_sats).to_msat().unwrap_or(Msat(0))
            }
        }
    }

    /// Price of a clip; zero when the service is free of charge.
    pub fn clip_price(&self) -> Msat {
        match self.billing.mode {
            BillingMode::Off => Msat(0),
            BillingMode::Credit | BillingMode::Wallet => {
                Sats(self.pricing.clip_sats).to_msat().unwrap_or(Msat(0))
            }
        }
    }

    /// Price of an attempt to upload a failed recording again; zero when the service is free of charge.
    pub fn recovery_fee(&self) -> Msat {
        match self.billing.mode {
            BillingMode::Off => Msat(0),
            // The check refuses prices that would overflow.
            BillingMode::Credit | BillingMode::Wallet => {
                Sats(self.pricing.archive_recovery_sats).to_msat().unwrap_or(Msat(0))
            }
        }
    }

    /// Valid settings that are probably not intended, each as one sentence.
    pub fn warnings(&self) -> Vec<String> {
        check::warnings(self)
    }

    /// The entries of an allow list as text, as [`satcast_net::outbound::Guard`] takes them.
    pub fn allow_texts(entries: &[AllowEntry]) -> Vec<String> {
        entries.iter().map(ToString::to_string).collect()
    }
}
