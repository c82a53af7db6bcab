//! Blocking playlist reload, delta updates and preload hints (RFC 8216bis, section 6.2.5): requests for a playlist version or a part
//! that does not exist yet. Only for playlists whose driver reports their contents.

use satcast_plugin_api::Reload;
use std::sync::Arc;
use std::time::Duration;

use poem::http::HeaderMap;
use poem::http::header::{RANGE, USER_AGENT};
use url::form_urlencoded;

use super::{edge, entry};
use crate::base::{ApiError, Code};
use satcast_drivers::published::{Opening, Published, longest_wait};

/// How far the requested segment may be ahead of the newest whole segment (RFC 8216bis, 6.2.5.2).
const AHEAD_MAX: u64 = 2;
/// Segments that the media players of [`is_media_player`] need to start without a pause (RFC 8216, 6.3.3 and 6.3.4): VLC 3 stalls at
/// each segment if it starts with two.
const START_SEGMENTS: usize = 3;
/// Names in the `User-Agent` of media players. A cache in front may take the ranges off their requests. The caches of
/// `packaging/nginx` (`satcast.conf`, `edge.conf`, `nodes.conf`) keep a copy for these players, and `docs/proxies.md` names them.
const MEDIA_PLAYERS: [&str; 5] = ["Lavf/", "libmpv", "VLC/", "AppleCoreMedia/", "GStreamer"];
/// Longest wait of a media player for the first whole segment while there are parts: a GOP.
pub(super) const FIRST_WAIT: Duration = Duration::from_secs(11);
/// Longest wait for three of them.
pub(super) const START_WAIT: Duration = Duration::from_secs(8);
/// How long caches may keep the response for an exact version, in target durations: it does not change.
const KEPT_TARGETS: u32 = 6;

/// The current asset of a name.
#[derive(Debug)]
pub(super) struct Current {
    /// The asset; `None` if there is none.
    pub(super) asset: Option<Arc<Published>>,
    /// How long caches may keep it, if different from the driver's value.
    pub(super) max_age_secs: Option<u32>,
    /// Whether the request had to wait.
    pub(super) waited: bool,
}

impl Current {
    fn at_once(asset: Option<Arc<Published>>) -> Self {
        Self { asset, max_age_secs: None, waited: false }
    }
}

/// Delivery directives of a playlist request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Directives {
    /// The version must have this segment, or this part of the segment.
    version: Option<(u64, Option<u32>)>,
    /// Whether a delta update is requested.
    skip: bool,
}

impl Directives {
    fn of(query: &str) -> Result<Self, ApiError> {
        let (mut sequence, mut part, mut skip) = (None, None, false);
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            match &*name {
                "_HLS_msn" => sequence = Some(number("_HLS_msn", &value)?),
                "_HLS_part" => part = Some(u32::try_from(number("_HLS_part", &value)?).unwrap_or(u32::MAX)),
                "_HLS_skip" => skip = matches!(&*value, "YES" | "v2"),
                _ => {}
            }
        }
        match (sequence, part) {
            (None, Some(_)) => Err(malformed("_HLS_part needs _HLS_msn")),
            (sequence, part) => Ok(Self { version: sequence.map(|sequence| (sequence, part)), skip }),
        }
    }

    /// # Errors
    /// 400 if the requested segment is too far ahead.
    fn check(self, reload: &Reload) -> Result<(), ApiError> {
        let newest = reload.next_sequence.saturating_sub(1);
        match self.version {
            Some((sequence, _)) if sequence > newest.saturating_add(AHEAD_MAX) => {
                Err(malformed("_HLS_msn is too far ahead of the newest segment"))
            }
            _ => Ok(()),
        }
    }

    /// Whether the version lists the requested segment or part. A version without a reload state is the last one.
    fn is_met(self, reload: Option<&Reload>) -> bool {
        let (Some(reload), Some((sequence, part))) = (reload, self.version) else { return true };
        match part {
            Some(part) => (sequence, part) < (reload.next_sequence, reload.next_part),
            None => sequence < reload.next_sequence,
        }
    }

    /// Whether this is the first version that lists the requested segment or part, so that the response stays the same for a while.
    fn is_exact(self, reload: &Reload) -> bool {
        match self.version {
            Some((sequence, Some(part))) if sequence == reload.next_sequence => {
                part.checked_add(1) == Some(reload.next_part)
            }
            Some((sequence, _)) => {
                sequence.checked_add(1) == Some(reload.next_sequence) && reload.next_part == 0
            }
            None => false,
        }
    }
}

fn number(name: &str, value: &str) -> Result<u64, ApiError> {
    let is_number = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    let number = value.parse().ok().filter(|_| is_number);
    number.ok_or_else(|| malformed(format!("{name} must be a whole number")))
}

fn malformed(text: impl Into<String>) -> ApiError {
    ApiError::malformed(Code::MalformedDirective, text)
}

