//! Log lines: to standard error, as text or JSON, in colour only on a terminal.

use std::io::{self, IsTerminal as _};

use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Registry, fmt, reload};

use satcast_core::config::{Log, LogFormat};

/// Changes the level of the lines while the service runs.
#[derive(Clone, Debug)]
pub struct Level(reload::Handle<Targets, Registry>);

impl Level {
    /// Takes a level or filter, as `[log] level`.
    pub fn set(&self, level: &str) {
        if let Err(error) = self.0.reload(filter(level)) {
            tracing::warn!(%error, "the log level stays as it is");
        }
    }
}

/// Starts logging for the rest of the process; a second call changes nothing.
pub fn start(config: &Log) -> Level {
    let (filter, level) = reload::Layer::new(filter(&config.level));
    let registry = tracing_subscriber::registry().with(filter);
    let started = match config.format {
        LogFormat::Json => {
            registry.with(fmt::layer().json().flatten_event(true).with_writer(io::stderr)).try_init()
        }
        LogFormat::Text => registry
            .with(fmt::layer().with_ansi(io::stderr().is_terminal()).with_writer(io::stderr))
            .try_init(),
    };
    if started.is_err() {
        tracing::debug!("logging was started before");
    }
    Level(level)
}

/// The level was checked with the configuration; one that cannot be read all the same means `info`.
fn filter(level: &str) -> Targets {
    level.parse().unwrap_or_else(|_| Targets::new().with_default(tracing::Level::INFO))
}
