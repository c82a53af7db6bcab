//! Packets and a driver for the tests of all modules.
#![allow(clippy::unwrap_used)] // A failed step is a failed test.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use satcast_plugin_api::abi::SatcastDriver;
use satcast_plugin_api::driver::{
    Config, Ctx, Destination, Driver, DriverInfo, DynDestination, Host, Media, Reconfigured, State,
};
use satcast_plugin_api::playback::PLAYLIST_TYPE;
use satcast_plugin_api::{
    Asset, AssetBody, Audience, Codec, DestType, Error, NANOS_PER_MILLI, Packet, Playback, Secret,
    driver_entry,
};

use crate::{Drivers, HostParts, RecordingParts};
use satcast_core::clock::Clock;
use satcast_net::outbound::Guard;

fn packet(codec: Codec, sequence: u64, dts_ms: i64) -> Packet {
    let dts_ns = dts_ms * NANOS_PER_MILLI;
    let packet = Packet::media(codec, false, dts_ns, dts_ns, Bytes::from_static(&[1; 100]));
    Packet { source: 1, sequence, ..packet }
}

pub fn video(sequence: u64, dts_ms: i64, keyframe: bool) -> Arc<Packet> {
    Arc::new(Packet { keyframe, ..packet(Codec::H264, sequence, dts_ms) })
}

pub fn audio(sequence: u64, dts_ms: i64) -> Arc<Packet> {
    Arc::new(packet(Codec::Aac, sequence, dts_ms))
}

fn config(codec: Codec, sequence: u64, record: &'static [u8]) -> Arc<Packet> {
    let packet = Packet::configuration(codec, Bytes::from_static(record));
    Arc::new(Packet { source: 1, sequence, ..packet })
}

pub fn video_config(sequence: u64, record: &'static [u8]) -> Arc<Packet> {
    config(Codec::H264, sequence, record)
}

pub fn audio_config(sequence: u64, record: &'static [u8]) -> Arc<Packet> {
    config(Codec::Aac, sequence, record)
}

/// Configuration of the `script` type: the behaviour of the destination.
#[derive(Clone, serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct Script {
    mode: String,
    token: Option<Secret<String>>,
}

/// Size of the packets at which the mode `flaky` fails.
pub const POISON_BYTES: usize = 13;

/// Error text of the modes `network` and `panic`.
pub const NO_ROUTE: &str = "no route";
/// Panic text of the mode `panic`.
pub const PANIC: &str = "scripted panic";

/// The driver: the configuration of a destination says what it does.
pub struct Scripted;
struct Out(Script);

impl Driver for Scripted {
    const INFO: DriverInfo = DriverInfo { id: "script", version: "1.0.0", title: "Scripted" };

    fn types() -> Vec<DestType> {
        let shown = DestType::of::<Script>("shown").title("Scripted destination with playback").playback();
        vec![DestType::of::<Script>("script").title("Scripted destination"), shown]
    }

    fn load(_: &Host) -> Result<Self, Error> {
        Ok(Scripted)
    }