/// What a viewer asks with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked<'a> {
    /// Has the directives.
    pub(super) query: &'a str,
    /// They tell which player asks.
    pub(super) headers: &'a HeaderMap,
    /// How long it has waited for this already.
    pub(super) waited: Duration,
}

/// The current asset of the name of `asset`, as a viewer requests it.
///
/// # Errors
/// 400 for invalid directives; 503 if the media did not arrive in time or too many viewers are waiting.
pub(super) async fn follow(
    viewer: Asked<'_>,
    opening: &Opening,
    name: &str,
    asset: Option<Arc<Published>>,
) -> Result<Current, ApiError> {
    let left = |limit: Duration| limit.saturating_sub(viewer.waited);
    let Some(asset) = asset else { return coming(opening, name, left).await };
    // First what is known, because it holds for all requests but those of the first seconds.
    if !opening.has_begun() && is_media_player(viewer.headers) {
        let (needed, limit) = match (asset.is_playlist(), &asset.followed.segment) {
            (true, _) => (1, FIRST_WAIT),
            (false, Some(_)) => (START_SEGMENTS, START_WAIT),
            (false, None) => (0, START_WAIT),
        };
        if whole_segments(opening) < needed {
            return Ok(begun(opening, name, needed, left(limit)).await);
        }
    }
    let Some(reload) = &asset.followed.reload else { return Ok(Current::at_once(Some(asset))) };
    let asked = Directives::of(viewer.query)?;
    asked.check(reload)?;
    let waited = !asked.is_met(Some(reload));
    let asset = if waited {
        let look = || match opening.assets().get(name) {
            None => Some(None),
            Some(asset) if opening.ended() || asked.is_met(asset.followed.reload.as_ref()) => {
                Some(Some(asset))
            }
            Some(_) => None,
        };
        let Some(asset) = wait_for(opening, left(longest_wait(reload)), look).await? else {
            return Ok(Current { asset: None, max_age_secs: None, waited });
        };
        asset
    } else {
        asset
    };
    let reload = asset.followed.reload.as_ref();
    let exact = reload.filter(|reload| asked.is_exact(reload));
    let max_age_secs = exact.map(|reload| reload.target_ms.saturating_mul(KEPT_TARGETS) / 1000);
    // Published before the full playlist, so it is not older.
    let delta = reload.and_then(|reload| reload.delta.as_ref()).filter(|_| asked.skip);
    let delta = delta.and_then(|name| opening.assets().get(name)).filter(|delta| delta.audience.is_hosted());
    Ok(Current { asset: Some(delta.unwrap_or(asset)), max_age_secs, waited })
}

/// Delays an asset of a stream that has just started until `needed` segments are listed: parts alone mean nothing to a media player, and
/// with less than [`START_SEGMENTS`] it runs out of media before it requests the next one. The segments are delayed and not the playlist
/// that lists the first: VLC pauses when it reloads a playlist just before the next segment is listed.
async fn begun(opening: &Opening, name: &str, needed: usize, limit: Duration) -> Current {
    let look = || (opening.ended() || whole_segments(opening) >= needed).then_some(());
    // The asset is also sent if the segments take too long or too many viewers are waiting.
    let _ = wait_for(opening, limit, look).await;
    let asset = opening.assets().get(name).filter(|asset| asset.audience.is_hosted());
    Current { asset, max_age_secs: None, waited: true }
}

