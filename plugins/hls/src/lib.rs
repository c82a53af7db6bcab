//! Destination type `self-hosted`: HLS for viewers of this service, with rewind.
//!
//! Packets become segments ([`satcast_media::segment`]), which the host serves by name: the newest from memory, older
//! ones from one file each. `opening` is the loop of one opening. `window` decides, without I/O or clock, which
//! segments are published, listed, written and removed. `disk` writes, `janitor` removes at a bounded rate, and
//! `folder` lays the files out and clears the rest of a crash. `numbers` keeps media sequence numbers rising over
//! sessions and restarts; `sessions` does the same for discontinuity sequence numbers over the openings of a
//! destination in a session.
//!
//! Without rewind (`dvrSeconds` 0) nothing is written, but about 100 s of 2 s segments stay in memory: a playlist of
//! three target durations, the grace time of 90 s in which players with an older playlist still ask, and the segments
//! of the preview. With segments of 10 s the preview makes it about 190 s. `Limits::memory_bytes_max` bounds it at any
//! bit rate.
//!
//! Keyframes decide what can be played. The target duration follows the GOP length of a regular stream, which parts do
//! not wait for, and rises once, to 10 s, when GOPs become longer ([`satcast_media::segment`] says why). Beyond that, segments are cut between
//! keyframes, the owner is notified, and playback counts as not ready while no keyframe is where players start.
//!
//! With `lowLatency`, parts of about half a second are published and listed as they come, each with a version of the
//! playlist that viewers wait for in the host (`Followed`), so their requests never reach the driver. A host that does
//! not let viewers wait gets plain HLS. Players of parts begin with the first part; the destination is live, and costs,
//! from the first whole segment on.
//!
//! Invariants: a playlist names only published assets; a name never returns with other bytes; neither media nor the
//! disk ends an opening with an error; everything held is bounded by `limits`.

mod config;
mod disk;
mod folder;
mod host;
mod janitor;
mod limits;
mod numbers;
mod opening;
mod sessions;
mod window;

use std::sync::Arc;

use satcast_plugin_api::driver::{self, Driver, DriverInfo, DynDestination};
use satcast_plugin_api::{DestType, Error, SettingsSchema};

pub use config::{Config, DVR_SECONDS_MAX, ORIGIN_BYTES_MAX, ORIGINS_MAX, Settings};
use limits::Limits;
use opening::{Opening, Shared};

pub const TYPE: &str = "self-hosted";

pub struct Hls {
    shared: Arc<Shared>,
}

impl Driver for Hls {
    const INFO: DriverInfo =
        DriverInfo { id: "hls", version: env!("CARGO_PKG_VERSION"), title: "HLS playback" };

    fn types() -> Vec<DestType> {
        let codecs = ["h264", "hevc", "av1", "aac", "opus"];
        vec![DestType::of::<Config>(TYPE).title("Self-hosted playback").codecs(&codecs).playback()]
    }

    fn settings() -> Option<SettingsSchema> {
        Some(SettingsSchema::of::<Settings>())
    }

    fn load(host: &driver::Host) -> Result<Self, Error> {
        let settings: Settings = host.settings()?;
        let limits = Limits { window_bytes_max: settings.window_quota_bytes, ..Limits::default() };
        Ok(Hls { shared: Arc::new(Shared::start(&host.data_dir()?, "dvr", limits)?) })
    }

    fn validate(&self, config: driver::Config<'_>) -> Result<(), Error> {
        config.parse::<Config>()?.check()
    }

    fn open(&self, config: driver::Config<'_>) -> Result<Arc<dyn DynDestination>, Error> {
        let config = config.parse::<Config>()?;
        config.check()?;
        Ok(Arc::new(Opening::new(self.shared.clone(), &config)))
    }
}

impl Drop for Hls {
    fn drop(&mut self) {
        self.shared.clear();
    }
}
