//! Packets in, files of fragments out. Pure: no I/O, no clock.
//!
//! A file holds one codec configuration of each track and begins at a keyframe (or with audio, when there is no video)
//! at time 0. A fragment ends after [`FRAGMENT_NANOS`], at any frame: a crash loses only the media that is not written
//! yet. It also ends before a keyframe, if none began a fragment for as long, because viewers start there. Another codec
//! configuration, a track that appears or ends, or a jump of times begins the next file, at a keyframe. A short gap stays
//! in the file, with the last frame shown longer, so that times match those of the session.

mod event;
mod file;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;

use satcast_media::fmp4::{InBand, TrackConfig};
use satcast_media::{Kind, Packet, Role};

pub(crate) use event::CutEvent;
use event::*;
use file::File;

/// Cuts the packets of one opening.
#[derive(Debug, Default)]
pub(crate) struct Cutter {
    video: Option<Arc<TrackConfig>>,
    audio: Option<Arc<TrackConfig>>,
    in_band: InBand,
    file: Option<File>,
    /// Audio that waits for a keyframe, which decides the file that it belongs to.
    waiting: VecDeque<Packet>,
    /// Video frames before the next keyframe cannot be decoded.
    needs_keyframe: bool,
    last_audio_dts: Option<i64>,
    /// The next keyframe begins a file.
    roll: bool,
    events: VecDeque<CutEvent>,
    dropped: u64,
}

impl Cutter {
    /// Takes a packet. Never fails: unusable packets are dropped and counted.
    pub(crate) fn push(&mut self, packet: Packet) {
        match (packet.role, packet.kind()) {
            (Role::Config, _) => self.record(&packet),
            _ if !is_plausible(&packet) => self.dropped += 1,
            (Role::Data, Kind::Video) => self.video_packet(packet),
            (Role::Data, Kind::Audio) => self.audio(packet),
        }
    }

    /// The next output, oldest first.
    pub(crate) fn poll(&mut self) -> Option<CutEvent> {
        self.events.pop_front()
    }

    /// Packets are missing: video continues with the next keyframe.
    pub(crate) fn gap(&mut self) {
        self.needs_keyframe = true;
    }

    /// The next keyframe begins another file in any case.
    pub(crate) fn roll(&mut self) {
        self.roll = true;
    }

    /// No packets came for a while: held media becomes a fragment.
    pub(crate) fn flush(&mut self) {
        if let Some(file) = &mut self.file {
            file.flush(&mut self.events);
        }
    }

    /// The end: held media becomes the last fragment.
    pub(crate) fn finish(&mut self) {
        self.settle(i64::MAX);
        self.close();
        self.dropped += self.waiting.len() as u64;
        self.waiting.clear();
    }

    /// Drops the open file after a failed write; the next one begins at a keyframe.
    pub(crate) fn abandon(&mut self) {
        self.file = None;
        self.events.clear();
    }

    /// Access units dropped so far.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Payload bytes held.
    pub(crate) fn held_bytes(&self) -> usize {
        let waiting: usize = self.waiting.iter().map(|packet| packet.payload.len()).sum();
        waiting + self.file.as_ref().map_or(0, File::held_bytes)
    }

    /// Encoders repeat codec configurations: equal bytes change nothing.
    fn record(&mut self, packet: &Packet) {
        let slot = match packet.kind() {
            Kind::Video => &mut self.video,
            Kind::Audio => &mut self.audio,
        };
        let same =
            |config: &Arc<TrackConfig>| config.codec() == packet.codec && config.record() == &packet.payload;
        if slot.as_ref().is_some_and(same) {
            return;
        }
        if packet.kind() == Kind::Audio {
            // Waiting audio has the previous codec configuration: it goes into the previous file or is dropped.
            self.settle(i64::MAX);
        }
        let slot = match packet.kind() {
            Kind::Video => &mut self.video,
            Kind::Audio => &mut self.audio,
        };
        *slot = match TrackConfig::parse(packet.codec, &packet.payload) {
            Ok(config) => Some(Arc::new(config)),
            Err(error) => {
                self.events.push_back(CutEvent::TrackRefused(packet.kind(), error));
                None
            }
        };
        if packet.kind() == Kind::Audio {
            self.dropped += self.waiting.len() as u64;
            self.waiting.clear();
        }
    }

    /// Video has a new codec configuration: the next keyframe begins another file, and audio from then on belongs to
    /// it.
    fn video_changed(&self) -> bool {
        match (&self.file, &self.video) {
            (Some(file), Some(video)) => file.has_video() && !file.has_video_config(video),
            _ => false,
        }
    }

    /// Puts waiting audio from before a time in nanoseconds into the open file, where it fits.
    fn settle(&mut self, before_ns: i64) {
        let (Some(file), Some(config)) = (&mut self.file, &self.audio) else { return };
        for packet in std::mem::take(&mut self.waiting) {
            let is_its = packet.dts_ns < before_ns && file.takes_audio(&packet, config);
            let ticks = config.audio_samples(&packet.payload).filter(|_| is_its);
            match ticks {
                Some(ticks) if file.audio_packet(packet.clone(), config, ticks, &mut self.events) => {}
                _ => self.waiting.push_back(packet),
            }
        }
    }

