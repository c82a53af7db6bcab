//! The recordings that somebody watches: their rows, their indexes, and the permits of their responses; and the URLs.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use satcast_quota::Quota;

use super::super::relay::Relay;
use super::index::{Indexed, Indexes};
use super::poster::Posters;
use super::ranges::Ranges;
use super::source::{FaultLog, Source};
use crate::base::ApiError;
use satcast_core::clock::Clock;
use satcast_core::ids::AccountId;
use satcast_core::networks::Network;
use satcast_drivers::Drivers;
use satcast_drivers::published::Cache;
use satcast_store::{Store, WatchedArchive};

/// Path prefix of recordings.
pub(crate) const PREFIX: &str = "/vod/";
/// File name of the playlist in the URL.
pub(super) const INDEX: &str = "index.m3u8";
/// File name of the poster in the URL.
pub(super) const POSTER: &str = "poster.mp4";
/// File name of a clip in the URL.
pub(super) const CLIP: &str = "clip.mp4";
/// File name of the recording in the URL.
pub(super) const MEDIA: &str = "media.mp4";
/// Bytes that are read from a driver at a time, and that a slow viewer holds.
pub const READ_BYTES: u32 = 512 * 1024;
/// Most responses with bytes of recordings at a time, and those of one account.
pub const RESPONSES_MAX: u64 = 512;
pub const RESPONSES_PER_ACCOUNT_MAX: u64 = 256;
/// Most responses with media of recordings to one network at a time: a quarter of what an account may have.
pub const RESPONSES_PER_NETWORK_MAX: u64 = 64;
/// How long an answer of the store about a recording is used.
const FRESH: Duration = Duration::from_secs(1);
/// Most such answers that are kept.
const GROUPS_MAX: usize = 4_096;

/// The recordings of a session and destination, in the order of their start.
pub(super) type Group = Arc<Vec<WatchedArchive>>;

/// The recordings of all accounts.
pub(in crate::playback) struct Recordings {
    store: Store,
    pub(super) drivers: Drivers,
    clock: Clock,
    /// The other nodes; `None` for a service that is alone.
    relay: Option<Arc<Relay>>,
    groups: Mutex<HashMap<i64, (Group, Duration)>>,
    indexes: Indexes,
    pub(super) ranges: Arc<Ranges>,
    pub(super) posters: Posters,
    pub(super) responses: Quota<AccountId>,
    pub(super) networks: Quota<Network>,
    /// Viewers get the bytes of uploaded recordings from the store, by signed addresses.
    pub(super) signs: bool,
    pub(super) faults: FaultLog,
}

/// The target of a URL below [`PREFIX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::playback) enum Wanted<'a> {
    Index { id: i64 },
    Poster { id: i64 },
    Clip { id: i64 },
    Media { id: i64, token: &'a str },
}

impl<'a> Wanted<'a> {
    pub(in crate::playback) fn parse(path: &'a str) -> Option<Self> {
        let (id, rest) = path.strip_prefix(PREFIX)?.split_once('/')?;
        let is_number = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit());
        let id = id.parse().ok().filter(|_| is_number)?;
        if rest == INDEX {
            return Some(Wanted::Index { id });
        }
        if rest == POSTER {
            return Some(Wanted::Poster { id });
        }
        if rest == CLIP {
            return Some(Wanted::Clip { id });
        }
        let token = rest.strip_prefix("t/")?.strip_suffix(MEDIA)?.strip_suffix('/')?;
        (!token.is_empty() && !token.contains('/')).then_some(Wanted::Media { id, token })
    }
}

/// The part of a token that binds it to a recording. No playback path has a slash.
pub(super) fn token_path(id: i64) -> String {
    format!("vod/{id}")
}

