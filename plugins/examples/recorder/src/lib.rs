//! Driver `recorder`: records each session to an FLV file in its data folder and publishes the file for viewers while it grows.
//!
//! [`flv`] makes the content of the file, [`file`] writes it on a separate thread, [`assets`] publishes it for viewers.

mod assets;
mod file;
mod flv;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use satcast_plugin_api::driver::{
    Config, Ctx, Destination, Driver, DriverInfo, DynDestination, Host, Media, Reconfigured, State,
};
use satcast_plugin_api::{DestType, Error, HttpRequest, HttpResponse, Route, SettingsSchema};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::watch;

use file::Recording;

/// Default of the largest file, in MiB.
const FILE_MIB_DEFAULT: u64 = 4096;
/// Media of a recording that a power failure may cost.
const SYNC_EVERY: Duration = Duration::from_secs(30);

/// The operator's settings below `[driver.recorder]`.
#[derive(Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Settings {
    /// Largest file in MiB; a recording that reaches it ends.
    #[schemars(range(min = 1, max = 1_048_576))]
    file_mib_max: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self { file_mib_max: FILE_MIB_DEFAULT }
    }
}

/// Configuration of a destination of type `recording`.
#[derive(Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Target {
    /// Beginning of the file's name: letters, digits, `-` and `_`.
    #[schemars(regex(pattern = r"^[A-Za-z0-9_-]{1,64}$"))]
    name: String,
    /// Viewers may fetch the recording.
    #[serde(default = "yes")]
    listed: bool,
}

fn yes() -> bool {
    true
}

/// The driver.
pub struct Recorder {
    folder: PathBuf,
    bytes_max: u64,
}

impl Driver for Recorder {
    const INFO: DriverInfo =
        DriverInfo { id: "recorder", version: env!("CARGO_PKG_VERSION"), title: "Local recorder" };

    /// A disk that stalls for a while costs no media: the service spools packets that cannot be written yet.
    const LOSSLESS: bool = true;

    fn types() -> Vec<DestType> {
        vec![
            DestType::of::<Target>("recording")
                .title("Recording in a file")
                .codecs(&["h264", "aac"])
                .route(Route::new("info.json")),
        ]
    }

    fn settings() -> Option<SettingsSchema> {
        Some(SettingsSchema::of::<Settings>())
    }

    fn load(host: &Host) -> Result<Self, Error> {
        let settings: Settings = host.settings()?;
        Ok(Self { folder: host.data_dir()?, bytes_max: settings.file_mib_max << 20 })
    }

    fn open(&self, config: Config<'_>) -> Result<Arc<dyn DynDestination>, Error> {
        let target = watch::Sender::new(config.parse()?);
        Ok(Arc::new(Session { folder: self.folder.clone(), bytes_max: self.bytes_max, target }))
    }
}

/// One opening of a destination.
struct Session {
    folder: PathBuf,
    bytes_max: u64,
    target: watch::Sender<Target>,
}

impl Destination for Session {
    async fn run(self: Arc<Self>, ctx: Ctx, mut media: Media) -> Result<(), Error> {
        let (mut target, mut batch) = (self.target.subscribe(), Vec::new());
        let name = target.borrow().name.clone();
        let mut recording = Recording::create(&self.folder, &name, self.bytes_max).await?;
        tracing::info!(file = recording.name(), "recording");
        let (syncs, mut sync_at) = (ctx.counter("syncs"), ctx.time().now() + SYNC_EVERY);
        loop {
            let until = sync_at.saturating_sub(ctx.time().now());
            tokio::select! {
                is_more = media.recv_batch(&mut batch) => if !is_more { break },
                () = ctx.time().sleep(until) => {
                    recording.sync().await?;
                    sync_at = ctx.time().now() + SYNC_EVERY;
                    if let Some(syncs) = syncs {
                        syncs.fetch_add(1, Ordering::Relaxed);
                    }
                    continue;
                }
            }
            let bytes = recording.write(std::mem::take(&mut batch)).await?;
            ctx.bytes_sent(bytes);
            if recording.has_media() {
                ctx.state(State::Live);
                assets::show(&ctx, &recording, target.borrow_and_update().listed, false)?;
            }
        }
        recording.finish().await?;
        assets::show(&ctx, &recording, target.borrow().listed, true)?;
        ctx.event("recording.ready", &json!({ "file": recording.name(), "bytes": recording.len() }));
        Ok(())
    }

    fn reconfigure(&self, config: Config<'_>) -> Result<Reconfigured, Error> {
        let target: Target = config.parse()?;
        // A new name needs a new file.
        if target.name != self.target.borrow().name {
            return Ok(Reconfigured::Reopen);
        }
        self.target.send_replace(target);
        Ok(Reconfigured::Taken)
    }

    /// Answers requests for facts about a listed recording.
    async fn http(self: Arc<Self>, _: HttpRequest) -> Result<HttpResponse, Error> {
        let target = self.target.borrow().clone();
        if !target.listed {
            return Ok(HttpResponse::not_found());
        }
        let info = json!({ "name": target.name, "bytesMax": self.bytes_max });
        Ok(HttpResponse::bytes("application/json", info.to_string()))
    }
}

satcast_plugin_api::export_driver!(Recorder);
