//! Checks of ranges and of combinations of values. Nothing is opened or resolved.

use std::path::PathBuf;

use tracing_subscriber::filter::{LevelFilter, Targets};

use super::ingest::is_local;
use super::{BillingMode, Config, ConfigError, acme, wallet};
use crate::secret::Vault;

/// Longest reconnect window in seconds.
const RECONNECT_WINDOW_SECS_MAX: u64 = 300;
/// Longest cooldown in seconds.
const REFUSE_QUIET_SECS_MAX: u64 = 3_600;
/// Longest wait between reads in milliseconds.
const READ_BATCH_MS_MAX: u64 = 1_000;
/// Bounds of the silence of an encoder after which the backup takes over, in milliseconds. Sockets are read once a second at least.
const FAILOVER_STALL_MS: (u64, u64) = (1_500, 10_000);
/// Longest time until the primary encoder takes over again, in seconds.
const FAILBACK_SECS_MAX: u64 = 3_600;
/// Bounds of the lease of a node in seconds. A session takes up to two to end, and a lease is renewed every third of it.
const LEASE_SECS: (u64, u64) = (10, 300);
/// Longest name of a node.
const NODE_CHARS_MAX: usize = 32;
/// Shortest secret of the nodes.
const CLUSTER_SECRET_CHARS_MIN: usize = 32;
/// Highest price in sats; far above any sensible price, low enough that sums cannot overflow.
const PRICE_SATS_MAX: i64 = 1_000_000_000;
/// All sats that will ever exist.
pub(super) const SATS_MAX: i64 = 2_100_000_000_000_000;
/// Longest name of the service in traces.
const SERVICE_NAME_CHARS_MAX: usize = 64;
/// Highest cap per account or stream.
const CAP_MAX: i64 = 100_000;

pub(super) fn check(config: &Config) -> Result<(), ConfigError> {
    check_addresses(config)?;
    check_tls(config)?;
    acme::check(config)?;
    check_ranges(config)?;
    check_secrets(config)?;
    check_cluster(config)?;
    wallet::check(config)?;
    check_drivers(config)?;
    check_telemetry(config)?;
    check_log(config)
}

pub(super) fn refuse<T>(sentence: String) -> Result<T, ConfigError> {
    Err(ConfigError(sentence))
}

fn check_addresses(config: &Config) -> Result<(), ConfigError> {
    if config.data_dir.as_os_str().is_empty() {
        return refuse("data_dir is empty; name a folder".to_owned());
    }
    if !matches!(config.public_url.path(), "" | "/") {
        return refuse("public_url holds a path; use scheme, host and port only".to_owned());
    }
    if matches!(config.public_url.host_str(), Some("0.0.0.0" | "[::]")) {
        return refuse(
            "http.listen is every address of this machine; set public_url to the address that browsers and players use"
                .to_owned(),
        );
    }
    let listeners = [
        ("http.listen", Some(config.http.listen)),
        ("ingest.rtmp_listen", Some(config.ingest.rtmp_listen)),
        ("ingest.rtmps_listen", config.ingest.rtmps_listen),
    ];
    for (index, (name, address)) in listeners.iter().enumerate() {
        let twin = listeners[..index].iter().find(|(_, other)| other == address && address.is_some());
        if let (Some((other, _)), Some(address)) = (twin, address)
            && address.port() != 0
        {
            return refuse(format!("{name} and {other} are both {address}; give one of them another port"));
        }
    }
    Ok(())
}

fn check_tls(config: &Config) -> Result<(), ConfigError> {
    pair("http", &config.http.tls_cert, &config.http.tls_key)?;
    pair("ingest", &config.ingest.tls_cert, &config.ingest.tls_key)?;
    let has_certificate = config.ingest.tls_cert.is_some() || config.acme.is_on();
    if config.ingest.rtmps_listen.is_some() && !has_certificate {
        return refuse(
            "ingest.rtmps_listen is set without a certificate; set ingest.tls_cert and ingest.tls_key, or acme.domains"
                .to_owned(),
        );
    }
    Ok(())
}

