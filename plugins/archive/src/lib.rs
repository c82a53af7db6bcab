//! Destination type `cloud-archive`: recordings in S3-compatible storage.
//!
//! Packets become fragmented MP4 (`cut`), which is spooled to the local disk (`recorder`) and brought to the store in parts while it
//! grows (`upload`). Recording never waits for the store. `table` has all recordings and alone changes, journals and tells them;
//! `entry` is what a crash must not lose of one, `journal` its file. `core` is what all share, and knows the stores. On top: `actions` does
//! what owners ask of recordings, `follow` what a new configuration of their destination means for them, `keeper` what goes by itself.
//! `outside` is all that the driver needs of its host apart from media.
//!
//! What is safe when: media is written as fragments of less than a second, so a kill of the process loses less than that; it is made
//! durable every two seconds beside the writing, at the end, and before a part of it is sent, so a crash of the machine loses little
//! more and never something that the store has. Every step of an upload is in the journal, durably, before the next one.
//!
//! Failures: what the network or the store fails at is tried again for a day, with pauses up to five minutes. What the store refuses
//! (keys, rights, no bucket) is tried for the day too, every quarter of an hour at most: people mend that at the store, and new keys
//! of the destination are for recordings that wait, too (`follow`). Until then the reason is told beside the state as it is. Then it has failed, with the reason, and the local
//! copy stays for a week under a quota. Uploads that the store opened and we did not hear of are looked for and ended when the next
//! one of that recording is opened; for stores that cannot list them, a rule of the bucket should end old ones.
//!
//! Invariants: the local copy stays until the store has confirmed the whole object; an object is never overwritten; a kill at any
//! point leads to one whole object; keys of stores are in no log, error or file; everything held is bounded by `limits`.

mod actions;
mod boxes;
mod config;
mod core;
mod cut;
mod destination;
mod disk;
mod entry;
mod follow;
mod full;
mod journal;
mod keeper;
mod limits;
mod names;
mod outside;
mod parts;
mod recorder;
mod table;
mod upload;
mod version1;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use satcast_plugin_api::driver::{self, Answer, Driver, DriverInfo, DynDestination, Recording, Recordings};
use satcast_plugin_api::{DestType, Error, SettingsSchema};

use self::core::Core;
pub use config::{Config, RETENTION_DAYS_MAX, Settings};
use destination::Destination;
use limits::Limits;
use outside::HostOutside;

/// The destination type.
pub const TYPE: &str = "cloud-archive";

/// The driver.
pub struct Archive {
    core: Arc<Core>,
}

impl Driver for Archive {
    const INFO: DriverInfo =
        DriverInfo { id: "archive", version: env!("CARGO_PKG_VERSION"), title: "Cloud archive" };

    /// A disk that stalls for a while costs nothing of a recording.
    const LOSSLESS: bool = true;

    /// Parts are hashed on them: one such part, and the others go on.
    const WORKERS: usize = 2;

    fn types() -> Vec<DestType> {
        let codecs = ["h264", "hevc", "av1", "aac", "opus"];
        vec![DestType::of::<Config>(TYPE).title("Cloud archive").codecs(&codecs).wants_past()]
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
        match config.parse::<Config>()?.target()? {
            Some(_) => Ok(()),
            None => self.core.operator().map(drop),
        }
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
