//! What the database says that was charged, beside what the sinks saw.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use satcast_tests::sink::Sink;
use satcast_tests::wait::{seconds, until};

use super::cluster::{COPIES, Cluster, LEASE_SECS};

/// A destination forwards in a bucket of time in which its sink got something.
const BUCKET_MS: i64 = 250;
const MINUTE_MS: i64 = 60_000;
/// A minute of the sinks may begin so much before or after that of the session, which counts from the first media.
const MARGIN_MS: i64 = 1_000;
/// Media that a session may forward without a charge.
const UNPAID_MS_MAX: i64 = LEASE_SECS as i64 * 1_000;
const PRICE_MSAT: i64 = 2_000;

/// One connection to a sink.
#[derive(Debug, Default)]
struct Connection {
    first_ms: i64,
    buckets: BTreeSet<i64>,
}

/// When media came, by sink and connection.
pub(super) struct Seen {
    began: Instant,
    began_ms: i64,
    sinks: Vec<BTreeMap<usize, Connection>>,
}

impl Seen {
    pub(super) fn new(sinks: usize) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970");
        let began_ms = i64::try_from(now.as_millis()).expect("a time of this age");
        Self { began: Instant::now(), began_ms, sinks: (0..sinks).map(|_| BTreeMap::new()).collect() }
    }

    /// Takes what came to a sink since the last time.
    pub(super) fn take(&mut self, number: usize, sink: &Sink) {
        for arrival in sink.take_arrivals() {
            let since = arrival.at.saturating_duration_since(self.began);
            let at_ms = self.began_ms + i64::try_from(since.as_millis()).unwrap_or(i64::MAX);
            let connection = self.sinks[number].entry(arrival.publish).or_default();
            if connection.buckets.is_empty() {
                connection.first_ms = at_ms;
            }
            connection.buckets.insert(at_ms / BUCKET_MS);
        }
    }
}

/// A session of the database.
struct Session {
    id: String,
    /// When its row was written: before all media of the sinks.
    begun_ms: i64,
    /// Its first media.
    started_ms: i64,
    /// When its end was written.
    ended_ms: Option<i64>,
    /// Charges by minute.
    charges: BTreeMap<i64, i64>,
    /// The sinks that got media, by bucket.
    forwarding: BTreeMap<i64, BTreeSet<usize>>,
}

impl Session {
    fn minute(&self, at_ms: i64) -> i64 {
        (at_ms - self.started_ms).max(0) / MINUTE_MS
    }

    /// The time in which more destinations forwarded than the free slot and the charged ones. The self-hosted destination has no
    /// sink, so what is found is the least.
    fn unpaid_ms(&self) -> i64 {
        let unpaid = self.forwarding.iter().filter(|(bucket, sinks)| {
            let charged = self.charges.get(&self.minute(**bucket * BUCKET_MS)).copied().unwrap_or_default();
            i64::try_from(sinks.len()).unwrap_or(i64::MAX) > 1 + charged
        });
        i64::try_from(unpaid.count()).unwrap_or(i64::MAX) * BUCKET_MS
    }

    /// The time from the moment at which its end was written to the last media.
    fn late_ms(&self) -> i64 {
        let last = self.forwarding.keys().next_back().map_or(0, |bucket| bucket * BUCKET_MS);
        self.ended_ms.map_or(0, |ended| (last - ended).max(0))
    }

    /// Charges and time with media of each minute, for a failure.
    fn minutes(&self) -> String {
        let mut minutes = BTreeMap::<i64, (i64, BTreeMap<usize, i64>)>::new();
        for (bucket, sinks) in &self.forwarding {
            let minute = self.minute(bucket * BUCKET_MS);
            let (_, by_count) = minutes.entry(minute).or_default();
            *by_count.entry(sinks.len()).or_default() += BUCKET_MS;
        }
        self.charges.iter().for_each(|(minute, charges)| minutes.entry(*minute).or_default().0 = *charges);
        format!("{minutes:?} (minute: charges, ms by number of sinks), end {:?}", self.ended_ms)
    }

    /// Sinks that got media in a minute.
    fn sinks_in(&self, minute: i64) -> usize {
        let (from, to) = (self.started_ms + minute * MINUTE_MS, self.started_ms + (minute + 1) * MINUTE_MS);
        let buckets = (from - MARGIN_MS) / BUCKET_MS..=(to + MARGIN_MS) / BUCKET_MS;
        let sinks: BTreeSet<usize> =
            self.forwarding.range(buckets).flat_map(|(_, sinks)| sinks).copied().collect();
        sinks.len()
    }
}

/// The sum of a run.
#[derive(Debug, Default)]
pub(super) struct Sum {
    sessions: usize,
    charges: i64,
    unpaid_ms: i64,
    unpaid_most_ms: i64,
    late_most_ms: i64,
}

impl fmt::Display for Sum {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{} sessions, {} charges; forwarded unpaid: {} ms in all, {} ms at most in a session; last media {} ms after an end at most",
            self.sessions, self.charges, self.unpaid_ms, self.unpaid_most_ms, self.late_most_ms
        )
    }
}

