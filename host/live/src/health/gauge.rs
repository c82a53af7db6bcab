//! Measures the encoder's media from packet headers: a few additions for each packet, no access to payloads, and allocations only
//! when a codec configuration changes.

use std::time::Duration;

use bytes::Bytes;
use satcast_media::flv::ForeignCodec;
use satcast_media::fmp4::{TrackConfig, TrackDetails};
use satcast_media::{Codec, Kind, Packet};

/// A track without packets for this much media time is missing. No packets at all for this long is silence.
pub(crate) const MISSING_AFTER: Duration = Duration::from_secs(5);
/// How long a jump of the encoder's clock is shown as an issue.
pub(crate) const JUMP_KEPT: Duration = Duration::from_secs(60);
/// Number of keyframe intervals that are kept.
pub(crate) const INTERVALS: usize = 4;
/// Full slots in a rate.
const SLOTS: usize = 8;
/// Media time of a slot in nanoseconds.
const SLOT_NS: i64 = 1_000_000_000;

/// Measurements of the video track.
#[derive(Clone, Debug, PartialEq)]
pub struct VideoHealth {
    /// Codec: `h264`, `hevc` or `av1`.
    pub codec: &'static str,
    /// Width and height in pixels; `None` until a configuration with them was read.
    pub size: Option<(u32, u32)>,
    /// Frames per second over the last seconds.
    pub frame_rate: Option<f64>,
    /// Bits per second over the last seconds.
    pub bitrate: Option<u64>,
    /// Longest of the last keyframe intervals in seconds, including the unfinished GOP.
    pub keyframe_interval: Option<f64>,
    /// Frames arrive in an order that differs from presentation order.
    pub b_frames: bool,
}

/// Measurements of the audio track.
#[derive(Clone, Debug, PartialEq)]
pub struct AudioHealth {
    /// Codec: `aac` or `opus`.
    pub codec: &'static str,
    /// Samples per second; `None` until a configuration with them was read.
    pub sample_rate: Option<u32>,
    /// Channels; as `sample_rate`.
    pub channels: Option<u8>,
    /// Bits per second over the last seconds.
    pub bitrate: Option<u64>,
}

/// Measurements of one session's media.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// `None` when no video arrives.
    pub video: Option<VideoHealth>,
    /// `None` when no audio arrives.
    pub audio: Option<AudioHealth>,
    /// Jumps of the encoder's clock in this session; a reconnect is not counted.
    pub timestamp_jumps: u64,
    /// The last jump is recent.
    pub(crate) jumped_lately: bool,
    /// Codecs of tracks that are left out because they are not supported.
    pub(crate) foreign: Vec<ForeignCodec>,
    /// Enough media arrived to decide whether a track is missing.
    pub(crate) is_settled: bool,
    /// No media arrived for a while.
    pub(crate) is_silent: bool,
    /// The encoder changes its frame rate as the network allows.
    pub(crate) rate_varies: bool,
}

/// Measures one session's media.
#[derive(Debug, Default)]
pub(crate) struct Gauge {
    video: Track,
    audio: Track,
    frames: FrameStats,
    /// First and newest decode time of the current encoder's media, in nanoseconds.
    span: Option<(i64, i64)>,
    /// Monotonic arrival time of the last packet.
    arrived_at: Option<Duration>,
    jumps: u64,
    jumped_at: Option<Duration>,
    /// Unsupported codecs of the current encoder's tracks.
    foreign: Vec<ForeignCodec>,
    rate_varies: bool,
}

#[derive(Debug, Default)]
struct Track {
    codec: Option<Codec>,
    /// The configuration from which `details` was read.
    record: Bytes,
    details: Option<TrackDetails>,
    newest_ns: Option<i64>,
    window: Window,
}

/// Order and keyframes of the video frames.
#[derive(Debug, Default)]
struct FrameStats {
    keyframe_ns: Option<i64>,
    /// The last keyframe intervals in nanoseconds, a ring.
    intervals: [i64; INTERVALS],
    next: usize,
    latest_pts_ns: Option<i64>,
    /// Decode time of the last frame that is presented before a frame that arrived earlier.
    reordered_ns: Option<i64>,
}

