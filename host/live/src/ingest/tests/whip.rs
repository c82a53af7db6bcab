//! Senders by WHIP: a scripted one against the real port.

use std::net::Ipv4Addr;

use satcast_core::secret::Redacted;
use satcast_media::codec::av1::Av1Config;
use satcast_media::codec::avc::AvcConfig;
use satcast_media::codec::hevc::HevcConfig;
use satcast_media::fuzz::RECORDS;
use str0m::media::MediaKind;
use tokio::net::UdpSocket;

use super::*;
use crate::ingest::admit::{CODE_BAD_NAME, CODE_DENIED, CODE_FAILED};
use crate::ingest::whip::peer::Peer;

/// The parameter sets of x265 for 1280x720.
const HEVC_SETS: [&[u8]; 3] = [
    b"\x40\x01\x0c\x01\xff\xff\x01\x60\0\0\x03\0\x90\0\0\x03\0\0\x03\0\x5d\x95\x98\x09",
    b"\x42\x01\x01\x01\x60\0\0\x03\0\x90\0\0\x03\0\0\x03\0\x5d\xa0\x02\x80\x80\x2d\x16\x59\x59\xa4\x93\x2b\xc0\x5a\
      \x02\0\0\x03\0\x02\0\0\x03\0\x3c\x10",
    b"\x44\x01\xc1\x72\xb4\x62\x40",
];

/// The sequence header of SVT-AV1 for 320x180, an OBU.
const AV1_SEQUENCE_HEADER: [u8; 13] = *b"\x0a\x0b\0\0\0\x04\x3c\xfe\xcc\x02\xf8\0\x40";

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn bearer(key: &str) -> Option<Redacted<String>> {
    Some(Redacted::new(key.to_owned()))
}

async fn ask(service: &Service, key: &str, offer: &str) -> Result<WhipAccepted, WhipRefusal> {
    let answer = service.whip.publish(CLIENT, bearer(key), offer.to_owned()).await;
    answer.map_err(|refused| refused.why)
}

async fn publishing(service: &Service) -> (Peer, String) {
    connected(service, Peer::new().await).await
}

async fn connected(service: &Service, mut peer: Peer) -> (Peer, String) {
    let WhipAccepted { id, answer } = ask(service, &service.key, &peer.offer).await.unwrap();
    assert!(answer.contains("a=ice-lite"), "{answer}");
    peer.answered(&answer);
    peer.until(|peer| peer.is_connected).await;
    (peer, id)
}

/// A keyframe as a byte stream, with its parameter sets.
fn keyframe(slice: &[u8]) -> Vec<u8> {
    let config = AvcConfig::parse(RECORDS[0].1).unwrap();
    [config.sps[0], config.pps[0], slice].map(|nal| [&[0, 0, 0, 1][..], nal].concat()).concat()
}

fn slice(first: u8, number: u8) -> Vec<u8> {
    let mut slice = vec![number; 3_000];
    slice[0] = first;
    slice
}

#[tokio::test]
async fn media_of_a_sender_reaches_its_publisher() {
    let mut service = Service::quick().await;
    let (mut peer, _) = publishing(&service).await;
    let (key, other) = (slice(0x65, 1), slice(0x41, 2));
    for number in 0..20u8 {
        let millis = u64::from(number) * 20;
        peer.send(MediaKind::Audio, millis, &[0xfc, number, 3]).await;
        match number {
            0 => peer.send(MediaKind::Video, millis, &keyframe(&key)).await,
            2 | 4 => peer.send(MediaKind::Video, millis, &[&[0, 0, 0, 1][..], &other].concat()).await,
            _ => {}
        }
        peer.for_a(Duration::from_millis(20)).await;
    }
    let (got, _) = service.packets(2 + 20 + 3).await;
    let of = |codec: Codec| got.iter().filter(|packet| packet.codec == codec).collect::<Vec<_>>();
    let (video, audio) = (of(Codec::H264), of(Codec::Opus));
    assert_eq!(video[0].payload, RECORDS[0].1);
    assert!(video[0].is_config() && audio[0].is_config() && audio[0].payload.starts_with(b"OpusHead"));
    assert!(video[1].keyframe && !video[2].keyframe);
    assert_eq!((&video[1].payload[4..], &video[2].payload[4..]), (&key[..], &other[..]));
    assert_eq!((video.len(), audio.len()), (4, 21));
    assert!(audio[1..].windows(2).all(|pair| pair[1].dts_ns - pair[0].dts_ns == 20 * NANOS_PER_MILLI));
    assert!(got.iter().all(|packet| packet.dts_ns == packet.pts_ns && !packet.discontinuity));
}

