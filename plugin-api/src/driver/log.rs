//! `tracing` of the driver's library, forwarded to the host.
//!
//! Every dynamic library has `tracing` globals of its own, so without this bridge a driver's log lines would vanish.

use std::fmt::Write as _;
use std::sync::Arc;

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

pub(crate) struct Bridge {
    host: Arc<HostRef>,
}

impl Bridge {
    pub(crate) fn new(host: Arc<HostRef>) -> Self {
        Self { host }
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
    // The gate may move at any time, so no callsite may remember an answer.
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        level_number(*metadata.level()) <= self.host.max_level()
    }

    // Spans are not forwarded: the host knows driver and destination of each line.
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        let fields: Vec<SatcastKv> = line
            .fields
            .iter()
            .map(|(key, value)| SatcastKv { key: SatcastStr::new(key), value: SatcastStr::new(value) })
            .collect();
        let dest = CURRENT_DEST.try_with(|dest| *dest).unwrap_or(0);
        let level = level_number(*event.metadata().level());
        self.host.log(dest, level, event.metadata().target(), &line.message, &fields);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

#[derive(Default)]
struct Line {
    message: String,
    fields: Vec<(&'static str, String)>,
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
