//! One file under construction: its tracks, and the fragment that is open.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use satcast_media::Packet;
use satcast_media::codec::avc::with_parameter_sets;
use satcast_media::fmp4::{
    AUDIO_TRACK_ID, AudioClock, COMPOSITION_NANOS_MAX, SEGMENT_BYTES_MAX, SEGMENT_SAMPLES_MAX, Sample,
    TrackConfig, TrackRun, VIDEO_TIMESCALE, VIDEO_TRACK_ID, init_segment, media_segment, nanos_to_ticks,
    ticks_to_nanos,
};

use super::event::{CutEvent, FRAGMENT_NANOS, JUMP_AHEAD_NANOS, JUMP_BACK_NANOS, is_same};

/// Duration of a video frame when it is unknown: 1/30 s.
const FRAME_TICKS: u32 = VIDEO_TIMESCALE / 30;

#[derive(Debug)]
struct Video {
    config: Arc<TrackConfig>,
    /// Parameter sets to repeat in keyframes.
    in_band: Option<Bytes>,
    /// The last video frame, whose duration is unknown until the next one, and its decode time in ticks.
    held: Option<(Packet, u64)>,
    last_duration: u32,
    run: TrackRun,
}

#[derive(Debug)]
struct Audio {
    config: Arc<TrackConfig>,
    clock: AudioClock,
    last_dts: i64,
    run: TrackRun,
    /// Decode time of the end of the last sample in ticks.
    end: u64,
}

#[derive(Debug)]
pub(super) struct File {
    /// Start on the session's timeline in nanoseconds.
    base_dts: i64,
    video: Option<Video>,
    audio: Option<Audio>,
    begun: bool,
    fragment: u32,
    bytes: usize,
    /// Media time in nanoseconds up to which fragments are complete.
    cut_ns: i64,
    /// Start of the last fragment that begins with a keyframe, in nanoseconds.
    keyframe_ns: i64,
    end_ns: i64,
}

impl File {
    fn new(base_dts: i64) -> Self {
        File {
            base_dts,
            video: None,
            audio: None,
            begun: false,
            fragment: 0,
            bytes: 0,
            cut_ns: 0,
            keyframe_ns: 0,
            end_ns: 0,
        }
    }

    /// A file that begins with this keyframe.
    pub(super) fn with_video(packet: Packet, config: Arc<TrackConfig>, in_band: Option<Bytes>) -> Self {
        let mut file = File::new(packet.dts_ns);
        file.bytes = packet.payload.len();
        let run = TrackRun { track_id: VIDEO_TRACK_ID, ..TrackRun::default() };
        let (held, last_duration) = (Some((packet, 0)), FRAME_TICKS);
        file.video = Some(Video { config, in_band, held, last_duration, run });
        file
    }

    /// A file with audio only.
    pub(super) fn audio_only(dts_ns: i64, config: Arc<TrackConfig>) -> Self {
        let mut file = File::new(dts_ns);
        file.attach(config, dts_ns);
        file
    }

    fn attach(&mut self, config: Arc<TrackConfig>, dts_ns: i64) {
        let clock = AudioClock::new(config.timescale());
        let run = TrackRun { track_id: AUDIO_TRACK_ID, ..TrackRun::default() };
        self.audio = Some(Audio { config, clock, last_dts: dts_ns, run, end: 0 });
    }

    pub(super) fn has_video(&self) -> bool {
        self.video.is_some()
    }

    /// Whether its video has this codec configuration.
    pub(super) fn has_video_config(&self, config: &Arc<TrackConfig>) -> bool {
        self.video.as_ref().is_some_and(|video| is_same(&video.config, config))
    }

    /// Its init segment was output, so its tracks are fixed.
    pub(super) fn is_begun(&self) -> bool {
        self.begun
    }

    pub(super) fn audio(&self) -> Option<&Arc<TrackConfig>> {
        self.audio.as_ref().map(|audio| &audio.config)
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.bytes
    }