#[tokio::test]
async fn hevc_is_taken_with_its_parameter_sets() {
    let mut service = Service::quick().await;
    let (mut peer, _) = connected(&service, Peer::hevc().await).await;
    // Begins a GOP: IDR_W_RADL.
    let mut frame = slice(19 << 1, 1);
    frame[1] = 1;
    let unit = HEVC_SETS.iter().copied().chain([&frame[..]]).map(|nal| [&[0, 0, 0, 1][..], nal].concat());
    peer.send(MediaKind::Video, 0, &unit.collect::<Vec<_>>().concat()).await;
    peer.for_a(Duration::from_millis(50)).await;
    let (got, _) = service.packets(2).await;
    assert!(got.iter().all(|packet| packet.codec == Codec::Hevc) && got[0].is_config() && got[1].keyframe);
    let config = HevcConfig::parse(&got[0].payload).unwrap();
    assert!(config.parameter_sets.iter().map(|set| set.nal).eq(HEVC_SETS));
    assert_eq!(&got[1].payload[4..], &frame);
}

#[tokio::test]
async fn av1_is_taken_with_its_sequence_header() {
    let mut service = Service::quick().await;
    let (mut peer, _) = connected(&service, Peer::av1().await).await;
    // A key frame and another one, with the sizes of their OBUs.
    let [key, inter] = [0x10, 0x30].map(|first| [&[0x32, 0xb8, 0x17, first][..], &[7; 2_999]].concat());
    peer.send(MediaKind::Video, 0, &[&AV1_SEQUENCE_HEADER, &key[..]].concat()).await;
    peer.send(MediaKind::Video, 20, &inter).await;
    peer.for_a(Duration::from_millis(50)).await;
    let (got, _) = service.packets(3).await;
    assert!(got.iter().all(|packet| packet.codec == Codec::Av1) && got[0].is_config());
    assert_eq!(Av1Config::parse(&got[0].payload).unwrap().config_obus, AV1_SEQUENCE_HEADER);
    assert_eq!(
        (got[1].keyframe, &got[1].payload[..]),
        (true, &[&AV1_SEQUENCE_HEADER, &key[..]].concat()[..])
    );
    assert_eq!((got[2].keyframe, &got[2].payload[..]), (false, &inter[..]));
}

#[tokio::test]
async fn a_sender_is_asked_for_keyframes() {
    let service = Service::quick().await;
    let (mut peer, _) = publishing(&service).await;
    peer.send(MediaKind::Video, 0, &keyframe(&slice(0x65, 1))).await;
    let before = peer.asked;
    peer.until(|peer| peer.asked > before + 1).await;
}

#[tokio::test]
async fn a_frame_that_cannot_be_read_is_a_loss() {
    let mut service = Service::quick().await;
    let (mut peer, _) = publishing(&service).await;
    // RTP has no units of type 30 (RFC 6184, 5.2).
    let frames = [keyframe(&slice(0x65, 1)), vec![0, 0, 0, 1, 0x5e, 7, 7], keyframe(&slice(0x65, 2))];
    for (millis, frame) in [0, 20, 40].into_iter().zip(frames) {
        peer.send(MediaKind::Video, millis, &frame).await;
        peer.for_a(Duration::from_millis(20)).await;
    }
    let (got, _) = service.packets(3).await;
    let marks = got.iter().map(|packet| (packet.is_config(), packet.discontinuity));
    assert_eq!(marks.collect::<Vec<_>>(), [(true, false), (false, false), (false, true)]);
}

