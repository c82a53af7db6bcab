//! Callers by SRT: a scripted one against the real port.

use satcast_core::secret::Redacted;
use satcast_media::srt::calling;
use satcast_media::ts::Muxer;
use satcast_store::StreamChange;
use tokio::net::UdpSocket;

use super::*;
use crate::ingest::admit::{CODE_BAD_NAME, CODE_DENIED, CODE_FAILED};

const CALLER: u32 = 77;
const LATENCY_MS: u16 = 120;
/// Handshake types: accepted, and the lowest of refusals.
const ACCEPTED: u32 = u32::MAX;
const REFUSED: u32 = 1_000;
/// First word of a handshake.
const HANDSHAKE: [u8; 4] = [0x80, 0, 0, 0];
/// First word of a shutdown.
const SHUTDOWN: [u8; 4] = [0x80, 5, 0, 0];
/// Bytes of transport stream in a datagram.
const PAYLOAD: usize = 7 * 188;

/// A caller that knows its cookie.
struct Caller {
    socket: UdpSocket,
    cookie: u32,
    next: u32,
}

impl Caller {
    async fn greet(service: &Service) -> Self {
        let socket = UdpSocket::bind((std::net::Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        socket.connect(service.srt).await.unwrap();
        socket.send(&calling::induction(CALLER)).await.unwrap();
        let mut caller = Self { socket, cookie: 0, next: 5 };
        caller.cookie = calling::cookie(&caller.receive().await).unwrap();
        caller
    }

    async fn receive(&self) -> Vec<u8> {
        let mut block = vec![0; 2_048];
        let bytes =
            timeout(PATIENCE, self.socket.recv(&mut block)).await.expect("an answer in time").unwrap();
        block.truncate(bytes);
        block
    }

    /// Sends its conclusion, and gives the type of the answer and the socket.
    async fn ask(&self, stream_id: &str, more: &[u32]) -> (u32, u32) {
        let more = [calling::stream_id(stream_id), more.to_vec()].concat();
        let conclusion = calling::conclusion(CALLER, self.cookie, self.next, LATENCY_MS, &more);
        self.socket.send(&conclusion).await.unwrap();
        loop {
            let answer = self.receive().await;
            if answer[..4] == HANDSHAKE {
                return calling::kind_and_socket(&answer).unwrap();
            }
        }
    }

    async fn publishing(service: &Service) -> (Self, u32) {
        let caller = Self::greet(service).await;
        let (kind, socket) = caller.ask(&service.key, &[]).await;
        assert_eq!(kind, ACCEPTED);
        (caller, socket)
    }

    async fn send(&mut self, socket: u32, payload: &[u8]) {
        let head = [self.next, 0xc000_0000, 0, socket].map(u32::to_be_bytes).concat();
        self.next += 1;
        self.socket.send(&[&head, payload].concat()).await.unwrap();
    }

    async fn is_shut_down(&self) {
        while self.receive().await[..4] != SHUTDOWN {}
    }
}

/// Audio frames as a transport stream, and as packets.
fn audio(frames: u8) -> (Vec<u8>, Vec<Packet>) {
    let config = Packet::configuration(Codec::Aac, Bytes::from_static(&[0x11, 0x90]));
    let frame = |number: u8| {
        let at = i64::from(number) * 20 * NANOS_PER_MILLI;
        Packet::media(Codec::Aac, false, at, at, Bytes::from(vec![number; 300]))
    };
    let packets: Vec<_> = std::iter::once(config).chain((0..frames).map(frame)).collect();
    let (mut muxer, mut bytes) = (Muxer::default(), Vec::new());
    packets.iter().for_each(|packet| muxer.push(packet, &mut bytes).unwrap());
    (bytes, packets)
}

#[tokio::test]
async fn media_of_a_caller_reaches_its_publisher() {
    let mut service = Service::quick().await;
    let (mut caller, socket) = Caller::publishing(&service).await;
    let (bytes, sent) = audio(50);
    for payload in bytes.chunks(PAYLOAD) {
        caller.send(socket, payload).await;
    }
    let (got, _) = service.packets(sent.len()).await;
    let payloads =
        |packets: &[Packet]| packets.iter().map(|packet| packet.payload.clone()).collect::<Vec<_>>();
    assert_eq!(payloads(&got), payloads(&sent));
    assert_eq!(service.publishers(), 1);
    let (kind, same) = caller.ask(&service.key, &[]).await;
    assert_eq!((kind, same, service.publishers()), (ACCEPTED, socket, 1), "a repeated conclusion");
    let mut leave = [SHUTDOWN.to_vec(), vec![0; 8]].concat();
    leave.extend(socket.to_be_bytes());
    caller.socket.send(&leave).await.unwrap();
    service.no_publisher_is_left().await;
}

#[tokio::test]
async fn a_lost_packet_is_a_gap_and_never_garbage() {
    let mut service = Service::quick().await;
    let (mut caller, socket) = Caller::publishing(&service).await;
    let (bytes, sent) = audio(50);
    for (index, payload) in bytes.chunks(PAYLOAD).enumerate() {
        if index == 3 {
            caller.next += 1;
        } else {
            caller.send(socket, payload).await;
        }
    }
    let mut leave = [SHUTDOWN.to_vec(), vec![0; 8]].concat();
    leave.extend(socket.to_be_bytes());
    caller.socket.send(&leave).await.unwrap();
    service.no_publisher_is_left().await;
    let mut got = Vec::new();
    while let Ok(packets) = service.pushed.try_recv() {
        got.extend(packets);
    }
    assert!(got.len() > sent.len() / 2 && got.len() < sent.len(), "{}", got.len());
    assert!(got.iter().all(|packet| sent.iter().any(|sent| sent.payload == packet.payload)));
    assert_eq!(got.iter().filter(|packet| packet.discontinuity).count(), 1);
}

#[tokio::test]
async fn media_that_came_through_the_stream_itself_is_turned_away_before_it_is_read() {
    for (mark, is_taken) in [(LOOP_MARK, false), ([8; 8], true)] {
        let mut service = Service::quick().await;
        let (mut caller, socket) = Caller::publishing(&service).await;
        let (mut muxer, mut bytes) = (Muxer::default(), Vec::new());
        muxer.set_note(&mark);
        let (_, sent) = audio(50);
        sent.iter().for_each(|packet| muxer.push(packet, &mut bytes).unwrap());
        for payload in bytes.chunks(PAYLOAD) {
            caller.send(socket, payload).await;
        }
        if is_taken {
            assert_eq!(service.packets(sent.len()).await.0.len(), sent.len());
        } else {
            caller.is_shut_down().await;
            service.no_publisher_is_left().await;
            assert!(service.pushed.try_recv().is_err());
        }
    }
}

#[tokio::test]
async fn refusals_have_their_codes() {
    let service = Service::quick().await;
    let (key, wrong) = (service.key.clone(), wrong_key());
    let status = |code| Behaviour::Refuse(Status::new(code, "no"));
    for (behaviour, stream_id, code) in [
        (Behaviour::Accept, String::new(), 1_400),
        (Behaviour::Accept, "#!::m=publish".to_owned(), 1_400),
        (Behaviour::Accept, wrong, 1_401),
        (Behaviour::Accept, format!("#!::r={key},m=request"), 1_405),
        (status(CODE_BAD_NAME), key.clone(), 1_409),
        (status(CODE_DENIED), key.clone(), 1_403),
        (status(CODE_FAILED), format!("#!::u=me,r={key},m=publish"), 1_503),
        (Behaviour::Panic, key.clone(), 1_503),
    ] {
        service.behave(behaviour);
        let caller = Caller::greet(&service).await;
        let (kind, _) = caller.ask(&stream_id, &[]).await;
        assert_eq!(kind, REFUSED + code, "{stream_id}");
        assert_eq!(caller.ask(&stream_id, &[]).await.0, kind, "asked again");
    }
    assert_eq!(service.refused().len(), 3);
    assert_eq!(service.publishers(), 0);
}

#[tokio::test]
async fn a_passphrase_that_one_side_alone_has_is_refused() {
    let service = Service::quick().await;
    let account = service.store.stream(service.stream).await.unwrap().unwrap().account_id;
    let owner = Actor::command(account, UnixMillis(1_700_000_000_001));
    let set = async |passphrase: Option<&str>| {
        let srt_passphrase = Some(passphrase.map(|text| Redacted::new(text.to_owned())));
        let change = StreamChange { srt_passphrase, ..Default::default() };
        service.store.change_stream(&owner, service.stream, change).await.unwrap();
    };
    // Key material of the right form, wrapped with any key.
    let mut material = vec![0x12, 0x20, 0x29, 1, 0, 0, 0, 0, 2, 0, 2, 0, 0, 0, 4, 4];
    material.resize(16 + 16 + 24, 9);
    let encrypted = calling::extension(3, &material);
    for (passphrase, more, code) in [
        (None, &encrypted[..], 11),
        (Some("a long passphrase"), &[], 11),
        (Some("a long passphrase"), &encrypted[..], 10),
    ] {
        set(passphrase).await;
        let caller = Caller::greet(&service).await;
        assert_eq!(caller.ask(&service.key, more).await.0, REFUSED + code, "{passphrase:?}");
    }
    set(None).await;
    Caller::publishing(&service).await;
}

#[tokio::test]
async fn strangers_without_a_cookie_cost_nothing() {
    let service = Service::quick().await;
    let socket = UdpSocket::bind((std::net::Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    socket.connect(service.srt).await.unwrap();
    for number in 0..500u32 {
        let more = calling::stream_id(&service.key);
        socket.send(&calling::conclusion(number + 1, number, 1, LATENCY_MS, &more)).await.unwrap();
        socket.send(&vec![number as u8; (number as usize * 7) % 1_500]).await.unwrap();
    }
    let (_caller, _) = Caller::publishing(&service).await;
    assert_eq!(service.publishers(), 1, "no conclusion with a guessed cookie was looked at");
}

#[tokio::test]
async fn callers_count_with_the_other_connections_of_their_network() {
    let service = Service::start(0, |limits| limits.connections_per_network_max = 2).await;
    let (_caller, _) = Caller::publishing(&service).await;
    service.behave(Behaviour::Hang);
    let waiting = Caller::greet(&service).await;
    let conclusion =
        calling::conclusion(CALLER, waiting.cookie, 1, LATENCY_MS, &calling::stream_id(&service.key));
    waiting.socket.send(&conclusion).await.unwrap();
    let over = Caller::greet(&service).await;
    assert_eq!(over.ask(&service.key, &[]).await.0, REFUSED + 1_402);
}

#[tokio::test]
async fn wrong_keys_block_the_network() {
    let service = Service::start(0, |limits| limits.failed_keys_max = 2).await;
    for code in [1_401, 1_401, 1_402] {
        let caller = Caller::greet(&service).await;
        assert_eq!(caller.ask(&wrong_key(), &[]).await.0, REFUSED + code);
    }
    service.clock.advance(keys::WINDOW);
    Caller::publishing(&service).await;
}

#[tokio::test]
async fn a_caller_without_media_and_all_at_shutdown_are_told_to_leave() {
    let service = Service::start(0, |limits| limits.idle = Duration::from_millis(200)).await;
    let (idle, _) = Caller::publishing(&service).await;
    idle.is_shut_down().await;
    service.no_publisher_is_left().await;
    let mut service = Service::quick().await;
    let (caller, _) = Caller::publishing(&service).await;
    drop(service.shutdown.take());
    caller.is_shut_down().await;
    service.no_publisher_is_left().await;
}

#[tokio::test]
async fn a_session_that_ends_shuts_its_caller_down() {
    let service = Service::quick().await;
    let (caller, _) = Caller::publishing(&service).await;
    service.live.close.send_replace(Some(Status::new(CODE_DENIED, "over")));
    caller.is_shut_down().await;
    service.no_publisher_is_left().await;
}
