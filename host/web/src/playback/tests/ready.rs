//! What counts as ready to play.

use super::*;
use satcast_live::SessionState;

#[tokio::test]
async fn ready_means_that_a_player_can_fetch_everything_it_needs_first() {
    let rig = Rig::new().await;
    let ready = || rig.playback.is_ready(&rig.opening, SessionState::Live);
    assert!(ready());
    for name in ["index.m3u8", "media.m3u8", "i1-0.mp4", "39.m4s"] {
        rig.opening.assets().retract(name);
        assert!(!ready(), "without {name}");
        rig.fill();
        assert!(ready());
    }
    rig.opening.assets().retract("1.m4s");
    assert!(ready(), "an old segment is not needed first");
    rig.file("39.m4s", &noise(1_000));
    assert!(ready());
    rig.put("39.m4s", "video/mp4", 1, Audience::Both, AssetBody::Parts(vec!["38.m4s".into()]));
    assert!(ready());
    rig.opening.assets().retract("38.m4s");
    assert!(!ready(), "a part is gone");
    rig.fill();
    rig.publish("index.m3u8", PLAYLIST_TYPE, 1, Audience::Both, media_playlist(1..40).into_bytes());
    assert!(ready(), "an entry without a choice");
    rig.publish("39.m4s", "video/mp4", 1, Audience::Preview, vec![1]);
    assert!(!ready(), "not for viewers with a key");
}

#[tokio::test]
async fn stale_and_ended_streams_are_not_ready() {
    let rig = Rig::new().await;
    let ready = |state| rig.playback.is_ready(&rig.opening, state);
    rig.app.clock.advance(Duration::from_millis(5_999));
    assert!(ready(SessionState::Live));
    rig.app.clock.advance(Duration::from_millis(1));
    assert!(!ready(SessionState::Live), "no news for too long");
    assert!(ready(SessionState::Reconnecting), "the encoder is away, and its return is waited for");
    rig.tell(false);
    assert!(ready(SessionState::Live));
    rig.tell(true);
    assert!(!ready(SessionState::Live) && !ready(SessionState::Reconnecting));
    rig.tell(false);
    rig.app.live.end_opening(&rig.opening);
    assert!(!ready(SessionState::Live) && !ready(SessionState::Reconnecting));
    let empty = rig.app.live.begin_opening(rig.destination, SessionId("ses_next".into()));
    assert!(!rig.playback.is_ready(&empty, SessionState::Live));
}

#[tokio::test]
async fn while_the_encoder_is_away_only_playable_streams_are_ready() {
    let rig = Rig::new().await;
    rig.tell_fresh(0, false);
    assert!(!rig.playback.is_ready(&rig.opening, SessionState::Reconnecting));
}