impl Gauge {
    /// A new encoder, or the same one after a pause: keeps only the counters of the session.
    pub(crate) fn new_encoder(&mut self) {
        let (jumps, jumped_at) = (self.jumps, self.jumped_at);
        *self = Self { jumps, jumped_at, ..Self::default() };
    }

    /// The encoder changes its frame rate as the network allows, as by WHIP.
    pub(crate) fn rate_varies(&mut self) {
        self.rate_varies = true;
    }

    /// A track has an unsupported codec; called once for each kind of track and encoder.
    pub(crate) fn foreign(&mut self, codec: ForeignCodec) {
        self.foreign.push(codec);
    }

    /// Takes a packet on the session's timeline; `jump`: the timeline was reset before it.
    pub(crate) fn take(&mut self, packet: &Packet, jump: bool, now: Duration) {
        let track = match packet.kind() {
            Kind::Video => &mut self.video,
            Kind::Audio => &mut self.audio,
        };
        if packet.is_config() {
            if packet.kind() == Kind::Video && track.codec.is_some_and(|codec| codec != packet.codec) {
                self.frames = FrameStats::default();
            }
            return track.configure(packet);
        }
        // The first packet of an encoder always resets the timeline.
        if jump && self.span.is_some() {
            self.jumps += 1;
            self.jumped_at = Some(now);
            self.frames = FrameStats::default();
        }
        let (dts_ns, pts_ns) = (packet.dts_ns, packet.pts_ns);
        track.codec = Some(packet.codec);
        track.newest_ns = Some(dts_ns);
        track.window.add(dts_ns, packet.payload.len());
        if packet.kind() == Kind::Video {
            self.frames.take(dts_ns, pts_ns, packet.keyframe);
        }
        let (first, newest) = self.span.unwrap_or((dts_ns, dts_ns));
        self.span = Some((first, newest.max(dts_ns)));
        self.arrived_at = Some(now);
    }

    /// Measurements until the monotonic time `now`.
    pub(crate) fn figures(&self, now: Duration) -> Figures {
        let silence = self.arrived_at.map(|at| now.saturating_sub(at));
        let is_silent = silence.is_some_and(|silence| silence >= MISSING_AFTER);
        let (first, newest) = self.span.unwrap_or_default();
        let arrives = |track: &&Track| {
            !is_silent && track.newest_ns.is_some_and(|at| newest.saturating_sub(at) < nanos(MISSING_AFTER))
        };
        Figures {
            video: Some(&self.video).filter(arrives).and_then(|track| self.frames.health(track)),
            audio: Some(&self.audio).filter(arrives).and_then(Track::audio_health),
            timestamp_jumps: self.jumps,
            jumped_lately: self.jumped_at.is_some_and(|at| now.saturating_sub(at) < JUMP_KEPT),
            foreign: self.foreign.clone(),
            is_settled: newest.saturating_sub(first) >= nanos(MISSING_AFTER),
            is_silent,
            rate_varies: self.rate_varies,
        }
    }
}

impl Track {
    /// Reads a configuration, unless it is a repetition of the current one.
    fn configure(&mut self, packet: &Packet) {
        if self.codec == Some(packet.codec) && self.record == packet.payload {
            return;
        }
        self.codec = Some(packet.codec);
        self.record = packet.payload.clone();
        // Destinations refuse a configuration that cannot be parsed.
        self.details = TrackConfig::parse(packet.codec, &packet.payload).ok().map(|config| config.details());
    }

    fn audio_health(&self) -> Option<AudioHealth> {
        let format = match self.details {
            Some(TrackDetails::Audio { sample_rate, channels, .. }) => Some((sample_rate, channels)),
            _ => None,
        };
        Some(AudioHealth {
            codec: self.codec?.name(),
            sample_rate: format.map(|(sample_rate, _)| sample_rate),
            channels: format.map(|(_, channels)| channels),
            bitrate: self.window.rates().map(|rates| rates.bits_per_sec),
        })
    }
}

