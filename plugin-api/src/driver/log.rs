//! `tracing` of the driver's library, forwarded to the host.
//!
//! Every dynamic library has its own `tracing` globals, so without this bridge a driver's log lines would be lost.

use std::fmt::Write as _;
use std::sync::Arc;

use parking_lot::RwLock;
use tracing::field::{Field, Visit};
use tracing::span;
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber};

use super::hostref::HostRef;
use crate::abi::{SatcastKv, SatcastStr};

/// Most fields of one line that are forwarded.
pub(crate) const FIELDS_MAX: usize = 16;

tokio::task_local! {
    /// The opening whose `run` is being polled.
    pub(crate) static CURRENT_DEST: u64;
}

/// The host of the running driver. The same image may be started again later.
static HOST: RwLock<Option<Arc<HostRef>>> = RwLock::new(None);

/// Sends further lines to `host`.
pub(crate) fn lead_to(host: Arc<HostRef>) {
    *HOST.write() = Some(host);
}

pub(crate) struct Bridge {
    /// The host whose level gate is read. The gate never changes in a process, and reading it takes no lock.
    gate: Arc<HostRef>,
}

impl Bridge {
    pub(crate) fn new(gate: Arc<HostRef>) -> Self {
        Self { gate }
    }
}

fn level_number(level: Level) -> u32 {
    match level {
        Level::ERROR => 1,
        Level::WARN => 2,
        Level::INFO => 3,
        Level::DEBUG => 4,
        Level::TRACE => 5,
    }
}

impl Subscriber for Bridge {
    // The level may change at any time, so callsites must not cache the result.
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        level_number(*metadata.level()) <= self.gate.max_level()
    }

    // Spans are not forwarded: the host knows driver and destination of each line.
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let host = HOST.read().clone();
        let Some(host) = host else { return };
        let mut line = Line::default();
        event.record(&mut line);
        let fields: Vec<SatcastKv> = line
            .fields
            .iter()
            .map(|(key, value)| SatcastKv { key: SatcastStr::new(key), value: SatcastStr::new(value) })
            .collect();
        let dest = CURRENT_DEST.try_with(|dest| *dest).unwrap_or(0);
        let level = level_number(*event.metadata().level());
        host.log(dest, level, event.metadata().target(), &line.message, &fields);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// The text of a log line, with at most [`FIELDS_MAX`] fields.
#[derive(Default)]
pub(crate) struct Line {
    pub(crate) message: String,
    pub(crate) fields: Vec<(&'static str, String)>,
}

impl Line {
    fn put(&mut self, field: &Field, value: std::fmt::Arguments<'_>) {
        if field.name() == "message" {
            // Writing into a String cannot fail.
            let _ = self.message.write_fmt(value);
        } else if self.fields.len() < FIELDS_MAX {
            self.fields.push((field.name(), value.to_string()));
        }
    }
}

impl Visit for Line {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.put(field, format_args!("{value:?}"));
    }
}
