//! The span of each upload: from the first report that it runs to the one that ends it.

use std::collections::{HashMap, HashSet};

use parking_lot::Mutex;
use tracing::Span;
use tracing::field::Empty;

use satcast_store::{ArchiveReport, ArchiveState};

/// Most uploads that have a span; further ones are saved without.
pub(super) const SPANS_MAX: usize = 1_024;

/// Spans of running uploads by driver and file.
#[derive(Default)]
pub(super) struct Uploads(Mutex<HashMap<(String, String), Span>>);

impl Uploads {
    /// The span in which a report is saved. It ends with the last report of its upload; `is_gone`: there is no file.
    pub(super) fn span(&self, report: &ArchiveReport, is_gone: bool) -> Span {
        let mut running = self.0.lock();
        let key = (report.driver.clone(), report.file_name.clone());
        if report.state == ArchiveState::Uploading && !is_gone {
            if !running.contains_key(&key) && running.len() >= SPANS_MAX {
                return Span::none();
            }
            return running.entry(key).or_insert_with(|| new_span(report)).clone();
        }
        let Some(span) = running.remove(&key) else { return Span::none() };
        span.record("state", if is_gone { "gone" } else { report.state.as_str() });
        span.record("bytes", report.uploaded_bytes);
        span
    }

    /// Ends the spans of a driver's uploads that it does not have any more.
    pub(super) fn keep(&self, driver: &str, names: &HashSet<String>) {
        self.0.lock().retain(|(of, name), _| of != driver || names.contains(name));
    }
}

fn new_span(report: &ArchiveReport) -> Span {
    tracing::error_span!(
        parent: None, "upload", driver = report.driver, session = %report.session_id,
        destination = %report.destination_id, file_name = report.file_name, state = Empty, bytes = Empty
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use satcast_core::ids::{DestinationId, SessionId, UnixMillis};

    fn report(number: usize, state: ArchiveState) -> ArchiveReport {
        ArchiveReport {
            driver: "archive".into(),
            destination_id: DestinationId(1),
            session_id: SessionId("s".into()),
            state,
            file_name: format!("{number}.mp4"),
            size_bytes: 1,
            uploaded_bytes: 1,
            duration_ms: 1,
            error: None,
            error_class: None,
            url: None,
            started_at: UnixMillis(0),
            changed_at: UnixMillis(0),
            attempt: 1,
            attempt_opened: true,
            expires_at: None,
            notice: None,
            audio_only: false,
        }
    }

    #[test]
    fn spans_of_uploads_are_limited_and_end_with_their_upload() {
        let uploads = Uploads::default();
        let running = || uploads.0.lock().len();
        uploads.span(&report(0, ArchiveState::Recording), false);
        assert_eq!(running(), 0);
        for number in 0..=SPANS_MAX {
            uploads.span(&report(number, ArchiveState::Uploading), false);
            uploads.span(&report(number, ArchiveState::Uploading), false);
        }
        assert_eq!(running(), SPANS_MAX);
        uploads.span(&report(0, ArchiveState::Ready), false);
        uploads.span(&report(1, ArchiveState::Failed), false);
        uploads.span(&report(2, ArchiveState::Uploading), true);
        assert_eq!(running(), SPANS_MAX - 3);
        let other = ArchiveReport { driver: "other".into(), ..report(3, ArchiveState::Uploading) };
        uploads.span(&other, false);
        uploads.keep("archive", &HashSet::from(["4.mp4".to_owned(), "never.mp4".to_owned()]));
        assert_eq!(running(), 2, "one of each driver");
    }
}