/// Whether the request comes from a media player, which reloads a playlist once a segment: ffmpeg, mpv and the players of browsers
/// ask for ranges of everything, and VLC and others tell their names. hls.js does neither: it plays without a pause from the first
/// segment on.
pub(super) fn is_media_player(headers: &HeaderMap) -> bool {
    let agent = headers.get(USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or_default();
    headers.contains_key(RANGE) || MEDIA_PLAYERS.iter().any(|name| agent.contains(name))
}

/// How many whole segments the playlist lists, up to [`START_SEGMENTS`]; that many too if it does not belong to a live stream. Reads it
/// only until it has listed enough once, and not beyond the last segment needed.
fn whole_segments(opening: &Opening) -> usize {
    let media = || edge::media(opening.assets());
    let Some(playlist) = (!opening.has_begun()).then(media).flatten() else { return START_SEGMENTS };
    let Some(text) = entry::text(&playlist) else { return START_SEGMENTS };
    let count = text.lines().filter(|line| line.starts_with("#EXTINF:")).take(START_SEGMENTS).count();
    if count == START_SEGMENTS {
        opening.set_begun();
    }
    let is_over = text.contains("#EXT-X-ENDLIST");
    if is_over { START_SEGMENTS } else { count - usize::from(text.contains("#EXT-X-GAP\n")).min(count) }
}

/// An asset that does not exist yet: waits for it if the playlist announces it as the next one.
///
/// # Errors
/// 404 "starting" while the driver has published nothing; 503 if the media did not arrive in time or too many viewers are waiting.
async fn coming(
    opening: &Opening,
    name: &str,
    left: impl Fn(Duration) -> Duration,
) -> Result<Current, ApiError> {
    let assets = opening.assets();
    let Some(limit) = assets.coming(name) else {
        let has_nothing = assets.playback().is_none() && assets.handler().is_none() && !opening.ended();
        return if has_nothing { Err(ApiError::starting()) } else { Ok(Current::at_once(None)) };
    };
    let look = || match assets.get(name) {
        Some(asset) => Some(Some(asset)),
        None if opening.ended() || assets.coming(name).is_none() => Some(None),
        None => None,
    };
    let asset = wait_for(opening, left(limit), look).await?.filter(|asset| asset.audience.is_hosted());
    Ok(Current { asset, max_age_secs: None, waited: true })
}

/// Checks for a result now and after each relevant publication.
async fn wait_for<T>(
    opening: &Opening,
    limit: Duration,
    look: impl Fn() -> Option<T>,
) -> Result<T, ApiError> {
    let mut waiter = opening.assets().wait().ok_or_else(ApiError::too_many_waiting)?;
    let found = async {
        loop {
            if let Some(found) = look() {
                return found;
            }
            waiter.changed().await;
        }
    };
    tokio::time::timeout(limit, found).await.map_err(|_| ApiError::not_in_time())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reload(next_sequence: u64, next_part: u32) -> Reload {
        Reload { next_sequence, next_part, target_ms: 2000, delta: None, hint: None }
    }

    fn asked(query: &str) -> Directives {
        Directives::of(query).unwrap()
    }

    #[test]
    fn directives_are_numbers_and_a_part_has_a_segment() {
        assert_eq!(asked(""), Directives::default());
        assert_eq!(asked("x=1&_HLS_skip=NO"), Directives::default());
        assert_eq!(
            asked("_HLS_msn=7&_HLS_part=2&_HLS_skip=YES"),
            Directives { version: Some((7, Some(2))), skip: true }
        );
        assert_eq!(asked("_HLS_skip=v2&_HLS_msn=7"), Directives { version: Some((7, None)), skip: true });
        assert_eq!(asked("_HLS_msn=7&_HLS_part=99999999999").version, Some((7, Some(u32::MAX))));
        for bad in [
            "_HLS_part=1",
            "_HLS_msn=",
            "_HLS_msn=-1",
            "_HLS_msn=+1",
            "_HLS_msn=x",
            "_HLS_msn=1.0",
            "_HLS_msn=99999999999999999999",
            "_HLS_msn=1&_HLS_part=x",
        ] {
            let error = Directives::of(bad).unwrap_err();
            assert_eq!(error.http_status(), 400, "{bad}");
        }
    }

    #[test]
    fn directives_are_met_by_a_version_that_lists_the_part_or_a_later_one() {
        // Segment 7 is incomplete, and two of its parts are listed.
        let now = reload(7, 2);
        for (query, met, exact) in [
            ("", true, false),
            ("_HLS_msn=6", true, false),
            ("_HLS_msn=3", true, false),
            ("_HLS_msn=7", false, false),
            ("_HLS_msn=6&_HLS_part=9", true, false),
            ("_HLS_msn=7&_HLS_part=0", true, false),
            ("_HLS_msn=7&_HLS_part=1", true, true),
            ("_HLS_msn=7&_HLS_part=2", false, false),
            ("_HLS_msn=8&_HLS_part=0", false, false),
        ] {
            assert_eq!(
                (asked(query).is_met(Some(&now)), asked(query).is_exact(&now)),
                (met, exact),
                "{query}"
            );
            assert!(asked(query).is_met(None), "no more media follows");
        }
        let whole = reload(7, 0);
        for (query, exact) in [("_HLS_msn=6", true), ("_HLS_msn=6&_HLS_part=3", true), ("_HLS_msn=5", false)]
        {
            assert!(asked(query).is_met(Some(&whole)));
            assert_eq!(asked(query).is_exact(&whole), exact, "{query}");
        }
    }

    #[test]
    fn the_shipped_caches_know_the_same_media_players() {
        let pattern = format!("\"~{}\" player;", MEDIA_PLAYERS.join("|"));
        for text in [
            include_str!("../../../../packaging/nginx/satcast.conf"),
            include_str!("../../../../packaging/nginx/edge.conf"),
            include_str!("../../../../packaging/nginx/nodes.conf"),
        ] {
            assert!(text.contains(&pattern) && text.contains("proxy_cache_key $player$"), "{text}");
        }
        let document = include_str!("../../../../docs/proxies.md");
        assert!(MEDIA_PLAYERS.iter().all(|name| document.contains(&format!("`{name}`"))));
    }

    #[test]
    fn requests_far_ahead_are_refused() {
        for (query, good) in [
            ("_HLS_msn=0", true),
            ("_HLS_msn=8", true),
            ("_HLS_msn=8&_HLS_part=900", true),
            ("_HLS_msn=9", false),
            ("_HLS_msn=18446744073709551615", false),
        ] {
            assert_eq!(asked(query).check(&reload(7, 2)).is_ok(), good, "{query}");
        }
        assert!(asked("_HLS_msn=1").check(&reload(0, 0)).is_ok());
    }
}
