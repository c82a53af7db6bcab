//! From the text of an offer to a connection that waits for its sender, and the text of the answer; or to a refusal.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use str0m::change::SdpOffer;
use str0m::media::{MediaKind, Mid};
use str0m::rtp::Extension;
use str0m::{Candidate, IceCreds, Output, Rtc, RtcConfig};

use super::super::admit::{CODE_NO_CODEC, CODE_OFFER, Status};
use super::super::limits::WHIP_SECTIONS_MAX;
use super::crypto::Identity;

/// Lines that are taken out of an offer: we answer to every address that has the password, and take one layer of video.
const LEFT_OUT: [&str; 5] =
    ["a=candidate:", "a=end-of-candidates", "a=simulcast:", "a=rid:", "a=ssrc-group:SIM"];
/// Beginning of a media section.
const SECTION: &str = "m=";
/// Line with the name of a media section.
const SECTION_NAME: &str = "a=mid:";
/// Beginning of lines of media sections that name the SSRC of a track.
const SOURCE: &str = "a=ssrc:";
/// Profiles of H.264 at level 5.2: baseline, constrained baseline, main, high and constrained high (RFC 6184, 8.1). What a sender
/// may send is limited by our level alone.
const H264: [u32; 5] = [0x42_0034, 0x42_e034, 0x4d_0034, 0x64_0034, 0x64_0c34];
/// The first payload type of H.264, which the offer replaces by its own; each profile has a second one for packets sent again.
const PT_H264: u8 = 112;
/// How often the numbers of the connection are made.
pub(super) const STATS_EVERY: Duration = Duration::from_secs(1);

/// A connection that waits for its sender.
#[derive(Debug)]
pub(super) struct Offered {
    pub(super) rtc: Rtc,
    pub(super) answer: String,
    pub(super) video: Option<Mid>,
    pub(super) audio: Option<Mid>,
}

/// Why an offer is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum OfferFault {
    #[error(
        "the offer is no SDP with ICE and DTLS for sending media; send the offer of a WebRTC connection as it is"
    )]
    Malformed,
    #[error("the offer sends neither video nor audio; add a track that sends")]
    Nothing,
    #[error(
        "the offer has no video codec that the service takes; choose H.264 with packetization mode 1, HEVC or AV1"
    )]
    Video,
    #[error("the offer has no audio codec that the service takes; choose Opus")]
    Audio,
}

impl OfferFault {
    /// The status of the refusal.
    pub(super) fn status(self) -> Status {
        let code = match self {
            Self::Malformed | Self::Nothing => CODE_OFFER,
            Self::Video | Self::Audio => CODE_NO_CODEC,
        };
        Status::new(code, self.to_string())
    }
}

/// What a new connection needs of the port.
#[derive(Debug, Clone)]
pub(super) struct Local {
    pub(super) identity: Identity,
    /// Addresses for the answer.
    pub(super) addresses: Vec<SocketAddr>,
    /// User name of ICE, and its password.
    pub(super) name: String,
    pub(super) password: String,
}

/// Takes an offer at `now`.
///
/// # Errors
/// It cannot be read, or has no media that the service takes.
pub(super) fn accept(local: &Local, text: &str, now: Instant) -> Result<Offered, OfferFault> {
    let text = usable_lines(text)?;
    let offer = SdpOffer::from_sdp_string(&text).map_err(|_| OfferFault::Malformed)?;
    let mut rtc = config(local, &text).build(now);
    for address in &local.addresses {
        if let Ok(candidate) = Candidate::host(*address, "udp") {
            rtc.add_local_candidate(candidate);
        }
    }
    let answer = rtc.sdp_api().accept_offer(offer).map_err(|_| OfferFault::Malformed)?;
    // Nothing is to be sent yet.
    while !matches!(rtc.poll_output().map_err(|_| OfferFault::Malformed)?, Output::Timeout(_)) {}
    let (mut video, mut audio) = (None, None);
    for mid in text.lines().filter_map(|line| line.strip_prefix(SECTION_NAME)) {
        let mid = Mid::from(mid.trim_end());
        let Some(media) = rtc.media(mid).filter(|media| media.direction().is_receiving()) else { continue };
        let (place, fault) = match media.kind() {
            MediaKind::Video => (&mut video, OfferFault::Video),
            MediaKind::Audio => (&mut audio, OfferFault::Audio),
        };
        if media.disabled() {
            return Err(fault);
        }
        place.get_or_insert(mid);
    }
    if video.is_none() && audio.is_none() {
        return Err(OfferFault::Nothing);
    }
    Ok(Offered { rtc, answer: answer.to_sdp_string(), video, audio })
}