impl Recordings {
    pub(in crate::playback) fn new(
        store: Store,
        drivers: Drivers,
        clock: Clock,
        relay: Option<Arc<Relay>>,
        signs: bool,
        cache: Arc<Cache>,
    ) -> Self {
        let responses = Quota::new(RESPONSES_MAX, RESPONSES_PER_ACCOUNT_MAX);
        let networks = Quota::new(RESPONSES_MAX, RESPONSES_PER_NETWORK_MAX);
        let (groups, indexes, posters) = (Mutex::default(), Indexes::default(), Posters::default());
        let ranges = Arc::new(Ranges::new(cache, clock.clone()));
        let faults = FaultLog::new(clock.clone());
        Self {
            store,
            drivers,
            clock,
            relay,
            groups,
            indexes,
            ranges,
            posters,
            responses,
            networks,
            signs,
            faults,
        }
    }

    /// The recording and all that play with it; empty if there is none.
    pub(super) async fn group(&self, id: i64) -> Result<Group, ApiError> {
        let now = self.clock.monotonic();
        if let Some((group, said_at)) = self.groups.lock().get(&id)
            && now.saturating_sub(*said_at) < FRESH
        {
            return Ok(group.clone());
        }
        let group: Group = Arc::new(self.store.archives_together(id).await?);
        let mut groups = self.groups.lock();
        if groups.len() >= GROUPS_MAX {
            groups.retain(|_, (_, said_at)| now.saturating_sub(*said_at) < FRESH);
        }
        if groups.len() < GROUPS_MAX {
            groups.insert(id, (group.clone(), now));
        }
        Ok(group)
    }

    /// Whether this node has the file.
    ///
    /// # Errors
    /// Another node has it.
    pub(super) fn check_here(&self, watched: &WatchedArchive) -> Result<(), ApiError> {
        let is_here = self.store.has_file_of(&watched.record);
        is_here.then_some(()).ok_or_else(ApiError::recording_elsewhere)
    }

    /// Where the file of a recording is read.
    ///
    /// # Errors
    /// Another node has it, and does not run.
    pub(super) async fn source(&self, watched: &WatchedArchive) -> Result<Source, ApiError> {
        let elsewhere = match self.check_here(watched) {
            Ok(()) => return Ok(Source::here(&self.drivers, &self.faults, watched)),
            Err(elsewhere) => elsewhere,
        };
        let relay = self.relay.as_ref().ok_or_else(|| elsewhere.clone())?;
        let peer = relay.keeper(&watched.record.holder).await.ok_or(elsewhere)?;
        Ok(Source::there(relay, peer, &self.faults, watched))
    }

    /// The index of a recording.
    pub(super) async fn index(&self, watched: &WatchedArchive) -> Result<Arc<Indexed>, ApiError> {
        self.index_of(&self.source(watched).await?, watched).await
    }

    /// The index of a recording that is read there.
    pub(super) async fn index_of(
        &self,
        source: &Source,
        watched: &WatchedArchive,
    ) -> Result<Arc<Indexed>, ApiError> {
        self.indexes.of(source, watched.record.report.size_bytes, self.clock.monotonic()).await
    }
}

pub(super) fn nothing_to_play() -> ApiError {
    ApiError::not_found("recording")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_three_url_forms_are_parsed() {
        assert_eq!(Wanted::parse("/vod/7/clip.mp4"), Some(Wanted::Clip { id: 7 }));
        assert_eq!(Wanted::parse("/vod/7/index.m3u8"), Some(Wanted::Index { id: 7 }));
        assert_eq!(Wanted::parse("/vod/7/poster.mp4"), Some(Wanted::Poster { id: 7 }));
        assert_eq!(Wanted::parse("/vod/7/t/T/media.mp4"), Some(Wanted::Media { id: 7, token: "T" }));
        for other in [
            "/vod/",
            "/vod/7",
            "/vod/7/",
            "/vod/x/index.m3u8",
            "/vod/-7/index.m3u8",
            "/vod/+7/index.m3u8",
            "/vod/99999999999999999999/index.m3u8",
            "/vod//index.m3u8",
            "/vod/7/index.m3u8/",
            "/vod/7/t//media.mp4",
            "/vod/7/t/a/b/media.mp4",
            "/vod/7/media.mp4",
            "/hls/7/index.m3u8",
        ] {
            assert_eq!(Wanted::parse(other), None, "{other}");
        }
    }
}
