//! A backup encoder beside the primary one: destinations and viewers see one session, each frame once and in order.

use std::collections::HashSet;
use std::time::Instant;

use satcast_tests::api::{Api, Stream};
use satcast_tests::caller::{Call, Outcome};
use satcast_tests::encoder::{Encoder, Publish};
use satcast_tests::hosted::Hosted;
use satcast_tests::load::publishers::{Ingest, Publishers};
use satcast_tests::player::{Engine, Player, assert_moves};
use satcast_tests::probe;
use satcast_tests::receiver::Receiver;
use satcast_tests::record::{
    CARRIED_MILLIS, Track, assert_carried, assert_configured, assert_media_run, assert_times_never_go_back,
};
use satcast_tests::service::{Service, Setup};
use satcast_tests::sink::Sink;
use satcast_tests::source::{Recipe, Source};
use satcast_tests::wait::{self, seconds};
use serde_json::{Value, json};

/// Media packets of about two seconds.
const SOME: usize = 150;

/// A stream with a receiver, viewers, a webhook, and two sources that differ in size.
struct Scene {
    service: Service,
    api: Api,
    hosted: Hosted,
    sink: Sink,
    receiver: Receiver,
    primary: Source,
    backup: Source,
}

impl Scene {
    fn new() -> Self {
        let service = Setup::default()
            .set("SATCAST_INGEST__FAILOVER_STALL_MS", "1500")
            .set("SATCAST_INGEST__FAILBACK_SECS", "3")
            .set("SATCAST_INGEST__RECONNECT_WINDOW_SECS", "2")
            .set("SATCAST_WEBHOOKS__ALLOW_TARGETS", "[\"127.0.0.0/8\"]")
            .start();
        let (api, sink, receiver) = (service.api(), Sink::recording(), Receiver::start(None));
        let hosted = Hosted::with(&service, "two encoders", &json!({ "dvrSeconds": 300 }));
        api.add_destination(&hosted.stream, &sink.url(), "copy");
        let hook = json!({ "url": receiver.url(), "events": ["stream.failover", "stream.ended"] });
        let _made = api.post("/api/webhooks", &hook).ok();
        let (primary, backup) = (Source::shared(), Source::of(Recipe::SMALL));
        Self { service, api, hosted, sink, receiver, primary, backup }
    }

    fn stream(&self) -> &Stream {
        &self.hosted.stream
    }

    fn publish_primary(&self) -> Encoder {
        Publish::of(&self.primary).to(&self.service.ingest_url(&self.stream().key))
    }

    fn publish_backup(&self) -> Encoder {
        Publish::of(&self.backup).to(&self.service.ingest_url(&backup_key(&self.api, self.stream())))
    }

    /// Waits for some more media at the receiver.
    #[track_caller]
    fn some_media(&self) {
        self.sink.wait_for_media(self.sink.records().len() + SOME);
    }

    /// The failover with this number, from 1, as the webhook told it.
    #[track_caller]
    fn wait_for_failover(&self, number: usize, from: &str, to: &str, reason: &str) {
        let event = self.receiver.wait_for(number)[number - 1].json();
        assert_eq!(event["type"], "stream.failover");
        let data = &event["data"];
        assert_eq!((&data["from"], &data["to"], &data["reason"]), (&json!(from), &json!(to), &json!(reason)));
    }

