//! The preview: access and rate limit.

use super::*;

#[tokio::test]
async fn a_preview_plays_with_its_token_uncached_and_unmetered() {
    let rig = Rig::new().await;
    let index = rig.get(&rig.preview()).await;
    assert_eq!(index.header("cache-control"), "private, no-store");
    let segment = index.first(&format!("/hls/{}/", rig.path));
    assert!(segment.ends_with("/p1-3.m4s"));
    let answer = rig.get(&segment).await;
    assert_eq!(answer.ok(), [noise(100_001), noise(100_002), noise(100_003)].concat());
    assert_eq!(answer.header("cache-control"), "private, no-store");
    assert_eq!(answer.header("accept-ranges"), "bytes");
    let init = rig.get(&rig.preview_asset("i1-0.mp4")).await;
    assert_eq!(init.ok().len(), 700);
    assert_eq!(rig.used().await, 0);
    assert_eq!(
        rig.playback.preview_token(&rig.opening, &rig.path),
        rig.playback.preview_token(&rig.opening, &rig.path)
    );
}

#[tokio::test]
async fn assets_for_viewers_with_a_key_are_not_in_the_preview() {
    let rig = Rig::new().await;
    rig.publish("full.m3u8", PLAYLIST_TYPE, 1, Audience::Hosted, ENTRY.into());
    rig.get(&rig.preview_asset("full.m3u8")).await.error(404, "not_found");
    let full = rig.asset("full.m3u8").await;
    rig.get(&full).await.ok();
}

#[tokio::test]
async fn the_sixty_first_preview_request_in_a_minute_is_refused() {
    let rig = Rig::new().await;
    let targets = [
        rig.preview(),
        rig.preview_asset("preview.m3u8"),
        rig.preview_asset("i1-0.mp4"),
        rig.preview_asset("p1-3.m4s"),
        rig.preview_asset("never-there.m4s"),
        rig.preview_asset("1.m4s"),
    ];
    for round in 0..10 {
        for target in &targets {
            let answer = rig.get(target).await;
            assert_ne!(answer.status, 429, "round {round}");
        }
        rig.app.clock.advance(Duration::from_secs(1));
    }
    for target in &targets {
        let refused = rig.get(target).await;
        let body = refused.error(429, "rate_limited");
        assert_eq!(body["retryAfter"], 50);
        assert_eq!(refused.header("retry-after"), "50");
        assert_eq!(refused.header("ratelimit"), "\"preview\";r=0;t=50");
    }
    rig.get(&rig.index()).await.ok();
    rig.app.clock.advance(Duration::from_secs(49));
    rig.get(&targets[0]).await.error(429, "rate_limited");
    rig.app.clock.advance(Duration::from_secs(1));
    for _ in 0..6 {
        rig.get(&targets[0]).await.ok();
    }
    rig.get(&targets[0]).await.error(429, "rate_limited");
}

#[tokio::test]
async fn a_preview_exists_only_during_its_session() {
    let rig = Rig::new().await;
    let (index, segment) = (rig.preview(), rig.preview_asset("1.m4s"));
    rig.app.live.end_opening(&rig.opening);
    let next = rig.app.live.begin_opening(rig.destination, SessionId("ses_next".into()));
    rig.get(&index).await.error(404, "offline");
    rig.get(&segment).await.error(404, "offline");
    let token = rig.playback.preview_token(&next, &rig.path);
    rig.get(&format!("/hls/{}/index.m3u8?token={token}", rig.path)).await.error(404, "starting");
}
