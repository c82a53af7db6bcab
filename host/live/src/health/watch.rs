//! Which issues are shown, and when that is told.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::issues::{Issue, IssueCode};
use super::verdict::Verdict;

/// Looks in a row, one a second, after which an issue is shown.
pub(crate) const APPEARS_AFTER: u32 = 3;
/// Looks in a row without it after which it is not.
pub(crate) const CLEARS_AFTER: u32 = 5;
/// Least time between two tellings of one session: six a minute at most.
pub(crate) const TELL_PAUSE: Duration = Duration::from_secs(10);

/// The issues of one session.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    shown: BTreeMap<IssueCode, Issue>,
    /// Looks in a row that spoke against what is shown.
    doubts: BTreeMap<IssueCode, u32>,
    told: BTreeSet<IssueCode>,
    told_at: Option<Duration>,
}

/// What is to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthNews {
    /// Issues that were not there when it was last told.
    pub appeared: Vec<IssueCode>,
    /// Issues that are there no more.
    pub cleared: Vec<IssueCode>,
    /// All that are there.
    pub issues: Vec<Issue>,
}

impl Watch {
    /// It is an issue already.
    pub(crate) fn is_shown(&self, code: IssueCode) -> bool {
        self.shown.contains_key(&code)
    }

    /// Those that are shown, in the order of their codes.
    pub(crate) fn issues(&self) -> Vec<Issue> {
        self.shown.values().cloned().collect()
    }

    /// Takes one look; called about once a second. What is to be told now, if anything: a change that comes too early is told
    /// with a later look, unless it is over by then.
    pub(crate) fn look(
        &mut self,
        verdicts: impl IntoIterator<Item = (IssueCode, Verdict)>,
        now: Duration,
    ) -> Option<HealthNews> {
        for (code, verdict) in verdicts {
            self.weigh(code, verdict);
        }
        let shown: BTreeSet<IssueCode> = self.shown.keys().copied().collect();
        let is_early = self.told_at.is_some_and(|at| now.saturating_sub(at) < TELL_PAUSE);
        if shown == self.told || is_early {
            return None;
        }
        let news = HealthNews {
            appeared: shown.difference(&self.told).copied().collect(),
            cleared: self.told.difference(&shown).copied().collect(),
            issues: self.issues(),
        };
        self.told = shown;
        self.told_at = Some(now);
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
            // The figure in its text, and whom it breaks, may be others.
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

        /// One look a second, as long as asked; all that was told.
        fn looks(&mut self, verdict: &Verdict, secs: u32) -> Vec<HealthNews> {
            let looks = (0..secs).filter_map(|_| {
                self.now += Duration::from_secs(1);
                self.watch.look([(CODE, verdict.clone())], self.now)
            });
            looks.collect()
        }
    }

    #[test]
    fn an_issue_appears_after_some_looks_and_clears_after_more() {
        let mut rig = Rig::new();
        assert_eq!(rig.looks(&bad("7"), APPEARS_AFTER - 1), []);
        assert_eq!(rig.looks(&Verdict::Good, 1), [], "a single look without it begins anew");
        assert_eq!(rig.looks(&bad("7"), APPEARS_AFTER - 1), []);
        let told = rig.looks(&bad("8"), 1);
        assert_eq!(
            (told[0].appeared.as_slice(), told[0].cleared.as_slice()),
            ([CODE].as_slice(), [].as_slice())
        );
        assert_eq!(told[0].issues[0].text, "8");
        assert_eq!(rig.looks(&bad("9"), 60), [], "another figure is no news");
        assert_eq!(rig.watch.issues()[0].text, "9");
        assert_eq!(rig.looks(&Verdict::Good, CLEARS_AFTER - 1), []);
        assert!(rig.watch.is_shown(CODE));
        let told = rig.looks(&Verdict::Good, 1);
        assert_eq!(
            (told[0].cleared.as_slice(), told[0].issues.as_slice()),
            ([CODE].as_slice(), [].as_slice())
        );
    }

    #[test]
    fn what_is_not_known_changes_nothing() {
        let mut rig = Rig::new();
        rig.looks(&bad("7"), 30);
        assert_eq!(rig.looks(&Verdict::Unknown, 300), []);
        assert!(rig.watch.is_shown(CODE));
    }

    #[test]
    fn no_more_than_six_times_a_minute_is_told() {
        let mut rig = Rig::new();
        let mut told = 0;
        let begin = rig.now;
        while rig.now < begin + Duration::from_secs(600) {
            told += rig.looks(&bad("7"), APPEARS_AFTER).len() + rig.looks(&Verdict::Good, CLEARS_AFTER).len();
        }
        assert!((30..=60).contains(&told), "{told} in ten minutes");
    }

    #[test]
    fn a_change_that_comes_too_early_is_told_later_unless_it_is_over() {
        let mut rig = Rig::new();
        assert_eq!(rig.looks(&bad("7"), APPEARS_AFTER).len(), 1);
        assert_eq!(rig.looks(&Verdict::Good, CLEARS_AFTER), [], "cleared, but too early to tell");
        assert_eq!(rig.looks(&bad("7"), APPEARS_AFTER), [], "back again: nothing to tell");
        assert_eq!(rig.looks(&bad("7"), 60), []);
        assert_eq!(rig.looks(&Verdict::Good, CLEARS_AFTER).len(), 1);
    }
}