    /// Ends both encoders and the session; expects that it was one, and that the receiver and viewers got a gapless part of each
    /// source in this order, and no frame twice.
    #[track_caller]
    fn finish(self, mut encoders: Vec<Encoder>, parts: &[&Source]) {
        let mut viewer = self.hosted.viewer();
        let media = viewer.media_when("the last part", |media| {
            media.segments.iter().filter(|segment| segment.discontinuity).count() + 1 == parts.len()
        });
        let chunks = viewer.chunks(&media.segments);
        let runs = probe::runs(&chunks);
        assert_eq!(runs.len(), parts.len());
        for (run, source) in runs.into_iter().zip(parts) {
            assert_carried("a viewer", source.records(), &probe::records(run), CARRIED_MILLIS);
        }
        // The one that stands by first, which would take over from the other for a moment.
        for encoder in encoders.iter_mut().rev() {
            encoder.stop();
        }
        let ended = self.api.wait_for_stream(self.stream(), "idle");
        assert_eq!((&ended["lastEndReason"], &ended["encoders"]), (&json!("unpublished"), &json!([])));
        self.sink.wait_until_left();

        let events: Vec<Value> =
            self.receiver.wait_for(parts.len()).iter().map(|event| event.json()).collect();
        let ends = events.iter().filter(|event| event["type"] == "stream.ended").count();
        let sessions: HashSet<_> =
            events.iter().map(|event| event["data"]["sessionId"].to_string()).collect();
        assert_eq!((events.len(), ends, sessions.len()), (parts.len(), 1, 1), "{events:?}");

        let records = self.sink.records();
        assert_eq!(self.sink.publishes(), 1, "the push to the server was interrupted");
        assert_configured("the server", &records);
        assert_times_never_go_back("the server", &records);
        // Each source has its own configuration, which begins its part.
        let begins = |record: &satcast_tests::record::Record| record.config && record.track == Track::Video;
        let got: Vec<_> = records.split_inclusive(begins).skip(1).collect();
        assert_eq!(got.len(), parts.len(), "a part for each change of encoders");
        let mut seen = HashSet::new();
        for (part, source) in got.into_iter().zip(parts) {
            assert_media_run("the server", source.records(), part);
            let video = part.iter().filter(|record| record.track == Track::Video && !record.config);
            assert!(video.into_iter().all(|record| seen.insert(record.digest)), "a frame came twice");
        }
    }
}

#[track_caller]
fn backup_key(api: &Api, stream: &Stream) -> String {
    api.stream(stream)["backupKey"].as_str().expect("a backup key").to_owned()
}

#[test]
fn the_backup_takes_over_from_a_killed_encoder_which_returns() {
    let scene = Scene::new();
    let mut primary = scene.publish_primary();
    scene.some_media();
    let backup = scene.publish_backup();
    scene.api.wait_for_encoders(scene.stream(), &[("primary", "active"), ("backup", "standby")]);
    // Each of the two has its one place.
    for key in [scene.stream().key.clone(), backup_key(&scene.api, scene.stream())] {
        let (_call, outcome) = Call::publish(scene.service.rtmp_address(), "live", &key);
        assert!(
            matches!(&outcome, Outcome::Rejected { code, .. } if code == "NetStream.Publish.BadName"),
            "{outcome:?}"
        );
    }
    scene.some_media();
    primary.cut();
    scene.wait_for_failover(1, "primary", "backup", "disconnected");
    scene.some_media();
    scene.api.wait_for_encoders(scene.stream(), &[("backup", "active")]);
    // It returns with another source, because the first one would send the same frames again.
    let third = Source::of(Recipe::SCREEN);
    let returned = Publish::of(&third).to(&scene.service.ingest_url(&scene.stream().key));
    scene.api.wait_for_encoders(scene.stream(), &[("primary", "standby"), ("backup", "active")]);
    scene.wait_for_failover(2, "backup", "primary", "returned");
    scene.api.wait_for_encoders(scene.stream(), &[("primary", "active"), ("backup", "standby")]);
    assert_eq!(scene.api.stream(scene.stream())["health"]["failovers"], 2);
    scene.some_media();
    let (first, second) = (Source::shared(), Source::of(Recipe::SMALL));
    scene.finish(vec![returned, backup], &[&first, &second, &third]);
}

