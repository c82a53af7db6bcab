//! Refused encoders get a reason; bytes that are no RTMP get no answer.

use super::*;
use crate::ingest::admit::UNKNOWN_KEY;
use satcast_core::ids::AccountId;
use satcast_core::networks::Networks;
use satcast_store::StreamChange;

fn rejected(code: &str, description: &str) -> Option<ClientEvent> {
    Some(ClientEvent::Rejected { code: code.to_owned(), description: description.to_owned() })
}

#[tokio::test]
async fn a_wrong_key_gets_a_reason() {
    let service = Service::quick().await;
    let (mut encoder, answer) = Encoder::publish(service.address, &wrong_key()).await;
    assert_eq!(answer, rejected("NetStream.Publish.Denied", UNKNOWN_KEY));
    assert_eq!(encoder.event().await, None, "and the connection ends");
    assert!(service.refused().is_empty(), "the key belongs to no stream");
}

#[test]
fn an_unknown_key_text() {
    assert_eq!(UNKNOWN_KEY, "unknown stream key; it may have been replaced, copy it again");
}

#[tokio::test]
async fn a_missing_key_gets_a_reason() {
    let service = Service::quick().await;
    let reason = "no valid stream key was sent; copy the whole key of your stream into the encoder";
    for name in ["", "obs", "live_short"] {
        let (_, answer) = Encoder::publish(service.address, name).await;
        assert_eq!(answer, rejected("NetStream.Publish.Denied", reason), "{name}");
    }
}

#[tokio::test]
async fn a_key_of_a_deleted_stream_is_unknown() {
    let service = Service::quick().await;
    let owner = Actor::command(AccountId(1), UnixMillis(1_700_000_000_001));
    service.store.delete_stream(&owner, service.stream).await.unwrap();
    let (_, answer) = Encoder::publish(service.address, &service.key).await;
    assert!(
        matches!(&answer, Some(ClientEvent::Rejected { description, .. }) if description.starts_with("unknown"))
    );
}

#[tokio::test]
async fn the_sessions_refusal_reaches_the_encoder() {
    let service = Service::quick().await;
    let status = Status::new("NetStream.Publish.BadName", "another encoder publishes this stream");
    service.behave(Behaviour::Refuse(status.clone()));
    let (_, answer) = Encoder::publish(service.address, &service.key).await;
    assert_eq!(answer, rejected("NetStream.Publish.BadName", "another encoder publishes this stream"));
    service.behave(Behaviour::Accept);
    let _encoder = Encoder::publishing(&service).await;
    assert_eq!(service.refused(), [(service.stream, status)]);
}

#[tokio::test]
async fn an_encoder_that_sends_nothing_usable_is_refused() {
    let service = Service::quick().await;
    let mut encoder = Encoder::publishing(&service).await;
    // Messages of four bytes on the publishing stream: Sorenson H.263 video, and MP3 audio.
    for (kind, body) in [(9_u8, *b"\x12abc"), (8, *b"\x2fabc")] {
        let header = [4, 0, 0, 0, 0, 0, 4, kind, 1, 0, 0, 0];
        encoder.socket.write_all(&[&header[..], &body[..]].concat()).await.unwrap();
    }
    let answer = encoder.event().await;
    let refused = service.refused();
    let [(stream, status)] = &refused[..] else { panic!("{refused:?} after {answer:?}") };
    assert_eq!((*stream, status.code), (service.stream, "NetStream.Publish.Denied"));
    assert_eq!(answer, rejected(status.code, &status.reason));
    service.no_publisher_is_left().await;
}

#[tokio::test]
async fn failures_of_the_service_are_not_the_encoders_fault() {
    let service = Service::start(0, |limits| {
        limits.linger = Duration::from_millis(100);
        limits.admission = Duration::from_millis(100);
        limits.failed_keys_max = 1;
    })
    .await;
    let reason = "the server cannot check the stream key at the moment; try again shortly";
    for behaviour in [Behaviour::Hang, Behaviour::Panic] {
        service.behave(behaviour);
        let (_, answer) = Encoder::publish(service.address, &service.key).await;
        assert_eq!(answer, rejected("NetStream.Failed", reason));
    }
    service.store.close().await;
    let (_, answer) = Encoder::publish(service.address, &service.key).await;
    assert_eq!(answer, rejected("NetStream.Failed", reason));
}

#[tokio::test]
async fn the_reason_arrives_although_the_encoder_keeps_sending() {
    let service = Service::start(0, |limits| limits.admission = Duration::from_millis(150)).await;
    service.behave(Behaviour::Hang);
    let mut encoder = Encoder::connect(service.address, "live", &service.key).await;
    let early = timeout(Duration::from_millis(75), encoder.event()).await;
    assert!(early.is_err(), "the publish is being decided: {early:?}");
    // Closing a socket with bytes unread resets the connection; some systems then forget the status, too.
    encoder.socket.write_all(&[0x5a; 64 * 1024]).await.unwrap();
    sleep(Duration::from_millis(300)).await;
    assert!(matches!(encoder.event().await, Some(ClientEvent::Rejected { .. })));
    assert_eq!(encoder.socket.read(&mut [0]).await.unwrap(), 0, "an orderly end, no reset");
}

