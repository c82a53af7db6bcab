//! Events of sessions in the event feed of an account.

use super::*;
use crate::destination::run::EVENT_SHOWN_BYTES_MAX;
use satcast_core::feed::{Seen, Watch};
use satcast_drivers::EVENT_BYTES_MAX;
use satcast_store::DestinationChange;

/// Name and data of the next event.
async fn next(watch: &mut Watch) -> (String, Value) {
    let seen = tokio::time::timeout(WAIT_MAX, watch.next()).await.expect("an event in time");
    let Some(Seen::Event(event)) = seen else { panic!("{seen:?}") };
    (event.name.clone(), event.data.clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_feed_reports_the_encoder_and_the_destinations() {
    let rig = Rig::new(&["live"], Duration::from_secs(30)).await;
    let mut watch = rig.store.feed().watch(rig.account, None).unwrap();
    let mut publisher = rig.publish().await.unwrap();
    publisher.push(&mut group());
    let session = publisher.session_id().clone();
    let mut names = Vec::new();
    let mut states = Vec::new();
    loop {
        let (name, data) = next(&mut watch).await;
        assert_eq!(data["streamId"], rig.stream.id.0, "{data}");
        if name == "destination.state" {
            assert_eq!(data["destinationId"], rig.destinations[0].0);
            states.push((data["state"].as_str().unwrap().to_owned(), data["attempt"].clone()));
        } else {
            assert_eq!(data["sessionId"], session.as_str());
            names.push(name);
        }
        match (names.last().map(String::as_str), states.last().map(|(state, _)| state.as_str())) {
            (Some("stream.started"), Some("live")) => publisher = rig.returned(publisher).await,
            (Some("stream.reconnected"), Some("live")) => {
                assert!(rig.live.stop(rig.stream.id, EndReason::Stopped).await);
            }
            (Some("stream.ended"), _) => {
                assert_eq!(data["reason"], "stopped");
                break;
            }
            _ => {}
        }
    }
    assert_eq!(names, ["stream.started", "stream.reconnecting", "stream.reconnected", "stream.ended"]);
    let state = |name: &str, attempt: u32| (name.to_owned(), json!(attempt));
    assert_eq!(states, [state("connecting", 1), state("live", 0), state("stopped", 0)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_feed_reports_why_a_destination_is_not_live() {
    let rig = Rig::new(&["config", "network", "live"], Duration::from_secs(30)).await;
    let mut watch = rig.store.feed().watch(rig.account, None).unwrap();
    let mut publisher = rig.publish().await.unwrap();
    publisher.push(&mut group());
    let mut seen = std::collections::BTreeSet::new();
    while seen.len() < 3 {
        let (name, data) = next(&mut watch).await;
        let retry_in = data["nextRetryAt"].as_i64().map(|at| at - rig.clock.now().0);
        match data["state"].as_str().filter(|_| name == "destination.state") {
            Some("failed") => {
                assert_eq!((&data["error"], &data["attempt"]), (&json!("this can never work"), &json!(1)));
                assert_eq!((retry_in, &data["liveSince"]), (None, &Value::Null));
            }
            Some("retrying") => assert!(retry_in > Some(0) && data["liveSince"].is_null(), "{data}"),
            Some("live") => assert!(retry_in.is_none() && data["liveSince"].is_i64(), "{data}"),
            _ => continue,
        }
        seen.insert(data["state"].to_string());
    }
    assert!(rig.live.stop(rig.stream.id, EndReason::Stopped).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_feed_reports_driver_events_and_counters_are_shown() {
    let rig = Rig::new(&[], Duration::from_secs(30)).await;
    let tells = destination(json!({ "mode": "tell", "token": "sesame-7" }));
    let id = rig.store.add_destination(&rig.owner(), rig.stream.id, tells, CAPS).await.unwrap();
    let mut watch = rig.store.feed().watch(rig.account, None).unwrap();
    let mut publisher = rig.publish().await.unwrap();
    publisher.push(&mut group());
    let mut events = Vec::new();
    while events.len() < 2 {
        let (name, data) = next(&mut watch).await;
        if name == "destination.event" {
            assert_eq!((&data["streamId"], &data["destinationId"]), (&json!(rig.stream.id.0), &json!(id.0)));
            events.push((data["name"].clone(), data["data"].clone()));
        }
    }
    assert_eq!(events, [(json!("told"), json!({ "token": "***", "n": 1 })), (json!("long"), Value::Null)]);
    let counters = || {
        let seen = rig.live.destinations().into_iter().find(|seen| seen.id == id)?;
        Some(seen.counters).filter(|counters| *counters == [("media_packets".to_owned(), 3)])
    };
    rig.until("the counter", counters).await;
}

#[test]
fn the_guide_names_the_maximum_event_size() {
    let (shown, taken) =
        (format!("{} KiB", EVENT_SHOWN_BYTES_MAX / 1024), format!("{} KiB", EVENT_BYTES_MAX / 1024));
    let guide = include_str!("../../../../../plugin-api/GUIDE.md").replace("\n ", "");
    let header = include_str!("../../../../../plugin-api/include/satcast_driver.h").replace("\n     *", "");
    let of_guide = guide.split("data of up to ").nth(1).and_then(|rest| rest.split_once("- **Logs**"));
    let of_header =
        header.split("`json` is an object of at most ").nth(1).and_then(|rest| rest.split_once("*/"));
    for text in [of_guide, of_header] {
        let (text, _) = text.unwrap();
        assert!(text.contains(&shown) && text.contains(&taken), "{text}");
    }
    assert!(of_guide.unwrap().0.starts_with(&shown) && of_header.unwrap().0.starts_with(&taken));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_replaced_destination_is_not_published() {
    let rig = Rig::new(&["live"], Duration::from_secs(30)).await;
    let mut watch = rig.store.feed().watch(rig.account, None).unwrap();
    let mut publisher = rig.publish().await.unwrap();
    publisher.push(&mut group());
    rig.until_state(0, DestState::Live).await;
    let config = DestinationChange {
        config: Some(json!({ "mode": "live", "token": "sesame-8" })),
        ..Default::default()
    };
    rig.store.change_destination(&rig.owner(), rig.stream.id, rig.destinations[0], config).await.unwrap();
    rig.live.destinations_changed(rig.stream.id).await;
    let mut states = Vec::new();
    while states.len() < 4 {
        let (name, data) = next(&mut watch).await;
        if name == "destination.state" {
            states.push(data["state"].as_str().unwrap().to_owned());
        }
    }
    assert_eq!(states, ["connecting", "live", "connecting", "live"]);
    assert!(rig.live.stop(rig.stream.id, EndReason::Stopped).await);
}

impl Rig {
    /// The encoder goes and returns.
    async fn returned(&self, publisher: Publisher) -> Publisher {
        drop(publisher);
        self.until_session(SessionState::Reconnecting).await;
        let mut publisher = self.publish().await.unwrap();
        publisher.push(&mut group());
        self.until_session(SessionState::Live).await;
        publisher
    }
}
