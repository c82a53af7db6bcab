//! Destination type `cloud-archive`: recordings in S3-compatible storage.
//!
//! Packets become fragmented MP4 (`cut`), which is spooled to the local disk (`recorder`) and uploaded in parts while
//! it grows (`upload`). Recording never waits for the store. `table` holds all recordings; only `table` changes,
//! journals and reports them. `entry` is the part of a recording that must survive a crash, `journal` its file. `core`
//! is the shared state, and knows the stores. On top: `actions` (requests of owners), `follow` (new configurations of
//! destinations), `kept` (finished files of the host), `keeper` (periodic work), `retention` (what leaves the store, and when), `reading` (for viewers, with the
//! `index` that the recorder keeps). `outside` is the part of the host that the driver needs apart from media.
//!
//! Durability: media is written as fragments of less than a second, so a kill of the process loses less than a second.
//! Media is synced every two seconds beside the writing, at the end, and before a part of it is sent, so a crash of the
//! machine loses little more and never media that the store has. Every step of an upload is durable in the journal
//! before the next one.
//!
//! Failures: errors of the network or the store are retried for a day, with pauses of up to five minutes. Refusals by
//! the store (keys, rights, no bucket) are retried for the day too, at most every quarter of an hour, because they can
//! be fixed at the store, and new keys of the destination also apply to waiting recordings (`follow`). Until then the
//! reason is reported with the unchanged state. Then the recording has failed, with the reason, and the local copy
//! stays for a week under a quota. Uploads that the store opened although its answer was lost are found and aborted
//! when the next upload of the recording is opened; for stores that cannot list uploads, a bucket rule should abort old
//! ones.
//!
//! Invariants: the local copy stays until the store has confirmed the whole object; a copy that is not as it was
//! recorded is not uploaded (`crc`); an object is never overwritten; a kill at any point leads to one whole object; keys
//! of stores are in no log, error or file; everything held is bounded by `limits`.

mod actions;
mod boxes;
mod config;
mod core;
mod crc;
mod cut;
mod destination;
mod disk;
mod entry;
mod follow;
mod full;
mod index;
mod journal;
mod keeper;
mod kept;
mod limits;
mod names;
mod outside;
mod parts;
mod reading;
mod recorder;
mod retention;
mod rules;
mod table;
mod upload;
mod version1;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use satcast_plugin_api::driver::{
    self, Answer, BytesAnswer, Driver, DriverInfo, DynDestination, FinishedFile, IndexAnswer, Recording,
    Recordings,
};
use satcast_plugin_api::{DestType, Error, SettingsSchema};

use self::core::Core;
pub use config::{Config, GIGABYTES_MAX, RETENTION_DAYS_MAX, Settings};
use destination::Destination;
use limits::Limits;
use outside::HostOutside;

pub const TYPE: &str = "cloud-archive";

pub struct Archive {
    core: Arc<Core>,
}

impl Driver for Archive {
    const INFO: DriverInfo =
        DriverInfo { id: "archive", version: env!("CARGO_PKG_VERSION"), title: "Cloud archive" };

    /// A disk that stalls for a while loses nothing of a recording.
    const LOSSLESS: bool = true;

    /// A connection keeps one thread busy when the store is fast; the others go on.
    const WORKERS: usize = 2;

    fn types() -> Vec<DestType> {
        let codecs = ["h264", "hevc", "av1", "aac", "opus"];
        vec![DestType::of::<Config>(TYPE).title("Cloud archive").codecs(&codecs).wants_backfill()]
    }

    fn settings() -> Option<SettingsSchema> {
        Some(SettingsSchema::of::<Settings>())
    }

    fn load(host: &driver::Host) -> Result<Self, Error> {
        let settings: Settings = host.settings()?;
        let outside = Arc::new(HostOutside::new(host.clone()));
        let core = keeper::start(&host.data_dir()?, &settings, Limits::new(&settings), outside)?;
        Ok(Archive { core })
    }

    fn validate(&self, config: driver::Config<'_>) -> Result<(), Error> {
        let config = config.parse::<Config>()?;
        if config.target()?.is_none() {
            self.core.operator()?;
            self.core.limits.bounds.check(config.rules())?;
        }
        Ok(())
    }

    fn open(&self, config: driver::Config<'_>) -> Result<Arc<dyn DynDestination>, Error> {
        let config = config.parse::<Config>()?;
        Ok(Arc::new(Destination::new(self.core.clone(), &config)?))
    }

    fn recordings(&self) -> Option<&dyn Recordings> {
        Some(self)
    }
}

impl Recordings for Archive {
    fn list(&self) -> Result<Vec<Recording>, Error> {
        self.core.table.recordings()
    }

    fn retry(&self, file_name: &str, answer: Answer) {
        actions::retry(&self.core, file_name, answer);
    }

    fn delete(&self, file_name: &str, remote: bool, answer: Answer) {
        actions::delete(&self.core, file_name, remote, answer);
    }

    fn sign(&self, file_name: &str, valid: Duration) -> Result<String, Error> {
        actions::sign(&self.core, file_name, valid)
    }

    fn read(&self, file_name: &str, offset: u64, bytes: u32, answer: BytesAnswer) {
        reading::range(&self.core, file_name, offset, bytes, answer);
    }

    fn index(&self, file_name: &str, first: u64, most: u32, answer: IndexAnswer) {
        reading::index(&self.core, file_name, first, most, answer);
    }

    fn announced(&self, file_name: &str, expires_at_ms: i64) -> Result<(), Error> {
        actions::announced(&self.core, file_name, expires_at_ms)
    }

    fn keep(&self, file: FinishedFile, config: driver::Config<'_>, answer: Answer) {
        match config.parse::<Config>() {
            Ok(config) => kept::keep(&self.core, file, config, answer),
            Err(error) => answer.give(Err(error)),
        }
    }

    fn probe(&self, config: driver::Config<'_>, answer: Answer) {
        match config.parse::<Config>() {
            Ok(config) => {
                let core = self.core.clone();
                tokio::spawn(async move { answer.give(upload::probe::probe(&core, &config).await) });
            }
            Err(error) => answer.give(Err(error)),
        }
    }

    fn configured(&self, destination_id: i64, config: Option<driver::Config<'_>>) -> Result<(), Error> {
        follow::configured(&self.core, destination_id, config)
    }
}
