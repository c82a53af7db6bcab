//! What drivers tell of the recordings that they keep beyond their sessions, and what their journals are encrypted with.

use std::collections::VecDeque;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use satcast_plugin_api::Error;
use satcast_plugin_api::recording::Recording;
use tokio::sync::Notify;

use satcast_core::secret::Vault;

/// Reports of all drivers together that wait to be written down. What is told beyond is found by a list.
pub const REPORTS_WAITING_MAX: usize = 4_096;

/// What drivers with recordings need of the host; the default encrypts nothing, and nobody reads the reports.
#[derive(Clone, Default)]
pub struct RecordingParts {
    /// Where reports go.
    pub reports: Reports,
    /// Encrypts for their journals.
    pub vault: Option<Vault>,
}

/// What drivers told of their recordings, in order; cheap to clone.
#[derive(Clone, Default)]
pub struct Reports {
    inner: Arc<Waiting>,
}

#[derive(Default)]
struct Waiting {
    told: Mutex<Told>,
    arrived: Notify,
}

/// Reports that waited.
#[derive(Debug, Default, PartialEq)]
pub struct Told {
    /// Each with the id of its driver.
    pub reports: VecDeque<(String, Recording)>,
    /// More came than may wait: everything must be listed.
    pub is_short: bool,
}

impl Reports {
    /// Takes a report in. Never waits.
    pub fn put(&self, driver: &str, recording: Recording) {
        let mut told = self.inner.told.lock();
        if told.reports.len() < REPORTS_WAITING_MAX {
            told.reports.push_back((driver.to_owned(), recording));
        } else {
            told.is_short = true;
        }
        drop(told);
        self.inner.arrived.notify_one();
    }

    /// Something may have been missed: everything is to be listed.
    pub(crate) fn miss(&self) {
        self.inner.told.lock().is_short = true;
        self.inner.arrived.notify_one();
    }

    /// Waits until there may be some.
    pub async fn arrived(&self) {
        self.inner.arrived.notified().await;
    }

    /// Takes all that wait.
    pub fn take(&self) -> Told {
        std::mem::take(&mut self.inner.told.lock())
    }
}

/// Encrypts `text` for the journal of one driver.
pub(crate) fn seal(parts: &RecordingParts, driver: &str, text: &str) -> Result<String, Error> {
    let vault = parts.vault.as_ref().ok_or_else(no_vault)?;
    Ok(STANDARD.encode(vault.seal(&owner(driver), text.as_bytes())))
}

/// Decrypts what [`seal`] made for the same driver.
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
        }
    }

    #[tokio::test]
    async fn so_many_reports_wait_and_no_more() {
        let reports = Reports::default();
        for name in 0..REPORTS_WAITING_MAX {
            reports.put("d", recording(name));
        }
        reports.arrived().await;
        let told = reports.take();
        assert_eq!((told.reports.len(), told.is_short), (REPORTS_WAITING_MAX, false));
        assert_eq!(told.reports[1], ("d".to_owned(), recording(1)));
        for name in 0..=REPORTS_WAITING_MAX {
            reports.put("d", recording(name));
        }
        let told = reports.take();
        assert_eq!((told.reports.len(), told.is_short), (REPORTS_WAITING_MAX, true));
        assert_eq!(reports.take(), Told::default());
    }

    #[test]
    fn what_is_sealed_for_one_driver_opens_for_no_other() {
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
