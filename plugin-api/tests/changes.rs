//! Host actions beside media: settings, new configurations, failing calls, queues that drop, short deadlines.
#![allow(clippy::unwrap_used)] // A failed step is a failed test.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use satcast_plugin_api::driver::{
    Config, Ctx, Destination, Driver, DriverInfo, DynDestination, Host, Media, Reconfigured, State,
};
use satcast_plugin_api::testkit::{self, HostCall, Options, Testkit};
use satcast_plugin_api::{Class, Codec, DestType, Error, SettingsSchema, driver_entry};
use serde_json::json;
use tokio::sync::{Semaphore, watch};

#[derive(Clone, serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct Settings {
    greeting: String,
    #[serde(default)]
    most: u32,
}

#[derive(Clone, serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct Cfg {
    name: String,
    #[serde(default)]
    mode: String,
}

struct Changing {
    settings: Settings,
}

struct Out {
    name: watch::Sender<String>,
    mode: String,
    greeting: String,
}

/// Lets a destination of mode `slow` take its next batch.
static GATE: Semaphore = Semaphore::const_new(0);

impl Driver for Changing {
    const INFO: DriverInfo = DriverInfo { id: "changing", version: "1.0.0", title: "Changing" };

    fn types() -> Vec<DestType> {
        vec![DestType::of::<Cfg>("changing")]
    }

    fn settings() -> Option<SettingsSchema> {
        Some(SettingsSchema::of::<Settings>())
    }

    fn load(host: &Host) -> Result<Self, Error> {
        Ok(Changing { settings: host.settings()? })
    }

    fn open(&self, config: Config<'_>) -> Result<Arc<dyn DynDestination>, Error> {
        let config: Cfg = config.parse()?;
        let name = watch::Sender::new(config.name);
        let greeting = format!("{} {}", self.settings.greeting, self.settings.most);
        Ok(Arc::new(Out { name, mode: config.mode, greeting }))
    }
}

impl Destination for Out {
    async fn run(self: Arc<Self>, ctx: Ctx, mut media: Media) -> Result<(), Error> {
        if self.mode == "connect" {
            ctx.connect("127.0.0.1", 9, Duration::from_secs(1)).await?;
        }
        if self.mode == "deaf" {
            std::future::pending::<()>().await;
        }
        ctx.event("hello", &json!({ "greeting": self.greeting, "counter": ctx.counter("own").is_some() }));
        let mut names = self.name.subscribe();
        ctx.state(State::Live);
        let mut batch = Vec::new();
        loop {
            if self.mode == "slow" {
                GATE.acquire().await.map_err(|error| Error::internal(error.to_string()))?.forget();
            }
            tokio::select! {
                more = media.recv_batch(&mut batch) => {
                    for packet in batch.drain(..) {
                        let (sequence, gap) = (packet.sequence, packet.discontinuity);
                        ctx.event("packet", &json!({ "sequence": sequence, "gap": gap }));
                    }
                    if !more {
                        return Ok(());
                    }
                }
                _ = names.changed() => ctx.event("name", &json!(names.borrow_and_update().clone())),
            }
        }
    }

    fn reconfigure(&self, config: Config<'_>) -> Result<Reconfigured, Error> {
        let config: Cfg = config.parse()?;
        match config.name.as_str() {
            "panic" => panic!("reconfigure panics"),
            "refuse" => return Err(Error::config("name: not this one")),
            _ if config.mode != self.mode => return Ok(Reconfigured::Reopen),
            _ => {}
        }
        self.name.send_replace(config.name);
        Ok(Reconfigured::Taken)
    }
}

driver_entry!(entry, Changing);

// One driver has one slot in a process, so this is one test; each step is a function.
#[test]
fn host_actions_beside_media() {
    let settings = json!({ "greeting": "good day", "most": 3 });
    let folder = std::env::temp_dir().join(format!("satcast-changes-{}", std::process::id()));
    let options = Options { settings, data_dir: Some(folder.clone()) };
    let kit = Testkit::start_with(entry, options).unwrap();
    assert!(kit.table().manifest().settings.as_ref().unwrap()["properties"]["greeting"].is_object());
    assert_eq!(kit.data_dir().unwrap(), folder);
    passes_settings(&kit);
    takes_new_configurations(&kit);
    shows_failing_calls(&kit);
    loses_packets_in_a_full_queue(&kit);
    is_cut_off_at_its_deadline(&kit);
    kit.shut_down();
    assert!(folder.is_dir(), "the test's own folder is not deleted");
    std::fs::remove_dir_all(folder).unwrap();
}