fn pair(table: &str, cert: &Option<PathBuf>, key: &Option<PathBuf>) -> Result<(), ConfigError> {
    match (cert, key) {
        (Some(_), None) => {
            refuse(format!("{table}.tls_cert is set without {table}.tls_key; set both or none"))
        }
        (None, Some(_)) => {
            refuse(format!("{table}.tls_key is set without {table}.tls_cert; set both or none"))
        }
        _ => Ok(()),
    }
}

fn check_ranges(config: &Config) -> Result<(), ConfigError> {
    let ingest = &config.ingest;
    for (name, value, max) in [
        ("ingest.reconnect_window_secs", ingest.reconnect_window_secs, RECONNECT_WINDOW_SECS_MAX),
        ("ingest.refuse_quiet_secs", ingest.refuse_quiet_secs, REFUSE_QUIET_SECS_MAX),
        ("ingest.read_batch_ms", ingest.read_batch_ms, READ_BATCH_MS_MAX),
        ("ingest.failback_secs", ingest.failback_secs, FAILBACK_SECS_MAX),
    ] {
        if value > max {
            return refuse(format!("{name} is {value}; use 0 to {max}"));
        }
    }
    let (least, most) = FAILOVER_STALL_MS;
    if !(least..=most).contains(&ingest.failover_stall_ms) {
        let value = ingest.failover_stall_ms;
        return refuse(format!("ingest.failover_stall_ms is {value}; use {least} to {most}"));
    }
    let (pricing, limits) = (&config.pricing, &config.limits);
    for (name, value, min, max) in [
        ("pricing.cost_per_platform", pricing.cost_per_platform, 0, PRICE_SATS_MAX),
        ("pricing.free_platforms", pricing.free_platforms, 0, CAP_MAX),
        ("pricing.bandwidth_limit_gb_per_hour", pricing.bandwidth_limit_gb_per_hour, 0, PRICE_SATS_MAX),
        ("pricing.bandwidth_overage_sats_per_gb", pricing.bandwidth_overage_sats_per_gb, 0, PRICE_SATS_MAX),
        ("pricing.archive_recovery_sats", pricing.archive_recovery_sats, 0, PRICE_SATS_MAX),
        ("pricing.clip_sats", pricing.clip_sats, 0, PRICE_SATS_MAX),
        ("billing.initial_credit_sats", config.billing.initial_credit_sats, 0, SATS_MAX),
        ("billing.low_balance_sats", config.billing.low_balance_sats, 0, SATS_MAX),
        ("limits.destinations_per_stream", limits.destinations_per_stream, 1, CAP_MAX),
        ("limits.streams_per_account", limits.streams_per_account, 1, CAP_MAX),
        ("limits.webhooks_per_account", limits.webhooks_per_account, 1, CAP_MAX),
        ("limits.keys_per_account", limits.keys_per_account, 1, CAP_MAX),
        ("limits.clips_per_account", limits.clips_per_account, 1, CAP_MAX),
    ] {
        if !(min..=max).contains(&value) {
            return refuse(format!("{name} is {value}; use {min} to {max}"));
        }
    }
    Ok(())
}

