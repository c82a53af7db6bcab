//! Bodies of the fuzz targets in `host/live/fuzz`: offers and datagrams of strangers. Each takes arbitrary bytes and panics only on a defect.
//!
//! The mutation test of [`super::offer`] runs in the normal tests.

use std::net::SocketAddr;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use str0m::net::{Protocol, Receive};
use str0m::{Input, Output};

use super::crypto::Identity;
use super::offer::{Local, accept};
use super::stun::{is_stun, local_name};

/// An offer of H.264 and Opus.
const OFFER: &str = include_str!("../../../fuzz/corpus/offer/h264");
/// Time between two datagrams.
const STEP: Duration = Duration::from_millis(50);

static LOCAL: LazyLock<Local> = LazyLock::new(|| Local {
    identity: Identity::new().expect("a certificate"),
    addresses: vec![SocketAddr::from(([192, 0, 2, 7], 8_189))],
    name: "name".to_owned(),
    password: "a password of ICE that is long".to_owned(),
});

/// An offer is answered or refused.
pub fn offer(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data) {
        let _answered_or_refused = accept(&LOCAL, text, Instant::now());
    }
}

/// Datagrams of one sender, each behind its length in two bytes.
pub fn datagrams(data: &[u8]) {
    let mut now = Instant::now();
    let mut rtc = accept(&LOCAL, OFFER, now).expect("a good offer").rtc;
    let (from, mut rest) = (SocketAddr::from(([203, 0, 113, 5], 5_000)), data);
    while let Some((length, behind)) = rest.split_first_chunk() {
        let length = usize::from(u16::from_be_bytes(*length)).min(behind.len());
        let (datagram, behind) = behind.split_at(length);
        (rest, now) = (behind, now + STEP);
        assert!(local_name(datagram).is_none() || is_stun(datagram), "a name in no STUN");
        let Ok(received) = Receive::new(Protocol::Udp, from, LOCAL.addresses[0], datagram) else { continue };
        let input = Input::Receive(now, received);
        if !rtc.accepts(&input) || rtc.handle_input(input).is_err() {
            continue;
        }
        while !matches!(rtc.poll_output(), Ok(Output::Timeout(_)) | Err(_)) {}
    }
}
