//! Encoders that return to a stopped stream.

use tokio::sync::Notify;

use super::*;
use satcast_store::Terms;
use satcast_usage::{Beginning, Usage};

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_stream_refuses_encoders_during_its_cooldown() {
    let rig = Rig::new(&[], Duration::from_secs(30)).await;
    let mut publisher = rig.publish().await.unwrap();
    publisher.push(&mut group());
    rig.until_session(SessionState::Live).await;
    rig.live.stop(rig.stream.id, EndReason::Stopped).await;
    drop(publisher);

    let refused = rig.publish().await.err().unwrap();
    assert_eq!(refused.code, codes::DENIED);
    rig.clock.advance(Duration::from_secs(59));
    assert!(rig.publish().await.is_err(), "within the cooldown");
    rig.clock.advance(Duration::from_secs(59));
    assert!(rig.publish().await.is_err(), "the refused attempt restarted the cooldown");
    rig.clock.advance(Duration::from_secs(60));
    assert!(rig.publish().await.is_ok());

    // After a restart the cooldown comes from the database.
    let settings = Settings { reconnect_window: Duration::ZERO, ..Settings::default() };
    let clock = Clock::manual(UnixMillis(5_030_000));
    let restarted = Live::new(rig.store.clone(), drivers(), clock, settings);
    assert!(restarted.publish(rig.stream.clone()).await.is_err());
    let clock = Clock::manual(UnixMillis(5_060_000));
    let restarted = Live::new(rig.store.clone(), drivers(), clock, settings);
    assert!(restarted.publish(rig.stream.clone()).await.is_ok());
}

/// Admission that waits, as for a pending payment.
#[derive(Default)]
struct Waiting {
    entered: Notify,
    leave: Notify,
}

#[async_trait::async_trait]
impl Gate for Waiting {
    fn terms(&self) -> Terms {
        Terms::default()
    }

    async fn admit(&self, _: &StreamRecord) -> Result<(), String> {
        self.entered.notify_one();
        self.leave.notified().await;
        Ok(())
    }

    async fn settle_earlier(&self, _: AccountId) {}

    async fn begin(&self, _: Beginning) -> Arc<dyn Usage> {
        Arc::new(Unmetered::default())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_encoder_whose_stream_is_stopped_during_admission_is_refused() {
    let rig = Rig::new(&[], Duration::from_secs(30)).await;
    let gate = Arc::new(Waiting::default());
    let settings = Settings { reconnect_window: Duration::ZERO, ..Settings::default() };
    let live = Live::metered(rig.store.clone(), drivers(), rig.clock.clone(), settings, gate.clone());
    gate.leave.notify_one();
    let mut first = live.publish(rig.stream.clone()).await.unwrap();
    gate.entered.notified().await;
    first.push(&mut group());
    rig.until("the session", || live.session(rig.stream.id)).await;

    let (again, stream) = (live.clone(), rig.stream.clone());
    let second = tokio::spawn(async move { again.publish(stream).await.map(drop) });
    gate.entered.notified().await;
    assert!(live.stop(rig.stream.id, EndReason::Stopped).await);
    gate.leave.notify_one();
    let refused = second.await.unwrap().unwrap_err();
    assert!(refused.reason.contains("stopped"), "{}", refused.reason);
    assert!(live.session(rig.stream.id).is_none());
    rig.clock.advance(Duration::from_secs(60));
    gate.leave.notify_one();
    assert!(live.publish(rig.stream.clone()).await.is_ok(), "the cooldown is over");
}
