use super::*;
use crate::queue::Bounds;
use bytes::Bytes;
use std::sync::atomic::AtomicU64;

fn packet(kind: Kind, dts_ms: i64, keyframe: bool) -> Packet {
    let codec = if kind == Kind::Video { Codec::H264 } else { Codec::Aac };
    let dts_ns = dts_ms * NANOS_PER_MILLI;
    Packet::media(codec, keyframe, dts_ns, dts_ns, Bytes::from_static(b"media"))
}

fn video(dts_ms: i64, keyframe: bool) -> Packet {
    packet(Kind::Video, dts_ms, keyframe)
}

fn audio(dts_ms: i64) -> Packet {
    packet(Kind::Audio, dts_ms, false)
}

fn config(record: &'static [u8]) -> Packet {
    Packet::configuration(Codec::H264, Bytes::from_static(record))
}

/// Number of the encoder that publishes.
const ENCODER: u64 = 0;

struct Rig {
    hub: Hub,
    now: Duration,
}

impl Rig {
    fn new() -> Self {
        Self { hub: Hub::new(7), now: Duration::ZERO }
    }

    fn publish(&self, packets: impl IntoIterator<Item = Packet>) {
        self.hub.publish(ENCODER, packets.into_iter(), self.now);
    }

    fn attach(&self) -> Arc<Queue> {
        let queue = Arc::new(Queue::new(Arc::new(AtomicU64::new(0)), Bounds::USUAL));
        let mut state = self.hub.state.lock();
        queue.begin(&state.configs, state.group.iter(), self.now);
        let waker = satcast_drivers::Waker::idle();
        state.outlets.push(Outlet { queue: queue.clone(), waker });
        queue
    }
}

#[test]
fn late_destinations_start_at_once_with_the_kept_gop() {
    let rig = Rig::new();
    rig.publish([config(b"v"), video(0, true), video(33, false), video(66, true), audio(70)]);
    let queue = rig.attach();
    assert_eq!(queue.level().0, 3, "configuration, keyframe, audio after it");
    rig.publish([video(99, false)]);
    assert_eq!(queue.level().0, 4);
    rig.hub.detach(&queue);
    rig.publish([video(132, true)]);
    assert_eq!(queue.level().0, 4);
}

#[test]
fn repeated_configurations_are_not_sent_again() {
    let rig = Rig::new();
    let queue = rig.attach();
    rig.publish([config(b"v"), video(0, true), config(b"v"), video(33, false), config(b"w")]);
    assert_eq!(queue.level().0, 4);
}

#[test]
fn audio_alone_is_sent_when_there_is_no_video() {
    let rig = Rig::new();
    let queue = rig.attach();
    rig.publish((0..AUDIO_ONLY_AFTER_MS / 20).map(|n| audio(n * 20)));
    assert_eq!(queue.level().0, 0);
    rig.publish([audio(AUDIO_ONLY_AFTER_MS)]);
    assert_eq!(queue.level().0, AUDIO_ONLY_AFTER_MS as usize / 20 + 1, "nothing held is lost");
    let late = rig.attach();
    rig.publish([audio(AUDIO_ONLY_AFTER_MS + 20)]);
    assert_eq!(late.level().0, 1);

    let rig = Rig::new();
    let queue = rig.attach();
    rig.publish((0..HELD_PACKETS_MAX).map(|_| audio(0)));
    assert_eq!(queue.level().0, HELD_PACKETS_MAX, "the number of held packets is limited");

    let rig = Rig::new();
    let queue = rig.attach();
    let large = || Packet { payload: vec![0; HELD_BYTES_MAX / 2].into(), ..audio(0) };
    rig.publish([large(), large()]);
    assert_eq!(queue.level().0, 2, "their bytes are limited");
}

