//! Packets in, files of fragments out. Pure: no I/O, no clock.
//!
//! A file holds one configuration of each track and begins at a keyframe (or with sound, when there are no pictures) at time 0. A
//! fragment ends after [`FRAGMENT_NANOS`] wherever that is: what is not written yet is what a crash loses. Another configuration, a
//! track that comes or goes, or times that jump begin the next file, at a keyframe; a short hole stays one, in which the last picture
//! is shown on, so that times are those of the session.

mod file;
mod piece;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;

use satcast_media::fmp4::TrackConfig;
use satcast_media::{Kind, Packet, Role};

use file::File;
pub(crate) use piece::Piece;
use piece::*;

/// Cuts one opening's packets.
#[derive(Debug, Default)]
pub(crate) struct Cutter {
    video: Option<Arc<TrackConfig>>,
    audio: Option<Arc<TrackConfig>>,
    file: Option<File>,
    /// Sound that waits for a keyframe, which shows whose file it belongs to.
    waiting: VecDeque<Packet>,
    /// Pictures that a decoder cannot use before the next keyframe.
    needs_keyframe: bool,
    last_audio_dts: Option<i64>,
    /// The next keyframe begins a file.
    roll: bool,
    pieces: VecDeque<Piece>,
    dropped: u64,
}

impl Cutter {
    /// Takes a packet. Never fails: what cannot be used is left out and counted.
    pub(crate) fn push(&mut self, packet: Packet) {
        match (packet.role, packet.kind()) {
            (Role::Config, _) => self.record(&packet),
            _ if !is_plausible(&packet) => self.dropped += 1,
            (Role::Data, Kind::Video) => self.picture(packet),
            (Role::Data, Kind::Audio) => self.sound(packet),
        }
    }

    /// The next piece, oldest first.
    pub(crate) fn poll(&mut self) -> Option<Piece> {
        self.pieces.pop_front()
    }

    /// Packets are missing: pictures go on with the next keyframe.
    pub(crate) fn gap(&mut self) {
        self.needs_keyframe = true;
    }

    /// The next keyframe begins another file, whatever comes.
    pub(crate) fn roll(&mut self) {
        self.roll = true;
    }

    /// Nothing came for a while: what is there becomes a fragment.
    pub(crate) fn flush(&mut self) {
        if let Some(file) = &mut self.file {
            file.flush(&mut self.pieces);
        }
    }

    /// The end: what is held becomes the last fragment.
    pub(crate) fn finish(&mut self) {
        self.settle(i64::MAX);
        self.close();
        self.dropped += self.waiting.len() as u64;
        self.waiting.clear();
    }

    /// Forgets the open file, which cannot be written on; the next one begins at a keyframe.
    pub(crate) fn abandon(&mut self) {
        self.file = None;
        self.pieces.clear();
    }

    /// Access units left out.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Payload bytes held.
    pub(crate) fn held_bytes(&self) -> usize {
        let waiting: usize = self.waiting.iter().map(|packet| packet.payload.len()).sum();
        waiting + self.file.as_ref().map_or(0, File::held_bytes)
    }

