//! The log lines of a driver that is linked into the test binary: they go to the subscriber of the test's process.

use std::sync::Once;

use parking_lot::Mutex;
use tracing::{Event, Metadata, Subscriber, span};

use crate::driver::log::Line;

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Keeps every line that this process logs from now on, of all levels. Call it before the driver starts; more calls do nothing.
///
/// # Panics
/// When the process has another global subscriber of `tracing`.
pub fn keep_own_logs() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        tracing::subscriber::set_global_default(Keeper).expect("no other subscriber");
        tracing::info!("log lines are kept");
    });
}

/// Expects that no line since [`keep_own_logs`] contains `secret`.
///
/// # Panics
/// When one does, and when no lines are kept.
#[track_caller]
pub fn assert_not_logged(secret: &str) {
    let lines = LINES.lock();
    assert!(!lines.is_empty(), "call `keep_own_logs` first");
    for line in lines.iter() {
        assert!(!line.contains(secret), "{line}");
    }
}

struct Keeper;

impl Subscriber for Keeper {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        let fields = line.fields.iter().map(|(name, value)| format!(" {name}={value}")).collect::<String>();
        LINES.lock().push(format!("{} {}{fields}", event.metadata().target(), line.message));
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "se\"cret")]
    fn a_secret_with_a_quote_is_found() {
        keep_own_logs();
        tracing::info!(field = "a se\"cret", "a line");
        assert_not_logged("se\"cret");
    }
}
