//! The memory limit for the published assets of an isolated driver, all openings together.
//!
//! The system bounds the memory of the process itself; assets in memory are copies on the service's side, which need
//! a limit of their own. A driver keeps what it publishes, so the limit is the same as for its process. On threads
//! assets are the driver's own memory, and nothing is limited here.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use satcast_plugin_api::Error;
use satcast_quota::{Full, Permit, Quota};

use super::asset::ByName;

/// One account may use at most this part of the limit: half.
const ACCOUNT_PART: u64 = 2;

#[derive(Debug, Default)]
pub(crate) struct Budget {
    /// Bytes by account; not set = no limit.
    quota: OnceLock<Quota<i64>>,
    /// Openings that have ended and are kept for viewers, oldest first, with their accounts.
    ended: Mutex<VecDeque<(i64, Weak<ByName>)>>,
}

impl Budget {
    /// Sets the limit; the first one stays.
    pub(crate) fn bound(&self, bytes: u64) {
        self.quota.get_or_init(|| Quota::new(bytes, bytes / ACCOUNT_PART));
    }

    /// A permit for these bytes of `account`; if memory is short, assets of ended openings are dropped first. `None`
    /// where nothing is limited.
    ///
    /// # Errors
    /// Names the limit that is reached.
    pub(super) fn take(&self, account: i64, bytes: u64) -> Result<Option<Permit<i64>>, Error> {
        let Some(quota) = self.quota.get().filter(|_| bytes > 0) else { return Ok(None) };
        loop {
            let full = match quota.try_take(account, bytes) {
                Ok(permit) => return Ok(Some(permit)),
                Err(full) => full,
            };
            match self.oldest_ended((full == Full::Share).then_some(account)) {
                // Not under the lock: dropping assets runs foreign code.
                Some(ended) => ended.upgrade().iter().for_each(|assets| assets.give_up_memory()),
                None => return Err(refused(full, quota.total())),
            }
        }
    }

    /// An opening has ended; its assets go first.
    pub(super) fn ended(&self, account: i64, assets: &Arc<ByName>) {
        if self.quota.get().is_some() {
            let mut ended = self.ended.lock();
            ended.retain(|(_, assets)| assets.strong_count() > 0);
            ended.push_back((account, Arc::downgrade(assets)));
        }
    }

    /// The opening that ended first, of `account` if one is given.
    fn oldest_ended(&self, account: Option<i64>) -> Option<Weak<ByName>> {
        let mut ended = self.ended.lock();
        let index = ended.iter().position(|(of, _)| account.is_none_or(|account| account == *of))?;
        ended.remove(index).map(|(_, assets)| assets)
    }
}