fn config(local: &Local, text: &str) -> RtcConfig {
    let credentials = IceCreds { ufrag: local.name.clone(), pass: local.password.clone() };
    let mut config = RtcConfig::new()
        .set_crypto_provider(Arc::clone(&local.identity.provider))
        .set_dtls_cert(local.identity.certificate.clone())
        .set_local_ice_credentials(credentials)
        .set_ice_lite(true)
        .set_stats_interval(Some(STATS_EVERY))
        // Not taken: the orientation of video, so that senders turn it themselves, and names of layers, of which each one that comes
        // would get a buffer.
        .clear_extension_map()
        .set_extension(2, Extension::AbsoluteSendTime)
        .set_extension(3, Extension::TransportSequenceNumber)
        .clear_codecs();
    // Senders take the first codec of the answer that they have. Most destinations take H.264 alone.
    for (pt, profile) in (PT_H264..).step_by(2).zip(H264) {
        config.codec_config().add_h264(pt.into(), Some((pt + 1).into()), true, profile);
    }
    config = config.enable_h265(true).enable_av1(true).enable_opus(true, false);
    // str0m follows the name in a packet before it checks the packet, so a forged one would move a track.
    if names_sources(text) { config } else { config.set_extension(4, Extension::RtpMid) }
}

/// Whether each media section that sends names its SSRCs. Packets of others are known by the name of their section.
fn names_sources(text: &str) -> bool {
    let mut sections = text.split("\nm=").skip(1).filter(|section| !section.starts_with("application"));
    sections.all(|section| {
        let has = |start: &str| section.lines().any(|line| line.starts_with(start));
        has(SOURCE) || has("a=recvonly") || has("a=inactive")
    })
}

/// The offer without the lines that are not used.
fn usable_lines(text: &str) -> Result<String, OfferFault> {
    if text.lines().filter(|line| line.starts_with(SECTION)).count() > WHIP_SECTIONS_MAX {
        return Err(OfferFault::Malformed);
    }
    let mut usable = String::with_capacity(text.len());
    for line in text.lines().filter(|line| !LEFT_OUT.iter().any(|start| line.starts_with(start))) {
        usable.push_str(line);
        usable.push_str("\r\n");
    }
    Ok(usable)
}

#[cfg(test)]
mod tests {
    use super::super::peer::Peer;
    use super::*;

    /// Mutations of each line; all of it takes four seconds, as most offers are answered.
    const ROUNDS: u64 = 3;

    fn local() -> Local {
        Local {
            identity: Identity::new().unwrap(),
            addresses: vec![SocketAddr::from(([192, 0, 2, 7], 8_189)), "[2001:db8::7]:8189".parse().unwrap()],
            name: "name".to_owned(),
            password: "a password of ICE that is long".to_owned(),
        }
    }

    #[test]
    fn passwords_have_the_length_of_the_standard() {
        // RFC 8839, 5.4.
        assert!(satcast_core::secret::new_uid().len() >= 22);
    }

    #[tokio::test]
    async fn an_answer_names_the_addresses_and_takes_media() {
        let offered = accept(&local(), &Peer::new().await.offer, Instant::now()).unwrap();
        let count = |text: &str| offered.answer.lines().filter(|line| line.contains(text)).count();
        assert_eq!((count("a=recvonly"), count("a=ice-lite"), count("m=")), (2, 1, 2), "{}", offered.answer);
        assert_eq!((count("192.0.2.7 8189"), count("2001:db8::7 8189")), (1, 1), "{}", offered.answer);
        assert!(count("a=ice-ufrag:name") > 0 && count("H264/90000") > 0 && count("opus/48000/2") > 0);
        assert!(offered.video.is_some() && offered.audio.is_some());
    }

    #[tokio::test]
    async fn candidates_and_layers_are_left_out() {
        let offer = Peer::new().await.offer;
        assert!(offer.contains("a=candidate:"));
        let more =
            offer.replace("a=sendonly", "a=sendonly\r\na=rid:a send\r\na=rid:b send\r\na=simulcast:send a;b");
        assert!(!usable_lines(&more).unwrap().contains("a=candidate:"));
        let answer = accept(&local(), &more, Instant::now()).unwrap().answer;
        assert!(!answer.contains("a=rid") && !answer.contains("a=simulcast"), "{answer}");
    }

