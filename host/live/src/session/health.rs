//! Checks the health of a session's stream, and reports it.

use std::collections::BTreeSet;

use serde_json::json;

use super::Run;
use crate::health::{HealthNews, Issue, IssueCode, judge};
use crate::shown::SessionState;
use satcast_store::{DestinationRecord, HealthNotice, IssueNotice, NoticeKind};

impl Run {
    /// Reads the requirements of the platforms of the enabled destinations. A type whose driver is loaded later is read with the
    /// next change of destinations.
    pub(super) fn read_requirements<'a>(&mut self, enabled: impl Iterator<Item = &'a DestinationRecord>) {
        let kinds: BTreeSet<&str> = enabled.map(|record| record.kind.as_str()).collect();
        let requirements =
            kinds.into_iter().map(|kind| Some((kind.to_owned(), self.live.drivers.requirements(kind)?)));
        self.requirements = requirements.flatten().collect();
    }

    /// Checks the encoder's media; called about once a second. Does nothing while the encoder is away.
    pub(super) fn look_at_health(&mut self) {
        if self.session.shared.lock().state != Some(SessionState::Live) {
            return;
        }
        let now = self.live.clock.monotonic();
        let figures = self.session.hub.figures(now);
        let verdicts = judge(&figures, &self.requirements, |code| self.watch.is_shown(code));
        let news = self.watch.look(verdicts, now);
        self.session.shared.lock().issues = self.watch.issues();
        if let Some(news) = news {
            self.report_health(news);
        }
    }

    fn report_health(&self, news: HealthNews) {
        let at = self.live.clock.now();
        let names = |codes: &[IssueCode]| codes.iter().map(|code| code.as_str()).collect::<Vec<_>>();
        let (appeared, cleared) = (names(&news.appeared), names(&news.cleared));
        tracing::info!(session = %self.session.id, ?appeared, ?cleared, "stream health changed");
        self.publish_event("stream.health", at, json!({"appeared": appeared, "cleared": cleared}));
        let issues = news.issues.into_iter().map(issue_notice).collect();
        self.notifier.notify(NoticeKind::Health(HealthNotice { appeared, cleared, issues }), at);
    }
}

fn issue_notice(issue: Issue) -> IssueNotice {
    IssueNotice { code: issue.code.as_str(), text: issue.text, platforms: issue.platforms }
}
