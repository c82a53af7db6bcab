//! Viewers that wait for a playlist version or a part, and abandoned waits.

use poem::http::header::RANGE;
use satcast_plugin_api::{Followed, Reload, SegmentPosition};
use tokio::time::Instant;

use super::*;
use crate::playback::follow::{Asked, FIRST_WAIT, START_WAIT, follow};
use satcast_drivers::published::WAITERS_MAX;

/// Long enough that nothing times out here.
const TARGET_MS: u32 = 10_000;
/// A limit of 3 x 40 ms.
const SHORT_TARGET_MS: u32 = 40;

impl Rig {
    /// A version of the playlist: segment `next` is being made, `parts` of its parts are listed.
    fn version(&self, next: u64, parts: u32, target_ms: u32) {
        self.delta(next, parts);
        let hint = Some(format!("l1-{next}-{parts}.m4s"));
        let delta = Some("media-delta.m3u8".into());
        let reload = Reload { next_sequence: next, next_part: parts, target_ms, delta, hint };
        self.list("media.m3u8", format!("#EXTM3U\n#{next}.{parts}\n"), Some(reload));
    }

    fn delta(&self, next: u64, parts: u32) {
        self.list("media-delta.m3u8", format!("#EXTM3U\n#delta {next}.{parts}\n"), None);
    }

    fn list(&self, name: &str, text: String, reload: Option<Reload>) {
        let body = AssetBody::Memory(Bytes::from(text.into_bytes()));
        let (name, content_type, audience) = (name.to_owned(), PLAYLIST_TYPE.to_owned(), Audience::Hosted);
        let followed = Followed { hold_back_ms: 2000, reload, ..Followed::default() };
        let asset = Asset { name, content_type, max_age_secs: 1, audience, body, followed };
        self.opening.assets().publish(asset, self.folder.path()).unwrap();
    }

    /// A playlist with this many segments.
    fn segments(&self, count: usize, end: &str, reload: Option<Reload>) -> String {
        let text = format!("#EXTM3U\n{}{end}", "#EXTINF:2,\n1.m4s\n".repeat(count));
        self.list("media.m3u8", text.clone(), reload);
        text
    }

    /// With the segment `1.m4s`, and the addresses of playlist and segment.
    async fn with_a_segment() -> (Self, String, String) {
        let rig = Self::new().await;
        let (media, first) = (rig.asset("media.m3u8").await, rig.asset("1.m4s").await);
        rig.first_segment();
        (rig, media, first)
    }

    /// The segment `1.m4s`, said to be one.
    fn first_segment(&self) {
        let place = SegmentPosition { number: 1, offset_ns: 0, start_ms: START.0, init: "i1-0.mp4".into() };
        let followed = Followed { segment: Some(place), ..Followed::default() };
        let body = AssetBody::Memory(Bytes::from_static(b"media"));
        let asset = Asset::new("1.m4s", "video/mp4", Audience::Hosted, body);
        self.opening.assets().publish(Asset { followed, ..asset }, self.folder.path()).unwrap();
    }

    /// Asks, and gives the answer as it comes.
    async fn waiting(&self, target: &str) -> tokio::task::JoinHandle<Answer> {
        self.waiting_with(target, &[]).await
    }

    async fn waiting_with(&self, target: &str, headers: &[(&str, &str)]) -> tokio::task::JoinHandle<Answer> {
        let before = self.waiters();
        let mut socket = self.send("GET", target, headers).await;
        let answer = tokio::spawn(async move {
            let mut answer = Vec::new();
            tokio::time::timeout(WAIT_MAX, socket.read_to_end(&mut answer)).await.unwrap().unwrap();
            parse(&answer)
        });
        self.until_waiting(before + 1).await;
        answer
    }

    fn waiters(&self) -> usize {
        self.opening.assets().waiting()
    }

