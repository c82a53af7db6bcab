//! Limits of wrong keys, which do not affect encoders with a valid key.

use super::*;
use satcast_core::networks::Network;

const SHORT: Duration = Duration::from_millis(150);

#[tokio::test]
async fn wrong_keys_are_limited_per_address_and_minute() {
    let log = Log::start();
    let service = Service::start(0, |limits| {
        limits.failed_keys_max = 2;
        limits.linger = Duration::from_millis(20);
    })
    .await;
    let _healthy = publishing_from_elsewhere(&service).await;
    for name in [wrong_key(), "no key at all".to_owned()] {
        let (_, answer) = Encoder::publish(service.address, &name).await;
        assert!(matches!(answer, Some(ClientEvent::Rejected { .. })), "{answer:?}");
    }
    let mut refused = TcpStream::connect(service.address).await.unwrap();
    assert!(closed_by_service(&mut refused).await, "closed before the handshake");
    assert_eq!(Encoder::publish(service.address, &service.key).await.1, None);
    assert_eq!(service.publishers(), 1, "the publisher is not affected");
    service.clock.advance(keys::WINDOW);
    let _later = Encoder::publishing(&service).await;
    log.says("refused: too many wrong stream keys from this address").await;
}

#[tokio::test]
async fn wrong_keys_do_not_lock_out_publishers_of_the_same_address() {
    let service = Service::start(0, |limits| {
        limits.failed_keys_max = 2;
        limits.refusal_delay = SHORT * 10;
        limits.linger = Duration::from_millis(20);
    })
    .await;
    let publishing = Encoder::publishing(&service).await;
    for (attempt, name) in
        [wrong_key(), wrong_key(), wrong_key(), "no key at all".to_owned()].iter().enumerate()
    {
        let started = Instant::now();
        let (_, answer) = Encoder::publish(service.address, name).await;
        assert!(matches!(answer, Some(ClientEvent::Rejected { .. })), "{answer:?}");
        assert_eq!(started.elapsed() >= SHORT * 10, attempt >= 2, "{attempt}: {:?}", started.elapsed());
    }
    drop(publishing);
    service.no_publisher_is_left().await;
    let started = Instant::now();
    let back = Encoder::publishing(&service).await;
    assert!(started.elapsed() < SHORT * 10, "a right key is not slowed: {:?}", started.elapsed());
    drop(back);
    service.no_publisher_is_left().await;
    service.clock.advance(Duration::from_millis(KNOWN_NETWORK_MS));
    for _ in 0..2 {
        Encoder::publish(service.address, &wrong_key()).await;
    }
    assert_eq!(Encoder::publish(service.address, &service.key).await.1, None, "the publisher left long ago");
}

#[tokio::test]
async fn a_slowed_refusal_keeps_to_the_deadline_and_does_not_hold_up_shutdown() {
    let mut service = Service::start(0, |limits| {
        limits.failed_keys_max = 0;
        limits.setup = SHORT;
        limits.linger = SHORT;
    })
    .await;
    // As with a publisher and a guesser in one network.
    let network = Network::from(service.address.ip());
    service.shared.keys.admitted(network, service.clock.monotonic());
    service.shared.keys.failed(network, service.clock.monotonic());
    let started = Instant::now();
    let (_, answer) = Encoder::publish(service.address, &wrong_key()).await;
    assert!(matches!(answer, Some(ClientEvent::Rejected { .. })), "{answer:?}");
    assert!(
        started.elapsed() >= SHORT && started.elapsed() < Duration::from_secs(2),
        "{:?}",
        started.elapsed()
    );

    let mut slowed = Encoder::connect(service.address, "live", &wrong_key()).await;
    let early = timeout(SHORT / 3, slowed.event()).await;
    assert!(early.is_err(), "{early:?}");
    service.shutdown.take().unwrap().send(()).unwrap();
    timeout(PATIENCE, &mut service.running).await.expect("the listener ends").unwrap();
}