#[tokio::test]
async fn a_sender_leaves_with_its_key() {
    let service = Service::quick().await;
    let (mut peer, id) = publishing(&service).await;
    let leave = async |id: &str, key: &str| {
        service.whip.leave(CLIENT, bearer(key), id).await.map_err(|refused| refused.why)
    };
    assert_eq!(leave("another", &service.key).await, Err(WhipRefusal::NoPublish));
    assert_eq!(leave(&id, &wrong_key()).await, Err(WhipRefusal::UnknownKey));
    assert_eq!(service.publishers(), 1);
    assert_eq!(leave(&id, &service.key).await, Ok(()));
    peer.until(|peer| peer.is_closed).await;
    service.no_publisher_is_left().await;
    assert_eq!(leave(&id, &service.key).await, Err(WhipRefusal::NoPublish));
}

#[tokio::test]
async fn refusals_have_their_kinds() {
    let service = Service::quick().await;
    let (key, wrong, offer) = (service.key.clone(), wrong_key(), Peer::new().await.offer);
    let vp8 =
        Peer::with(|config| config.clear_codecs().enable_vp8(true).enable_opus(true, false)).await.offer;
    let silent =
        Peer::with(|config| config.clear_codecs().enable_h264(true).enable_pcmu(true, false)).await.offer;
    let many = format!("{offer}{}", "m=audio 9 UDP/TLS/RTP/SAVPF 0\r\n".repeat(WHIP_SECTIONS_MAX));
    let status = |code| Behaviour::Refuse(Status::new(code, "no"));
    let table = [
        (Behaviour::Accept, "", &offer, WhipRefusal::NoKey),
        (Behaviour::Accept, wrong.as_str(), &offer, WhipRefusal::UnknownKey),
        (Behaviour::Accept, &key, &String::new(), WhipRefusal::Offer),
        (Behaviour::Accept, &key, &"v=0\r\n".repeat(99), WhipRefusal::Offer),
        (Behaviour::Accept, &key, &many, WhipRefusal::Offer),
        (Behaviour::Accept, &key, &offer.replace("a=sendonly", "a=recvonly"), WhipRefusal::Offer),
        (Behaviour::Accept, &key, &vp8, WhipRefusal::Codec),
        (Behaviour::Accept, &key, &silent, WhipRefusal::Codec),
        (status(CODE_BAD_NAME), &key, &offer, WhipRefusal::Conflict),
        (status(CODE_DENIED), &key, &offer, WhipRefusal::Denied),
        (status(CODE_FAILED), &key, &offer, WhipRefusal::Unavailable),
        (Behaviour::Panic, &key, &offer, WhipRefusal::Unavailable),
    ];
    for (behaviour, key, offer, why) in table {
        service.behave(behaviour);
        assert_eq!(ask(&service, key, offer).await, Err(why), "{offer}");
    }
    assert_eq!(service.refused().len(), 9);
    assert_eq!(service.publishers(), 0);
}

#[tokio::test]
async fn datagrams_of_strangers_get_no_answer() {
    let service = Service::quick().await;
    let stranger = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    stranger.connect(service.media).await.unwrap();
    let mut request = vec![0, 1, 0, 12, 0x21, 0x12, 0xa4, 0x42];
    request.extend([7; 12]);
    request.extend([0, 6, 0, 8]);
    request.extend(b"xyz:abcd");
    for number in 0..500usize {
        stranger.send(&request).await.unwrap();
        stranger.send(&vec![number as u8; (number * 7) % 1_500]).await.unwrap();
    }
    let (_peer, _) = publishing(&service).await;
    let mut block = [0; 64];
    assert!(stranger.try_recv(&mut block).is_err());
}

#[tokio::test]
async fn a_sender_that_never_connects_ends() {
    let service = Service::start(0, |limits| limits.setup = Duration::from_secs(2)).await;
    let peer = Peer::new().await;
    ask(&service, &service.key, &peer.offer).await.unwrap();
    assert_eq!(service.publishers(), 1);
    service.no_publisher_is_left().await;
}

