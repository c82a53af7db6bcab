//! Ends epochs and emits finished segments.

use bytes::Bytes;

use super::builder::Builder;
use super::epoch::Epoch;
use super::segmenter::Segmenter;
use super::{AUDIO_WAIT_NANOS, Event, Init, Segment};
use crate::fmp4::{
    Fmp4Error, TrackRun, VIDEO_TIMESCALE, init_segment, nanos_to_ticks, ticks_to_nanos, write_fragment,
};
use crate::{Kind, NANOS_PER_MILLI};

/// Length of the fragments of a segment without parts, in nanoseconds; the last may be up to 1.5 times as long.
const FRAGMENT_NANOS: i64 = 500_000_000;
/// Bytes that a sample adds to the headers of fragments, with its share of the fixed header bytes.
const HEAD_BYTES_PER_SAMPLE: usize = 32;

impl Segmenter {
    /// Ends the epoch: everything in it becomes segments. `end_dts` is the publisher's time at the end of the last
    /// frame, if known.
    pub(super) fn close_epoch(&mut self, end_dts: Option<i64>) {
        let Some(epoch) = &self.epoch else { return };
        let mut end_ns = None;
        if let Some(video) = &epoch.video {
            let known = end_dts.map(|dts| nanos_to_ticks(epoch.media_ns(dts), VIDEO_TIMESCALE));
            let usual = video.held.tick + u64::from(video.last_duration.max(1));
            let end_tick = known.map_or(usual, |tick| tick.max(video.held.tick + 1));
            let boundary_ns = epoch.estimated_boundary_ns(end_tick);
            end_ns = Some(boundary_ns);
            self.settle_held(end_tick, boundary_ns);
            self.join_without_audio(boundary_ns);
        }
        self.emit_closing();
        let Some(mut epoch) = self.epoch.take() else { return };
        let open = std::mem::replace(&mut epoch.open, Builder::new(0, true));
        let open = self.without_late_audio(&epoch, open, end_ns);
        let end_ns = end_ns.unwrap_or_else(|| media_end(&epoch, &open));
        self.emit(&mut epoch, open, end_ns);
        self.discontinuity = self.init.is_some();
    }

    /// Moves the last frames, up to `end_ns`, into the segment before if their audio never came. Players do not play a
    /// video-only segment to its end if an audio track is announced: hls.js buffers up to the end of the shorter track,
    /// already has all parts, and requests nothing more.
    fn join_without_audio(&mut self, end_ns: i64) {
        let limit_ns = self.limit_ns();
        let Some(epoch) = &mut self.epoch else { return };
        let open = &epoch.open;
        if open.has_parts() || !open.audio.samples.is_empty() {
            return;
        }
        let Some((before, _)) = epoch.closing.take_if(|(before, _)| {
            end_ns - before.boundary_ns <= limit_ns && !before.is_full(Kind::Video, open.bytes())
        }) else {
            return;
        };
        let rest = std::mem::replace(&mut epoch.open, before).video;
        let mut tick = rest.decode_time;
        for sample in rest.samples {
            let duration = u64::from(sample.duration);
            let at_ns = self.epoch.as_ref().map_or(end_ns, |epoch| epoch.estimated_boundary_ns(tick));
            self.end_part(at_ns, ticks_to_nanos(duration, VIDEO_TIMESCALE));
            if let Some(epoch) = &mut self.epoch {
                epoch.open.push_video(tick, sample);
            }
            tick += duration;
        }
    }

    /// Drops audio that continues long after the last frame.
    fn without_late_audio(&mut self, epoch: &Epoch, mut open: Builder, end_ns: Option<i64>) -> Builder {
        if let (Some(end_ns), Some(audio)) = (end_ns, &epoch.audio) {
            let mut rest = Builder::new(end_ns, true);
            let last = nanos_to_ticks(end_ns + AUDIO_WAIT_NANOS, audio.config.timescale());
            open.split_audio(last, &mut rest);
            self.stats.samples_dropped += rest.samples() as u64;
        }
        open
    }

    pub(super) fn emit_closing(&mut self) {
        let Some(mut epoch) = self.epoch.take() else { return };
        if let Some((builder, end_ns)) = epoch.closing.take() {
            self.emit(&mut epoch, builder, end_ns);
        }
        self.epoch = Some(epoch);
    }

    /// Ends an audio-only segment at media time `end_ns`.
    pub(super) fn cut_audio(&mut self, end_ns: i64) {
        let Some(mut epoch) = self.epoch.take() else { return };
        let done = std::mem::replace(&mut epoch.open, Builder::new(end_ns, true));
        self.emit(&mut epoch, done, end_ns);
        self.epoch = Some(epoch);
    }

    fn emit(&mut self, epoch: &mut Epoch, builder: Builder, end_ns: i64) {
        if builder.is_empty() {
            return;
        }
        self.end_ns = self.end_ns.max(end_ns).max(media_end(epoch, &builder));
        match self.segment(epoch, builder, end_ns) {
            Ok(segment) => {
                self.wall_floor_ms =
                    segment.program_date_time_ms.saturating_add(segment.duration_ns / NANOS_PER_MILLI);
                self.admit(segment.duration_ns);
                self.events.push_back(Event::Segment(segment));
                self.sequence += 1;
                self.discontinuity = false;
                epoch.emitted = true;
            }
            // The builder's limits make this impossible. If it happens, only this segment is lost, not the session.
            Err(_) => self.discontinuity = self.init.is_some(),
        }
    }

