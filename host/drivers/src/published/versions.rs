//! Viewers that wait for the next version of a playlist, or for the asset that it announces as next (RFC 8216bis,
//! sections 6.2.5.2 and 6.2.6).
//!
//! A driver describes the content of each version; the host answers viewers from that, so that viewers cost the
//! driver nothing.

use satcast_plugin_api::{Followed, Reload};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::watch;

/// Most waiting viewers of one opening at a time; each holds a connection and some kilobytes.
pub const WAITERS_MAX: usize = 20_000;
/// Longest wait of a viewer, in target durations (RFC 8216bis, 6.2.5.2).
const WAIT_TARGETS: u32 = 3;

/// Longest wait of a viewer for the version after this one.
pub fn longest_wait(reload: &Reload) -> Duration {
    Duration::from_millis(u64::from(reload.target_ms.saturating_mul(WAIT_TARGETS)))
}

/// State of the followed playlists of one opening.
#[derive(Debug, Default)]
pub(super) struct Coming {
    by_playlist: BTreeMap<String, Followed>,
}

impl Coming {
    /// An asset is published; true when viewers may have waited for it.
    pub(super) fn published(&mut self, name: &str, followed: &Followed) -> bool {
        // Only playlists that players follow have a hold back.
        let mut is_waited_for =
            self.wait_of(name).is_some() || followed.reload.is_some() || followed.hold_back_ms > 0;
        if *followed == Followed::default() {
            is_waited_for |= self.by_playlist.remove(name).is_some();
        } else {
            let before = self.by_playlist.insert(name.to_owned(), followed.clone());
            is_waited_for |= before.is_some_and(|before| before.reload.is_some());
        }
        is_waited_for
    }

    pub(super) fn retracted(&mut self, name: &str) {
        self.by_playlist.remove(name);
    }

    /// How long a viewer may wait for this asset.
    pub(super) fn wait_of(&self, name: &str) -> Option<Duration> {
        let mut reloads = self.by_playlist.values().filter_map(|followed| followed.reload.as_ref());
        reloads.find(|reload| reload.hint.as_deref() == Some(name)).map(longest_wait)
    }

    pub(super) fn hold_back_ms(&self) -> Option<u32> {
        self.by_playlist.values().map(|followed| followed.hold_back_ms).find(|ms| *ms > 0)
    }
}

/// One channel for all waiting viewers of an opening.
#[derive(Debug, Default)]
pub(super) struct Versions {
    changed: watch::Sender<()>,
    waiting: AtomicUsize,
}

impl Versions {
    /// A slot for a waiting viewer; `None` when all are taken.
    pub(super) fn enter(self: &Arc<Self>) -> Option<Waiter> {
        let entered = self.waiting.fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| {
            (count < WAITERS_MAX).then_some(count + 1)
        });
        entered.ok()?;
        Some(Waiter { versions: self.clone(), changed: self.changed.subscribe() })
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Acquire)
    }

    pub(super) fn wake(&self) {
        self.changed.send_replace(());
    }
}

/// A waiting viewer. Dropping it frees its slot.
#[derive(Debug)]
pub struct Waiter {
    versions: Arc<Versions>,
    changed: watch::Receiver<()>,
}

impl Waiter {
    /// Waits until an awaited asset was published after the last call or since this waiter was made. Cancel safe.
    pub async fn changed(&mut self) {
        // The sender lives in `versions`.
        let _ = self.changed.changed().await;
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.versions.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use bytes::Bytes;
    use satcast_plugin_api::{Asset, AssetBody, Audience};

    use super::*;
    use crate::published::Assets;

    fn reload(hint: Option<&str>) -> Followed {
        let hint = hint.map(str::to_owned);
        let reload = Reload { next_sequence: 7, next_part: 1, target_ms: 2000, delta: None, hint };
        Followed { hold_back_ms: 2000, reload: Some(reload), ..Followed::default() }
    }

    fn publish(assets: &Assets, name: &str, followed: Followed) {
        let body = AssetBody::Memory(Bytes::from_static(b"x"));
        let (content_type, audience) = ("x/y".to_owned(), Audience::Hosted);
        let asset = Asset { name: name.into(), content_type, max_age_secs: 1, audience, body, followed };
        assets.publish(asset, Path::new("/data")).unwrap();
    }

    fn is_woken(waiter: &mut Waiter) -> bool {
        let woken = waiter.changed.has_changed().unwrap();
        waiter.changed.mark_unchanged();
        woken
    }

    #[test]
    fn only_awaited_assets_wake_viewers() {
        let assets = Arc::new(Assets::default());
        let mut waiter = assets.wait().unwrap();
        publish(&assets, "1.m4s", Followed::default());
        assert!(!is_woken(&mut waiter));
        assert_eq!((assets.hold_back_ms(), assets.coming("p1")), (None, None));
        publish(&assets, "media", reload(Some("p1")));
        assert!(is_woken(&mut waiter));
        assert_eq!(assets.hold_back_ms(), Some(2000));
        assert_eq!(assets.coming("p1"), Some(Duration::from_secs(6)));
        assert_eq!(assets.coming("p2"), None);
        publish(&assets, "2.m4s", Followed::default());
        assert!(!is_woken(&mut waiter));
        publish(&assets, "p1", Followed::default());
        assert!(is_woken(&mut waiter));
        publish(&assets, "media", reload(Some("p2")));
        assert!(is_woken(&mut waiter) && assets.coming("p1").is_none());
        // The last version: nothing follows.
        publish(&assets, "media", Followed { hold_back_ms: 2000, ..Followed::default() });
        assert!(is_woken(&mut waiter) && assets.coming("p2").is_none());
        assert_eq!(assets.hold_back_ms(), Some(2000));
        // A playlist that players follow without blocking requests: a viewer may wait for its first segments.
        publish(&assets, "media", Followed { hold_back_ms: 6000, ..Followed::default() });
        assert!(is_woken(&mut waiter));
        publish(&assets, "media", reload(None));
        publish(&assets, "media", Followed::default());
        assert!(is_woken(&mut waiter) && assets.hold_back_ms().is_none());
        publish(&assets, "media", reload(Some("p3")));
        assets.retract("media");
        assert_eq!((assets.coming("p3"), assets.hold_back_ms()), (None, None));
    }

    #[test]
    fn waiting_viewers_are_limited() {
        let assets = Arc::new(Assets::default());
        let mut waiting: Vec<Waiter> = (0..WAITERS_MAX).map(|_| assets.wait().unwrap()).collect();
        assert!(assets.wait().is_none());
        waiting.pop();
        let last = assets.wait().unwrap();
        assert!(assets.wait().is_none());
        drop((waiting, last));
        assert_eq!(assets.waiting(), 0, "a dropped waiter frees its slot");
    }
}