#[tokio::test]
async fn a_sender_that_falls_silent_ends_and_one_without_media_too() {
    let service = Service::start(0, |limits| limits.silence = Duration::from_secs(1)).await;
    let (_silent, _) = publishing(&service).await;
    service.no_publisher_is_left().await;
    let service = Service::start(0, |limits| limits.idle = Duration::from_secs(1)).await;
    let (mut idle, _) = publishing(&service).await;
    idle.until(|peer| peer.is_closed).await;
    service.no_publisher_is_left().await;
}

#[tokio::test]
async fn senders_count_with_the_other_connections_of_their_network() {
    let service = Service::start(0, |limits| {
        limits.connections_per_network_max = 2;
        limits.admission = Duration::from_millis(300);
    });
    let service = service.await;
    let (_peer, _) = publishing(&service).await;
    service.behave(Behaviour::Hang);
    let offer = Peer::new().await.offer;
    let (one, other) = tokio::join!(ask(&service, &service.key, &offer), ask(&service, &service.key, &offer));
    assert!([&one, &other].contains(&&Err(WhipRefusal::Full)), "{one:?} {other:?}");
    assert!([&one, &other].contains(&&Err(WhipRefusal::Unavailable)), "{one:?} {other:?}");
}

#[tokio::test]
async fn wrong_keys_block_the_network() {
    let service = Service::start(0, |limits| limits.failed_keys_max = 2).await;
    let offer = Peer::new().await.offer;
    for why in [WhipRefusal::UnknownKey, WhipRefusal::UnknownKey, WhipRefusal::Full] {
        assert_eq!(ask(&service, &wrong_key(), &offer).await, Err(why));
    }
    service.clock.advance(keys::WINDOW);
    publishing(&service).await;
}

#[tokio::test]
async fn senders_are_told_to_leave_at_the_end_of_their_session_and_at_shutdown() {
    let service = Service::quick().await;
    let (mut peer, _) = publishing(&service).await;
    service.live.close.send_replace(Some(Status::new(CODE_DENIED, "over")));
    peer.until(|peer| peer.is_closed).await;
    service.no_publisher_is_left().await;
    let mut service = Service::quick().await;
    let (mut peer, _) = publishing(&service).await;
    drop(service.shutdown.take());
    peer.until(|peer| peer.is_closed).await;
    service.no_publisher_is_left().await;
    assert_eq!(ask(&service, &service.key, &peer.offer).await, Err(WhipRefusal::Unavailable));
}

#[tokio::test]
async fn offers_beyond_the_queue_of_the_port_are_refused() {
    const OFFERS: usize = WHIP_OFFERS_QUEUED_MAX + 6;
    let service = Service::quick().await;
    // All are asked before the port takes one.
    let asked = (0..OFFERS).map(|_| ask(&service, "", ""));
    let answers = futures_util::future::join_all(asked).await;
    let count = |why| answers.iter().filter(|answer| **answer == Err(why)).count();
    assert_eq!(count(WhipRefusal::Unavailable), OFFERS - WHIP_OFFERS_QUEUED_MAX);
}

#[tokio::test]
async fn a_port_of_both_families_serves_ipv4() {
    let any = SocketAddr::from((std::net::Ipv6Addr::UNSPECIFIED, 0));
    if std::net::UdpSocket::bind(any).is_err() {
        return eprintln!("left out: this machine has no IPv6");
    }
    let settings = Settings::new(SocketAddr::from(([127, 0, 0, 1], 0)), 0).with_whip(any);
    let service = Service::with(settings).await;
    let mut peer = Peer::new().await;
    let answer = ask(&service, &service.key, &peer.offer).await.unwrap().answer;
    assert!(answer.contains(&format!("127.0.0.1 {}", service.media.port())), "{answer}");
    peer.answered(&answer);
    peer.until(|peer| peer.is_connected).await;
}