    /// Whether the video frame continues this file.
    pub(super) fn takes_video(&self, packet: &Packet, config: &Arc<TrackConfig>) -> bool {
        let Some(video) = &self.video else { return false };
        let Some((held, _)) = &video.held else { return false };
        let step = packet.dts_ns.saturating_sub(held.dts_ns);
        is_same(&video.config, config) && (-JUMP_BACK_NANOS..JUMP_AHEAD_NANOS).contains(&step)
    }

    /// Whether the audio packet continues this file, or can still join it.
    pub(super) fn takes_audio(&self, packet: &Packet, config: &Arc<TrackConfig>) -> bool {
        match &self.audio {
            Some(audio) => {
                let step = packet.dts_ns.saturating_sub(audio.last_dts);
                is_same(&audio.config, config) && (-JUMP_BACK_NANOS..JUMP_AHEAD_NANOS).contains(&step)
            }
            None => !self.begun,
        }
    }

    pub(super) fn video_packet(&mut self, packet: Packet, events: &mut VecDeque<CutEvent>) {
        let media_ns = packet.dts_ns.saturating_sub(self.base_dts);
        let Some(video) = &mut self.video else { return };
        let Some((_, held_tick)) = &video.held else { return };
        // Decode times must rise; a frame that comes too early is decoded a tick after the previous one.
        let tick = nanos_to_ticks(media_ns, VIDEO_TIMESCALE).max(held_tick + 1);
        self.release(Some(tick));
        let at_ns = ticks_to_nanos(tick, VIDEO_TIMESCALE);
        // Viewers of a recording start at fragments that begin with a keyframe.
        let is_start = packet.keyframe && at_ns - self.keyframe_ns >= FRAGMENT_NANOS;
        if is_start || at_ns - self.cut_ns >= FRAGMENT_NANOS || self.is_full(packet.payload.len()) {
            self.flush(events);
            self.cut_ns = at_ns;
            if packet.keyframe {
                self.keyframe_ns = at_ns;
            }
        }
        self.bytes += packet.payload.len();
        if let Some(video) = &mut self.video {
            video.held = Some((packet, tick));
        }
    }

    /// Puts the held frame into the open fragment. It ends at `end_tick`, or has the duration of the previous one.
    fn release(&mut self, end_tick: Option<u64>) {
        let base_dts = self.base_dts;
        let Some(video) = &mut self.video else { return };
        let Some((packet, tick)) = video.held.take() else { return };
        let duration = match end_tick {
            Some(end) => u32::try_from(end.saturating_sub(tick)).unwrap_or(u32::MAX).max(1),
            None => video.last_duration,
        };
        video.last_duration = duration;
        // The decode time may have been moved to keep order; the presentation time stays.
        let apart = packet.pts_ns.saturating_sub(packet.dts_ns);
        let apart = apart.clamp(-COMPOSITION_NANOS_MAX, COMPOSITION_NANOS_MAX);
        let shown = signed_ticks(packet.dts_ns.saturating_sub(base_dts).saturating_add(apart));
        let composition = i32::try_from(shown - i128::from(tick)).unwrap_or(0);
        if video.run.samples.is_empty() {
            video.run.decode_time = tick;
        }
        let payload = match &video.in_band {
            Some(sets) if packet.keyframe => with_parameter_sets(sets, &packet.payload),
            _ => packet.payload,
        };
        let sample = Sample { duration, composition, sync: packet.keyframe, payload };
        video.run.samples.push(sample);
        let end = ticks_to_nanos(tick.saturating_add(u64::from(duration)), VIDEO_TIMESCALE);
        self.end_ns = self.end_ns.max(end);
    }

