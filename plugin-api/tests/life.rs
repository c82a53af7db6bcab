//! A driver's life over the real C table, with the testkit as host.
#![allow(clippy::unwrap_used)] // A failed step is a failed test.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use satcast_plugin_api::driver::{
    Config, Ctx, Destination, Driver, DriverInfo, DynDestination, Host, Media, State,
};
use satcast_plugin_api::testkit::{self, Testkit};
use satcast_plugin_api::{
    Asset, AssetBody, Audience, Class, Codec, DestType, Error, Playback, Secret, driver_entry,
};
use serde_json::json;

#[derive(Clone, serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct Cfg {
    mode: String,
    #[serde(default)]
    port: u16,
    token: Option<Secret<String>>,
}

struct Probe;
struct Out(Cfg);

impl Driver for Probe {
    const INFO: DriverInfo = DriverInfo { id: "probe", version: "1.2.3", title: "Probe" };

    fn types() -> Vec<DestType> {
        vec![DestType::of::<Cfg>("probe").codecs(&["h264"])]
    }

    fn load(_: &Host) -> Result<Self, Error> {
        Ok(Probe)
    }

    fn validate(&self, config: Config<'_>) -> Result<(), Error> {
        match config.parse::<Cfg>()?.mode.as_str() {
            "refuse" => Err(Error::config("mode is not good")),
            "panic" => panic!("validate-panics"),
            _ => Ok(()),
        }
    }

    fn open(&self, config: Config<'_>) -> Result<Arc<dyn DynDestination>, Error> {
        let config: Cfg = config.parse()?;
        assert!(config.mode != "panic-open", "open panics");
        Ok(Arc::new(Out(config)))
    }
}

impl Destination for Out {
    async fn run(self: Arc<Self>, ctx: Ctx, mut media: Media) -> Result<(), Error> {
        match self.0.mode.as_str() {
            "panic-run" => panic!("run-panics"),
            "panic-drop" => {
                let _held = PanicsWhenDropped;
                std::future::pending::<()>().await;
            }
            "hang" => std::future::pending::<()>().await,
            "connect" => {
                let stream = ctx.connect("127.0.0.1", self.0.port, Duration::from_secs(5)).await?;
                drop(stream);
            }
            "connect-udp" => {
                let socket = ctx.connect_udp("127.0.0.1", self.0.port, Duration::from_secs(5)).await?;
                socket.send(b"x").await.map_err(|error| Error::network(error.to_string()))?;
            }
            "auth" => return Err(Error::auth("bad key").retry_after(Duration::from_secs(60))),
            _ => {}
        }
        ctx.state(State::Live);
        let mut batch = Vec::new();
        while media.recv_batch(&mut batch).await {
            for packet in batch.drain(..) {
                ctx.bytes_sent(packet.payload.len() as u64);
                let name = format!("p{}", packet.sequence);
                let body = AssetBody::Memory(packet.payload);
                ctx.publish(Asset::new(name, "x/y", Audience::Both, body).max_age(1))?;
            }
        }
        ctx.retract("p0");
        publish_all_bodies(&ctx)?;
        ctx.event("done", &json!({ "dir": ctx.data_dir()?.is_dir(), "secret": self.0.token.is_some() }));
        Ok(())
    }
}

/// An asset in a file and one made of parts, an entry, and assets that must be refused.
fn publish_all_bodies(ctx: &Ctx) -> Result<(), Error> {
    std::fs::write(ctx.data_dir()?.join("window.bin"), b"..file..")
        .map_err(|e| Error::internal(e.to_string()))?;
    let publish = |name: &str, body| ctx.publish(Asset::new(name, "x/y", Audience::Hosted, body));
    let file = |path: &str| AssetBody::File {
        path: path.into(),
        offset: 2,
        len: 4,
        keep: Some(Box::new(CountsDrops)),
    };
    publish("file", file("window.bin"))?;
    publish("both", AssetBody::Parts(vec!["p1".into(), "file".into()]))?;
    let refused = publish("file", file("../window.bin")).unwrap_err();
    assert_eq!(refused.class, Class::Internal, "{refused}");
    assert!(publish("a/b", AssetBody::Memory(Bytes::new())).is_err());
    assert!(publish("none", AssetBody::Parts(Vec::new())).is_err());
    assert!(publish("open", AssetBody::Open { file: None, offset: 0, len: 0 }).is_err());
    let playback = Playback {
        entry: "p1".into(),
        preview: None,
        first_ms: 5,
        window_ms: 6,
        window_max_ms: 7,
        fresh_ms: 8,
        ended: false,
    };
    assert!(ctx.playback(&Playback { entry: "../p1".into(), ..playback.clone() }).is_err());
    ctx.playback(&playback)
}

static DROPS: AtomicU32 = AtomicU32::new(0);

struct CountsDrops;

impl Drop for CountsDrops {
    fn drop(&mut self) {
        DROPS.fetch_add(1, Ordering::SeqCst);
    }
}

struct PanicsWhenDropped;

impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        panic!("drop-panics");
    }
}

driver_entry!(entry, Probe);

fn mode(mode: &str) -> serde_json::Value {
    json!({ "mode": mode })
}

// One driver has one slot in a process, so its whole life is one test; each step is a function.
#[test]
fn a_drivers_life() {
    let kit = Testkit::start(entry).unwrap();
    describes_itself(&kit);
    validates(&kit);
    carries_media_without_copying(&kit);
    gives_files_back(&kit);
    ends_with_errors_of_their_class(&kit);
    connects(&kit);
    gives_every_packet_back(&kit);
    assert!(Testkit::start(entry).is_err(), "a second init must be refused");
    kit.shut_down();
}

