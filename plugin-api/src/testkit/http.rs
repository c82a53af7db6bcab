//! Viewer requests.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::shared::read;
use super::{TestDestination, Testkit, WAIT_MAX};
use crate::{AssetBody, Error, HttpRequest, HttpResponse};

/// The answer that a viewer gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answered {
    /// Status; 500 also for an answer that breaks a rule.
    pub status: u16,
    /// Media type.
    pub content_type: String,
    /// Seconds a cache may keep it.
    pub max_age_secs: u32,
    /// Further headers.
    pub headers: Vec<(String, String)>,
    /// The bytes of the body, or the reason why they cannot be read.
    pub body: Result<Vec<u8>, String>,
    /// Names of the published assets it consists of.
    pub parts: Vec<String>,
}

impl Answered {
    pub(super) fn new(response: Option<HttpResponse>, folder: &Path) -> Self {
        let Some(response) = response else {
            let (content_type, headers, body) = (String::new(), Vec::new(), Ok(Vec::new()));
            return Self { status: 500, content_type, max_age_secs: 0, headers, body, parts: Vec::new() };
        };
        let HttpResponse { status, content_type, max_age_secs, headers, body } = response;
        let (body, parts) = match body {
            AssetBody::Parts(names) => (Ok(Vec::new()), names),
            body => (read(&body, folder), Vec::new()),
        };
        let body = body.map_err(|error| error.to_string());
        Self { status, content_type, max_age_secs, headers, body, parts }
    }
}

impl Testkit {
    /// Sends a viewer request and waits for the answer.
    ///
    /// # Errors
    /// The driver serves no requests, or does not answer within [`WAIT_MAX`].
    pub fn get(&self, destination: &TestDestination, request: &HttpRequest) -> Result<Answered, Error> {
        let http = self.driver.http().ok_or_else(|| Error::internal("the driver answers no requests"))?;
        let token = self.next_dest.fetch_add(1, Ordering::Relaxed);
        self.shared.requests.lock().insert(token, None);
        http.request(destination.dest, token, request);
        let end = Instant::now() + WAIT_MAX;
        // The condition variable belongs to the lock of the reports.
        let mut reports = self.shared.reports.lock();
        loop {
            if let Some(answered) = self.shared.requests.lock().get(&token).cloned().flatten() {
                return Ok(answered);
            }
            let left = end
                .checked_duration_since(Instant::now())
                .ok_or_else(|| Error::internal("the driver did not answer"))?;
            self.shared.changed.wait_for(&mut reports, left);
        }
    }
}