    /// Takes audio of `ticks`; false when it is dropped.
    pub(super) fn audio_packet(
        &mut self,
        packet: Packet,
        config: &Arc<TrackConfig>,
        ticks: u32,
        events: &mut VecDeque<CutEvent>,
    ) -> bool {
        let media_ns = packet.dts_ns.saturating_sub(self.base_dts);
        // Audio from before the first video frame is dropped.
        if media_ns < 0 || ticks == 0 {
            return false;
        }
        if self.audio.is_none() {
            self.attach(config.clone(), packet.dts_ns);
        }
        if self.is_full(packet.payload.len()) {
            self.flush(events);
        }
        let Some(audio) = &mut self.audio else { return false };
        audio.last_dts = packet.dts_ns;
        let Some(placed) = audio.clock.place(media_ns, ticks) else { return false };
        match audio.run.samples.last_mut() {
            None => audio.run.decode_time = placed.tick,
            // A gap before it becomes part of the previous sample.
            Some(last) => {
                let gap = u32::try_from(placed.tick.saturating_sub(audio.end)).unwrap_or(u32::MAX);
                last.duration = last.duration.saturating_add(gap);
            }
        }
        audio.end = placed.tick.saturating_add(u64::from(ticks));
        self.bytes += packet.payload.len();
        let sample = Sample { duration: ticks, composition: 0, sync: true, payload: packet.payload };
        audio.run.samples.push(sample);
        let end_ns = audio.clock.nanos(audio.end);
        self.end_ns = self.end_ns.max(end_ns);
        // Audio may be ahead, alone, or the last media.
        if end_ns - self.cut_ns >= FRAGMENT_NANOS {
            self.flush(events);
            self.cut_ns = end_ns;
        }
        true
    }

    /// No space for `more` bytes or one more sample of any track.
    fn is_full(&self, more: usize) -> bool {
        let video = self.video.as_ref().map_or(0, |video| video.run.samples.len());
        let audio = self.audio.as_ref().map_or(0, |audio| audio.run.samples.len());
        video.max(audio) >= SEGMENT_SAMPLES_MAX / 2 || self.bytes + more > SEGMENT_BYTES_MAX / 2
    }

    /// Outputs the open fragment without the held frame.
    pub(super) fn flush(&mut self, events: &mut VecDeque<CutEvent>) {
        let take = |run: &mut TrackRun| {
            let samples = std::mem::take(&mut run.samples);
            TrackRun { samples, ..run.clone() }
        };
        let mut runs = Vec::with_capacity(2);
        runs.extend(self.video.as_mut().map(|video| take(&mut video.run)));
        runs.extend(self.audio.as_mut().map(|audio| take(&mut audio.run)));
        if runs.iter().all(|run| run.samples.is_empty()) {
            return;
        }
        let held = self.video.as_ref().and_then(|video| video.held.as_ref());
        self.bytes = held.map_or(0, |(packet, _)| packet.payload.len());
        if !self.begun {
            let video = self.video.as_ref().map(|video| &*video.config);
            let audio = self.audio.as_ref().map(|audio| &*audio.config);
            let tracks: Vec<&TrackConfig> = [video, audio].into_iter().flatten().collect();
            // One or two tracks with valid codec configurations: this cannot fail.
            let Ok(init) = init_segment(&tracks) else { return };
            let (base_ns, audio_only) = (self.base_dts, self.video.is_none());
            events.push_back(CutEvent::Begin { init, base_ns, audio_only });
            self.begun = true;
        }
        self.fragment = self.fragment.wrapping_add(1);
        // The limits of `is_full` make a failure impossible; a lost fragment does not lose the recording.
        if let Ok(bytes) = media_segment(self.fragment, &runs) {
            events.push_back(CutEvent::Fragment { bytes, end_ns: self.end_ns });
        }
    }

    /// Ends the file. `end_dts`: decode time of the frame after the last one, if known.
    pub(super) fn finish(&mut self, end_dts: Option<i64>, events: &mut VecDeque<CutEvent>) {
        let held = self.video.as_ref().and_then(|video| video.held.as_ref());
        let end = held.and_then(|(_, tick)| {
            let reported = nanos_to_ticks(end_dts?.saturating_sub(self.base_dts), VIDEO_TIMESCALE);
            Some(reported.max(tick + 1))
        });
        self.release(end);
        self.flush(events);
    }
}

fn signed_ticks(nanos: i64) -> i128 {
    let size = i128::from(nanos_to_ticks(nanos.saturating_abs(), VIDEO_TIMESCALE));
    if nanos < 0 { -size } else { size }
}
