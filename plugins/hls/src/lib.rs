//! Destination type `self-hosted`: HLS for viewers of this service, with rewind.
//!
//! Packets become segments ([`satcast_media::segment`]), which the host serves by name: the newest from memory, older ones from
//! one file each. `opening` is the loop of one opening; `window` decides without I/O or clock what is published, listed, written
//! and taken away; `disk` writes, `janitor` removes at a bounded rate, `folder` lays the files out and clears what a crash left,
//! `numbers` keeps media sequence numbers rising over sessions and restarts, `sessions` those of discontinuities over the openings
//! of a destination in a session.
//!
//! Without rewind (`dvrSeconds` 0) nothing is written, and some 100 s of segments of 2 s are in memory all the same: a list of three
//! target durations, the grace time of 90 s in which players with an older list still ask, and what the preview shows. With segments
//! of 10 s the preview makes it some 190 s. `Limits::memory_bytes_max` bounds it whatever the bit rate.
//!
//! Keyframes decide what can be played: the target duration is that of a regular stream's groups and rises once, to 10 s, when
//! groups become longer ([`satcast_media::segment`] says why); beyond that segments are cut between keyframes, the owner is told, and
//! as long as no keyframe is where players start the playback counts as not ready.
//!
//! With `lowLatency` parts of about half a second are published and listed as they come, each with a version of the playlist that
//! viewers wait for in the host (`Followed`), so that no request of theirs comes here. A host that does not let them wait gets plain HLS.
//!
//! Invariants: no playlist names a piece that is not published; a name never comes back with other bytes; neither media nor the
//! disk ends an opening with an error; everything held is bounded by `limits`.

mod clock;
mod config;
mod disk;
mod folder;
mod janitor;
mod limits;
mod numbers;
mod opening;
mod sessions;
mod shelf;
mod window;

use std::sync::Arc;

use satcast_plugin_api::driver::{self, Driver, DriverInfo, DynDestination};
use satcast_plugin_api::{DestType, Error, SettingsSchema};

pub use config::{Config, DVR_SECONDS_MAX, ORIGIN_BYTES_MAX, ORIGINS_MAX, Settings};
use limits::Limits;
use opening::{Opening, Shared};

/// The destination type.
pub const TYPE: &str = "self-hosted";

/// The driver.
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