    fn validate(&self, config: Config<'_>) -> Result<(), Error> {
        match config.parse::<Script>()?.mode.as_str() {
            "bad" => Err(Error::config("mode: is bad")),
            "hang" => {
                std::thread::sleep(Duration::from_millis(crate::CALL_TIMEOUT_MS + 500));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn open(&self, config: Config<'_>) -> Result<Arc<dyn DynDestination>, Error> {
        Ok(Arc::new(Out(config.parse()?)))
    }
}

impl Destination for Out {
    async fn run(self: Arc<Self>, ctx: Ctx, mut media: Media) -> Result<(), Error> {
        let token = self.0.token.as_ref().map(|token| token.expose().as_str()).unwrap_or_default();
        match self.0.mode.as_str() {
            "network" => return Err(Error::network(format!("{NO_ROUTE} for {token}"))),
            "config" => return Err(Error::config("this can never work")),
            "panic" => panic!("{PANIC}"),
            "loopback" => drop(ctx.connect("127.0.0.1", 9, Duration::from_secs(1)).await?),
            "deaf" => {
                // Shows that it has begun.
                ctx.bytes_sent(1);
                std::future::pending::<()>().await;
            }
            "lame" => return lame(&ctx).await,
            "flaky" => return flaky(&ctx, &mut media).await,
            "mute" => return mute(&ctx, &mut media).await,
            "show" => show(&ctx)?,
            "tell" => {
                ctx.event("told", &serde_json::json!({ "token": token, "n": 1 }));
                ctx.event("long", &serde_json::json!({ "text": "x".repeat(8_000) }));
            }
            _ => {}
        }
        let media_packets = ctx.counter("media_packets");
        let mut batch = Vec::new();
        while media.recv_batch(&mut batch).await {
            for packet in batch.drain(..) {
                ctx.bytes_sent(packet.payload.len() as u64);
                if let (false, Some(counter)) = (packet.is_config(), media_packets) {
                    counter.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                }
            }
            ctx.state(State::Live);
        }
        Ok(())
    }

    /// A steady destination stays open, whatever else changes.
    fn reconfigure(&self, config: Config<'_>) -> Result<Reconfigured, Error> {
        let is_steady =
            [self.0.mode.as_str(), config.parse::<Script>()?.mode.as_str()] == ["steady", "steady"];
        Ok(if is_steady { Reconfigured::Taken } else { Reconfigured::Reopen })
    }
}

/// Publishes one asset for viewers.
fn show(ctx: &Ctx) -> Result<(), Error> {
    let body = AssetBody::Memory(Bytes::from_static(b"#EXTM3U\n"));
    ctx.publish(Asset::new("index.m3u8", PLAYLIST_TYPE, Audience::Hosted, body).max_age(1))?;
    ctx.playback(&Playback {
        entry: "index.m3u8".into(),
        preview: None,
        first_ms: 1,
        window_ms: 2_000,
        window_max_ms: 3_600_000,
        fresh_ms: 60_000,
        ended: false,
    })
}

/// Reports its server and live, until it gets a packet of [`POISON_BYTES`].
async fn flaky(ctx: &Ctx, media: &mut Media) -> Result<(), Error> {
    ctx.event("publishing", &serde_json::json!({ "server": "backup.example:1935" }));
    let mut batch = Vec::new();
    while media.recv_batch(&mut batch).await {
        for packet in batch.drain(..) {
            if packet.payload.len() == POISON_BYTES {
                return Err(Error::network("the line broke"));
            }
            ctx.bytes_sent(packet.payload.len() as u64);
        }
        ctx.state(State::Live);
    }
    Ok(())
}

/// Sends something and takes nothing.
async fn lame(ctx: &Ctx) -> Result<(), Error> {
    let mut stopping = std::pin::pin!(ctx.stopping());
    loop {
        ctx.bytes_sent(1);
        ctx.state(State::Live);
        tokio::select! {
            () = &mut stopping => return Ok(()),
            () = tokio::time::sleep(Duration::from_millis(1)) => {}
        }
    }
}

/// Reports live without sending anything.
async fn mute(ctx: &Ctx, media: &mut Media) -> Result<(), Error> {
    let mut batch = Vec::new();
    while media.recv_batch(&mut batch).await {
        batch.clear();
        ctx.state(State::Live);
    }
    Ok(())
}

driver_entry!(scripted_entry, Scripted);

/// The scripted driver: one for all tests of the process, because a driver can be started once.
pub fn drivers() -> Drivers {
    static DRIVERS: OnceLock<Drivers> = OnceLock::new();
    DRIVERS.get_or_init(|| start(scripted_entry)).clone()
}

/// Starts the driver of `entry`.
pub fn start(entry: extern "C" fn(u32) -> *const SatcastDriver) -> Drivers {
    start_with(entry, RecordingParts::default())
}

/// The same for a driver that keeps recordings.
pub fn start_with(entry: extern "C" fn(u32) -> *const SatcastDriver, recordings: RecordingParts) -> Drivers {
    let runtime = Box::leak(Box::new(tokio::runtime::Runtime::new().unwrap()));
    let parts = HostParts {
        guard: Guard::new(&[]).unwrap(),
        runtime: runtime.handle().clone(),
        clock: Clock::system(),
        data_dir: std::env::temp_dir().join(format!("satcast-scripted-driver-{}", std::process::id())),
        recordings,
    };
    Drivers::linked(&[entry], &parts)
}
