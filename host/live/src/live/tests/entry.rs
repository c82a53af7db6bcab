//! Encoders that connect while another one publishes.

use super::*;
use crate::entry::SILENCE_WAIT;

impl Rig {
    /// Another encoder that tries to publish.
    fn another(&self) -> tokio::task::JoinHandle<Result<Publisher, PublishRefused>> {
        let (live, stream) = (self.live.clone(), self.stream.clone());
        tokio::spawn(async move { live.publish(stream).await })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_encoder_waits_until_the_first_is_silent() {
    let rig = Rig::new(&[], Duration::from_secs(30)).await;
    let mut first = rig.publish().await.unwrap();
    first.push(&mut group());
    let session = rig.until_session(SessionState::Live).await;
    rig.clock.advance(session::TAKE_OVER_AFTER - Duration::from_millis(1));
    let entered = rig.live.find(rig.stream.id).unwrap().let_in(
        &rig.live.inner,
        EncoderRole::Primary,
        &Via::default(),
        None,
    );
    assert!(matches!(entered, Err(session::Refusal::Busy)));
    rig.clock.advance(Duration::from_millis(1));
    first.push(&mut vec![config()]);
    let mut second = rig.publish().await.unwrap();
    assert_eq!(first.closed().await.reason, codes::TOOK_OVER);
    drop(first);
    second.push(&mut group());
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(rig.live.session(rig.stream.id), Some(session), "the same session goes on");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_encoder_is_refused_when_the_first_is_not_silent_in_time() {
    let rig = Rig::new(&[], Duration::from_secs(30)).await;
    let mut first = rig.publish().await.unwrap();
    first.push(&mut group());
    rig.until_session(SessionState::Live).await;
    let second = rig.another();
    tokio::time::sleep(MOMENT).await;
    // This media may have been in flight. The encoder is silent after it, but not for long enough.
    rig.clock.advance(session::ON_ITS_WAY);
    first.push(&mut group());
    tokio::time::sleep(MOMENT).await;
    assert!(!second.is_finished());
    rig.clock.advance(SILENCE_WAIT - session::ON_ITS_WAY);
    // If the second encoder was late, it waits longer.
    while !second.is_finished() {
        tokio::time::sleep(MOMENT).await;
        rig.clock.advance(MOMENT);
        first.push(&mut group());
    }
    assert_eq!(second.await.unwrap().err().unwrap().code, codes::BAD_NAME);
}

/// Longer than an attempt to enter, and much shorter than the waits.
const MOMENT: Duration = Duration::from_millis(100);

#[tokio::test(flavor = "multi_thread")]
async fn an_encoder_that_returns_before_its_disconnect_was_detected_is_not_refused() {
    let rig = Rig::new(&[], Duration::from_secs(30)).await;
    let mut first = rig.publish().await.unwrap();
    first.push(&mut group());
    let session = rig.until_session(SessionState::Live).await;
    let second = rig.another();
    tokio::time::sleep(MOMENT).await;
    assert!(!second.is_finished(), "it waits for the first one");
    drop(first);
    let mut second = second.await.unwrap().unwrap();
    second.push(&mut group());
    rig.until_session(SessionState::Live).await;

    // A dead connection sends no end.
    let third = rig.another();
    tokio::time::sleep(MOMENT).await;
    assert!(!third.is_finished());
    rig.clock.advance(session::TAKE_OVER_AFTER);
    let mut third = third.await.unwrap().unwrap();
    assert_eq!(second.closed().await.reason, codes::TOOK_OVER);
    third.push(&mut group());
    assert_eq!(rig.until_session(SessionState::Live).await.session_id, session.session_id);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_encoder_is_refused_as_soon_as_the_other_one_still_sends() {
    let rig = Rig::new(&[], Duration::from_secs(30)).await;
    let mut first = rig.publish().await.unwrap();
    first.push(&mut group());
    rig.until_session(SessionState::Live).await;
    let second = rig.another();
    tokio::time::sleep(MOMENT).await;
    first.push(&mut group());
    tokio::time::sleep(MOMENT).await;
    assert!(!second.is_finished(), "the media may have been in flight");
    // Less time passes here than the longest wait.
    rig.clock.advance(session::ON_ITS_WAY + Duration::from_millis(1));
    first.push(&mut group());
    assert_eq!(second.await.unwrap().err().unwrap().code, codes::BAD_NAME);
    assert!(rig.live.session(rig.stream.id).is_some());
}
