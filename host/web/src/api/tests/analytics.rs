//! Analytics: time ranges and their limits, and separation of accounts.

use serde_json::json;

use super::Rig;
use satcast_core::ids::{DestinationId, EndReason, Sats, SessionId, StreamId, UnixMillis};
use satcast_store::{Actor, Bandwidth, NewSession, Terms};

const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;

struct Past {
    rig: Rig,
    stream: i64,
    destinations: Vec<i64>,
}

impl Past {
    async fn new() -> Self {
        let rig = Rig::new().await;
        let stream = rig.stream().await;
        let path = format!("/api/streams/{stream}/destinations");
        let mut destinations = Vec::new();
        for host in ["a", "b"] {
            let target = json!({"type": "rtmp", "config": {"url": format!("rtmp://{host}.example/live")}});
            destinations.push(rig.post(&path, &target).await.ok()["id"].as_i64().unwrap());
        }
        Self { rig, stream, destinations }
    }

    fn now(&self) -> i64 {
        self.rig.app.clock.now().0
    }

    /// A session with every destination, from `from` for `millis`.
    async fn session(&self, name: &str, from: i64, millis: Option<i64>) {
        let store = &self.rig.app.store;
        let id = SessionId(name.into());
        let started_at = UnixMillis(from);
        let new = NewSession {
            id: id.clone(),
            stream_id: StreamId(self.stream),
            started_at,
            terms: Terms::default(),
        };
        store.begin_session(new).await.unwrap();
        let all: Vec<_> = self.destinations.iter().map(|id| DestinationId(*id)).collect();
        store.begin_forwarding(&id, &all, started_at).await.unwrap();
        if let Some(millis) = millis {
            store.end_session(&id, UnixMillis(from + millis), EndReason::Stopped).await.unwrap();
        }
    }

    async fn sent(&self, hour_start: i64, bytes: u64) {
        let destination = DestinationId(self.destinations[0]);
        let hour_start = UnixMillis(hour_start);
        let sent = Bandwidth { account: self.rig.account, destination, hour_start, bytes };
        self.rig.app.store.add_bandwidth(&[sent]).await.unwrap();
    }
}

#[tokio::test]
async fn history_has_an_entry_for_each_destination_of_ended_sessions() {
    let past = Past::new().await;
    let now = past.now();
    past.session("ses_a", now - HOUR, Some(90_000)).await;
    past.session("ses_b", now - MINUTE, Some(30_000)).await;
    past.session("ses_running", now, None).await;
    past.rig.delete(&format!("/api/destinations/{}", past.destinations[0])).await.ok();
    let all = past.rig.get("/api/stream-history").await.ok();
    let of = |name: &str| all.as_array().unwrap().iter().map(|e| e[name].clone()).collect::<Vec<_>>();
    assert_eq!(of("sessionId"), ["ses_b", "ses_b", "ses_a", "ses_a"], "newest first, the deleted one too");
    let last = &all[3];
    assert_eq!(
        (&last["streamKeyId"], &last["streamKeyLabel"], &last["platform"], &last["durationMinutes"]),
        (&json!(past.stream), &json!("test"), &json!("rtmp"), &json!(1.5))
    );
    assert_eq!((&last["startedAt"], &last["endedAt"]), (&json!(now - HOUR), &json!(now - HOUR + 90_000)));
    assert_eq!(last["totalCostSats"], 0);
}

#[tokio::test]
async fn history_filters_combine_and_page_links_repeat_them() {
    let past = Past::new().await;
    let now = past.now();
    past.session("ses_a", now - HOUR, Some(MINUTE)).await;
    past.session("ses_b", now - MINUTE, Some(MINUTE)).await;
    let count = async |query: String| {
        let found = past.rig.get(&format!("/api/stream-history?{query}")).await.ok();
        found.as_array().unwrap().len()
    };
    assert_eq!(count(format!("startDate={}", now - MINUTE)).await, 2, "the start is in the range");
    assert_eq!(count(format!("endDate={}", now - MINUTE)).await, 2, "the end is not");
    assert_eq!(count(format!("startDate={}&endDate={}", now - HOUR, now)).await, 4);
    assert_eq!(count("platform=rtmp&minCost=0&maxCost=0".into()).await, 4);
    assert_eq!(count("minCost=1".into()).await, 0);
    assert_eq!(count("platform=twitch".into()).await, 0);
    assert_eq!(count(format!("streamKeyId={}", past.stream)).await, 4);
    assert_eq!(count(format!("streamKeyId={}", past.stream + 1)).await, 0);
    let first = past.rig.get("/api/stream-history?limit=3&platform=rtmp").await;
    let link = first.header("link").to_owned();
    assert!(link.contains("platform=rtmp&cursor="), "{link}");
    let next = link.split(['<', '>']).nth(1).unwrap().split_once("/api").unwrap().1;
    assert_eq!(past.rig.get(&format!("/api{next}")).await.ok().as_array().unwrap().len(), 1);
    for bad in ["startDate=2&endDate=1", "minCost=2&maxCost=1", "minCost=-1", "startDate=x", "limit=0"] {
        past.rig.get(&format!("/api/stream-history?{bad}")).await.error(400, "malformed_parameter");
    }
}