    async fn until_waiting(&self, count: usize) {
        let end = Instant::now() + WAIT_MAX;
        while self.waiters() != count {
            assert!(Instant::now() < end, "{} are waiting", self.waiters());
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

#[tokio::test]
async fn a_version_is_sent_when_it_is_published() {
    let rig = Rig::new().await;
    let media = rig.asset("media.m3u8").await;
    rig.version(7, 1, TARGET_MS);
    let now = rig.get(&media).await;
    assert_eq!((now.text(), now.header("cache-control")), ("#EXTM3U\n#7.1\n", "max-age=1"));
    let part = rig.waiting(&format!("{media}?_HLS_msn=7&_HLS_part=1")).await;
    let whole = rig.waiting(&format!("{media}?_HLS_msn=7")).await;
    let delta = rig.waiting(&format!("{media}?_HLS_msn=7&_HLS_part=1&_HLS_skip=YES")).await;
    rig.version(7, 2, TARGET_MS);
    let part = part.await.unwrap();
    assert_eq!((part.text(), part.header("cache-control")), ("#EXTM3U\n#7.2\n", "max-age=60"));
    assert_eq!(part.header("vary"), "Accept-Encoding");
    let delta = delta.await.unwrap();
    assert_eq!((delta.text(), delta.header("cache-control")), ("#EXTM3U\n#delta 7.2\n", "max-age=60"));
    rig.until_waiting(1).await;
    rig.version(8, 0, TARGET_MS);
    assert_eq!(whole.await.unwrap().text(), "#EXTM3U\n#8.0\n");
    // Existing versions are sent at once, and caches may keep old ones only briefly.
    for (query, cached) in [("_HLS_msn=2", 1), ("_HLS_msn=7&_HLS_part=0", 60), ("_HLS_msn=6&_HLS_part=3", 1)]
    {
        let old = rig.get(&format!("{media}?{query}")).await;
        assert_eq!(
            (old.text(), old.header("cache-control")),
            ("#EXTM3U\n#8.0\n", &*format!("max-age={cached}"))
        );
    }
    assert_eq!(rig.get(&format!("{media}?_HLS_skip=YES")).await.text(), "#EXTM3U\n#delta 8.0\n");
    assert_eq!(rig.waiters(), 0);
    let answers =
        ["#EXTM3U\n#7.1\n", "#EXTM3U\n#7.2\n", "#EXTM3U\n#8.0\n", "#EXTM3U\n#8.0\n", "#EXTM3U\n#8.0\n"];
    let lists =
        answers.iter().chain(["#EXTM3U\n#delta 7.2\n", "#EXTM3U\n#delta 8.0\n", "#EXTM3U\n#8.0\n"].iter());
    let entry = rig.get(&rig.index()).await.body.len() * 2;
    let lists: usize = lists.map(|text| text.len()).sum();
    assert_eq!(rig.used().await, (lists + entry) as u64, "metered like any other response");
}

/// Headers by which media players are known.
const MEDIA_PLAYERS: [(&str, &str); 3] =
    [("Range", "bytes=0-"), ("User-Agent", "VLC/3.0.24 LibVLC/3.0.24"), ("User-Agent", "Lavf/59.27.100")];

/// A playlist of parts alone.
const GAP: &str = "#EXTM3U\n#EXT-X-GAP\n#EXTINF:0.5,\ngap.m4s\n";

#[tokio::test]
async fn media_players_get_the_first_segment_when_three_are_listed() {
    let hint = Some("l1-4-0.m4s".to_owned());
    let parted = Reload { next_sequence: 4, next_part: 0, target_ms: TARGET_MS, delta: None, hint };
    for (header, reload) in MEDIA_PLAYERS.into_iter().zip([None, Some(parted), None]) {
        let (rig, media, first) = Rig::with_a_segment().await;
        // Parts alone: there is nothing for them in the playlist.
        rig.list("media.m3u8", GAP.to_owned(), reload.clone());
        assert_eq!(rig.get(&media).await.text(), GAP, "hls.js starts at once");
        let held = rig.waiting_with(&media, &[header]).await;
        rig.segments(1, "", reload.clone());
        assert!(held.await.unwrap().status < 300);
        assert_eq!(rig.get(&first).await.ok(), b"media", "hls.js starts at once");
        let held = rig.waiting_with(&first, &[header]).await;
        rig.segments(2, "", reload.clone());
        rig.segments(3, "", reload);
        assert_eq!(held.await.unwrap().body, b"media");
        assert_eq!(rig.ask("GET", &first, &[MEDIA_PLAYERS[1]]).await.ok(), b"media");
        assert_eq!(rig.waiters(), 0);
    }
    let (rig, _, first) = Rig::with_a_segment().await;
    rig.segments(1, "#EXT-X-ENDLIST\n", None);
    rig.ask("GET", &first, &[MEDIA_PLAYERS[1]]).await.ok();
    let (rig, _, first) = Rig::with_a_segment().await;
    rig.segments(1, "", None);
    let held = rig.waiting_with(&first, &[MEDIA_PLAYERS[1]]).await;
    rig.app.live.end_opening(&rig.opening);
    held.await.unwrap().ok();
}

#[tokio::test]
async fn media_players_do_not_wait_for_ever() {
    let rig = Rig::new().await;
    let headers = HeaderMap::from_iter([(RANGE, HeaderValue::from_static("bytes=0-"))]);
    rig.first_segment();
    tokio::time::pause();
    for (name, text, wait) in [
        ("1.m4s", "#EXTM3U\n#EXTINF:2,\n1.m4s\n#EXTINF:2,\n2.m4s\n", START_WAIT),
        ("media.m3u8", GAP, FIRST_WAIT),
    ] {
        rig.list("media.m3u8", text.to_owned(), None);
        let asset = rig.opening.assets().get(name);
        let began = Instant::now();
        let given =
            follow(Asked { query: "", headers: &headers, waited: Duration::ZERO }, &rig.opening, name, asset)
                .await
                .unwrap();
        assert!(given.asset.is_some() && given.waited);
        assert_eq!(began.elapsed().as_secs(), wait.as_secs());
    }
    assert_eq!(rig.waiters(), 0);
}

#[tokio::test]
async fn requests_before_the_first_segment_get_retry_after() {
    let rig = Rig::new().await;
    let (index, preview) = (rig.index(), rig.preview());
    let _starting = rig.app.live.begin_opening(rig.destination, rig.opening.session.clone());
    for address in [index, preview] {
        let answer = rig.get(&address).await;
        assert_eq!(answer.header("retry-after"), "1");
        answer.error(404, "starting");
    }
}

#[tokio::test]
async fn invalid_and_late_requests_are_refused() {
    let rig = Rig::new().await;
    let media = rig.asset("media.m3u8").await;
    // Without a driver that lets viewers wait nothing of it is looked at.
    rig.get(&format!("{media}?_HLS_part=1")).await.ok();
    rig.version(7, 1, SHORT_TARGET_MS);
    for query in ["_HLS_part=1", "_HLS_msn=9", "_HLS_msn=9&_HLS_part=0", "_HLS_msn=x"] {
        let agent = [("User-Agent", query)];
        rig.ask("GET", &format!("{media}?{query}"), &agent).await.error(400, "malformed_directive");
    }
    // Two ahead are waited for, but not for ever.
    let began = Instant::now();
    let refused = rig.ask("GET", &format!("{media}?_HLS_msn=8"), &[("User-Agent", "early")]).await;
    assert_eq!(refused.error(503, "not_in_time")["retryAfter"], 1);
    assert!(began.elapsed() >= Duration::from_millis(3 * u64::from(SHORT_TARGET_MS)));
    rig.get(&rig.asset("l1-7-1.m4s").await).await.error(503, "not_in_time");
    assert_eq!(
        (rig.waiters(), rig.playback.viewers(rig.destination)),
        (0, 1),
        "the refused ones do not watch"
    );
    // The preview has no preload hints.
    rig.list("media.m3u8", "#EXTM3U\n".into(), None);
}

#[tokio::test]
async fn a_request_for_the_next_part_waits() {
    let rig = Rig::new().await;
    rig.version(7, 1, TARGET_MS);
    let hinted = rig.asset("l1-7-1.m4s").await;
    let answer = rig.waiting(&hinted).await;
    rig.media("l1-7-1.m4s", noise(60_000));
    let answer = answer.await.unwrap();
    assert_eq!(
        (answer.ok(), answer.header("cache-control")),
        (&noise(60_000)[..], "max-age=3600, immutable")
    );
    assert_eq!(rig.used().await, 60_000 + rig.get(&rig.index()).await.body.len() as u64);
    // One that another came for is not there.
    rig.version(7, 2, TARGET_MS);
    let never = rig.asset("l1-7-2.m4s").await;
    let answer = rig.waiting(&never).await;
    rig.version(8, 0, TARGET_MS);
    answer.await.unwrap().error(404, "not_found");
    // What nobody spoke of is not waited for.
    rig.get(&rig.asset("l1-9-9.m4s").await).await.error(404, "not_found");
    assert_eq!(rig.waiters(), 0);
}

#[tokio::test]
async fn the_end_of_the_stream_wakes_all_waiting_requests() {
    let rig = Rig::new().await;
    let media = rig.asset("media.m3u8").await;
    rig.version(7, 1, TARGET_MS);
    let (version, part) = (format!("{media}?_HLS_msn=7&_HLS_part=1"), rig.asset("l1-7-1.m4s").await);
    let (waiting, hinted) = (rig.waiting(&version).await, rig.waiting(&part).await);
    rig.list("media.m3u8", "#EXTM3U\n#EXT-X-ENDLIST\n".into(), None);
    assert!(waiting.await.unwrap().text().ends_with("#EXT-X-ENDLIST\n"));
    hinted.await.unwrap().error(404, "not_found");
    assert!(rig.get(&version).await.text().ends_with("#EXT-X-ENDLIST\n"));
    // A driver that is gone without a word.
    rig.version(7, 1, TARGET_MS);
    let (waiting, hinted) = (rig.waiting(&version).await, rig.waiting(&part).await);
    rig.app.live.end_opening(&rig.opening);
    assert_eq!(waiting.await.unwrap().text(), "#EXTM3U\n#7.1\n");
    hinted.await.unwrap().error(404, "not_found");
    assert_eq!(rig.get(&version).await.text(), "#EXTM3U\n#7.1\n", "an ended stream does not wait");
    assert_eq!(rig.waiters(), 0);
}

#[tokio::test]
async fn a_key_revoked_during_the_wait_is_refused() {
    let rig = Rig::new().await;
    let media = rig.asset("media.m3u8").await;
    rig.version(7, 1, TARGET_MS);
    let hinted = rig.asset("l1-7-1.m4s").await;
    let version = rig.waiting(&format!("{media}?_HLS_msn=7&_HLS_part=1")).await;
    rig.intruder().await.revoke_public_keys().await;
    rig.app.clock.advance(FRESH);
    rig.version(7, 2, TARGET_MS);
    version.await.unwrap().error(401, "invalid_key");
    // Nobody may wait with it either.
    rig.get(&format!("{media}?_HLS_msn=7&_HLS_part=2")).await.error(401, "invalid_key");
    rig.get(&hinted).await.error(401, "invalid_key");
}

#[tokio::test]
async fn waiting_requests_are_bounded_and_disconnected_ones_are_removed() {
    let rig = Rig::new().await;
    let media = rig.asset("media.m3u8").await;
    rig.version(7, 1, TARGET_MS);
    let version = format!("{media}?_HLS_msn=7");
    let socket = rig.send("GET", &version, &[]).await;
    rig.until_waiting(1).await;
    drop(socket);
    rig.until_waiting(0).await;
    let assets = rig.opening.assets();
    let waiting: Vec<_> = (0..WAITERS_MAX).map(|_| assets.wait().unwrap()).collect();
    rig.get(&version).await.error(503, "too_many_waiting");
    rig.get(&media).await.ok();
    drop(waiting);
    let answer = rig.waiting(&version).await;
    rig.version(8, 0, TARGET_MS);
    answer.await.unwrap().ok();
}