impl FrameStats {
    fn take(&mut self, dts_ns: i64, pts_ns: i64, keyframe: bool) {
        if keyframe {
            if let Some(previous) = self.keyframe_ns {
                self.intervals[self.next] = dts_ns.saturating_sub(previous);
                self.next = (self.next + 1) % INTERVALS;
            }
            self.keyframe_ns = Some(dts_ns);
        }
        match self.latest_pts_ns {
            Some(latest) if pts_ns < latest => self.reordered_ns = Some(dts_ns),
            _ => self.latest_pts_ns = Some(pts_ns),
        }
    }

    fn health(&self, track: &Track) -> Option<VideoHealth> {
        let newest = track.newest_ns?;
        let open = self.keyframe_ns.map(|at| newest.saturating_sub(at));
        // A GOP that has just started does not count yet.
        let longest = self
            .intervals
            .into_iter()
            .chain(open)
            .max()
            .filter(|longest| *longest >= SLOT_NS || self.intervals.iter().any(|interval| *interval > 0));
        let rates = track.window.rates();
        let recent = SLOT_NS * SLOTS as i64;
        Some(VideoHealth {
            codec: track.codec?.name(),
            size: match track.details {
                Some(TrackDetails::Video { size, .. }) => Some((size.width, size.height)),
                _ => None,
            },
            frame_rate: rates.map(|rates| rates.packets_per_sec),
            bitrate: rates.map(|rates| rates.bits_per_sec),
            keyframe_interval: longest.map(|longest| longest as f64 / SLOT_NS as f64),
            b_frames: self.reordered_ns.is_some_and(|at| newest.saturating_sub(at) < recent),
        })
    }
}

