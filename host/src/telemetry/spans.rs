//! The layer: gives each span its place in a trace, and collects its fields and times until it ends.

use std::fmt;
use std::time::Duration;

use tokio::sync::mpsc;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::{LookupSpan, SpanRef};

use satcast_core::clock::Clock;
use satcast_core::secret::random_u64;
use satcast_core::trace::{self, Place, TraceContext};

/// Beginning of the targets of the service's own spans. Libraries have others.
const OWN_TARGETS: &str = "satcast";
/// Most fields of a span; further ones are left out.
pub(super) const FIELDS_MAX: usize = 16;
/// Longest text of a field in bytes; the rest is cut.
pub(super) const TEXT_BYTES_MAX: usize = 256;

/// A layer for the spans of this process; see the module.
#[derive(Debug)]
pub struct Spans {
    ended: mpsc::Sender<Ended>,
    ratio: f64,
    clock: Clock,
}

/// A span that has ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) name: &'static str,
    pub(super) place: Place,
    /// Unix nanoseconds.
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) fields: Fields,
}

/// A span that runs.
struct Running {
    /// Unix nanoseconds.
    start: u64,
    /// Monotonic time.
    began: Duration,
    fields: Fields,
}

/// Fields by name, as they were recorded last.
#[derive(Debug, Default)]
pub(super) struct Fields(Vec<(&'static str, FieldValue)>);

#[derive(Clone, Debug, PartialEq)]
pub(super) enum FieldValue {
    Text(String),
    Number(i64),
    Flag(bool),
}

impl Spans {
    /// A layer that gives `ratio` (0 to 1) of all traces to `ended`.
    pub(super) fn new(ended: mpsc::Sender<Ended>, ratio: f64) -> Self {
        Self { ended, ratio, clock: Clock::system() }
    }

    /// The context of the first span of a trace.
    fn first(&self) -> TraceContext {
        let (high, low) = (random_id(), random_id());
        let trace = u128::from(high) << 64 | u128::from(low);
        // Of the number, as other services do it, so that all of them choose the same traces.
        let is_sampled = self.ratio >= 1.0 || (low as f64) < self.ratio * 2f64.powi(64);
        TraceContext { trace, span: random_id(), is_sampled }
    }

    fn place<'a, S: LookupSpan<'a>>(&self, span: &SpanRef<'a, S>) -> Place {
        let outer = span.scope().skip(1).find_map(|outer| outer.extensions().get::<Place>().copied());
        match outer {
            None => Place { context: self.first(), parent: None },
            Some(Place { context, .. }) => {
                Place { context: TraceContext { span: random_id(), ..context }, parent: Some(context.span) }
            }
        }
    }
}

impl<S> Layer<S> for Spans
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id).filter(|span| is_own(span.metadata())) else { return };
        let place = self.place(&span);
        let (start, began) = (self.clock.now_nanos(), self.clock.monotonic());
        let mut running = Running { start, began, fields: Fields::default() };
        attributes.record(&mut running.fields);
        let mut extensions = span.extensions_mut();
        extensions.insert(place);
        extensions.insert(running);
    }

    fn on_record(&self, id: &Id, record: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(running) = span.extensions_mut().get_mut::<Running>() {
            record.record(&mut running.fields);
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let Some(span) = context.span(&id) else { return };
        let mut extensions = span.extensions_mut();
        let (Some(running), Some(place)) =
            (extensions.remove::<Running>(), extensions.get_mut::<Place>().copied())
        else {
            return;
        };
        if !place.context.is_sampled {
            return;
        }
        let took = self.clock.monotonic().saturating_sub(running.began);
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let (start, end) = (running.start, running.start.saturating_add(took));
        let ended = Ended { name: span.metadata().name(), place, start, end, fields: running.fields };
        if self.ended.try_send(ended).is_err() {
            trace::count_lost(1);
        }
    }
}

impl Fields {
    pub(super) fn get(&self, name: &str) -> Option<&FieldValue> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &(&'static str, FieldValue)> {
        self.0.iter()
    }

    fn set(&mut self, field: &Field, value: FieldValue) {
        if let Some((_, known)) = self.0.iter_mut().find(|(name, _)| *name == field.name()) {
            *known = value;
        } else if self.0.len() < FIELDS_MAX {
            self.0.push((field.name(), value));
        }
    }

    fn set_text(&mut self, field: &Field, mut text: String) {
        let end = (0..=text.len().min(TEXT_BYTES_MAX)).rev().find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or(0));
        self.set(field, FieldValue::Text(text));
    }
}

impl Visit for Fields {
    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field, FieldValue::Flag(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field, FieldValue::Number(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set(field, FieldValue::Number(i64::try_from(value).unwrap_or(i64::MAX)));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.set_text(field, value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.set_text(field, format!("{value:?}"));
    }
}

fn is_own(metadata: &Metadata<'_>) -> bool {
    metadata.target().starts_with(OWN_TARGETS)
}

/// Zero is no number of a trace or span.
fn random_id() -> u64 {
    random_u64().max(1)
}