    fn video_packet(&mut self, packet: Packet) {
        let Some(config) = self.video.clone().filter(|config| config.codec() == packet.codec) else {
            self.dropped += 1;
            return;
        };
        if self.needs_keyframe && !packet.keyframe {
            self.dropped += 1;
            return;
        }
        let fits = self.file.as_ref().is_some_and(|file| file.takes_video(&packet, &config));
        if fits && !(packet.keyframe && (self.roll || self.audio_changed(packet.dts_ns))) {
            self.needs_keyframe = false;
            if let Some(file) = &mut self.file {
                file.video_packet(packet, &mut self.events);
            }
            return;
        }
        if !packet.keyframe {
            self.dropped += 1;
            return;
        }
        self.needs_keyframe = false;
        // The next frame in time gives the duration of the last frame of the previous file.
        let end = fits.then_some(packet.dts_ns);
        self.settle(packet.dts_ns);
        self.close_at(end);
        let in_band = self.in_band.next(&config);
        self.file = Some(File::with_video(packet, config, in_band));
        for packet in std::mem::take(&mut self.waiting) {
            self.audio(packet);
        }
    }

    /// The next file should have another audio track, or gain one. A track that falls silent stays.
    fn audio_changed(&self, dts_ns: i64) -> bool {
        let Some(file) = &self.file else { return false };
        let recent = |last: i64| dts_ns.saturating_sub(last).saturating_abs() <= AUDIO_RECENT_NANOS;
        let wanted = self.audio.as_ref().filter(|_| self.last_audio_dts.is_some_and(recent));
        match (file.audio(), wanted) {
            (None, None) => false,
            // It can still join before anything is written.
            (None, Some(_)) => file.is_begun(),
            (Some(_), None) => false,
            (Some(has), Some(wanted)) => !is_same(has, wanted),
        }
    }

    fn audio(&mut self, packet: Packet) {
        let config = self.audio.clone().filter(|config| config.codec() == packet.codec);
        let ticks = config.as_ref().and_then(|config| config.audio_samples(&packet.payload));
        let (Some(config), Some(ticks)) = (config, ticks) else {
            self.dropped += 1;
            return;
        };
        self.last_audio_dts = Some(packet.dts_ns);
        if self.video_changed() {
            return self.keep_waiting(packet);
        }
        match &mut self.file {
            Some(file) if file.takes_audio(&packet, &config) => {
                let can_roll = !file.has_video();
                if !(can_roll && self.roll) {
                    if !file.audio_packet(packet, &config, ticks, &mut self.events) {
                        self.dropped += 1;
                    }
                    return;
                }
                self.begin_with_audio(packet, config, ticks);
            }
            // Another audio track, or a jump: with video it waits for a keyframe, alone it begins a file.
            Some(file) if file.has_video() => self.keep_waiting(packet),
            Some(_) => self.begin_with_audio(packet, config, ticks),
            None => {
                self.keep_waiting(packet);
                self.begin_without_video();
            }
        }
    }

    fn begin_with_audio(&mut self, packet: Packet, config: Arc<TrackConfig>, ticks: u32) {
        self.close();
        let mut file = File::audio_only(packet.dts_ns, config.clone());
        if !file.audio_packet(packet, &config, ticks, &mut self.events) {
            self.dropped += 1;
        }
        self.file = Some(file);
    }

    fn keep_waiting(&mut self, packet: Packet) {
        if self.waiting.len() == WAITING_PACKETS_MAX {
            // The keyframe does not come.
            self.settle(i64::MAX);
        }
        if self.waiting.len() == WAITING_PACKETS_MAX {
            self.waiting.pop_front();
            self.dropped += 1;
        }
        self.waiting.push_back(packet);
    }

    /// Audio has come alone for long enough: it is recorded without video. Later video begins the next file.
    fn begin_without_video(&mut self) {
        let (Some(first), Some(last)) = (self.waiting.front(), self.waiting.back()) else { return };
        let alone = last.dts_ns.saturating_sub(first.dts_ns) >= AUDIO_ONLY_NANOS;
        if !alone && self.waiting.len() < WAITING_PACKETS_MAX {
            return;
        }
        let mut waiting = std::mem::take(&mut self.waiting).into_iter();
        let (Some(first), Some(config)) = (waiting.next(), self.audio.clone()) else { return };
        let ticks = config.audio_samples(&first.payload).unwrap_or(0);
        self.begin_with_audio(first, config, ticks);
        waiting.for_each(|packet| self.audio(packet));
    }

    fn close(&mut self) {
        self.close_at(None);
    }

    fn close_at(&mut self, end_dts: Option<i64>) {
        self.roll = false;
        if let Some(mut file) = self.file.take() {
            file.finish(end_dts, &mut self.events);
        }
    }
}

/// Times are in the usable range, and the payload fits into a fragment.
fn is_plausible(packet: &Packet) -> bool {
    let times = -TIME_NANOS_MAX..=TIME_NANOS_MAX;
    times.contains(&packet.dts_ns)
        && times.contains(&packet.pts_ns)
        && (1..=SAMPLE_BYTES_MAX).contains(&packet.payload.len())
}
