//! Rejected reports of drivers: one log line for many, so that a faulty driver does not fill the log.

use std::collections::BTreeMap;

use satcast_drivers::Drivers;
use satcast_store::{ArchiveReport, Recorded, StoreError};

/// Most recordings that one line names; the others are counted.
pub(super) const NAMED_MAX: usize = 4;

/// Reports rejected since the last log line, by driver.
#[derive(Debug, Default)]
pub(super) struct Objections {
    of: BTreeMap<String, Refused>,
}

#[derive(Debug, Default)]
struct Refused {
    named: Vec<String>,
    count: usize,
}

impl Objections {
    /// Adds a report that was rejected.
    pub(super) fn add(&mut self, report: &ArchiveReport, recorded: &Result<Recorded, StoreError>) {
        let why = match recorded {
            Ok(Recorded::Foreign { kind }) => format!("is of type {kind}, which this driver does not serve"),
            Ok(Recorded::NameTaken { driver }) => {
                format!("has a recording of that name by driver {driver} in its account")
            }
            Err(StoreError::NotFound(_)) => format!("had no session {}", report.session_id.as_str()),
            Ok(Recorded::Taken(_) | Recorded::Late) | Err(_) => return,
        };
        let refused = self.of.entry(report.driver.clone()).or_default();
        refused.count += 1;
        if refused.named.len() < NAMED_MAX {
            let (name, destination) = (&report.file_name, report.destination_id.0);
            refused.named.push(format!("\"{name}\": destination {destination} {why}"));
        }
    }

    /// One line for each driver.
    fn lines(self) -> impl Iterator<Item = (String, String)> {
        self.of.into_iter().map(|(driver, Refused { named, count })| {
            let others = count - named.len();
            let others = if others == 0 { String::new() } else { format!("; and {others} more") };
            (driver, format!("{}{others}", named.join("; ")))
        })
    }

    /// Logs the lines, as often as a driver may log.
    pub(super) fn log(self, drivers: &Drivers) {
        for (driver, what) in self.lines() {
            if drivers.may_log_of(&driver, what.len()) {
                tracing::warn!(
                    driver,
                    "a driver reports recordings that are not its own; the reports are ignored: {what}"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use satcast_core::ids::{DestinationId, SessionId, UnixMillis};
    use satcast_store::ArchiveState;

    #[test]
    fn lines_name_driver_destination_and_file_and_count_the_rest_texts() {
        let report = |driver: &str| ArchiveReport {
            driver: driver.into(),
            destination_id: DestinationId(7),
            session_id: SessionId("ses_1".into()),
            file_name: "a.mp4".into(),
            state: ArchiveState::Ready,
            size_bytes: 1,
            uploaded_bytes: 1,
            duration_ms: 1,
            error: None,
            error_class: None,
            url: None,
            started_at: UnixMillis(1),
            changed_at: UnixMillis(1),
            attempt: 0,
            attempt_opened: false,
            expires_at: None,
            notice: None,
            audio_only: false,
        };
        let mut objections = Objections::default();
        for counts in [Ok(Recorded::Taken(1)), Ok(Recorded::Late), Err(StoreError::NotFound("x"))] {
            objections.add(&report("b"), &counts);
        }
        for _ in 0..NAMED_MAX + 2 {
            objections.add(&report("a"), &Ok(Recorded::Foreign { kind: "rtmp".into() }));
        }
        objections.add(&report("c"), &Ok(Recorded::NameTaken { driver: "a".into() }));
        let lines: Vec<_> = objections.lines().collect();
        let [(a, foreign), (_, nobodys), (_, taken)] = &lines[..] else { panic!("{lines:?}") };
        assert!(
            a == "a"
                && foreign
                    .starts_with("\"a.mp4\": destination 7 is of type rtmp, which this driver does not")
        );
        assert!(
            foreign.matches("a.mp4").count() == NAMED_MAX && foreign.ends_with("; and 2 more"),
            "{foreign}"
        );
        assert_eq!(nobodys, "\"a.mp4\": destination 7 had no session ses_1");
        assert_eq!(taken, "\"a.mp4\": destination 7 has a recording of that name by driver a in its account");
    }
}
