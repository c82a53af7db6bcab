//! Drivers' reports about recordings that outlive their sessions, and the encryption of their journals.

use std::collections::VecDeque;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use satcast_plugin_api::Error;
use satcast_plugin_api::recording::Recording;
use tokio::sync::Notify;

use satcast_core::secret::Vault;

/// Most waiting reports of all drivers together. Further reports are dropped, and a later list finds their
/// recordings.
pub const REPORTS_WAITING_MAX: usize = 4_096;

/// Parts of the host for drivers with recordings; the default encrypts nothing and ignores the reports.
#[derive(Clone, Default)]
pub struct RecordingParts {
    pub reports: Reports,
    /// Encrypts their journals.
    pub vault: Option<Vault>,
}

/// Queue of drivers' reports about recordings, in order; cheap to clone.
#[derive(Clone, Default)]
pub struct Reports {
    inner: Arc<Queue>,
}

#[derive(Default)]
struct Queue {
    batch: Mutex<ReportBatch>,
    arrived: Notify,
}

/// Reports taken from the queue.
#[derive(Debug, Default, PartialEq)]
pub struct ReportBatch {
    /// Each with the id of its driver.
    pub reports: VecDeque<(String, Recording)>,
    /// Reports were dropped: all recordings must be listed.
    pub is_incomplete: bool,
}

impl Reports {
    /// Adds a report. Never waits.
    pub fn put(&self, driver: &str, recording: Recording) {
        let mut batch = self.inner.batch.lock();
        if batch.reports.len() < REPORTS_WAITING_MAX {
            batch.reports.push_back((driver.to_owned(), recording));
        } else {
            batch.is_incomplete = true;
        }
        drop(batch);
        self.inner.arrived.notify_one();
    }

    /// Reports may have been missed: all recordings must be listed.
    pub(crate) fn mark_incomplete(&self) {
        self.inner.batch.lock().is_incomplete = true;
        self.inner.arrived.notify_one();
    }

    /// Waits until there may be reports.
    pub async fn arrived(&self) {
        self.inner.arrived.notified().await;
    }

    /// Takes all waiting reports.
    pub fn take(&self) -> ReportBatch {
        std::mem::take(&mut self.inner.batch.lock())
    }
}

/// Encrypts `text` for the journal of one driver.
pub(crate) fn seal(parts: &RecordingParts, driver: &str, text: &str) -> Result<String, Error> {
    let vault = parts.vault.as_ref().ok_or_else(no_vault)?;
    Ok(STANDARD.encode(vault.seal(&owner(driver), text.as_bytes())))
}

/// Decrypts the result of [`seal`] for the same driver.
pub(crate) fn unseal(parts: &RecordingParts, driver: &str, sealed: &str) -> Result<String, Error> {
    let vault = parts.vault.as_ref().ok_or_else(no_vault)?;
    let sealed =
        STANDARD.decode(sealed).map_err(|_| Error::internal("this was not sealed by the service"))?;
    let text = vault.open_text(&owner(driver), &sealed);
    text.map(|text| text.into_inner()).map_err(|error| Error::internal(error.to_string()))
}

// No row has such a uid.
fn owner(driver: &str) -> String {
    format!("driver:{driver}")
}

fn no_vault() -> Error {
    Error::internal("the key of stored secrets is not used by this command")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recording(name: usize) -> Recording {
        Recording {
            file_name: name.to_string(),
            destination_id: 1,
            session_id: "s".into(),
            state: satcast_plugin_api::recording::RecordingState::Uploading,
            size_bytes: 1,
            uploaded_bytes: 0,
            duration_ms: 1,
            error: None,
            error_class: None,
            url: None,
            started_at_ms: 1,
            changed_at_ms: 1,
            attempt: 0,
            attempt_opened: false,
            has_copy: true,
            gone: false,
            expires_at_ms: None,
            asks_notice: false,
            audio_only: false,
        }
    }

    #[tokio::test]
    async fn waiting_reports_are_limited() {
        let reports = Reports::default();
        for name in 0..REPORTS_WAITING_MAX {
            reports.put("d", recording(name));
        }
        reports.arrived().await;
        let batch = reports.take();
        assert_eq!((batch.reports.len(), batch.is_incomplete), (REPORTS_WAITING_MAX, false));
        assert_eq!(batch.reports[1], ("d".to_owned(), recording(1)));
        for name in 0..=REPORTS_WAITING_MAX {
            reports.put("d", recording(name));
        }
        let batch = reports.take();
        assert_eq!((batch.reports.len(), batch.is_incomplete), (REPORTS_WAITING_MAX, true));
        assert_eq!(reports.take(), ReportBatch::default());
    }

    #[test]
    fn a_text_sealed_for_one_driver_opens_for_no_other() {
        let parts = RecordingParts { vault: Some(Vault::new(&[7; 32])), ..RecordingParts::default() };
        let sealed = seal(&parts, "archive", "hunter2").unwrap();
        assert!(sealed.is_ascii() && !sealed.contains("hunter2"), "{sealed}");
        assert_eq!(unseal(&parts, "archive", &sealed).unwrap(), "hunter2");
        assert!(unseal(&parts, "other", &sealed).unwrap_err().message.contains("damaged"));
        assert!(unseal(&parts, "archive", "%").is_err());
        assert!(unseal(&parts, "archive", "").is_err());
        assert!(seal(&RecordingParts::default(), "archive", "x").is_err());
    }
}
