//! A backup encoder beside the primary one.

use super::*;
use crate::shown::EncoderRole::{Backup, Primary};
use satcast_store::EventType;

impl Rig {
    async fn publish_as(&self, role: EncoderRole) -> Result<Publisher, PublishRefused> {
        self.live.publish_from(self.stream.clone(), role, Via::default(), None).await
    }

    fn encoders(&self) -> Vec<(EncoderRole, bool)> {
        let encoders = self.live.encoders(self.stream.id);
        encoders.into_iter().map(|encoder| (encoder.role, encoder.is_active)).collect()
    }
}

/// A keyframe with its configuration.
fn keyframe() -> Vec<Packet> {
    vec![config(), video(0, true)]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failover_is_reported_and_the_session_goes_on() {
    let rig = Rig::new(&["live"], Duration::from_secs(30)).await;
    rig.webhook_for(vec![EventType::StreamFailover]).await;
    let mut primary = rig.publish_as(Primary).await.unwrap();
    primary.push(&mut group());
    let session = rig.until_session(SessionState::Live).await;
    let sent = rig.until_state(0, DestState::Live).await.bytes_sent;
    let mut backup = rig.publish_as(Backup).await.unwrap();
    backup.push(&mut group());
    assert_eq!(rig.encoders(), [(Primary, true), (Backup, false)]);
    assert_eq!(rig.live.destination(rig.stream.id, rig.destinations[0]).unwrap().bytes_sent, sent);

    drop(primary);
    backup.push(&mut keyframe());
    assert_eq!(rig.encoders(), [(Backup, true)]);
    let (name, data) = rig.next_delivery().await;
    assert_eq!(name, "stream.failover");
    let change = (&data["from"], &data["to"], &data["reason"]);
    assert_eq!(change, (&json!("primary"), &json!("backup"), &json!("disconnected")));
    assert_eq!(data["sessionId"], session.session_id.as_str());
    rig.until("the media of the backup", || {
        let shown = rig.live.destination(rig.stream.id, rig.destinations[0])?;
        (shown.bytes_sent > sent).then_some(())
    })
    .await;
    assert_eq!(rig.live.session(rig.stream.id), Some(session), "the same session, live all the time");
    assert_eq!(rig.live.health(rig.stream.id).unwrap().failovers, 1);

    let mut primary = rig.publish_as(Primary).await.unwrap();
    primary.push(&mut keyframe());
    rig.clock.advance(Duration::from_secs(1));
    assert_eq!(rig.encoders(), [(Primary, false), (Backup, true)]);
    drop(backup);
    primary.push(&mut keyframe());
    assert_eq!(rig.encoders(), [(Primary, true)]);
    assert_eq!(rig.next_delivery().await.1["from"], "backup");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_third_encoder_is_refused_and_a_stop_ends_both() {
    let rig = Rig::new(&[], Duration::from_secs(30)).await;
    let (mut primary, mut backup) =
        (rig.publish_as(Primary).await.unwrap(), rig.publish_as(Backup).await.unwrap());
    primary.push(&mut group());
    backup.push(&mut group());
    rig.until_session(SessionState::Live).await;
    for (role, text) in [(Primary, codes::BUSY), (Backup, codes::BACKUP_BUSY)] {
        let third = rig.publish_as(role);
        let keep = async {
            // Both send while the third one waits for the silence of one.
            loop {
                tokio::time::sleep(Duration::from_millis(10)).await;
                rig.clock.advance(Duration::from_millis(100));
                primary.push(&mut keyframe());
                backup.push(&mut keyframe());
            }
        };
        let refused = tokio::select! {
            refused = third => refused.err().unwrap(),
            () = keep => unreachable!(),
        };
        assert_eq!((refused.code, refused.reason.as_str()), (codes::BAD_NAME, text));
    }
    assert!(rig.live.stop(rig.stream.id, EndReason::Stopped).await);
    for publisher in [&primary, &backup] {
        assert_eq!(publisher.closed().await.reason, codes::reason_text(EndReason::Stopped));
    }
    assert!(rig.publish_as(Backup).await.is_err(), "the cooldown is for both");
    assert_eq!(rig.encoders(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_reconnect_window_begins_when_both_encoders_are_gone() {
    let rig = Rig::new(&[], Duration::from_secs(30)).await;
    let mut backup = rig.publish_as(Backup).await.unwrap();
    backup.push(&mut group());
    rig.until_session(SessionState::Live).await;
    let mut primary = rig.publish_as(Primary).await.unwrap();
    primary.push(&mut vec![config()]);
    drop(backup);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(rig.live.session(rig.stream.id).unwrap().state, SessionState::Live);
    drop(primary);
    rig.until_session(SessionState::Reconnecting).await;
    rig.clock.advance(Duration::from_secs(31));
    rig.until_idle().await;
    assert_eq!(rig.last_reason().await, Some(EndReason::Unpublished));
}
