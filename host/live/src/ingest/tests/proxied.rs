//! Behind a proxy that sends the PROXY protocol.

use super::*;
use satcast_core::ids::AccountId;
use satcast_core::networks::Networks;
use satcast_store::StreamChange;

/// A service that trusts proxies on this machine.
async fn behind(change: impl FnOnce(&mut Limits)) -> Service {
    let mut settings = Settings::new(SocketAddr::from(([127, 0, 0, 1], 0)), 0);
    settings.limits.linger = Duration::from_millis(200);
    change(&mut settings.limits);
    Service::with(settings.behind(vec!["127.0.0.0/8".parse().unwrap()])).await
}

/// An encoder whose proxy sends `header` first, and the answer to its publish.
async fn publish(service: &Service, header: &[u8], key: &str) -> (Encoder, Option<ClientEvent>) {
    let mut encoder = Encoder::connect(service.address, "live", key).await;
    encoder.socket.write_all(header).await.unwrap();
    let answer = encoder.event().await;
    (encoder, answer)
}

fn from(address: &str) -> Vec<u8> {
    format!("PROXY TCP4 {address} 127.0.0.1 40000 1935\r\n").into_bytes()
}

async fn allow(service: &Service, network: &str) {
    let owner = Actor::command(AccountId(1), UnixMillis(1_700_000_000_001));
    let allowed = Some(Networks::parse([network]).unwrap());
    let change = StreamChange { allowed, ..Default::default() };
    service.store.change_stream(&owner, service.stream, change).await.unwrap();
}

#[tokio::test]
async fn the_allow_list_applies_to_the_address_in_the_header() {
    let service = behind(|_| {}).await;
    allow(&service, "203.0.113.7").await;
    let version_2: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xcb\0\x71\x07\x7f\0\0\x01\x9c\x40\x07\x8f";
    for header in [from("203.0.113.7"), version_2.to_vec()] {
        let (encoder, answer) = publish(&service, &header, &service.key).await;
        assert_eq!(answer, Some(ClientEvent::Publishing));
        drop(encoder);
        service.no_publisher_is_left().await;
    }
    for header in [from("203.0.113.8"), b"PROXY UNKNOWN\r\n".to_vec()] {
        let (_, answer) = publish(&service, &header, &service.key).await;
        assert!(
            matches!(&answer, Some(ClientEvent::Rejected { code, .. }) if code == "NetStream.Publish.Denied"),
            "{answer:?}"
        );
    }
}

#[tokio::test]
async fn only_the_guesser_behind_a_proxy_is_blocked() {
    let service = behind(|limits| limits.failed_keys_max = 1).await;
    let (_, answer) = publish(&service, &from("203.0.113.8"), &wrong_key()).await;
    assert!(matches!(answer, Some(ClientEvent::Rejected { .. })), "{answer:?}");
    let (_, answer) = publish(&service, &from("203.0.113.8"), &service.key).await;
    assert_eq!(answer, None, "closed before the handshake");
    let (_encoder, answer) = publish(&service, &from("203.0.113.9"), &service.key).await;
    assert_eq!(answer, Some(ClientEvent::Publishing));
}

#[tokio::test]
async fn a_proxy_must_send_a_header_in_time_and_other_clients_must_not() {
    let service = behind(|limits| limits.proxy_header = Duration::from_millis(100)).await;
    let (_, answer) = Encoder::publish(service.address, &service.key).await;
    assert_eq!(answer, None, "RTMP without a header");
    let mut silent = TcpStream::connect(service.address).await.unwrap();
    silent.write_all(b"PROXY TCP4").await.unwrap();
    assert!(closed_by_service(&mut silent).await);

    let trusting_nobody = Service::quick().await;
    let (_, answer) = publish(&trusting_nobody, &from("203.0.113.7"), &trusting_nobody.key).await;
    assert_eq!(answer, None, "a header from an untrusted address is no RTMP");
    let _encoder = Encoder::publishing(&trusting_nobody).await;
}

#[tokio::test]
async fn proxies_without_a_header_take_a_bounded_number_of_slots() {
    let service = behind(|_| {}).await;
    let mut silent = Vec::new();
    for _ in 0..PROXY_HEADERS_MAX {
        silent.push(TcpStream::connect(service.address).await.unwrap());
    }
    let mut one_more = TcpStream::connect(service.address).await.unwrap();
    assert!(closed_by_service(&mut one_more).await);
    drop(silent);
    eventually_publishes(&service).await;
}

/// Slots are released when the service detects closed connections.
async fn eventually_publishes(service: &Service) {
    for _ in 0..200 {
        let mut encoder = Encoder::connect(service.address, "live", &service.key).await;
        // It may be closed before it sent anything.
        let _ = encoder.socket.write_all(&from("203.0.113.7")).await;
        if encoder.event().await == Some(ClientEvent::Publishing) {
            return;
        }
        sleep(Duration::from_millis(10)).await;
    }
    panic!("no place comes back");
}

#[tokio::test]
async fn a_port_check_is_no_warning() {
    let log = Log::start();
    let service = behind(|_| {}).await;
    drop(TcpStream::connect(service.address).await.unwrap());
    let reset = socket2::SockRef::from(&TcpStream::connect(service.address).await.unwrap())
        .set_linger(Some(Duration::ZERO));
    reset.unwrap();
    log.says("closed the connection without sending anything").await;
    let (_encoder, answer) = publish(&service, &from("203.0.113.7"), &service.key).await;
    assert_eq!(answer, Some(ClientEvent::Publishing));
    assert!(!log.text().contains("WARN"), "{}", log.text());
    let _ = TcpStream::connect(service.address).await.unwrap().write_all(b"PROXY").await;
    log.says("WARN").await;
}
