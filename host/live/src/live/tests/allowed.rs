//! Encoders whose address is no longer allowed.

use super::*;
use satcast_core::networks::Networks;

#[tokio::test(flavor = "multi_thread")]
async fn an_encoder_whose_address_is_no_longer_allowed_is_disconnected() {
    let rig = Rig::new(&["live"], Duration::from_secs(30)).await;
    let networks = |entry: &str| Networks::parse([entry]).unwrap();
    let publish = || {
        rig.live.publish_from(
            rig.stream.clone(),
            EncoderRole::Primary,
            Via::default(),
            Some("203.0.113.7".parse().unwrap()),
        )
    };
    let mut publisher = publish().await.unwrap();
    publisher.push(&mut group());
    rig.until_session(SessionState::Live).await;
    rig.live.addresses_changed(rig.stream.id, &networks("203.0.113.0/24")).await;
    rig.live.addresses_changed(rig.stream.id, &Networks::default()).await;
    assert!(rig.live.session(rig.stream.id).is_some(), "its address is allowed");
    rig.live.addresses_changed(rig.stream.id, &networks("203.0.113.8")).await;
    assert_eq!(publisher.closed().await, codes::wrong_address());
    rig.until_idle().await;
    assert_eq!(rig.last_reason().await, Some(EndReason::KeyRevoked));
    assert!(publish().await.is_ok(), "the ingest port checks addresses, and there is no cooldown");
}