fn describes_itself(kit: &Testkit) {
    assert_eq!((kit.table().id(), kit.table().version()), ("probe", "1.2.3"));
    let kind = &kit.table().manifest().types[0];
    assert_eq!(kind.codecs, ["h264"]);
    assert!(kind.schema.to_string().contains("\"x-secret\":true"), "{}", kind.schema);
}

fn validates(kit: &Testkit) {
    kit.validate("probe", &mode("fine")).unwrap();
    let refused = kit.validate("probe", &mode("refuse")).unwrap_err();
    assert_eq!((refused.class, refused.message.as_str()), (Class::Config, "mode is not good"));
    let panicked = kit.validate("probe", &mode("panic")).unwrap_err();
    assert_eq!(panicked.class, Class::Panic);
    assert!(panicked.message.contains("validate-panics"), "{panicked}");
    let wrong = kit.validate("probe", &json!({ "mode": "x", "token": 5, "extra": "sesame" })).unwrap_err();
    assert!(!wrong.message.contains("sesame"), "values stay out of errors: {wrong}");
}

fn carries_media_without_copying(kit: &Testkit) {
    let dest = kit.open("probe", &json!({ "mode": "fine", "token": "t" })).unwrap();
    let payload = Bytes::from(vec![7_u8; 5000]);
    dest.push(testkit::media(Codec::H264, 0, 0, true, payload.clone()));
    dest.push(testkit::media(Codec::H264, 1, 33, false, payload.clone()));
    assert!(dest.wait_for_state(State::Live));
    dest.stop();
    dest.wait_for_end().unwrap();
    assert_eq!(dest.counter("bytes_sent"), 10_000);
    dest.report(|report| {
        assert_eq!(report.ends, 1);
        assert_eq!(report.assets.keys().collect::<Vec<_>>(), ["both", "file", "p1"]);
        assert_eq!(report.assets["file"].bytes().unwrap(), b"file");
        assert!(matches!(&report.assets["both"].asset.body, AssetBody::Parts(names) if names[..] == ["p1", "file"]));
        assert_eq!(report.playback.as_ref().map(|playback| playback.entry.as_str()), Some("p1"));
        assert_eq!(report.events, [("done".into(), json!({ "dir": true, "secret": true }).to_string())]);
    });
}

fn gives_files_back(kit: &Testkit) {
    let before = DROPS.load(Ordering::SeqCst);
    assert_eq!(before, 1, "the refused asset was released, the other is held");
    let dest = kit.open("probe", &mode("fine")).unwrap();
    dest.stop();
    dest.wait_for_end().unwrap();
    kit.forget_assets(&dest);
    assert_eq!(DROPS.load(Ordering::SeqCst), before + 2);
}

fn ends_with_errors_of_their_class(kit: &Testkit) {
    let dest = kit.open("probe", &mode("auth")).unwrap();
    let error = dest.wait_for_end().unwrap_err();
    assert_eq!((error.class, error.retry_after), (Class::Auth, Some(Duration::from_secs(60))));

    let dest = kit.open("probe", &mode("panic-run")).unwrap();
    let error = dest.wait_for_end().unwrap_err();
    assert_eq!(error.class, Class::Panic);
    assert!(error.message.contains("run-panics"), "{error}");

    let error = kit.open("probe", &mode("panic-open")).err().unwrap();
    assert_eq!(error.class, Class::Panic);

    let dest = kit.open("probe", &mode("hang")).unwrap();
    dest.stop();
    let error = dest.wait_for_end().unwrap_err();
    assert_eq!(error.class, Class::Internal, "{error}");

    let dest = kit.open("probe", &mode("panic-drop")).unwrap();
    dest.stop();
    let error = dest.wait_for_end().unwrap_err();
    assert_eq!((error.class, error.message.contains("drop-panics")), (Class::Panic, true), "{error}");
}

fn connects(kit: &Testkit) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let dest = kit.open("probe", &json!({ "mode": "connect", "port": port })).unwrap();
    listener.accept().unwrap();
    dest.stop();
    dest.wait_for_end().unwrap();

    drop(listener);
    let dest = kit.open("probe", &json!({ "mode": "connect", "port": port })).unwrap();
    assert_eq!(dest.wait_for_end().unwrap_err().class, Class::Network);

    let listener = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let dest = kit.open("probe", &json!({ "mode": "connect-udp", "port": port })).unwrap();
    assert_eq!(listener.recv(&mut [0; 8]).unwrap(), 1);
    dest.stop();
    dest.wait_for_end().unwrap();
}

fn gives_every_packet_back(kit: &Testkit) {
    for _ in 0..50 {
        let dest = kit.open("probe", &mode("fine")).unwrap();
        for sequence in 0..100 {
            dest.push(testkit::media(Codec::H264, sequence, 0, false, Bytes::from_static(b"x")));
        }
        dest.stop();
        dest.wait_for_end().unwrap();
        assert_eq!(dest.counter("bytes_sent"), 100, "everything queued before the stop is handed over");
        assert_eq!(dest.leased_packets(), 99, "published packets are held, not copied");
        kit.forget_assets(&dest);
        assert_eq!(dest.leased_packets(), 0);
    }
}
