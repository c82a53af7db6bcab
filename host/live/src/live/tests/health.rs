//! Health reports of a session.

use super::*;
use satcast_store::EventType;

/// Clock step until an issue is shown: small enough that the issue does not end before.
const STEP: Duration = Duration::from_millis(20);

#[tokio::test(flavor = "multi_thread")]
async fn a_lasting_issue_is_shown_and_reported_once() {
    let rig = Rig::new(&["live"], Duration::from_secs(30)).await;
    assert_eq!(rig.live.health(rig.stream.id), None, "no session");
    rig.webhook_for(vec![EventType::StreamHealth]).await;
    let mut publisher = rig.publish().await.unwrap();
    let mut packets = vec![config()];
    packets.extend((0..=150).map(|n| video(n * 40, n % 50 == 0)));
    publisher.push(&mut packets);
    let shown = || rig.live.health(rig.stream.id).filter(|health| !health.issues.is_empty());
    rig.clock.passing(STEP, rig.until("an issue", shown)).await;
    let (name, mut data) = rig.next_delivery().await;
    let issue = json!({"code": "audio_missing", "text": "no audio arrives", "platforms": []});
    assert_eq!(name, "stream.health");
    assert_eq!(data["issues"].take(), json!([issue]));
    assert_eq!((&data["appeared"], &data["cleared"]), (&json!(["audio_missing"]), &json!([])));
    assert_eq!((&data["label"], &data["streamKeyId"]), (&json!("test"), &json!(rig.stream.id.0)));

    let health = rig.live.health(rig.stream.id).unwrap();
    assert_eq!(health.issues.iter().map(|issue| issue.code).collect::<Vec<_>>(), [IssueCode::AudioMissing]);
    let video = health.figures.video.unwrap();
    assert_eq!((video.codec, video.size), ("h264", None), "the configuration of these tests is not valid");
    assert_eq!((video.frame_rate, video.keyframe_interval), (Some(25.0), Some(2.0)));
    drop(publisher);
    rig.until_session(SessionState::Reconnecting).await;
    assert_eq!(rig.live.health(rig.stream.id), None, "no health while the encoder is away");
    assert!(rig.live.stop(rig.stream.id, EndReason::Stopped).await);
    rig.until_idle().await;
    assert!(!rig.store.has_due_delivery(rig.clock.now()).await.unwrap(), "once");
}

#[tokio::test(flavor = "multi_thread")]
async fn clock_jumps_and_silence_are_issues() {
    let rig = Rig::new(&["live"], Duration::from_secs(30)).await;
    let mut publisher = rig.publish().await.unwrap();
    publisher.push(&mut group());
    let shown = || rig.live.health(rig.stream.id);
    // Forward by more than a queue holds, and back.
    publisher.push(&mut vec![
        video(100_000, true),
        video(100_033, false),
        video(200, true),
        video(233, false),
    ]);
    let jumped = || {
        let health = shown()?;
        let jumps = health.issues.iter().any(|issue| issue.code == IssueCode::TimestampJumps);
        jumps.then_some(health.figures.timestamp_jumps)
    };
    assert_eq!(rig.clock.passing(STEP, rig.until("the jumps", jumped)).await, 2);

    rig.clock.advance(Duration::from_secs(5));
    let silent =
        || shown()?.issues.into_iter().find(|issue| issue.code == IssueCode::NothingArrives).map(drop);
    rig.until_later("the silence", silent).await;
    assert!(rig.live.stop(rig.stream.id, EndReason::Stopped).await);
}
