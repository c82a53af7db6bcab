//! Decides which issues are shown, and when changes are reported.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::issues::{Issue, IssueCode};
use super::verdict::Verdict;

/// Consecutive bad verdicts, one a second, after which an issue is shown.
pub(crate) const APPEARS_AFTER: u32 = 3;
/// Consecutive good verdicts after which it is cleared.
pub(crate) const CLEARS_AFTER: u32 = 5;
/// Least time between two reports of one session: at most six a minute.
pub(crate) const REPORT_PAUSE: Duration = Duration::from_secs(10);

/// The issues of one session.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    shown: BTreeMap<IssueCode, Issue>,
    /// Consecutive verdicts that contradict the shown state.
    doubts: BTreeMap<IssueCode, u32>,
    reported: BTreeSet<IssueCode>,
    reported_at: Option<Duration>,
}

/// A change to report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthNews {
    /// New issues since the last report.
    pub appeared: Vec<IssueCode>,
    /// Issues that ended since the last report.
    pub cleared: Vec<IssueCode>,
    /// All current issues.
    pub issues: Vec<Issue>,
}

impl Watch {
    pub(crate) fn is_shown(&self, code: IssueCode) -> bool {
        self.shown.contains_key(&code)
    }

    /// The shown issues, in the order of their codes.
    pub(crate) fn issues(&self) -> Vec<Issue> {
        self.shown.values().cloned().collect()
    }

    /// Takes the current verdicts; called about once a second. Returns the change to report now, if any. A change within
    /// [`REPORT_PAUSE`] is reported by a later call, unless it was reverted by then.
    pub(crate) fn look(
        &mut self,
        verdicts: impl IntoIterator<Item = (IssueCode, Verdict)>,
        now: Duration,
    ) -> Option<HealthNews> {
        for (code, verdict) in verdicts {
            self.weigh(code, verdict);
        }
        let shown: BTreeSet<IssueCode> = self.shown.keys().copied().collect();
        let is_early = self.reported_at.is_some_and(|at| now.saturating_sub(at) < REPORT_PAUSE);
        if shown == self.reported || is_early {
            return None;
        }
        let news = HealthNews {
            appeared: shown.difference(&self.reported).copied().collect(),
            cleared: self.reported.difference(&shown).copied().collect(),
            issues: self.issues(),
        };
        self.reported = shown;
        self.reported_at = Some(now);
        Some(news)
    }

    fn weigh(&mut self, code: IssueCode, verdict: Verdict) {
        let issue = match verdict {
            Verdict::Unknown => return,
            Verdict::Bad(issue) => Some(issue),
            Verdict::Good => None,
        };
        if issue.is_some() == self.is_shown(code) {
            self.doubts.remove(&code);
            // The measurement in its text and the affected platforms may have changed.
            if let Some(issue) = issue {
                self.shown.insert(code, issue);
            }
            return;
        }
        let doubts = self.doubts.entry(code).or_default();
        *doubts += 1;
        match issue {
            Some(issue) if *doubts >= APPEARS_AFTER => {
                self.doubts.remove(&code);
                self.shown.insert(code, issue);
            }
            None if *doubts >= CLEARS_AFTER => {
                self.doubts.remove(&code);
                self.shown.remove(&code);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: IssueCode = IssueCode::VideoBitrate;

    fn bad(text: &str) -> Verdict {
        Verdict::Bad(Issue { code: CODE, text: text.into(), platforms: vec!["twitch".into()] })
    }

    struct Rig {
        watch: Watch,
        now: Duration,
    }

    impl Rig {
        fn new() -> Self {
            Self { watch: Watch::default(), now: Duration::ZERO }
        }

        /// One verdict a second for `secs`; returns all reports.
        fn looks(&mut self, verdict: &Verdict, secs: u32) -> Vec<HealthNews> {
            let looks = (0..secs).filter_map(|_| {
                self.now += Duration::from_secs(1);
                self.watch.look([(CODE, verdict.clone())], self.now)
            });
            looks.collect()
        }
    }

    #[test]
    fn an_issue_appears_and_clears_after_consecutive_verdicts() {
        let mut rig = Rig::new();
        assert_eq!(rig.looks(&bad("7"), APPEARS_AFTER - 1), []);
        assert_eq!(rig.looks(&Verdict::Good, 1), [], "a single good verdict restarts the count");
        assert_eq!(rig.looks(&bad("7"), APPEARS_AFTER - 1), []);
        let reports = rig.looks(&bad("8"), 1);
        assert_eq!(
            (reports[0].appeared.as_slice(), reports[0].cleared.as_slice()),
            ([CODE].as_slice(), [].as_slice())
        );
        assert_eq!(reports[0].issues[0].text, "8");
        assert_eq!(rig.looks(&bad("9"), 60), [], "a changed measurement is not reported");
        assert_eq!(rig.watch.issues()[0].text, "9");
        assert_eq!(rig.looks(&Verdict::Good, CLEARS_AFTER - 1), []);
        assert!(rig.watch.is_shown(CODE));
        let reports = rig.looks(&Verdict::Good, 1);
        assert_eq!(
            (reports[0].cleared.as_slice(), reports[0].issues.as_slice()),
            ([CODE].as_slice(), [].as_slice())
        );
    }

    #[test]
    fn unknown_verdicts_change_nothing() {
        let mut rig = Rig::new();
        rig.looks(&bad("7"), 30);
        assert_eq!(rig.looks(&Verdict::Unknown, 300), []);
        assert!(rig.watch.is_shown(CODE));
    }

    #[test]
    fn at_most_six_reports_a_minute() {
        let mut rig = Rig::new();
        let mut reports = 0;
        let begin = rig.now;
        while rig.now < begin + Duration::from_secs(600) {
            reports +=
                rig.looks(&bad("7"), APPEARS_AFTER).len() + rig.looks(&Verdict::Good, CLEARS_AFTER).len();
        }
        assert!((30..=60).contains(&reports), "{reports} in ten minutes");
    }

    #[test]
    fn an_early_change_is_reported_later_unless_it_was_reverted() {
        let mut rig = Rig::new();
        assert_eq!(rig.looks(&bad("7"), APPEARS_AFTER).len(), 1);
        assert_eq!(rig.looks(&Verdict::Good, CLEARS_AFTER), [], "cleared, but too early to report");
        assert_eq!(rig.looks(&bad("7"), APPEARS_AFTER), [], "back again: nothing to report");
        assert_eq!(rig.looks(&bad("7"), 60), []);
        assert_eq!(rig.looks(&Verdict::Good, CLEARS_AFTER).len(), 1);
    }
}
