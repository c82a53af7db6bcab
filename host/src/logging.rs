//! Log lines: to standard error, as text or JSON, in colour only on a terminal. Each has the ids of the spans around it.

use std::fmt;
use std::io::{self, IsTerminal as _};

use serde_json::{Map, Value};
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, JsonFields, Writer};
use tracing_subscriber::fmt::time::{FormatTime as _, time};
use tracing_subscriber::fmt::{FmtContext, FormattedFields};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Registry, reload};

use crate::telemetry::Spans;
use satcast_core::config::{Log, LogFormat};

/// Targets of the WebRTC libraries. They log datagrams that they cannot use, at the rate of the sender, and passwords of ICE.
const SILENT: [&str; 4] = ["str0m", "dimpl", "is::", "sctp_proto"];

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

/// Starts logging for the rest of the process, with spans for the exporter if there is one; a second call changes nothing.
pub fn start(config: &Log, spans: Option<Spans>) -> Level {
    let (filter, level) = reload::Layer::new(filter(&config.level));
    let registry = tracing_subscriber::registry().with(filter).with(spans);
    let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr);
    let started = match config.format {
        LogFormat::Json => {
            registry.with(lines.fmt_fields(JsonFields::new()).event_format(JsonLines)).try_init()
        }
        LogFormat::Text => registry.with(lines.with_ansi(io::stderr().is_terminal())).try_init(),
    };
    if started.is_err() {
        tracing::debug!("logging was started before");
    }
    Level(level)
}

/// The level was checked with the configuration; one that cannot be read all the same means `info`. [`SILENT`] libraries log only if
/// the filter names them.
fn filter(level: &str) -> Targets {
    let asked: Targets = level.parse().unwrap_or_else(|_| Targets::new().with_default(tracing::Level::INFO));
    SILENT.into_iter().fold(asked.clone(), |filter, library| {
        let name = library.trim_end_matches(':');
        let is_named = asked.iter().any(|(target, _)| target.split("::").next() == Some(name));
        if is_named { filter } else { filter.with_target(library, LevelFilter::OFF) }
    })
}

/// One JSON object per line, with the fields of the event and of the spans around it side by side. The innermost wins.
struct JsonLines;

impl<S> FormatEvent<S, JsonFields> for JsonLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, JsonFields>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut own = String::new();
        context.format_fields(Writer::new(&mut own), event)?;
        let mut fields = object(&own);
        for span in context.event_scope().into_iter().flatten() {
            let extensions = span.extensions();
            let Some(of_span) = extensions.get::<FormattedFields<JsonFields>>() else { continue };
            for (name, value) in object(of_span) {
                fields.entry(name).or_insert(value);
            }
        }
        fields.entry("target").or_insert_with(|| event.metadata().target().into());
        writer.write_str("{\"timestamp\":\"")?;
        time().format_time(&mut writer)?;
        write!(writer, "\",\"level\":\"{}\"", event.metadata().level())?;
        for (name, value) in &fields {
            write!(writer, ",{}:{value}", Value::from(name.as_str()))?;
        }
        writer.write_str("}\n")
    }
}

/// The fields that [`JsonFields`] has written.
fn object(text: &str) -> Map<String, Value> {
    serde_json::from_str(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn libraries_of_webrtc_log_only_if_they_are_named() {
        let shows = |level: &str, target: &str| filter(level).would_enable(target, &tracing::Level::ERROR);
        for target in ["str0m", "str0m::session", "dimpl::dtls12", "is::agent", "sctp_proto::association"] {
            assert!(!shows("info", target) && !shows("trace", target), "{target}");
        }
        assert!(shows("info,str0m=debug", "str0m::session") && !shows("info,str0m=debug", "is::agent"));
        assert!(shows("warn,is=warn", "is::agent") && shows("off,is::agent=warn", "is::agent"));
        assert!(shows("info", "satcast_live::ingest") && shows("info", "isolated"));
    }

    #[test]
    fn json_lines_have_the_fields_of_all_spans_side_by_side() {
        let lines = Lines::default();
        let writer = lines.clone();
        let layer = tracing_subscriber::fmt::layer().with_writer(move || writer.clone());
        let layer = layer.fmt_fields(JsonFields::new()).event_format(JsonLines);
        let subscriber = tracing_subscriber::registry().with(layer);
        tracing::subscriber::with_default(subscriber, || {
            let outer = tracing::error_span!(
                "session",
                session = "ses_1",
                stream = 7,
                reason = tracing::field::Empty
            );
            let _outer = outer.enter();
            let _inner = tracing::error_span!("destination", destination = %5, stream = 8).entered();
            outer.record("reason", "stopped");
            tracing::warn!(target: "driver", session = "ses_2", target = "a\"b", "line\n{}", 1);
            tracing::info!(target: "driver", "plain");
        });
        let text = String::from_utf8(lines.0.lock().clone()).unwrap();
        let [one, two] = text.lines().collect::<Vec<_>>()[..] else { panic!("{text}") };
        let (mut one, two) = (object(one), object(two));
        assert!(
            one.remove("timestamp").is_some_and(|time| time.as_str().is_some_and(|time| time.ends_with('Z')))
        );
        let expected = serde_json::json!({
            "level": "WARN", "message": "line\n1", "session": "ses_2", "stream": 8, "destination": "5", "reason": "stopped",
            "target": "a\"b"
        });
        assert_eq!(Value::Object(one), expected);
        assert_eq!((&two["session"], &two["target"]), (&"ses_1".into(), &"driver".into()));
    }
}
