//! One file under construction: its tracks, and the fragment that is open.

use std::collections::VecDeque;
use std::sync::Arc;

use satcast_media::Packet;
use satcast_media::fmp4::{
    AUDIO_TRACK_ID, AudioClock, COMPOSITION_NANOS_MAX, SEGMENT_BYTES_MAX, SEGMENT_SAMPLES_MAX, Sample,
    TrackConfig, TrackRun, VIDEO_TIMESCALE, VIDEO_TRACK_ID, init_segment, media_segment, nanos_to_ticks,
    ticks_to_nanos,
};

use super::piece::{FRAGMENT_NANOS, JUMP_AHEAD_NANOS, JUMP_BACK_NANOS, Piece, is_same};

/// Duration of a picture when nothing tells it: 1/30 s.
const PICTURE_TICKS: u32 = VIDEO_TIMESCALE / 30;

#[derive(Debug)]
struct Pictures {
    config: Arc<TrackConfig>,
    /// The picture whose duration is not known before the next one, and its decode time in ticks.
    held: Option<(Packet, u64)>,
    last_duration: u32,
    run: TrackRun,
}

#[derive(Debug)]
struct Sound {
    config: Arc<TrackConfig>,
    clock: AudioClock,
    last_dts: i64,
    run: TrackRun,
    /// Decode time behind the last sample in ticks.
    end: u64,
}

#[derive(Debug)]
pub(super) struct File {
    /// Time of the start on the session's time line in nanoseconds.
    base_dts: i64,
    pictures: Option<Pictures>,
    sound: Option<Sound>,
    begun: bool,
    fragment: u32,
    bytes: usize,
    /// Media time in nanoseconds up to which everything is in fragments.
    cut_ns: i64,
    end_ns: i64,
}

impl File {
    fn new(base_dts: i64) -> Self {
        File {
            base_dts,
            pictures: None,
            sound: None,
            begun: false,
            fragment: 0,
            bytes: 0,
            cut_ns: 0,
            end_ns: 0,
        }
    }

    /// A file that begins with this keyframe.
    pub(super) fn with_pictures(packet: Packet, config: Arc<TrackConfig>) -> Self {
        let mut file = File::new(packet.dts_ns);
        file.bytes = packet.payload.len();
        let run = TrackRun { track_id: VIDEO_TRACK_ID, ..TrackRun::default() };
        file.pictures = Some(Pictures { config, held: Some((packet, 0)), last_duration: PICTURE_TICKS, run });
        file
    }

    /// A file of sound alone.
    pub(super) fn of_sound(dts_ns: i64, config: Arc<TrackConfig>) -> Self {
        let mut file = File::new(dts_ns);
        file.attach(config, dts_ns);
        file
    }

    fn attach(&mut self, config: Arc<TrackConfig>, dts_ns: i64) {
        let clock = AudioClock::new(config.timescale());
        let run = TrackRun { track_id: AUDIO_TRACK_ID, ..TrackRun::default() };
        self.sound = Some(Sound { config, clock, last_dts: dts_ns, run, end: 0 });
    }

    pub(super) fn has_pictures(&self) -> bool {
        self.pictures.is_some()
    }

    /// Its pictures are of this record.
    pub(super) fn shows(&self, config: &Arc<TrackConfig>) -> bool {
        self.pictures.as_ref().is_some_and(|pictures| is_same(&pictures.config, config))
    }

    /// Something of it was handed out, so its tracks are fixed.
    pub(super) fn is_begun(&self) -> bool {
        self.begun
    }

    pub(super) fn sound(&self) -> Option<&Arc<TrackConfig>> {
        self.sound.as_ref().map(|sound| &sound.config)
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.bytes
    }

    /// The picture continues this file.
    pub(super) fn takes_picture(&self, packet: &Packet, config: &Arc<TrackConfig>) -> bool {
        let Some(pictures) = &self.pictures else { return false };
        let Some((held, _)) = &pictures.held else { return false };
        let step = packet.dts_ns.saturating_sub(held.dts_ns);
        is_same(&pictures.config, config) && (-JUMP_BACK_NANOS..JUMP_AHEAD_NANOS).contains(&step)
    }

    /// The packet of sound continues this file, or can still join it.
    pub(super) fn takes_sound(&self, packet: &Packet, config: &Arc<TrackConfig>) -> bool {
        match &self.sound {
            Some(sound) => {
                let step = packet.dts_ns.saturating_sub(sound.last_dts);
                is_same(&sound.config, config) && (-JUMP_BACK_NANOS..JUMP_AHEAD_NANOS).contains(&step)
            }
            None => !self.begun,
        }
    }

    pub(super) fn picture(&mut self, packet: Packet, pieces: &mut VecDeque<Piece>) {
        let media_ns = packet.dts_ns.saturating_sub(self.base_dts);
        let Some(pictures) = &mut self.pictures else { return };
        let Some((_, held_tick)) = &pictures.held else { return };
        // Decode times must rise; a picture that comes too early is decoded a tick after the one before.
        let tick = nanos_to_ticks(media_ns, VIDEO_TIMESCALE).max(held_tick + 1);
        self.release(Some(tick));
        let at_ns = ticks_to_nanos(tick, VIDEO_TIMESCALE);
        if at_ns - self.cut_ns >= FRAGMENT_NANOS || self.is_full(packet.payload.len()) {
            self.flush(pieces);
            self.cut_ns = at_ns;
        }
        self.bytes += packet.payload.len();
        if let Some(pictures) = &mut self.pictures {
            pictures.held = Some((packet, tick));
        }
    }