fn passes_settings(kit: &Testkit) {
    let dest = kit.open("changing", &json!({ "name": "a" })).unwrap();
    assert!(dest.wait_for_state(State::Live));
    let hello = json!({ "greeting": "good day 3", "counter": true }).to_string();
    dest.report(|report| assert_eq!(report.events, [("hello".to_string(), hello)]));
    dest.stop();
    dest.wait_for_end().unwrap();
}

fn takes_new_configurations(kit: &Testkit) {
    let dest = kit.open("changing", &json!({ "name": "a" })).unwrap();
    assert!(dest.wait_for_state(State::Live));
    assert!(dest.reconfigure(&json!({ "name": "b" })).unwrap());
    let named = |report: &testkit::Report| report.events.contains(&("name".into(), "\"b\"".into()));
    assert!(kit.wait_until(&dest, named), "the running destination got it");
    assert!(!dest.reconfigure(&json!({ "name": "b", "mode": "slow" })).unwrap(), "needs a new opening");
    let refused = dest.reconfigure(&json!({ "name": "refuse" })).unwrap_err();
    assert_eq!((refused.class, refused.message.as_str()), (Class::Config, "name: not this one"));
    let panicked = dest.reconfigure(&json!({ "name": "panic" })).unwrap_err();
    assert_eq!(panicked.class, Class::Panic);
    assert!(dest.reconfigure(&json!({ "name": "c" })).unwrap(), "a panic in reconfigure is contained");
    dest.stop();
    let ended = |report: &testkit::Report| report.outcome.is_some();
    assert!(kit.wait_until(&dest, ended));
    dest.wait_for_end().unwrap();
    assert!(dest.reconfigure(&json!({ "name": "d" })).is_err(), "the destination was destroyed");
}

fn shows_failing_calls(kit: &Testkit) {
    kit.fail(HostCall::Connect, Error::network("no route"));
    let dest = kit.open("changing", &json!({ "name": "a", "mode": "connect" })).unwrap();
    assert_eq!(dest.wait_for_end().unwrap_err(), Error::network("no route"));
    kit.fail(HostCall::Counter, Error::internal("too many"));
    let dest = kit.open("changing", &json!({ "name": "a" })).unwrap();
    assert!(dest.wait_for_state(State::Live));
    dest.report(|report| assert!(report.events[0].1.contains("\"counter\":false"), "{:?}", report.events));
    dest.stop();
    dest.wait_for_end().unwrap();
    kit.fail(HostCall::DataDir, Error::internal("the disk is gone"));
    assert_eq!(kit.data_dir().unwrap_err().message, "the disk is gone");
    for call in [HostCall::Connect, HostCall::Counter, HostCall::DataDir] {
        kit.heal(call);
    }
    kit.data_dir().unwrap();
}

fn loses_packets_in_a_full_queue(kit: &Testkit) {
    let dest = kit.open("changing", &json!({ "name": "a", "mode": "slow" })).unwrap();
    assert!(dest.wait_for_state(State::Live));
    dest.limit_queue(4);
    dest.push(testkit::config(Codec::H264, b"c"));
    let packet = |sequence: u64, key: bool| {
        dest.push(testkit::media(Codec::H264, sequence, 0, key, Bytes::from_static(b"x")));
    };
    packet(1, true);
    packet(2, false);
    packet(3, true);
    packet(4, false);
    assert_eq!(
        dest.dropped_packets(),
        2,
        "everything before the newest keyframe is dropped, the configuration stays"
    );
    packet(5, false);
    packet(6, true);
    assert_eq!(dest.dropped_packets(), 5, "without a queued keyframe everything is dropped");
    GATE.add_permits(2);
    let seen = |report: &testkit::Report| report.events.len() == 3;
    assert!(kit.wait_until(&dest, seen));
    dest.report(|report| {
        assert_eq!(report.events[1].1, json!({ "sequence": 0, "gap": false }).to_string());
        assert_eq!(report.events[2].1, json!({ "sequence": 6, "gap": true }).to_string());
    });
    GATE.add_permits(2);
    dest.stop();
    dest.wait_for_end().unwrap();
}

fn is_cut_off_at_its_deadline(kit: &Testkit) {
    let dest = kit.open("changing", &json!({ "name": "a", "mode": "deaf" })).unwrap();
    let asked = Instant::now();
    dest.stop_within(50);
    let error = dest.wait_for_end().unwrap_err();
    assert_eq!(error.class, Class::Internal, "{error}");
    assert!(asked.elapsed() >= Duration::from_millis(50), "not before its time");
}