#[tokio::test]
async fn pages_of_the_history_follow_the_start_and_not_the_order_of_writing() {
    let past = Past::new().await;
    let now = past.now();
    for (name, ago) in [("ses_b", 2 * HOUR), ("ses_a", 3 * HOUR), ("ses_c", HOUR)] {
        past.session(name, now - ago, Some(MINUTE)).await;
    }
    for filter in [String::new(), format!("&streamKeyId={}", past.stream)] {
        let (mut seen, mut next) = (Vec::new(), format!("/api/stream-history?limit=1{filter}"));
        while !next.is_empty() && seen.len() < 10 {
            let page = past.rig.get(&next).await;
            seen.extend(page.ok().as_array().unwrap().iter().map(|entry| entry["sessionId"].clone()));
            let link =
                page.header("link").split_once("/api").map(|(_, rest)| rest.split('>').next().unwrap());
            next = link.map(|link| format!("/api{link}")).unwrap_or_default();
        }
        assert_eq!(seen, ["ses_c", "ses_c", "ses_b", "ses_b", "ses_a", "ses_a"], "{filter}");
    }
    let stranger = past.rig.get("/api/stream-history?cursor=999999").await.ok();
    assert_eq!(stranger, json!([]), "no entry stands before one that is not there");
}

#[tokio::test]
async fn bandwidth_counts_by_clock_hour_with_the_overage_of_each() {
    let past = Past::new().await;
    let hour = past.now() - past.now().rem_euclid(HOUR);
    past.sent(hour, 11_234_567_890).await;
    past.sent(hour - HOUR, 1_000_000_000).await;
    past.rig.delete(&format!("/api/destinations/{}", past.destinations[0])).await.ok();
    let unbilled = past.rig.get("/api/bandwidth/usage").await.ok();
    assert_eq!(
        (&unbilled["overageGB"], &unbilled["overageSats"]),
        (&json!(1.23456789), &json!(0)),
        "no pass yet"
    );
    past.rig
        .app
        .store
        .credit(&Actor::command(past.rig.account, UnixMillis(0)), Sats(1_000), "c".into())
        .await
        .unwrap();
    past.rig.app.billing.bill_playback().await;
    assert_eq!(past.rig.get("/api/wallet/balance").await.ok()["balance"], 993, "1000 less 6.172");
    let this_hour = json!({"totalGB": 11.23456789, "overageGB": 1.23456789, "overageSats": 6});
    assert_eq!(past.rig.get("/api/bandwidth/usage").await.ok(), this_hour);
    let all = json!({"totalGB": 12.23456789, "overageGB": 1.23456789, "overageSats": 6});
    assert_eq!(past.rig.get("/api/bandwidth/usage?filter=all").await.ok(), all);
    let until = format!("/api/bandwidth/usage?endDate={hour}");
    assert_eq!(past.rig.get(&until).await.ok()["totalGB"], 1.0);
    let inside = format!("/api/bandwidth/usage?startDate={}", hour - 1);
    assert_eq!(past.rig.get(&inside).await.ok()["totalGB"], 12.23456789, "the hour it cuts counts");
    past.rig.get("/api/bandwidth/usage?filter=decade").await.error(400, "malformed_parameter");
}

#[tokio::test]
async fn minutes_count_within_the_range_and_running_sessions_count_up_to_now() {
    let past = Past::new().await;
    let now = past.now();
    let day = now - now.rem_euclid(24 * HOUR);
    past.session("ses_a", day - MINUTE, Some(2 * MINUTE)).await;
    past.session("ses_running", now - 30_000, None).await;
    let stats = async |query: &str| past.rig.get(&format!("/api/dashboard/stats{query}")).await.ok();
    assert_eq!(
        stats("").await,
        json!({"totalMinutes": 1.5, "totalSatsSpent": 0}),
        "half of one, and the other"
    );
    assert_eq!(stats("?filter=all").await["totalMinutes"], 2.5);
    assert_eq!(stats(&format!("?endDate={day}")).await["totalMinutes"], 1.0);
    past.rig.get("/api/dashboard/stats?filter=hour").await.error(400, "malformed_parameter");
}

#[tokio::test]
async fn another_account_sees_none_of_it() {
    let mut past = Past::new().await;
    past.session("ses_a", past.now() - HOUR, Some(MINUTE)).await;
    past.sent(past.now() - past.now().rem_euclid(HOUR), 5_000_000_000).await;
    past.rig.key = past.rig.account("stranger").await.1;
    assert_eq!(past.rig.get("/api/stream-history").await.ok(), json!([]));
    assert_eq!(past.rig.get("/api/bandwidth/usage?filter=all").await.ok()["totalGB"], 0.0);
    assert_eq!(past.rig.get("/api/dashboard/stats?filter=all").await.ok()["totalMinutes"], 0.0);
}
