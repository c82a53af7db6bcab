//! SIGHUP: reads the configuration again and takes over what can change while streams run. A configuration with a fault
//! changes nothing.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::system::driver_log_level;
use crate::logging::Level;
use satcast_core::config::{Changes, Config, Current, Loaded};
use satcast_drivers::Drivers;
use satcast_live::{FailoverTimes, Live, Settings};
use satcast_money::billing::Billing;
use satcast_net::acme::Ports;
use satcast_net::certificates::{Certificates, Section};

/// The parts of the service that take other settings.
pub(super) struct Reload {
    pub(super) config: Current,
    pub(super) drivers: Drivers,
    pub(super) billing: Billing,
    pub(super) live: Live,
    pub(super) ports: Ports,
    pub(super) level: Level,
}

/// The times of `[ingest]` for sessions.
pub(super) fn live_settings(config: &Config) -> Settings {
    Settings {
        reconnect_window: Duration::from_secs(config.ingest.reconnect_window_secs),
        cooldown: Duration::from_secs(config.ingest.refuse_quiet_secs),
        failover: FailoverTimes {
            stall: Duration::from_millis(config.ingest.failover_stall_ms),
            failback: Some(config.ingest.failback_secs).filter(|secs| *secs > 0).map(Duration::from_secs),
        },
    }
}

impl Reload {
    /// Takes over what was read, or logs why nothing changes.
    pub(super) async fn run(&self, loaded: Result<Loaded, String>) {
        let taken = match loaded {
            Ok(loaded) => self.take(&loaded.config).await,
            Err(error) => Err(error),
        };
        match taken {
            Ok(changes) => report(&changes),
            Err(error) => {
                tracing::error!(error, "cannot read the configuration again; the running one stays in use");
            }
        }
    }

    /// Everything that can fail comes before the first change.
    async fn take(&self, wanted: &Config) -> Result<Changes, String> {
        let running = self.config.get();
        let (mut changes, config) = (running.changes(wanted), running.reloaded(wanted));
        let ingest = config.ingest.rtmps().map(|(_, cert, key)| (cert, key));
        let Ports { http, rtmps, .. } = &self.ports;
        let pairs = [
            ("http.tls_cert", http, fresh(http, Section::Http, config.http.https())?),
            ("ingest.tls_cert", rtmps, fresh(rtmps, Section::Ingest, ingest)?),
        ];
        for (name, current, fresh) in pairs {
            let (Some(current), Some(fresh)) = (current, fresh) else { continue };
            if current.take_over(fresh) && !changes.applied.contains(&name) {
                changes.applied.push(name);
            }
        }
        self.billing.set_prices(&config);
        self.live.set_settings(live_settings(&config));
        if config.log.level != running.log.level {
            self.level.set(&config.log.level);
            satcast_drivers::set_log_level(driver_log_level());
        }
        self.config.set(config.clone());
        // Last, because it takes its time: new libraries are probed. A driver that refuses its settings stays as it is.
        let drivers = self.drivers.clone();
        if let Err(error) = tokio::task::spawn_blocking(move || drivers.reconfigure(&config)).await {
            tracing::error!(%error, "cannot load the drivers again");
        }
        Ok(changes)
    }
}

/// The certificate in the configured files, if `current` is in use.
fn fresh(
    current: &Option<Arc<Certificates>>,
    section: Section,
    files: Option<(&Path, &Path)>,
) -> Result<Option<Certificates>, String> {
    let Some((cert, key)) = files.filter(|_| current.is_some()) else { return Ok(None) };
    Certificates::load(section, cert, key).map(Some).map_err(|error| error.to_string())
}

fn report(changes: &Changes) {
    let list = |keys: &[&str]| if keys.is_empty() { "none".to_owned() } else { keys.join(", ") };
    tracing::info!(
        changed = list(&changes.applied),
        "the configuration was read again, and the drivers were checked"
    );
    if !changes.waiting.is_empty() {
        tracing::warn!(keys = list(&changes.waiting), "these changes wait for a restart of the service");
    }
}