#[test]
fn the_backup_takes_over_from_an_encoder_that_hangs() {
    let scene = Scene::new();
    let primary = scene.publish_primary();
    scene.some_media();
    let backup = scene.publish_backup();
    scene.api.wait_for_encoders(scene.stream(), &[("primary", "active"), ("backup", "standby")]);
    scene.some_media();
    primary.freeze();
    scene.wait_for_failover(1, "primary", "backup", "stalled");
    scene.api.wait_for_encoders(scene.stream(), &[("primary", "standby"), ("backup", "active")]);
    scene.some_media();
    primary.thaw();
    scene.wait_for_failover(2, "backup", "primary", "returned");
    scene.some_media();
    let (first, second) = (Source::shared(), Source::of(Recipe::SMALL));
    scene.finish(vec![primary, backup], &[&first, &second, &first]);
}

#[test]
fn the_session_goes_on_with_the_backup_until_both_have_stopped() {
    let scene = Scene::new();
    let mut backup = scene.publish_backup();
    scene.some_media();
    scene.api.wait_for_encoders(scene.stream(), &[("backup", "active")]);
    let mut primary = scene.publish_primary();
    scene.wait_for_failover(1, "backup", "primary", "returned");
    scene.some_media();
    primary.stop();
    scene.wait_for_failover(2, "primary", "backup", "unpublished");
    assert_eq!(scene.api.stream(scene.stream())["state"], "live");
    scene.some_media();
    // A new key ends the session, and both keys with it.
    let old = backup_key(&scene.api, scene.stream());
    let _new = scene.api.post(&format!("/api/streams/{}/rotate", scene.stream().id), &json!({})).ok();
    backup.wait(seconds(60));
    let (_call, outcome) = Call::publish(scene.service.rtmp_address(), "live", &old);
    assert!(
        matches!(&outcome, Outcome::Rejected { code, .. } if code == "NetStream.Publish.Denied"),
        "{outcome:?}"
    );
    scene.service.assert_not_logged(&[("the backup key", &old), ("the stream key", &scene.stream().key)]);
}

/// Streams beside the one that is watched.
const OTHERS: usize = 8;

/// The stalls of the viewer are printed, for the report of the run.
#[test]
fn hls_js_goes_on_through_a_failover_and_a_return_beside_other_streams() {
    let service = Setup::default().set("SATCAST_INGEST__FAILBACK_SECS", "3").start();
    let hosted = Hosted::with(&service, "watched", &json!({ "lowLatency": true }));
    let others: Vec<_> =
        (0..OTHERS).map(|number| Hosted::new(&service, &format!("other {number}"))).collect();
    let ingest = |other: &Hosted| Ingest {
        address: service.rtmp_address(),
        app: "live".into(),
        name: other.stream.key.clone(),
    };
    let publishers = Publishers::start(Instant::now(), others.iter().map(ingest).collect());
    let publish_primary =
        || Publish::of(&Source::of(Recipe::SCREEN)).endless().to(&service.ingest_url(&hosted.stream.key));
    let mut primary = publish_primary();
    let mut player = Player::launch(Engine::HlsJs);
    player.open(&hosted.ready());
    let backup_key = backup_key(&service.api(), &hosted.stream);
    let _backup = Publish::of(&Source::of(Recipe::SMALL)).endless().to(&service.ingest_url(&backup_key));
    wait::until_api("the backup", || {
        let encoders = service.api().stream(&hosted.stream)["encoders"].clone();
        if encoders[1]["state"] == "standby" && encoders[1]["bitrate"].is_u64() {
            Ok(())
        } else {
            Err(encoders.to_string())
        }
    });
    primary.cut();
    let mut watch = |what: &str, width: u32| {
        let state = player.step(&format!("resolution {width} 2"));
        assert_moves(&state);
        assert_eq!((&state["fatal"], &state["backward"]), (&json!([]), &json!(0)), "{what}: {state}");
        println!("after {what} {} s behind, stalls {}", state["latency"], state["stalls"]);
    };
    watch("the failover", 640);
    let _primary = publish_primary();
    watch("the return", 480);
    player.finish();
    assert!(publishers.frames() > 0);
    for other in &others {
        assert_eq!(service.api().stream(&other.stream)["state"], "live");
    }
}