    /// Puts the held picture into the open fragment; it ends at `end_tick`, or as long after its start as the one before.
    fn release(&mut self, end_tick: Option<u64>) {
        let base_dts = self.base_dts;
        let Some(pictures) = &mut self.pictures else { return };
        let Some((packet, tick)) = pictures.held.take() else { return };
        let duration = match end_tick {
            Some(end) => u32::try_from(end.saturating_sub(tick)).unwrap_or(u32::MAX).max(1),
            None => pictures.last_duration,
        };
        pictures.last_duration = duration;
        // The decode time may have been moved to keep order; what is shown keeps its time.
        let apart = packet.pts_ns.saturating_sub(packet.dts_ns);
        let apart = apart.clamp(-COMPOSITION_NANOS_MAX, COMPOSITION_NANOS_MAX);
        let shown = signed_ticks(packet.dts_ns.saturating_sub(base_dts).saturating_add(apart));
        let composition = i32::try_from(shown - i128::from(tick)).unwrap_or(0);
        if pictures.run.samples.is_empty() {
            pictures.run.decode_time = tick;
        }
        let sample = Sample { duration, composition, sync: packet.keyframe, payload: packet.payload };
        pictures.run.samples.push(sample);
        let end = ticks_to_nanos(tick.saturating_add(u64::from(duration)), VIDEO_TIMESCALE);
        self.end_ns = self.end_ns.max(end);
    }

    /// Takes sound of `ticks`; false when it is left out.
    pub(super) fn sound_packet(
        &mut self,
        packet: Packet,
        config: &Arc<TrackConfig>,
        ticks: u32,
        pieces: &mut VecDeque<Piece>,
    ) -> bool {
        let media_ns = packet.dts_ns.saturating_sub(self.base_dts);
        // Sound from before the first picture has no place.
        if media_ns < 0 || ticks == 0 {
            return false;
        }
        if self.sound.is_none() {
            self.attach(config.clone(), packet.dts_ns);
        }
        if self.is_full(packet.payload.len()) {
            self.flush(pieces);
        }
        let Some(sound) = &mut self.sound else { return false };
        sound.last_dts = packet.dts_ns;
        let Some(placed) = sound.clock.place(media_ns, ticks) else { return false };
        match sound.run.samples.last_mut() {
            None => sound.run.decode_time = placed.tick,
            // What lies empty before it becomes part of the sample before.
            Some(last) => {
                let gap = u32::try_from(placed.tick.saturating_sub(sound.end)).unwrap_or(u32::MAX);
                last.duration = last.duration.saturating_add(gap);
            }
        }
        sound.end = placed.tick.saturating_add(u64::from(ticks));
        self.bytes += packet.payload.len();
        let sample = Sample { duration: ticks, composition: 0, sync: true, payload: packet.payload };
        sound.run.samples.push(sample);
        let end_ns = sound.clock.nanos(sound.end);
        self.end_ns = self.end_ns.max(end_ns);
        // Sound may be ahead, alone, or all that still comes.
        if end_ns - self.cut_ns >= FRAGMENT_NANOS {
            self.flush(pieces);
            self.cut_ns = end_ns;
        }
        true
    }

    /// No room for `more` bytes or one more sample of any track.
    fn is_full(&self, more: usize) -> bool {
        let pictures = self.pictures.as_ref().map_or(0, |pictures| pictures.run.samples.len());
        let sound = self.sound.as_ref().map_or(0, |sound| sound.run.samples.len());
        pictures.max(sound) >= SEGMENT_SAMPLES_MAX / 2 || self.bytes + more > SEGMENT_BYTES_MAX / 2
    }

    /// Hands out what is there, but for the held picture.
    pub(super) fn flush(&mut self, pieces: &mut VecDeque<Piece>) {
        let take = |run: &mut TrackRun| {
            let samples = std::mem::take(&mut run.samples);
            TrackRun { samples, ..run.clone() }
        };
        let mut runs = Vec::with_capacity(2);
        runs.extend(self.pictures.as_mut().map(|pictures| take(&mut pictures.run)));
        runs.extend(self.sound.as_mut().map(|sound| take(&mut sound.run)));
        if runs.iter().all(|run| run.samples.is_empty()) {
            return;
        }
        let held = self.pictures.as_ref().and_then(|pictures| pictures.held.as_ref());
        self.bytes = held.map_or(0, |(packet, _)| packet.payload.len());
        if !self.begun {
            let video = self.pictures.as_ref().map(|pictures| &*pictures.config);
            let audio = self.sound.as_ref().map(|sound| &*sound.config);
            let tracks: Vec<&TrackConfig> = [video, audio].into_iter().flatten().collect();
            // One or two tracks whose records were read: this cannot fail.
            let Ok(init) = init_segment(&tracks) else { return };
            pieces.push_back(Piece::Begin { init, base_ns: self.base_dts });
            self.begun = true;
        }
        self.fragment = self.fragment.wrapping_add(1);
        // The limits that `is_full` keeps make a failure impossible; a fragment lost is no recording lost.
        if let Ok(bytes) = media_segment(self.fragment, &runs) {
            pieces.push_back(Piece::Fragment { bytes, end_ns: self.end_ns });
        }
    }

    /// The end. `end_dts`: when the picture after the last one comes, if that is known.
    pub(super) fn finish(&mut self, end_dts: Option<i64>, pieces: &mut VecDeque<Piece>) {
        let held = self.pictures.as_ref().and_then(|pictures| pictures.held.as_ref());
        let end = held.and_then(|(_, tick)| {
            let told = nanos_to_ticks(end_dts?.saturating_sub(self.base_dts), VIDEO_TIMESCALE);
            Some(told.max(tick + 1))
        });
        self.release(end);
        self.flush(pieces);
    }
}

fn signed_ticks(nanos: i64) -> i128 {
    let size = i128::from(nanos_to_ticks(nanos.saturating_abs(), VIDEO_TIMESCALE));
    if nanos < 0 { -size } else { size }
}