fn check_cluster(config: &Config) -> Result<(), ConfigError> {
    let cluster = &config.cluster;
    let (least, most) = LEASE_SECS;
    if !(least..=most).contains(&cluster.lease_secs) {
        return refuse(format!("cluster.lease_secs is {}; use {least} to {most}", cluster.lease_secs));
    }
    let Some(node) = &cluster.node else {
        if cluster.advertise.is_some() || cluster.secret.is_some() {
            return refuse(
                "cluster.advertise or cluster.secret is set without cluster.node; set cluster.node to a name of this node"
                    .to_owned(),
            );
        }
        return Ok(());
    };
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if node.is_empty() || node.len() > NODE_CHARS_MAX || !node.bytes().all(plain) {
        return refuse(format!(
            "cluster.node \"{node}\" is not a name; use 1 to {NODE_CHARS_MAX} of the characters a-z, 0-9 and -"
        ));
    }
    match &cluster.advertise {
        Some(url) if url.path() == "/" && url.query().is_none() => {}
        _ => {
            return refuse(
                "cluster.node is set without an address for the other nodes; set cluster.advertise to http://HOST:PORT"
                    .to_owned(),
            );
        }
    }
    if cluster.secret.as_ref().is_none_or(|secret| secret.expose().len() < CLUSTER_SECRET_CHARS_MIN) {
        return refuse(format!(
            "cluster.node is set without a secret of the nodes; set cluster.secret to the same {CLUSTER_SECRET_CHARS_MIN} or more characters on every node, made with: openssl rand -hex 32"
        ));
    }
    let url = config.database_url();
    if !["postgres:", "postgresql:"].iter().any(|scheme| url.expose().starts_with(scheme)) {
        return refuse(
            "cluster.node is set, but the database is a SQLite file, which one service has alone; set database.url to a PostgreSQL server, or remove [cluster]"
                .to_owned(),
        );
    }
    Ok(())
}

fn check_secrets(config: &Config) -> Result<(), ConfigError> {
    if let Some(key) = &config.secret_key {
        Vault::from_hex(key, "secret_key").map_err(|_| {
            ConfigError(
                "secret_key is not 64 hexadecimal digits; make one with: openssl rand -hex 32".to_owned(),
            )
        })?;
    }
    let archive = &config.archive;
    if archive.access_key.is_some() != archive.secret_key.is_some() {
        return refuse(
            "archive.access_key and archive.secret_key belong together; set both or none".to_owned(),
        );
    }
    if archive.bucket.is_some() && archive.endpoint.is_none() {
        return refuse(
            "archive.bucket is set without archive.endpoint; set the address of the S3 service".to_owned(),
        );
    }
    Ok(())
}

/// Least and most MiB of a driver's process.
const PROCESS_MEMORY_MB: (u64, u64) = (128, 1_048_576);
/// Least and most open files of a driver's process.
const PROCESS_OPEN_FILES: (u64, u64) = (64, 1_048_576);
/// Least and most seconds of processor time of a driver's process.
const PROCESS_CPU_SECS: (u64, u64) = (0, 1_000_000_000);
/// Least and most MiB of a destination's spool on disk.
const SPOOL_MB: (u64, u64) = (0, 1_048_576);
/// Keys of `[driver.<name>]` that the host reads.
const DRIVER_KEYS: [&str; 5] = ["isolation", "sha256", "limits", "spool_mb", "queue"];
/// Least and most packets, MiB and seconds of a destination's queue.
const QUEUE_PACKETS: (u64, u64) = (64, 65_536);
const QUEUE_MB: (u64, u64) = (1, 1_024);
const QUEUE_SECS: (u64, u64) = (1, 60);
const QUEUE_REOPEN_SECS: (u64, u64) = (0, 3_600);
/// A driver's own key within this edit distance of one of them counts as misspelt.
const DRIVER_KEY_DISTANCE_MAX: usize = 2;

fn check_drivers(config: &Config) -> Result<(), ConfigError> {
    for (name, driver) in &config.driver {
        let right = |hash: &String| hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
        if driver.sha256.as_ref().is_some_and(|hash| !right(hash)) {
            return refuse(format!(
                "driver.{name}.sha256 is not 64 hexadecimal digits; run: sha256sum {name}.so"
            ));
        }
        let limits = &driver.limits;
        let ranges = [
            ("limits.memory_mb", limits.memory_mb, PROCESS_MEMORY_MB),
            ("limits.open_files", limits.open_files, PROCESS_OPEN_FILES),
            ("limits.cpu_secs", limits.cpu_secs, PROCESS_CPU_SECS),
            ("spool_mb", driver.spool_mb, SPOOL_MB),
            ("queue.packets", driver.queue.packets, QUEUE_PACKETS),
            ("queue.mb", driver.queue.mb, QUEUE_MB),
            ("queue.secs", driver.queue.secs, QUEUE_SECS),
            ("queue.reopen_secs", driver.queue.reopen_secs, QUEUE_REOPEN_SECS),
        ];
        for (key, value, (least, most)) in ranges {
            if !(least..=most).contains(&value) {
                return refuse(format!("driver.{name}.{key} is {value}; set it to {least} to {most}"));
            }
        }
        // Other keys belong to the driver. A misspelt `sha256` or `isolation` would silently have no effect.
        for key in driver.settings.keys() {
            let near = |known: &&&str| strsim::damerau_levenshtein(key, known) <= DRIVER_KEY_DISTANCE_MAX;
            if let Some(known) = DRIVER_KEYS.iter().find(near) {
                return Err(misspelt(name, key, known));
            }
        }
    }
    Ok(())
}

