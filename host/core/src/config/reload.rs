//! The configuration while the service runs: what a reload takes over at once, and what waits for a restart.

use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::RwLock;

use super::{Archive, Billing, Config, Http, Ingest, Log};

/// The configuration in use; cheap to clone. A reload replaces it as a whole, and current readers keep the old one.
#[derive(Clone, Debug)]
pub struct Current(Arc<RwLock<Arc<Config>>>);

/// The keys that differ between two configurations, by their names in the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Taken over by a reload.
    pub applied: Vec<&'static str>,
    /// Waiting for a restart.
    pub waiting: Vec<&'static str>,
}

impl Current {
    pub fn new(config: Config) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(config))))
    }

    pub fn get(&self) -> Arc<Config> {
        self.0.read().clone()
    }

    pub fn set(&self, config: Config) {
        *self.0.write() = Arc::new(config);
    }
}

/// A key and whether it differs.
type Key = (&'static str, fn(&Config, &Config) -> bool);

macro_rules! keys {
    ($($table:ident.$key:ident),+ $(,)?) => {
        [$((
            concat!(stringify!($table), ".", stringify!($key)),
            |old, new| old.$table.$key != new.$table.$key,
        )),+]
    };
}

/// Keys of tables that are taken over.
const APPLIED: [Key; 20] = keys![
    drivers.dir,
    drivers.enabled,
    accounts.open_registration,
    pricing.cost_per_platform,
    pricing.free_platforms,
    pricing.bandwidth_limit_gb_per_hour,
    pricing.bandwidth_overage_sats_per_gb,
    pricing.archive_recovery_sats,
    pricing.clip_sats,
    billing.initial_credit_sats,
    limits.destinations_per_stream,
    limits.streams_per_account,
    limits.webhooks_per_account,
    limits.keys_per_account,
    limits.clips_per_account,
    ingest.reconnect_window_secs,
    ingest.refuse_quiet_secs,
    ingest.failover_stall_ms,
    ingest.failback_secs,
    log.level,
];

/// Keys of tables that wait for a restart.
const WAITING: [Key; 33] = keys![
    http.listen,
    http.trusted_proxies,
    ingest.rtmp_listen,
    ingest.rtmps_listen,
    ingest.srt_listen,
    ingest.webrtc_listen,
    ingest.webrtc_addresses,
    ingest.proxy_protocol_from,
    ingest.read_batch_ms,
    acme.domains,
    acme.contact,
    acme.directory,
    acme.ca_file,
    database.url,
    database.durability,
    cluster.node,
    cluster.advertise,
    cluster.secret,
    cluster.lease_secs,
    billing.mode,
    billing.low_balance_sats,
    wallet.url,
    wallet.secret,
    wallet.topup_min_sats,
    wallet.topup_max_sats,
    wallet.refill_daily_max_sats,
    wallet.invoice_expiry_secs,
    webhooks.allow_targets,
    outbound.allow,
    log.format,
    telemetry.otlp_endpoint,
    telemetry.sample_ratio,
    telemetry.service_name,
];

type TlsFile = fn(&Config) -> &Option<PathBuf>;

/// Certificates and keys: other files are taken over; to serve TLS or not waits for a restart.
const TLS: [(&str, TlsFile); 4] = [
    ("http.tls_cert", |config| &config.http.tls_cert),
    ("http.tls_key", |config| &config.http.tls_key),
    ("ingest.tls_cert", |config| &config.ingest.tls_cert),
    ("ingest.tls_key", |config| &config.ingest.tls_key),
];

/// Keys outside of tables, and tables whose keys belong to drivers.
const OTHERS_APPLIED: [Key; 2] = [
    ("driver", |old, new| old.driver != new.driver),
    ("archive", |old, new| old.driver_settings("").archive != new.driver_settings("").archive),
];
const OTHERS_WAITING: [Key; 5] = [
    ("archive.playback", |old, new| old.archive.playback != new.archive.playback),
    ("public_url", |old, new| old.public_url != new.public_url),
    ("data_dir", |old, new| old.data_dir != new.data_dir),
    ("secret_key", |old, new| old.secret_key != new.secret_key),
    ("wallet.type", |old, new| old.wallet.kind != new.wallet.kind),
];

impl Config {
    /// The keys of `wanted` that differ from this configuration.
    pub fn changes(&self, wanted: &Self) -> Changes {
        let differing = |keys: &[Key]| -> Vec<&'static str> {
            keys.iter().filter(|(_, differs)| differs(self, wanted)).map(|(name, _)| *name).collect()
        };
        let mut changes = Changes {
            applied: differing(&[&OTHERS_APPLIED[..], &APPLIED].concat()),
            waiting: differing(&[&OTHERS_WAITING[..], &WAITING].concat()),
        };
        // Of an ordered certificate these files follow from other keys.
        let ordered = self.acme.is_on() || wanted.acme.is_on();
        for (name, file) in TLS.into_iter().filter(|_| !ordered) {
            match (file(self), file(wanted)) {
                (old, new) if old == new => {}
                (Some(_), Some(_)) => changes.applied.push(name),
                _ => changes.waiting.push(name),
            }
        }
        changes
    }

    /// This configuration with everything of `wanted` that a reload takes over.
    pub fn reloaded(&self, wanted: &Self) -> Self {
        let (old, new) = (self.clone(), wanted.clone());
        let keeps = old.acme.is_on() || new.acme.is_on();
        let other = |old: Option<PathBuf>, new: Option<PathBuf>| match (old, new) {
            (Some(_), Some(new)) if !keeps => Some(new),
            (old, _) => old,
        };
        Self {
            drivers: new.drivers,
            driver: new.driver,
            archive: Archive { playback: old.archive.playback, ..new.archive },
            accounts: new.accounts,
            pricing: new.pricing,
            limits: new.limits,
            http: Http {
                tls_cert: other(old.http.tls_cert, new.http.tls_cert),
                tls_key: other(old.http.tls_key, new.http.tls_key),
                ..old.http
            },
            ingest: Ingest {
                tls_cert: other(old.ingest.tls_cert, new.ingest.tls_cert),
                tls_key: other(old.ingest.tls_key, new.ingest.tls_key),
                reconnect_window_secs: new.ingest.reconnect_window_secs,
                refuse_quiet_secs: new.ingest.refuse_quiet_secs,
                failover_stall_ms: new.ingest.failover_stall_ms,
                failback_secs: new.ingest.failback_secs,
                ..old.ingest
            },
            billing: Billing { initial_credit_sats: new.billing.initial_credit_sats, ..old.billing },
            log: Log { level: new.log.level, ..old.log },
            ..old
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{DEFAULT_TOML, Flags};

    fn read(toml: &str) -> Config {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("satcast.toml");
        std::fs::write(&file, toml).unwrap();
        Config::load(Some(&file), [], &Flags::default()).unwrap().config
    }

    /// Every key of the commented file, as `table.key`; `driver` and `archive` as tables.
    fn known() -> Vec<String> {
        let (mut known, mut table) = (vec!["driver".to_owned()], String::new());
        for line in DEFAULT_TOML.lines() {
            if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
                table = name.to_owned();
                continue;
            }
            if line.starts_with("# [driver.") {
                table = "driver".to_owned();
            }
            let line = line.strip_prefix("# ").unwrap_or(line);
            let Some((key, _)) = line.split_once(" = ").filter(|(key, _)| !key.contains(' ')) else {
                continue;
            };
            known.push(match table.as_str() {
                "" => key.to_owned(),
                "archive" if key == "playback" => "archive.playback".to_owned(),
                "driver" | "archive" => table.clone(),
                table => format!("{table}.{key}"),
            });
        }
        known.sort_unstable();
        known.dedup();
        known
    }

    #[test]
    fn every_key_is_taken_over_or_waits() {
        let tables = [&OTHERS_APPLIED[..], &OTHERS_WAITING, &APPLIED, &WAITING].concat();
        let mut listed: Vec<_> = tables.iter().map(|(name, _)| *name).collect();
        listed.extend(TLS.map(|(name, _)| name));
        listed.sort_unstable();
        assert_eq!(listed, known());
    }

    #[test]
    fn a_reload_takes_prices_and_leaves_addresses() {
        let old = read("");
        let new = read(
            "data_dir = \"other\"\n[http]\nlisten = \"127.0.0.1:9\"\n[pricing]\ncost_per_platform = 7\n\
             [log]\nlevel = \"debug\"\nformat = \"json\"\n[driver.rtmp]\nspool_mb = 1\n[archive]\nprefix = \"p\"",
        );
        let changes = old.changes(&new);
        assert_eq!(changes.applied, ["driver", "archive", "pricing.cost_per_platform", "log.level"]);
        assert_eq!(changes.waiting, ["public_url", "data_dir", "http.listen", "log.format"]);
        let merged = old.reloaded(&new);
        assert_eq!((merged.pricing.cost_per_platform, merged.log.level.as_str()), (7, "debug"));
        assert_eq!((merged.http.listen, &merged.data_dir), (old.http.listen, &old.data_dir));
        // What was not taken over is named again by the next reload; everything else is the same now.
        let again = merged.changes(&new);
        assert_eq!((again.applied, again.waiting), (vec![], changes.waiting));
    }

    #[test]
    fn other_certificates_are_taken_over_but_tls_is_not_switched() {
        let of = |http: &str| read(&format!("public_url = \"https://x.example\"\n[http]\n{http}"));
        let (none, a) = (of(""), of("tls_cert = \"a\"\ntls_key = \"b\""));
        let b = of("tls_cert = \"c\"\ntls_key = \"b\"");
        assert_eq!(a.changes(&b), Changes { applied: vec!["http.tls_cert"], waiting: vec![] });
        assert_eq!(a.reloaded(&b).http.tls_cert, Some("c".into()));
        for (old, new) in [(&none, &a), (&a, &none)] {
            assert_eq!(old.changes(new).waiting, ["http.tls_cert", "http.tls_key"]);
            assert_eq!(old.reloaded(new).http.tls_cert, old.http.tls_cert);
        }
    }

    #[test]
    fn readers_keep_what_they_have() {
        let current = Current::new(read(""));
        let before = current.get();
        current.clone().set(read("[pricing]\ncost_per_platform = 7"));
        assert_eq!((before.pricing.cost_per_platform, current.get().pricing.cost_per_platform), (2, 7));
    }
}