    #[tokio::test]
    async fn offers_of_one_kind_are_taken_and_those_without_a_codec_are_not() {
        let (local, now) = (local(), Instant::now());
        let fault = |text: &str| accept(&local, text, now).err();
        let offer = Peer::new().await.offer;
        assert_eq!(fault(&offer.replace("a=sendonly", "a=inactive")), Some(OfferFault::Nothing));
        assert_eq!(fault(&offer.replace("H264/90000", "VP8/90000")), Some(OfferFault::Video));
        assert_eq!(fault(&offer.replace("opus/48000", "L16/48000")), Some(OfferFault::Audio));
        assert_eq!(fault(&offer.replace("a=fingerprint", "a=x-fingerprint")), Some(OfferFault::Malformed));
        assert_eq!(fault(&offer.replace("a=ice-ufrag", "a=x-ufrag")), Some(OfferFault::Malformed));
        let constrained_high = offer.lines().map(|line| match line.split_once("profile-level-id=") {
            Some((start, _)) => format!("{start}profile-level-id=640c1f"),
            None => line.to_owned(),
        });
        assert!(accept(&local, &constrained_high.collect::<Vec<_>>().join("\r\n"), now).is_ok());
        let without_video = offer.replacen("a=sendonly", "a=inactive", 1);
        let offered = accept(&local, &without_video, now).unwrap();
        assert!(offered.video.is_some() != offered.audio.is_some());
        let sections = offer.lines().filter(|line| line.starts_with(SECTION)).count();
        let more = "m=audio 0 UDP/TLS/RTP/SAVPF 0\r\n".repeat(WHIP_SECTIONS_MAX - sections + 1);
        assert_eq!(usable_lines(&format!("{offer}{more}")), Err(OfferFault::Malformed));
    }

    #[tokio::test]
    async fn h264_comes_first_in_the_answer_and_av1_last() {
        let with =
            |config: RtcConfig| config.clear_codecs().enable_av1(true).enable_h265(true).enable_h264(true);
        let offer = Peer::with(|config| with(config).enable_opus(true, false)).await.offer;
        let answer = accept(&local(), &offer, Instant::now()).unwrap().answer;
        let types =
            answer.lines().find_map(|line| line.strip_prefix("m=video 9 UDP/TLS/RTP/SAVPF ")).unwrap();
        let name = |pt: &str| {
            let mut names = answer.lines().filter_map(|line| line.strip_prefix(&format!("a=rtpmap:{pt} ")));
            names.next().unwrap().to_owned()
        };
        let mut names: Vec<String> = types.split(' ').map(name).filter(|name| name != "rtx/90000").collect();
        names.dedup();
        assert_eq!(names, ["H264/90000", "H265/90000", "AV1/90000"], "{answer}");
    }

    #[tokio::test]
    async fn extensions_that_move_tracks_or_turn_video_are_not_taken() {
        let offer = Peer::new().await.offer;
        let local = local();
        let answer = |offer: &str| accept(&local, offer, Instant::now()).unwrap().answer;
        let named = answer(&offer);
        for extension in ["video-orientation", "rtp-stream-id", "sdes:mid"] {
            assert!(offer.contains(extension) && !named.contains(extension), "{extension}: {named}");
        }
        assert!(named.contains("transport-wide-cc"), "{named}");
        let lines = offer.lines().filter(|line| !line.starts_with("a=ssrc"));
        let unnamed = answer(&lines.collect::<Vec<_>>().join("\r\n"));
        assert!(unnamed.contains("sdes:mid") && !unnamed.contains("rtp-stream-id"), "{unnamed}");
    }

    /// str0m reads what strangers with a key send. `SATCAST_SOAK_ITERATIONS` multiplies the rounds, whose later ones change several
    /// lines.
    #[tokio::test]
    async fn mutated_offers_are_answered_or_refused() {
        let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
        let mut seed = number("SATCAST_SOAK_SEED").unwrap_or(0x5eed);
        let rounds = ROUNDS * number("SATCAST_SOAK_ITERATIONS").unwrap_or(1);
        println!("seed: SATCAST_SOAK_SEED={seed}, and {rounds} rounds for each line");
        let (local, now) = (local(), Instant::now());
        let offer = Peer::new().await.offer;
        let lines: Vec<&str> = offer.lines().collect();
        let mut answered = 0;
        let mut next = |below: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) as usize % below.max(1)
        };
        for first in 0..lines.len() {
            for round in 0..rounds {
                let mut changed: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
                let mut at = first;
                for more in 0..=(round / ROUNDS) % 5 {
                    match (round + more) % ROUNDS {
                        0 => drop(changed.remove(at)),
                        1 => changed.insert(at, lines[next(lines.len())].to_owned()),
                        _ => {
                            let mut bytes = std::mem::take(&mut changed[at]).into_bytes();
                            let place = next(bytes.len());
                            if let Some(byte) = bytes.get_mut(place) {
                                *byte = b" 0:=\x7fz;"[next(7)];
                            }
                            changed[at] = String::from_utf8(bytes).unwrap_or_default();
                        }
                    }
                    at = next(changed.len());
                }
                answered += usize::from(accept(&local, &changed.join("\r\n"), now).is_ok());
            }
        }
        assert!(answered > lines.len() / 2, "{answered} of {}", lines.len());
    }
}