/// Error for a key of a driver that is similar to `known`.
pub(super) fn misspelt(driver: &str, key: &str, known: &str) -> ConfigError {
    ConfigError(format!("driver.{driver}.{key} is not a known key; did you mean \"{known}\"?"))
}

fn check_telemetry(config: &Config) -> Result<(), ConfigError> {
    let telemetry = &config.telemetry;
    if !(0.0..=1.0).contains(&telemetry.sample_ratio) {
        return refuse(format!("telemetry.sample_ratio is {}; use 0.0 to 1.0", telemetry.sample_ratio));
    }
    if !(1..=SERVICE_NAME_CHARS_MAX).contains(&telemetry.service_name.chars().count()) {
        return refuse(format!(
            "telemetry.service_name has to be 1 to {SERVICE_NAME_CHARS_MAX} characters long; use a name such as \"satcast\""
        ));
    }
    Ok(())
}

fn check_log(config: &Config) -> Result<(), ConfigError> {
    // `Targets` would read a misspelt level as the name of a module and log everything.
    let is_level = |text: &str| text.trim().parse::<LevelFilter>().is_ok();
    let understood = |part: &str| is_level(part.split_once('=').map_or(part, |(_, level)| level));
    let level = &config.log.level;
    if level.split(',').all(understood) && level.parse::<Targets>().is_ok() {
        return Ok(());
    }
    refuse(format!(
        "log.level \"{level}\" is not a log level; use error, warn, info, debug, trace or \"info,satcast=debug\""
    ))
}

/// Valid settings that are probably not intended.
pub(super) fn warnings(config: &Config) -> Vec<String> {
    let mut warnings = Vec::new();
    let mut warn = |applies: bool, text: &str| {
        if applies {
            warnings.push(text.to_owned());
        }
    };
    let billed = config.billing.mode != BillingMode::Off;
    let pricing = &config.pricing;
    warn(
        billed && pricing.cost_per_platform == 0,
        "pricing.cost_per_platform = 0, destinations will be free",
    );
    warn(
        billed && pricing.bandwidth_overage_sats_per_gb == 0,
        "pricing.bandwidth_overage_sats_per_gb = 0, bandwidth will be free",
    );
    let open = !config.http.listen.ip().is_loopback();
    let https = config.http.https().is_some();
    warn(
        open && is_local(&config.public_url),
        "http.listen is open to other machines, but public_url names this one only; set public_url",
    );
    warn(
        open && !https && config.public_url.scheme() == "http",
        "public_url is http, so keys travel in clear; set http.tls_cert and http.tls_key, or put a TLS proxy in front, and set public_url to https",
    );
    warn(
        https && config.public_url.scheme() == "http",
        "http.tls_cert or acme.domains is set, so https is served, but public_url begins with http; set public_url to the https address",
    );
    warn(
        config.ingest.rtmps_listen.is_none() && config.ingest.tls_cert.is_some(),
        "ingest.tls_cert is set without ingest.rtmps_listen, so rtmps is not served",
    );
    wallet::warnings(config, &mut warnings);
    warnings.extend(config.unknown_variables.iter().cloned());
    for name in config.driver.keys().filter(|name| !config.drivers.enabled.contains(name)) {
        warnings.push(format!("[driver.{name}] is set, but {name} is not in drivers.enabled"));
    }
    warnings
}