    /// Encoders repeat records: equal bytes change nothing.
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
            // What waits was made with the record before: it has a place in the file before, or none.
            self.settle(i64::MAX);
        }
        let slot = match packet.kind() {
            Kind::Video => &mut self.video,
            Kind::Audio => &mut self.audio,
        };
        *slot = match TrackConfig::parse(packet.codec, &packet.payload) {
            Ok(config) => Some(Arc::new(config)),
            Err(error) => {
                self.pieces.push_back(Piece::TrackRefused(packet.kind(), error));
                None
            }
        };
        if packet.kind() == Kind::Audio {
            self.dropped += self.waiting.len() as u64;
            self.waiting.clear();
        }
    }

    /// Another record of pictures came: the next keyframe begins another file, and sound from then on is the other file's.
    fn is_turning(&self) -> bool {
        match (&self.file, &self.video) {
            (Some(file), Some(video)) => file.has_pictures() && !file.shows(video),
            _ => false,
        }
    }

    /// Puts sound that waits, from before a time in nanoseconds, into the open file, where it has a place there.
    fn settle(&mut self, before_ns: i64) {
        let (Some(file), Some(config)) = (&mut self.file, &self.audio) else { return };
        for packet in std::mem::take(&mut self.waiting) {
            let is_its = packet.dts_ns < before_ns && file.takes_sound(&packet, config);
            let ticks = config.audio_samples(&packet.payload).filter(|_| is_its);
            match ticks {
                Some(ticks) if file.sound_packet(packet.clone(), config, ticks, &mut self.pieces) => {}
                _ => self.waiting.push_back(packet),
            }
        }
    }

    fn picture(&mut self, packet: Packet) {
        let Some(config) = self.video.clone().filter(|config| config.codec() == packet.codec) else {
            self.dropped += 1;
            return;
        };
        if self.needs_keyframe && !packet.keyframe {
            self.dropped += 1;
            return;
        }
        let fits = self.file.as_ref().is_some_and(|file| file.takes_picture(&packet, &config));
        if fits && !(packet.keyframe && (self.roll || self.sound_changed(packet.dts_ns))) {
            self.needs_keyframe = false;
            if let Some(file) = &mut self.file {
                file.picture(packet, &mut self.pieces);
            }
            return;
        }
        if !packet.keyframe {
            self.dropped += 1;
            return;
        }
        self.needs_keyframe = false;
        // A picture that follows in time says how long the last one of the file before is shown.
        let end = fits.then_some(packet.dts_ns);
        self.settle(packet.dts_ns);
        self.close_at(end);
        self.file = Some(File::with_pictures(packet, config));
        for packet in std::mem::take(&mut self.waiting) {
            self.sound(packet);
        }
    }

    /// The next file should have another audio track, or should have one. A track that falls silent stays.
    fn sound_changed(&self, dts_ns: i64) -> bool {
        let Some(file) = &self.file else { return false };
        let recent = |last: i64| dts_ns.saturating_sub(last).saturating_abs() <= AUDIO_RECENT_NANOS;
        let wanted = self.audio.as_ref().filter(|_| self.last_audio_dts.is_some_and(recent));
        match (file.sound(), wanted) {
            (None, None) => false,
            // It can still join before anything is written.
            (None, Some(_)) => file.is_begun(),
            (Some(_), None) => false,
            (Some(has), Some(wanted)) => !is_same(has, wanted),
        }
    }

    fn sound(&mut self, packet: Packet) {
        let config = self.audio.clone().filter(|config| config.codec() == packet.codec);
        let ticks = config.as_ref().and_then(|config| config.audio_samples(&packet.payload));
        let (Some(config), Some(ticks)) = (config, ticks) else {
            self.dropped += 1;
            return;
        };
        self.last_audio_dts = Some(packet.dts_ns);
        if self.is_turning() {
            return self.keep_waiting(packet);
        }
        match &mut self.file {
            Some(file) if file.takes_sound(&packet, &config) => {
                let can_roll = !file.has_pictures();
                if !(can_roll && self.roll) {
                    if !file.sound_packet(packet, &config, ticks, &mut self.pieces) {
                        self.dropped += 1;
                    }
                    return;
                }
                self.begin_with_sound(packet, config, ticks);
            }
            // Another track of sound, or a jump: with pictures it waits for a keyframe, alone it begins a file.
            Some(file) if file.has_pictures() => self.keep_waiting(packet),
            Some(_) => self.begin_with_sound(packet, config, ticks),
            None => {
                self.keep_waiting(packet);
                self.begin_without_pictures();
            }
        }
    }

    fn begin_with_sound(&mut self, packet: Packet, config: Arc<TrackConfig>, ticks: u32) {
        self.close();
        let mut file = File::of_sound(packet.dts_ns, config.clone());
        if !file.sound_packet(packet, &config, ticks, &mut self.pieces) {
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

    /// Sound has come alone for long enough: it is recorded without pictures. Those that come later begin the next file.
    fn begin_without_pictures(&mut self) {
        let (Some(first), Some(last)) = (self.waiting.front(), self.waiting.back()) else { return };
        let alone = last.dts_ns.saturating_sub(first.dts_ns) >= AUDIO_ONLY_NANOS;
        if !alone && self.waiting.len() < WAITING_PACKETS_MAX {
            return;
        }
        let mut waiting = std::mem::take(&mut self.waiting).into_iter();
        let (Some(first), Some(config)) = (waiting.next(), self.audio.clone()) else { return };
        let ticks = config.audio_samples(&first.payload).unwrap_or(0);
        self.begin_with_sound(first, config, ticks);
        waiting.for_each(|packet| self.sound(packet));
    }

    fn close(&mut self) {
        self.close_at(None);
    }

    fn close_at(&mut self, end_dts: Option<i64>) {
        self.roll = false;
        if let Some(mut file) = self.file.take() {
            file.finish(end_dts, &mut self.pieces);
        }
    }
}

/// Times that can be calculated with, and a payload of a size that a fragment can hold.
fn is_plausible(packet: &Packet) -> bool {
    let times = -TIME_NANOS_MAX..=TIME_NANOS_MAX;
    times.contains(&packet.dts_ns)
        && times.contains(&packet.pts_ns)
        && (1..=SAMPLE_BYTES_MAX).contains(&packet.payload.len())
}
