//! What a session says of its stream's health, and to whom.

use std::collections::BTreeSet;

use serde_json::json;

use super::Run;
use crate::health::{HealthNews, Issue, IssueCode, judge};
use crate::shown::SessionState;
use satcast_store::{DestinationRecord, Happening, ToldHealth, ToldIssue};

impl Run {
    /// Reads what the services behind the enabled destinations ask of the stream. A type whose driver comes later is read with
    /// the next change of destinations.
    pub(super) fn read_wishes<'a>(&mut self, enabled: impl Iterator<Item = &'a DestinationRecord>) {
        let kinds: BTreeSet<&str> = enabled.map(|record| record.kind.as_str()).collect();
        let wishes = kinds.into_iter().map(|kind| Some((kind.to_owned(), self.live.drivers.wishes(kind)?)));
        self.wishes = wishes.flatten().collect();
    }

    /// Looks at what comes; called about once a second. Nothing is said while the encoder is away.
    pub(super) fn look_at_health(&mut self) {
        if self.session.shared.lock().state != Some(SessionState::Live) {
            return;
        }
        let now = self.live.clock.monotonic();
        let figures = self.session.hub.figures(now);
        let verdicts = judge(&figures, &self.wishes, |code| self.watch.is_shown(code));
        let news = self.watch.look(verdicts, now);
        self.session.shared.lock().issues = self.watch.issues();
        if let Some(news) = news {
            self.tell_health(news);
        }
    }

    fn tell_health(&self, news: HealthNews) {
        let at = self.live.clock.now();
        let names = |codes: &[IssueCode]| codes.iter().map(|code| code.as_str()).collect::<Vec<_>>();
        let (appeared, cleared) = (names(&news.appeared), names(&news.cleared));
        tracing::info!(session = %self.session.id, ?appeared, ?cleared, "health of the stream");
        self.tell("stream.health", at, json!({"appeared": appeared, "cleared": cleared}));
        let issues = news.issues.into_iter().map(told).collect();
        self.teller.tell(Happening::Health(ToldHealth { appeared, cleared, issues }), at);
    }
}

fn told(issue: Issue) -> ToldIssue {
    ToldIssue { code: issue.code.as_str(), text: issue.text, platforms: issue.platforms }
}