    fn segment(
        &mut self,
        epoch: &mut Epoch,
        mut builder: Builder,
        end_ns: i64,
    ) -> Result<Segment, Fmp4Error> {
        let init_id = self.init_id(epoch).inspect_err(|_| self.drop_waiting_of(&builder))?;
        let video_samples = builder.frames() as u32;
        let bytes = match self.part_target_ns {
            None => self.whole(epoch, &mut builder)?,
            Some(_) => {
                // Its last audio may lie after its end.
                self.part(epoch, &mut builder, end_ns, u64::MAX)?;
                joined(&builder.emitted.parts)
            }
        };
        Ok(Segment {
            sequence: self.sequence,
            init_id,
            // The clamp only matters for times that no real encoder sends.
            duration_ns: (end_ns - builder.boundary_ns).clamp(1, self.limit_ns()),
            independent: builder.independent,
            discontinuity: self.discontinuity,
            program_date_time_ms: epoch.date_ms(builder.boundary_ns),
            offset_ns: epoch.offset_ns(),
            video_samples,
            bytes,
        })
    }

    /// The bytes of a segment without parts. Its fragments are as short as parts: VLC 3 reads a whole fragment before
    /// its clock advances, and stalls in each segment that is one fragment.
    fn whole(&mut self, epoch: &Epoch, builder: &mut Builder) -> Result<Bytes, Fmp4Error> {
        let samples = builder.samples() as u64;
        let audio_rate = epoch.audio.as_ref().map_or(1, |audio| audio.config.timescale());
        let rates = [VIDEO_TIMESCALE, audio_rate];
        let mut runs = builder.take_waiting(u64::MAX);
        // Reserves space for the headers: growing the vector would copy the segment again.
        let mut segment = Vec::with_capacity(builder.bytes() + samples as usize * HEAD_BYTES_PER_SAMPLE);
        let mut all = std::iter::from_fn(|| next_fragment(&mut runs, rates));
        let made: Result<(), Fmp4Error> = all.try_for_each(|fragment| {
            self.fragment = self.fragment.wrapping_add(1);
            write_fragment(&mut segment, self.fragment, &fragment)
        });
        let counter = match made {
            Ok(()) => &mut self.stats.samples_out,
            Err(_) => &mut self.stats.samples_dropped,
        };
        *counter += samples;
        made.map(|()| Bytes::from(segment))
    }

    fn drop_waiting_of(&mut self, builder: &Builder) {
        self.stats.samples_dropped += builder.samples() as u64;
    }

    /// Id of the initialization segment of the epoch; emits a new one if the tracks differ from the last one.
    pub(super) fn init_id(&mut self, epoch: &Epoch) -> Result<u32, Fmp4Error> {
        let video = epoch.video.as_ref().map(|track| track.config.clone());
        let audio = epoch.audio.as_ref().map(|track| track.config.clone());
        if let Some(init) = &self.init
            && init.video == video
            && init.audio == audio
        {
            return Ok(init.id);
        }
        let tracks: Vec<_> = [&video, &audio].into_iter().filter_map(|track| track.as_deref()).collect();
        let bytes = init_segment(&tracks)?;
        let id = self.init.as_ref().map_or(0, |init| init.id.wrapping_add(1));
        let init = Init { id, bytes, video, audio };
        self.events.push_back(Event::Init(init.clone()));
        self.init = Some(init);
        Ok(id)
    }
}

/// Takes the samples of the next [`FRAGMENT_NANOS`], or all if little would be left; `None` if there are none. `rates` are the
/// ticks per second of each run.
fn next_fragment(runs: &mut [TrackRun; 2], rates: [u32; 2]) -> Option<[TrackRun; 2]> {
    let waiting = || runs.iter().zip(rates).filter(|(run, _)| !run.samples.is_empty());
    let start_ns = waiting().map(|(run, rate)| ticks_to_nanos(run.decode_time, rate)).min()?;
    let last_ns = waiting().map(|(run, rate)| ticks_to_nanos(run.end(), rate)).max()?;
    let mut end_ns = start_ns.saturating_add(FRAGMENT_NANOS);
    if last_ns.saturating_sub(end_ns) < FRAGMENT_NANOS / 2 {
        end_ns = i64::MAX;
    }
    let [video, audio] = runs;
    let tick = |rate| if end_ns == i64::MAX { u64::MAX } else { nanos_to_ticks(end_ns, rate) };
    Some([video.take_before(tick(rates[0])), audio.take_before(tick(rates[1]))])
}

/// Concatenates the parts; a single part is shared and not copied.
fn joined(parts: &[Bytes]) -> Bytes {
    match parts {
        [one] => one.clone(),
        many => Bytes::from(many.concat()),
    }
}

fn media_end(epoch: &Epoch, builder: &Builder) -> i64 {
    let rate = epoch.audio.as_ref().map_or(1, |track| track.config.timescale());
    builder.media_end_ns(rate)
}