#[tokio::test]
async fn garbage_ends_its_own_connection_only() {
    let mut service = Service::quick().await;
    let mut healthy = Encoder::publishing(&service).await;
    for garbage in
        [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(), vec![0xff; 8192], vec![0; 8192], random(8192)]
    {
        let mut socket = TcpStream::connect(service.address).await.unwrap();
        let _may_be_closed_already = socket.write_all(&garbage).await;
        let _half_closed = socket.shutdown().await;
        assert!(closed_by_service(&mut socket).await);
    }
    healthy.send(&[audio(0, 100)]).await;
    assert_eq!(service.packets(1).await.0, [audio(0, 100)]);
}

#[tokio::test]
async fn garbage_after_the_handshake_and_while_publishing_ends_the_connection() {
    for read_batch_ms in [0, 40] {
        let service = Service::start(read_batch_ms, |_| ()).await;
        let mut encoder = Encoder::publishing(&service).await;
        // Set Chunk Size 0 on chunk stream 2.
        let hostile = [&[2, 0, 0, 0, 0, 0, 4, 1, 0, 0, 0, 0, 0, 0, 0, 0][..], &random(4096)].concat();
        encoder.socket.write_all(&hostile).await.unwrap();
        assert!(closed_by_service(&mut encoder.socket).await);
        service.no_publisher_is_left().await;
    }
}

#[tokio::test]
async fn packets_before_garbage_are_kept() {
    let mut service = Service::start(50, |_| ()).await;
    let mut encoder = Encoder::publishing(&service).await;
    encoder.session.send(&audio(0, 100)).unwrap();
    let mut bytes = encoder.session.output().take().to_vec();
    bytes.extend([2, 0, 0, 0, 0, 0, 4, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
    encoder.socket.write_all(&bytes).await.unwrap();
    assert_eq!(service.packets(1).await.0, [audio(0, 100)]);
    service.no_publisher_is_left().await;
}

#[tokio::test]
async fn logs_name_the_peer_and_never_a_key() {
    let log = Log::start();
    let service = Service::quick().await;
    let wrong = wrong_key();
    let mut peers = Vec::new();
    for (app, name) in [
        ("live".to_owned(), wrong.clone()),
        (format!("other/{wrong}"), String::new()),
        ("live".to_owned(), format!("my-secret-name?key={}", service.key)),
        ("my-secret-app".to_owned(), "my-secret-name".to_owned()),
    ] {
        let mut encoder = Encoder::connect(service.address, &app, &name).await;
        peers.push(encoder.socket.local_addr().unwrap());
        encoder.event().await.unwrap();
    }
    service.no_publisher_is_left().await;
    let log = log.text();
    for peer in peers {
        assert!(log.contains(&format!("peer={peer}")), "{peer} in {log}");
    }
    assert!(log.contains(&satcast_core::secret::mask_key(&wrong)) && log.contains(" stream="), "{log}");
    for secret in [wrong.as_str(), &service.key, "my-secret"] {
        assert!(!log.contains(secret), "{log}");
    }
}

fn random(count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    satcast_core::secret::fill_random(&mut bytes);
    bytes
}

#[tokio::test]
async fn a_key_from_an_address_that_is_not_allowed_is_refused_and_counts_as_wrong() {
    let service = Service::start(0, |limits| {
        limits.failed_keys_max = 2;
        limits.linger = Duration::from_millis(20);
    })
    .await;
    let allow = async |entries: &[&str]| {
        let owner = Actor::command(AccountId(1), UnixMillis(1_700_000_000_001));
        let allowed = Some(Networks::parse(entries.iter().copied()).unwrap());
        let change = StreamChange { label: None, allowed, ..Default::default() };
        service.store.change_stream(&owner, service.stream, change).await.unwrap();
    };
    allow(&["127.0.0.0/8"]).await;
    let publishing = Encoder::publishing(&service).await;
    allow(&["203.0.113.0/24", "2001:db8::1"]).await;
    assert_eq!(service.publishers(), 1, "the publisher is not affected");
    let reason = "this stream key may not be used from your address; add the address to allowedAddresses of the stream";
    for _ in 0..2 {
        let (_, answer) = Encoder::publish(service.address, &service.key).await;
        assert_eq!(answer, rejected("NetStream.Publish.Denied", reason));
    }
    let wrong = (service.stream, Status::new("NetStream.Publish.Denied", reason));
    assert_eq!(service.refused(), [wrong.clone(), wrong]);
    drop(publishing);
    service.no_publisher_is_left().await;
    service.clock.advance(Duration::from_millis(KNOWN_NETWORK_MS));
    for _ in 0..2 {
        let _ = Encoder::publish(service.address, &service.key).await;
    }
    assert_eq!(Encoder::publish(service.address, &service.key).await.1, None, "closed before the handshake");
}

#[tokio::test]
async fn a_key_that_is_replaced_during_admission_is_refused() {
    let service = Service::quick().await;
    service.behave(Behaviour::Replace(service.store.clone()));
    let (_, answer) = Encoder::publish(service.address, &service.key).await;
    assert_eq!(answer, rejected("NetStream.Publish.Denied", UNKNOWN_KEY));
    assert!(service.refused().is_empty(), "the old key belongs to no stream");
    service.no_publisher_is_left().await;
}