#[test]
fn audio_waits_for_an_announced_video_track_which_may_be_late() {
    let rig = Rig::new();
    let queue = rig.attach();
    rig.publish([config(b"v")]);
    rig.publish((0..AUDIO_ONLY_AFTER_PROMISE_MS / 20).map(|n| audio(n * 20)));
    assert_eq!(queue.level().0, 0);
    rig.publish([audio(AUDIO_ONLY_AFTER_PROMISE_MS)]);
    let alone = AUDIO_ONLY_AFTER_PROMISE_MS as usize / 20 + 1;
    assert_eq!(queue.level().0, alone, "audio without the configuration of the video");
    rig.publish([config(b"v"), audio(AUDIO_ONLY_AFTER_PROMISE_MS + 20)]);
    assert_eq!(queue.level().0, alone + 1, "a repeated configuration is not sent");
    rig.publish([video(AUDIO_ONLY_AFTER_PROMISE_MS + 40, true)]);
    assert_eq!(queue.level().0, alone + 3, "configuration and keyframe");
    let late = rig.attach();
    assert_eq!(late.level().0, 2);
}

#[test]
fn audio_before_the_first_keyframe_after_a_reconnect_is_not_lost() {
    let rig = Rig::new();
    let queue = rig.attach();
    rig.publish([config(b"v"), video(0, true)]);
    rig.hub.new_encoder(ENCODER);
    rig.publish([config(b"v"), audio(0), video(5, true)]);
    assert_eq!(queue.level().0, 4, "configuration, keyframe, audio, keyframe");
}

#[test]
fn an_encoder_may_return_without_video() {
    let rig = Rig::new();
    rig.publish([config(b"v"), video(0, true)]);
    rig.hub.new_encoder(ENCODER);
    rig.publish((0..=AUDIO_ONLY_AFTER_MS / 20).map(|n| audio(n * 20)));
    let late = rig.attach();
    rig.publish([audio(AUDIO_ONLY_AFTER_MS + 20)]);
    assert_eq!(late.level().0, 1, "no wait for a keyframe, and no old frame");
}

#[test]
fn a_returning_encoder_starts_at_a_keyframe_and_marks_the_gap() {
    let mut rig = Rig::new();
    let queue = rig.attach();
    rig.publish([config(b"v"), video(0, true)]);
    rig.hub.new_encoder(ENCODER);
    rig.now = Duration::from_secs(2);
    rig.publish([config(b"v"), video(0, false), video(33, true)]);
    let (count, _) = queue.level();
    assert_eq!(count, 3, "configuration, keyframe, keyframe after the return");
    let late = rig.attach();
    assert_eq!(late.level().0, 2, "the kept GOP is that of the returned encoder");
}

#[test]
fn kept_media_of_another_encoder_follows_at_the_time_of_its_arrival() {
    let mut rig = Rig::new();
    let queue = rig.attach();
    rig.publish([config(b"v"), video(0, true), video(40, false)]);
    // The kept GOP began 500 ms after the last frame, and is sent 2 s after it.
    rig.now = Duration::from_secs(2);
    rig.hub.new_encoder(8);
    let kept = [config(b"w"), video(70_000, true), video(70_040, false)];
    rig.hub.publish_since(8, kept.into_iter(), Duration::from_millis(500), rig.now);
    rig.publish([video(80, true)]);
    rig.hub.publish(8, [video(70_080, false)].into_iter(), rig.now);
    assert_eq!(queue.level().0, 7, "nothing more of the encoder before");
    let state = rig.hub.state.lock();
    let times: Vec<_> = state.group.iter().map(|packet| packet.dts_ns / NANOS_PER_MILLI).collect();
    assert_eq!(times, [540, 580, 620]);
}

#[test]
fn media_that_was_lost_before_the_service_is_a_gap_at_the_next_keyframe() {
    let rig = Rig::new();
    let cut = |packet| Packet { discontinuity: true, ..packet };
    let is_cut = |packets: Vec<Packet>| {
        rig.publish(packets);
        rig.hub.newest_keyframe().is_some_and(|(_, keyframe)| keyframe.discontinuity)
    };
    assert!(!is_cut(vec![config(b"v"), cut(video(0, true))]), "nothing is before it");
    assert!(!is_cut(vec![cut(audio(20)), video(33, true)]), "audio alone");
    assert!(is_cut(vec![cut(video(66, true))]));
    assert!(!is_cut(vec![video(99, true)]), "once");
}
