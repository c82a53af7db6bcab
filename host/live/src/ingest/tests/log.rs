//! The log of the service during a test.

use super::*;

/// Collects the log lines of the test's thread, at all levels, until it is dropped.
pub(super) struct Log {
    lines: Lines,
    _guard: tracing::subscriber::DefaultGuard,
}

impl Log {
    pub(super) fn start() -> Self {
        let lines = Lines::default();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::TRACE)
            .with_ansi(false)
            .with_writer(lines.clone())
            .finish();
        Self { lines, _guard: tracing::subscriber::set_default(subscriber) }
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8(self.lines.0.lock().clone()).unwrap()
    }

    /// Waits for a line with this text.
    pub(super) async fn says(&self, what: impl std::fmt::Display) {
        let words = &what.to_string();
        timeout(PATIENCE, async {
            while !self.text().contains(words) {
                sleep(Duration::from_millis(2)).await;
            }
        })
        .await
        .unwrap_or_else(|_| panic!("no \"{words}\" in {}", self.text()));
    }
}

/// Writer for log lines.
#[derive(Debug, Clone, Default)]
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

impl MakeWriter<'_> for Lines {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}
