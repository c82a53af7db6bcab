//! Log lines: to standard error, as text or JSON, in colour only on a terminal.

use std::io::{self, IsTerminal as _};

use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use satcast_core::config::{Log, LogFormat};

/// Starts logging for the rest of the process; a second call changes nothing.
///
/// The level was checked with the configuration; one that cannot be read all the same means `info`.
pub fn start(config: &Log) {
    let filter: Targets =
        config.level.parse().unwrap_or_else(|_| Targets::new().with_default(tracing::Level::INFO));
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
}