fn nanos(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

/// Rates over the last seconds of media time, in fixed memory: packets and bytes of the last [`SLOTS`] seconds, and of the slot that
/// is being filled.
#[derive(Debug, Default)]
struct Window {
    /// A ring; `newest` is being filled.
    slots: [Slot; SLOTS + 1],
    newest: usize,
    used: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    begin_ns: i64,
    packets: u64,
    bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Rates {
    packets_per_sec: f64,
    bits_per_sec: u64,
}

impl Window {
    /// Counts a packet. Times of one track never decrease.
    fn add(&mut self, dts_ns: i64, bytes: usize) {
        if self.used == 0 || dts_ns.saturating_sub(self.slots[self.newest].begin_ns) >= SLOT_NS {
            self.newest = (self.newest + 1) % self.slots.len();
            self.used = (self.used + 1).min(self.slots.len());
            self.slots[self.newest] = Slot { begin_ns: dts_ns, ..Slot::default() };
        }
        let slot = &mut self.slots[self.newest];
        slot.packets += 1;
        slot.bytes += bytes as u64;
    }

    /// Rates over the full slots; `None` until one is full. Exact, because each slot starts with a packet: the sum is divided by the
    /// time from the start of the first full slot to the start of the slot that is being filled.
    fn rates(&self) -> Option<Rates> {
        let full = self.used.checked_sub(1).filter(|full| *full > 0)?;
        let nth = |back: usize| &self.slots[(self.newest + self.slots.len() - back) % self.slots.len()];
        let span_ns = self.slots[self.newest].begin_ns.saturating_sub(nth(full).begin_ns);
        let (packets, bytes) = (1..=full)
            .map(nth)
            .fold((0, 0), |(packets, bytes), slot| (packets + slot.packets, bytes + slot.bytes));
        let secs = span_ns as f64 / SLOT_NS as f64;
        // Every slot is at least a second long.
        Some(Rates {
            packets_per_sec: packets as f64 / secs,
            bits_per_sec: (bytes as f64 * 8.0 / secs) as u64,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;
    /// 48 kHz, two channels.
    const AAC_RECORD: &[u8] = &[0x11, 0x90];

    struct Rig {
        gauge: Gauge,
        now: Duration,
    }

    impl Rig {
        fn new() -> Self {
            Self { gauge: Gauge::default(), now: Duration::ZERO }
        }

        fn packet(kind: Kind, bytes: usize) -> Packet {
            let codec = if kind == Kind::Video { Codec::H264 } else { Codec::Aac };
            let payload = vec![0; bytes].into();
            Packet::media(codec, false, 0, 0, payload)
        }

        fn video(&mut self, ms: i64, shown_after: i64, keyframe: bool) {
            let packet = Packet { keyframe, ..Self::packet(Kind::Video, 5_000) };
            let packet = Packet { dts_ns: ms * MS, pts_ns: (ms + shown_after) * MS, ..packet };
            self.gauge.take(&packet, false, self.now);
        }

        fn audio(&mut self, ms: i64) {
            let (dts_ns, pts_ns) = (ms * MS, ms * MS);
            let packet = Packet { dts_ns, pts_ns, ..Self::packet(Kind::Audio, 320) };
            self.gauge.take(&packet, false, self.now);
        }

        /// Video of 25 frames a second with a keyframe every `group` frames, and audio of 50 packets.
        fn run(&mut self, from_ms: i64, to_ms: i64, group: i64) {
            for ms in (from_ms..to_ms).step_by(20) {
                if ms % 40 == 0 {
                    self.video(ms, 0, ms / 40 % group == 0);
                }
                self.audio(ms);
            }
        }

        fn video_health(&self) -> VideoHealth {
            self.gauge.figures(self.now).video.unwrap()
        }
    }

    #[test]
    fn figures_match_the_media() {
        let mut rig = Rig::new();
        assert_eq!(rig.gauge.figures(Duration::ZERO), Figures::default());
        let record = Packet::configuration(Codec::Aac, Bytes::from_static(AAC_RECORD));
        rig.gauge.take(&record, false, Duration::ZERO);
        rig.run(0, 7_020, 50);
        let figures = rig.gauge.figures(Duration::ZERO);
        let video = figures.video.unwrap();
        assert_eq!((video.codec, video.size, video.b_frames), ("h264", None, false));
        assert_eq!((video.frame_rate, video.bitrate), (Some(25.0), Some(1_000_000)));
        assert_eq!(video.keyframe_interval, Some(2.0));
        let audio = AudioHealth {
            codec: "aac",
            sample_rate: Some(48_000),
            channels: Some(2),
            bitrate: Some(128_000),
        };
        assert_eq!(figures.audio, Some(audio));
        assert!(figures.is_settled && !figures.is_silent && figures.timestamp_jumps == 0);
    }

    #[test]
    fn the_longest_of_the_last_gops_counts_and_so_does_the_unfinished_one() {
        let mut rig = Rig::new();
        rig.run(0, 520, 50);
        assert_eq!(rig.video_health().keyframe_interval, None, "the GOP may end at any moment");
        rig.run(520, 9_040, 10_000);
        assert_eq!(rig.video_health().keyframe_interval, Some(9.0), "unfinished");
        rig.run(10_000, 12_040, 25);
        assert_eq!(rig.video_health().keyframe_interval, Some(10.0));
        rig.run(12_040, 15_000, 25);
        assert_eq!(rig.video_health().keyframe_interval, Some(1.0), "forgotten after {INTERVALS} more");
    }

    #[test]
    fn reordered_frames_are_b_frames_and_a_common_shift_is_not() {
        let mut rig = Rig::new();
        (0..100).for_each(|n| rig.video(n * 40, 80, n % 50 == 0));
        assert!(!rig.video_health().b_frames, "the same shift for every frame");
        rig.video(4_000, 160, false);
        rig.video(4_040, 40, false);
        assert!(rig.video_health().b_frames);
        (0..300).for_each(|n| rig.video(4_080 + n * 40, 80, false));
        assert!(!rig.video_health().b_frames, "for as long as the rates look back");
    }

    #[test]
    fn a_new_codec_resets_the_frame_statistics() {
        let mut rig = Rig::new();
        (0..100).for_each(|n| rig.video(n * 40, if n % 2 == 0 { 160 } else { 40 }, n % 50 == 0));
        assert!(rig.video_health().b_frames);
        let config = |codec| Packet::configuration(codec, Bytes::from_static(b"other"));
        rig.gauge.take(&config(Codec::H264), false, rig.now);
        assert!(rig.video_health().b_frames, "the same codec");
        rig.gauge.take(&config(Codec::Hevc), false, rig.now);
        (100..150).for_each(|n| rig.video(n * 40, 40, n % 50 == 0));
        assert!(!rig.video_health().b_frames);
    }

    #[test]
    fn a_track_without_packets_is_missing_and_so_are_both() {
        let mut rig = Rig::new();
        rig.run(0, 1_000, 50);
        (0..240).for_each(|n| rig.audio(1_000 + n * 20));
        assert!(rig.gauge.figures(rig.now).video.is_some());
        (240..260).for_each(|n| rig.audio(1_000 + n * 20));
        let figures = rig.gauge.figures(rig.now);
        assert!(figures.video.is_none() && figures.audio.is_some() && figures.is_settled, "{figures:?}");
        assert!(!rig.gauge.figures(MISSING_AFTER - Duration::from_millis(1)).is_silent);
        let figures = rig.gauge.figures(MISSING_AFTER);
        assert!(figures.audio.is_none() && figures.is_silent, "{figures:?}");
    }

    #[test]
    fn jumps_are_counted_and_a_reconnect_is_no_jump() {
        let mut rig = Rig::new();
        let first = |at| Packet { dts_ns: at, pts_ns: at, ..Rig::packet(Kind::Audio, 1) };
        rig.gauge.take(&first(0), true, Duration::ZERO);
        rig.gauge.new_encoder();
        rig.gauge.take(&first(MS), true, Duration::ZERO);
        assert_eq!(rig.gauge.figures(Duration::ZERO).timestamp_jumps, 0);
        rig.gauge.take(&first(2 * MS), true, Duration::ZERO);
        let figures = rig.gauge.figures(JUMP_KEPT - Duration::from_millis(1));
        assert_eq!((figures.timestamp_jumps, figures.jumped_lately), (1, true));
        rig.gauge.new_encoder();
        let figures = rig.gauge.figures(JUMP_KEPT);
        assert_eq!(
            (figures.timestamp_jumps, figures.jumped_lately),
            (1, false),
            "jumps count for the session"
        );
        assert!(!figures.is_settled, "nothing is known of the new encoder");
    }

    #[test]
    fn rates_are_those_of_the_last_full_seconds() {
        let mut window = Window::default();
        assert_eq!(window.rates(), None);
        // 25 packets a second of 100 bytes, then 50 of 10.
        (0..=25).for_each(|n| window.add(n * 40 * MS, 100));
        assert_eq!(window.rates(), Some(Rates { packets_per_sec: 25.0, bits_per_sec: 20_000 }));
        (26..500).for_each(|n| window.add(n * 40 * MS, 100));
        assert_eq!(window.rates(), Some(Rates { packets_per_sec: 25.0, bits_per_sec: 20_000 }));
        (0..=50 * (SLOTS as i64 + 1)).for_each(|n| window.add(20_000 * MS + n * 20 * MS, 10));
        assert_eq!(
            window.rates(),
            Some(Rates { packets_per_sec: 50.0, bits_per_sec: 4_000 }),
            "the old ones are forgotten"
        );
    }

    #[test]
    fn times_of_whole_milliseconds_give_exact_rates() {
        let mut window = Window::default();
        (0..2_000_i64).for_each(|n| window.add((n * 1001 / 30) * MS, 1));
        let rate = window.rates().unwrap().packets_per_sec;
        assert!((29.96..29.98).contains(&rate), "{rate}");
    }

    #[test]
    fn a_pause_lowers_the_rate_and_extreme_times_do_no_harm() {
        let mut window = Window::default();
        [0, 10_000].into_iter().for_each(|ms| window.add(ms * MS, 1_000));
        assert_eq!(window.rates(), Some(Rates { packets_per_sec: 0.1, bits_per_sec: 800 }));
        for dts in [i64::MIN, i64::MAX, i64::MIN, 0] {
            window.add(dts, usize::MAX / 32);
            assert!(window.rates().is_none_or(|rates| !rates.packets_per_sec.is_nan()));
        }
    }
}
