//! A segment under construction.
use crate::Kind;
use crate::fmp4::{AUDIO_TRACK_ID, Sample, TrackRun, VIDEO_TIMESCALE, VIDEO_TRACK_ID};
use crate::fmp4::{SEGMENT_BYTES_MAX, SEGMENT_SAMPLES_MAX};

use super::parts::EmittedParts;

/// Samples gathered for one segment. Times are media times of the session.
#[derive(Debug)]
pub(super) struct Builder {
    /// Presentation time of the start in nanoseconds; earlier audio belongs to the segment before.
    pub(super) boundary_ns: i64,
    pub(super) independent: bool,
    pub(super) video: TrackRun,
    pub(super) audio: TrackRun,
    /// Decode time at the end of the last audio sample, in ticks.
    audio_end: u64,
    bytes: usize,
    /// Samples already emitted in parts; they are no longer in the runs.
    pub(super) emitted: EmittedParts,
}

impl Builder {
    pub(super) fn new(boundary_ns: i64, independent: bool) -> Self {
        let run = |track_id| TrackRun { track_id, ..TrackRun::default() };
        Builder {
            boundary_ns,
            independent,
            video: run(VIDEO_TRACK_ID),
            audio: run(AUDIO_TRACK_ID),
            audio_end: 0,
            bytes: 0,
            emitted: EmittedParts { end_ns: boundary_ns, ..EmittedParts::default() },
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.has_waiting() && !self.has_parts()
    }

    /// There are samples that were not emitted yet.
    pub(super) fn has_waiting(&self) -> bool {
        !self.video.samples.is_empty() || !self.audio.samples.is_empty()
    }

    /// At least one part was emitted.
    pub(super) fn has_parts(&self) -> bool {
        !self.emitted.parts.is_empty()
    }

    /// Video frames in it, including emitted ones.
    pub(super) fn frames(&self) -> usize {
        self.video.samples.len() + self.emitted.video_samples
    }

    /// Samples that were not emitted yet.
    pub(super) fn samples(&self) -> usize {
        self.video.samples.len() + self.audio.samples.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// No capacity for `more` bytes or one more sample.
    pub(super) fn is_full(&self, kind: Kind, more: usize) -> bool {
        let run = if kind == Kind::Video { &self.video } else { &self.audio };
        // Half of each limit stays free for samples of the other track.
        run.samples.len() + self.emitted.samples(kind) >= SEGMENT_SAMPLES_MAX / 2
            || self.bytes.saturating_add(more) > SEGMENT_BYTES_MAX / 2
    }

    pub(super) fn push_video(&mut self, tick: u64, sample: Sample) {
        if self.video.samples.is_empty() {
            self.video.decode_time = tick;
        }
        self.bytes += sample.payload.len();
        self.video.samples.push(sample);
    }

    /// Appends an audio sample; a gap before it extends the sample before.
    pub(super) fn push_audio(&mut self, tick: u64, sample: Sample) {
        match self.audio.samples.last_mut() {
            None => self.audio.decode_time = tick,
            Some(last) => {
                let gap = u32::try_from(tick.saturating_sub(self.audio_end)).unwrap_or(u32::MAX);
                last.duration = last.duration.saturating_add(gap);
            }
        }
        self.audio_end = tick + u64::from(sample.duration);
        self.bytes += sample.payload.len();
        self.audio.samples.push(sample);
    }

    /// Takes the samples that were not emitted yet, video first; audio from `audio_tick` on stays.
    pub(super) fn take_waiting(&mut self, audio_tick: u64) -> [TrackRun; 2] {
        let mut rest = Builder::new(0, false);
        self.split_audio(audio_tick, &mut rest);
        let video_end: u64 = self.video.samples.iter().map(|sample| u64::from(sample.duration)).sum();
        let empty = |run: &TrackRun, decode_time| TrackRun {
            track_id: run.track_id,
            decode_time,
            samples: Vec::new(),
        };
        let next_video = empty(&self.video, self.video.decode_time + video_end);
        let next_audio = empty(&self.audio, self.audio_end);
        let video = std::mem::replace(&mut self.video, next_video);
        let audio = std::mem::replace(&mut self.audio, next_audio);
        if !rest.audio.samples.is_empty() {
            self.bytes += rest.bytes;
            self.audio_end = rest.audio_end;
            self.audio = rest.audio;
        }
        [video, audio]
    }

    /// Index of the last keyframe among the frames that were not emitted yet.
    pub(super) fn last_keyframe(&self) -> Option<usize> {
        self.video.samples.iter().rposition(|sample| sample.sync)
    }

    /// Moves the frames from `index` on into `next`, which must have none.
    pub(super) fn split_video(&mut self, index: usize, next: &mut Builder) {
        let moved = self.video.samples.split_off(index);
        let kept: u64 = self.video.samples.iter().map(|sample| u64::from(sample.duration)).sum();
        let bytes: usize = moved.iter().map(|sample| sample.payload.len()).sum();
        self.bytes -= bytes;
        next.bytes += bytes;
        // A frame starts where the frame before it ends.
        next.video.decode_time = self.video.decode_time + kept;
        next.video.samples = moved;
    }

    /// Moves the audio samples from `tick` on into `next`, which must have none.
    pub(super) fn split_audio(&mut self, tick: u64, next: &mut Builder) {
        let mut at = self.audio.decode_time;
        let mut kept = 0;
        for sample in &self.audio.samples {
            if at >= tick {
                break;
            }
            at += u64::from(sample.duration);
            kept += 1;
        }
        let moved = self.audio.samples.split_off(kept);
        if moved.is_empty() {
            return;
        }
        let bytes: usize = moved.iter().map(|sample| sample.payload.len()).sum();
        self.bytes -= bytes;
        next.bytes += bytes;
        next.audio.decode_time = at;
        next.audio_end = self.audio_end;
        next.audio.samples = moved;
        self.audio_end = at;
    }

    /// Decode time at the end of the longer track, in nanoseconds.
    pub(super) fn media_end_ns(&self, audio_rate: u32) -> i64 {
        let ticks: u64 = self.video.samples.iter().map(|sample| u64::from(sample.duration)).sum();
        let video = crate::fmp4::ticks_to_nanos(self.video.decode_time + ticks, VIDEO_TIMESCALE);
        let audio = crate::fmp4::ticks_to_nanos(self.audio_end, audio_rate);
        video.max(audio)
    }
}
