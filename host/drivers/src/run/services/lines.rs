//! Log lines and events of a driver, within its limits.

use satcast_plugin_api::host::LogLine;

use super::{DriverServices, EVENT_BYTES_MAX, EVENT_NAME_BYTES_MAX, LOG_TEXT_BYTES_MAX, Opened, shortened};

/// Approximate bytes of a line beside the driver's text.
const LINE_HEAD_BYTES: usize = 128;

impl DriverServices {
    /// Writes a line, unless this destination or the driver exceeds its limit.
    pub(super) fn write(&self, line: &LogLine) {
        let opened = self.find(line.dest);
        let texts = line.fields.iter().map(|(key, value)| key.len() + value.len() + 2).sum::<usize>();
        let bytes = texts.min(LOG_TEXT_BYTES_MAX) + line.message.len().min(LOG_TEXT_BYTES_MAX);
        if !self.may_write(opened.as_deref(), bytes) {
            return;
        }
        let clean = |text: &str| self.clean(opened.as_deref(), text);
        let dest = opened.as_ref().map_or(0, |opened| opened.destination.0);
        let fields: Vec<String> =
            line.fields.iter().map(|(key, value)| format!("{}={}", clean(key), clean(value))).collect();
        let fields = (!fields.is_empty()).then(|| shortened(&fields.join(" "), LOG_TEXT_BYTES_MAX));
        let (message, target) = (clean(&line.message), shortened(&clean(&line.target), LINE_HEAD_BYTES));
        let driver = self.driver.as_str();
        match line.level {
            1 => tracing::error!(target: "driver", driver, dest, target, fields, "{message}"),
            2 => tracing::warn!(target: "driver", driver, dest, target, fields, "{message}"),
            3 => tracing::info!(target: "driver", driver, dest, target, fields, "{message}"),
            4 => tracing::debug!(target: "driver", driver, dest, target, fields, "{message}"),
            _ => tracing::trace!(target: "driver", driver, dest, target, fields, "{message}"),
        }
    }

    /// Whether a line of this many bytes, about a destination or the driver itself, may be written. Logs how many
    /// were left out before.
    pub(super) fn may_write(&self, opened: Option<&Opened>, bytes: usize) -> bool {
        let now = self.clock.monotonic();
        let limit = opened.map_or(&self.log_limit, |opened| &opened.log_limit);
        let Some(left_out) = limit.admit(now) else { return false };
        let Some(left_out) = self.driver_limit.admit_bytes(bytes + LINE_HEAD_BYTES, left_out, now) else {
            return false;
        };
        if left_out > 0 {
            let driver = self.driver.as_str();
            tracing::warn!(
                driver,
                left_out,
                "{left_out} log lines of driver {driver} suppressed: the driver logs too much"
            );
        }
        true
    }

    /// Passes an event on, unless it is invalid or there are too many.
    pub(super) fn forward_event(&self, dest: u64, name: &str, json: &str) {
        let Some(opened) = self.find(dest) else { return };
        let now = self.clock.monotonic();
        let is_admitted = opened.event_limit.admit(now).is_some() && self.event_limit.admit(now).is_some();
        // Each event becomes a log line, so it counts as one.
        if !is_admitted || !self.may_write(Some(&opened), name.len() + json.len().min(LOG_TEXT_BYTES_MAX)) {
            return;
        }
        let (driver, dest) = (self.driver.as_str(), opened.destination.0);
        if json.len() > EVENT_BYTES_MAX {
            tracing::warn!(driver, dest, bytes = json.len(), "driver event too large, dropped");
            return;
        }
        match serde_json::from_str(json) {
            Ok(data) => {
                let name = shortened(&self.clean(Some(&opened), name), EVENT_NAME_BYTES_MAX);
                opened.observer.event(&name, opened.redactor().clean_json(data));
            }
            Err(_) => tracing::warn!(driver, dest, "driver event is not JSON, dropped"),
        }
    }
}