/// Compares charges and media of all sessions so far, and checks ledger and events.
pub(super) fn check(cluster: &mut Cluster) -> Sum {
    // A session that goes on is charged later for what waited: a node that was cut off may keep the lock of the account for a minute. And
    // media may be on its way to the sinks.
    let sum = until("the charges", || {
        cluster.tend_for(seconds(1), &[]);
        sum(&sessions(cluster))
    });
    let repeated = cluster.ask(
        "SELECT type, convert_from(body, 'UTF8')::json->'data'->>'sessionId', COUNT(*) FROM webhook_events
        GROUP BY 1, 2 HAVING COUNT(*) > 1",
    );
    assert_eq!(repeated, "", "events that were written twice");
    assert_eq!(
        cluster.ask("SELECT id, ends FROM watch.sessions WHERE ends > 1"),
        "",
        "sessions that ended twice"
    );
    let _ = cluster.nodes[0].service.run(&["ledger", "check"]);
    sum
}

/// # Errors
/// A session has more media than charges, or more charges than media.
fn sum(sessions: &[Session]) -> Result<Sum, String> {
    let mut sum = Sum::default();
    for session in sessions {
        for (minute, charged) in &session.charges {
            let sinks = session.sinks_in(*minute);
            if usize::try_from(*charged).is_ok_and(|charged| charged > sinks.min(COPIES)) {
                let minutes = session.minutes();
                return Err(format!(
                    "minute {minute} of session {} has too many charges: {minutes}",
                    session.id
                ));
            }
        }
        let unpaid_ms = session.unpaid_ms();
        if unpaid_ms > UNPAID_MS_MAX {
            return Err(format!(
                "session {} forwarded {unpaid_ms} ms unpaid: {}",
                session.id,
                session.minutes()
            ));
        }
        sum.sessions += 1;
        sum.charges += session.charges.values().sum::<i64>();
        sum.unpaid_ms += unpaid_ms;
        sum.unpaid_most_ms = sum.unpaid_most_ms.max(unpaid_ms);
        sum.late_most_ms = sum.late_most_ms.max(session.late_ms());
    }
    Ok(sum)
}

/// Expects that webhooks heard of each start and each end once: an event may come again, with the same id.
pub(super) fn check_ends(cluster: &Cluster) {
    let sessions = lines(&cluster.ask("SELECT id FROM sessions"));
    let wanted: BTreeSet<(String, String)> = sessions
        .iter()
        .flat_map(|row| ["stream.started", "stream.ended"].map(|kind| (row[0].clone(), kind.to_owned())))
        .collect();
    until("all events", || {
        let mut heard: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
        for event in cluster.receiver.received().iter().map(|request| request.json()) {
            let text = |value: &serde_json::Value| value.as_str().expect("a text").to_owned();
            let of = (text(&event["data"]["sessionId"]), text(&event["type"]));
            heard.entry(of).or_default().insert(text(&event["id"]));
        }
        let twice: Vec<_> = heard.iter().filter(|(_, ids)| ids.len() > 1).collect();
        assert!(twice.is_empty(), "announced twice: {twice:?}");
        let missing: Vec<_> = wanted.iter().filter(|of| !heard.contains_key(*of)).collect();
        if missing.is_empty() { Ok(()) } else { Err(format!("{missing:?} are missing")) }
    });
    println!("{} sessions began and ended once", sessions.len());
}

fn lines(output: &str) -> Vec<Vec<String>> {
    output.lines().map(|line| line.split('|').map(str::to_owned).collect()).collect()
}

fn number(text: &str) -> i64 {
    text.parse().unwrap_or_else(|_| panic!("{text} is no number"))
}

/// All sessions with their charges and the media that came to the sinks of their stream.
fn sessions(cluster: &Cluster) -> Vec<Session> {
    let mut all = Vec::new();
    for (number_of, publisher) in cluster.publishers.iter().enumerate() {
        let rows = format!(
            "SELECT e.id, e.started_ms, w.begun_ms, w.ended_ms FROM sessions e JOIN watch.sessions w ON w.id = e.id
            WHERE e.stream_id = {} ORDER BY w.begun_ms",
            publisher.stream.id
        );
        let of_row = |row: Vec<String>| {
            let (started_ms, begun_ms) = (number(&row[1]), number(&row[2]));
            assert!((begun_ms - started_ms).abs() < MINUTE_MS, "a start by a wrong clock: {row:?}");
            Session {
                begun_ms,
                started_ms,
                ended_ms: row[3].parse().ok(),
                id: row[0].clone(),
                charges: BTreeMap::new(),
                forwarding: BTreeMap::new(),
            }
        };
        let mut sessions: Vec<Session> = lines(&cluster.ask(&rows)).into_iter().map(of_row).collect();
        let charges = format!(
            "SELECT t.session_id, t.minute, COUNT(*), SUM(t.amount_msat) FROM transfers t
            JOIN sessions e ON e.id = t.session_id WHERE t.kind = 'minute' AND e.stream_id = {} GROUP BY 1, 2",
            publisher.stream.id
        );
        for row in lines(&cluster.ask(&charges)) {
            assert_eq!(number(&row[3]), PRICE_MSAT * number(&row[2]), "{row:?}");
            let session =
                sessions.iter_mut().find(|session| session.id == row[0]).expect("a session with charges");
            session.charges.insert(number(&row[1]), number(&row[2]));
        }
        for sink in number_of * COPIES..(number_of + 1) * COPIES {
            for connection in cluster.seen.sinks[sink].values() {
                // The newest session that had begun.
                let place = sessions.iter().rposition(|session| session.begun_ms <= connection.first_ms);
                let place = place.unwrap_or_else(|| panic!("sink {sink} got media without a session"));
                for bucket in &connection.buckets {
                    sessions[place].forwarding.entry(*bucket).or_default().insert(sink);
                }
            }
        }
        all.append(&mut sessions);
    }
    all
}