fn refused(full: Full, limit: u64) -> Error {
    let (owner, bytes) = match full {
        Full::Share => ("one account's destinations of this driver", limit / ACCOUNT_PART),
        Full::Total => ("this driver", limit),
    };
    let mb = bytes / (1024 * 1024);
    Error::internal(format!(
        "the published assets of {owner} take more than {mb} MiB of the service's memory; retract old ones or publish files (the operator can raise \
         limits, memory_mb of the driver)"
    ))
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use bytes::Bytes;
    use satcast_plugin_api::{Asset, AssetBody, Audience, Followed};

    use super::*;
    use crate::published::Assets;

    const LIMIT: u64 = 1000;

    struct Rig(Arc<Budget>);

    impl Rig {
        fn new() -> Self {
            let rig = Self(Arc::default());
            rig.0.bound(LIMIT);
            rig
        }

        fn open(&self, account: i64) -> Arc<Assets> {
            let assets = Arc::<Assets>::default();
            assets.charge(&self.0, account);
            assets
        }

        fn bytes(&self) -> u64 {
            self.0.quota.get().map_or(0, Quota::taken)
        }
    }

    fn publish(assets: &Assets, name: &str, body: AssetBody) -> Result<(), Error> {
        let asset = Asset {
            name: name.into(),
            content_type: "video/mp4".into(),
            max_age_secs: 5,
            audience: Audience::Both,
            body,
            followed: Followed::default(),
        };
        assets.publish(asset, Path::new("/data"))
    }

    fn memory(len: usize) -> AssetBody {
        AssetBody::Memory(Bytes::from(vec![0; len]))
    }

    #[test]
    fn an_account_gets_half_and_all_together_the_limit() {
        let rig = Rig::new();
        let (first, second) = (rig.open(1), rig.open(1));
        publish(&first, "a", memory(300)).unwrap();
        publish(&second, "a", memory(200)).unwrap();
        let error = publish(&second, "b", memory(1)).unwrap_err();
        assert_eq!(error.message, refused(Full::Share, LIMIT).message);
        assert!(second.get("b").is_none());
        let (third, fourth) = (rig.open(2), rig.open(3));
        publish(&third, "a", memory(400)).unwrap();
        let error = publish(&fourth, "a", memory(101)).unwrap_err();
        assert_eq!(error.message, refused(Full::Total, LIMIT).message);
        publish(&fourth, "a", memory(100)).unwrap();
        assert_eq!(rig.bytes(), LIMIT);
        let file = AssetBody::File { path: "a".into(), offset: 0, len: 5000, keep: None };
        publish(&fourth, "f", file).unwrap();
        first.retract("a");
        publish(&second, "b", memory(300)).unwrap();
        drop((first, second, third, fourth));
        assert_eq!(rig.bytes(), 0);
    }

    #[test]
    fn limit_texts() {
        assert_eq!(
            refused(Full::Total, 8 << 20).message,
            "the published assets of this driver take more than 8 MiB of the service's memory; retract old ones or publish files \
             (the operator can raise limits, memory_mb of the driver)"
        );
        assert_eq!(
            refused(Full::Share, 8 << 20).message,
            "the published assets of one account's destinations of this driver take more than 4 MiB of the service's memory; \
             retract old ones or publish files (the operator can raise limits, memory_mb of the driver)"
        );
    }

    #[test]
    fn assets_that_a_viewer_still_reads_count() {
        let rig = Rig::new();
        let assets = rig.open(1);
        publish(&assets, "a", memory(300)).unwrap();
        let read = match &assets.get("a").unwrap().body {
            AssetBody::Memory(bytes) => bytes.slice(..10),
            other => panic!("{other:?}"),
        };
        assets.retract("a");
        assert_eq!(rig.bytes(), 300);
        assert!(publish(&assets, "b", memory(201)).is_err());
        drop(read);
        publish(&assets, "b", memory(201)).unwrap();
    }

    #[test]
    fn part_names_count() {
        let rig = Rig::new();
        let assets = rig.open(1);
        let parts = || AssetBody::Parts(vec!["p".repeat(100), "q".into()]);
        publish(&assets, "a", parts()).unwrap();
        assert!(rig.bytes() >= 101, "{}", rig.bytes());
        let many = (0..10).find_map(|n| publish(&assets, &n.to_string(), parts()).err());
        assert!(many.is_some());
        drop(assets);
        assert_eq!(rig.bytes(), 0);
    }

    #[test]
    fn ended_openings_are_dropped_first() {
        let rig = Rig::new();
        let ended: Vec<_> = [1, 1, 2].map(|account| rig.open(account)).into();
        for assets in &ended {
            publish(assets, "a", memory(200)).unwrap();
            publish(assets, "list", AssetBody::Parts(vec!["a".into()])).unwrap();
        }
        ended[1].set_playback(
            satcast_plugin_api::Playback {
                entry: "a".into(),
                preview: None,
                first_ms: 0,
                window_ms: 0,
                window_max_ms: 0,
                fresh_ms: 0,
                ended: true,
            },
            Duration::ZERO,
        );
        ended[2].end();
        ended[1].end();
        ended[0].end();
        let open = rig.open(1);
        publish(&open, "a", memory(200)).unwrap();
        assert!(ended[1].get("a").is_none(), "the account's opening that ended first");
        assert!(ended[0].get("a").is_some() && ended[2].get("a").is_some());
        let other = rig.open(3);
        publish(&other, "a", memory(400)).unwrap();
        assert!(ended[2].get("a").is_none(), "of all accounts, the opening that ended first");
        assert!(publish(&open, "b", memory(450)).is_err(), "assets of open openings stay");
        assert!(open.get("a").is_some());
    }

    #[test]
    fn without_a_limit_nothing_is_counted() {
        let rig = Rig(Arc::default());
        let assets = rig.open(1);
        publish(&assets, "a", memory(5000)).unwrap();
        assets.end();
        assert_eq!((rig.bytes(), rig.0.ended.lock().len()), (0, 0));
    }
}
