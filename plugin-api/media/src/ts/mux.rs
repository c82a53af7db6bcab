//! Packets in, bytes out.

use bytes::Bytes;

use super::limits::{AUDIO_PES_BYTES_MAX, NOTE_BYTES_MAX, VIDEO_PES_BYTES_MAX};
use super::opus::{self, TRIM_MAX};
use super::tables::{Format, Pat, Pmt, Stream};
use super::time::{TICKS_PER_MILLI, to_ticks};
use super::write::{self, Field, LastCounter};
use super::{PID_PAT, adts, pes};
use crate::codec::CodecError;
use crate::codec::aac::AacConfig;
use crate::codec::avc::{self, AvcConfig};
use crate::codec::hevc::{self, HevcConfig};
use crate::codec::nal::{START_CODE, next_prefixed};
use crate::codec::opus::OpusConfig;
use crate::fmp4::opus_samples;
use crate::{Codec, Kind, Packet};

/// Longest time without tables, and without a clock reference (2.7.2 asks for 100 ms, DVB for 40), in ticks.
const TABLES_TICKS: i64 = 100 * TICKS_PER_MILLI;
const CLOCK_TICKS: i64 = 40 * TICKS_PER_MILLI;
/// The clock runs this far before the decode times, so that a frame has arrived when it is decoded, and audio that
/// comes a little late too.
const LEAD_TICKS: i64 = 200 * TICKS_PER_MILLI;
/// Timestamp of the time 0: the clock begins above zero.
const START_TICKS: i64 = 1000 * TICKS_PER_MILLI;
/// A step of the times beyond this is a discontinuity of the clock, and no silence that is filled with references.
const STEP_TICKS_MAX: i64 = 1000 * TICKS_PER_MILLI;

/// Packet identifiers of the program.
const PID_PMT: u16 = 0x1000;
const PID_VIDEO: u16 = 0x100;
const PID_AUDIO: u16 = 0x101;

/// Access unit delimiters of any slices, with their start codes (ISO/IEC 14496-10, 7.3.2.4; 23008-2, 7.3.2.5).
const DELIMITER_H264: &[u8] = &[0, 0, 0, 1, 0x09, 0xf0];
const DELIMITER_HEVC: &[u8] = &[0, 0, 0, 1, 0x46, 0x01, 0x50];

/// Reasons for which a packet cannot be written. Nothing of it was written, and the next one may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MuxError {
    /// A codec without a place in transport streams.
    #[error("{} has no place in MPEG-TS; choose H.264 or HEVC with AAC or Opus in the encoder", .0.name())]
    Codec(Codec),
    /// The codec configuration is broken.
    #[error("track cannot be sent in MPEG-TS: {0}; the encoder must send a valid configuration record")]
    Record(#[from] CodecError),
    /// A valid codec configuration that the formats of transport streams cannot express.
    #[error("track cannot be sent in MPEG-TS: {0}; choose another setting in the encoder")]
    Unsupported(&'static str),
    /// Media without a codec configuration before it, or after one that was refused.
    #[error("{} has no codec configuration yet; send the configuration before the media", .0.name())]
    NoConfiguration(Codec),
    /// The lengths in an access unit do not fit together.
    #[error("access unit is cut off; the encoder must send whole access units")]
    AccessUnit,
    /// An access unit or frame is longer than its header can say, or over the limit.
    #[error("packet of {0} bytes is too long for MPEG-TS; lower the bitrate in the encoder")]
    TooLong(usize),
}

/// Writes one transport stream with one program: at most one track of each kind.
///
/// Codec configurations should come before the first media: a track that joins later changes the tables, and
/// not every player takes that well.
#[derive(Debug, Default)]
pub struct Muxer {
    video: Option<Video>,
    audio: Option<Audio>,
    pat_counter: LastCounter,
    pmt_counter: LastCounter,
    video_counter: LastCounter,
    audio_counter: LastCounter,
    /// About the program, in every PMT.
    note: Vec<u8>,
    /// version_number of the PMT.
    version: u8,
    /// The streams changed since the tables were written.
    is_changed: bool,
    tables_at: Option<i64>,
    clock_at: Option<i64>,
    /// Memory for the PES packet that is being written.
    buffer: Vec<u8>,
}

#[derive(Debug)]
struct Video {
    codec: Codec,
    record: Bytes,
    /// Bytes of the length prefixes in the access units.
    prefix_bytes: u8,
    /// Parameter sets as a byte stream.
    sets: Vec<u8>,
}

#[derive(Debug)]
struct Audio {
    record: Bytes,
    form: AudioForm,
}

#[derive(Debug)]
enum AudioForm {
    /// AAC with the header of its frames.
    Adts([u8; adts::HEADER_BYTES]),
    /// Opus with its channel_config_code and the samples that are still to drop.
    Opus(u8, u16),
}

impl Muxer {
    /// Adds a note about the program, which a [`super::Demuxer`] gives and other programs leave alone; at most
    /// [`NOTE_BYTES_MAX`] bytes, the rest is cut. Before the first media.
    pub fn set_note(&mut self, note: &[u8]) {
        self.note = note[..note.len().min(NOTE_BYTES_MAX)].to_vec();
    }

    /// Appends the bytes of a packet: whole transport stream packets. A codec configuration gives no bytes.
    ///
    /// # Errors
    /// Any [`MuxError`].
    pub fn push(&mut self, packet: &Packet, out: &mut Vec<u8>) -> Result<(), MuxError> {
        if packet.is_config() {
            let before = self.streams();
            let configured = self.configure(packet.codec, &packet.payload);
            self.is_changed |= self.streams() != before;
            return configured;
        }
        let [pts, dts] = [packet.pts_ns, packet.dts_ns].map(|nanos| to_ticks(nanos) + START_TICKS);
        let mut bytes = std::mem::take(&mut self.buffer);
        bytes.clear();
        let composed = match packet.kind() {
            Kind::Video => self.compose_video(packet, pts, dts, &mut bytes),
            Kind::Audio => self.compose_audio(packet, pts, dts, &mut bytes),
        };
        if composed.is_ok() {
            pes::close(&mut bytes);
            let has_clock = packet.kind() == Kind::Video || self.video.is_none();
            let field = self.advance(dts, packet.keyframe, has_clock, out);
            let (pid, counter) = match packet.kind() {
                Kind::Video => (PID_VIDEO, &mut self.video_counter),
                Kind::Audio => (PID_AUDIO, &mut self.audio_counter),
            };
            write::pes(out, pid, counter, field, &bytes);
        }
        self.buffer = bytes;
        composed
    }

    /// The streams as the PMT names them.
    fn streams(&self) -> Pmt {
        let video = self.video.as_ref().map(|video| {
            let format = if video.codec == Codec::Hevc { Format::Hevc } else { Format::H264 };
            Stream { pid: PID_VIDEO, format }
        });
        let audio = self.audio.as_ref().map(|audio| {
            let format = match audio.form {
                AudioForm::Adts(_) => Format::Adts,
                AudioForm::Opus(code, _) => Format::Opus(code),
            };
            Stream { pid: PID_AUDIO, format }
        });
        let pcr_pid = if video.is_some() { PID_VIDEO } else { PID_AUDIO };
        Pmt { pcr_pid, video, audio, ..Pmt::default() }
    }

    /// Takes a codec configuration. The track of one that is refused ends.
    fn configure(&mut self, codec: Codec, record: &Bytes) -> Result<(), MuxError> {
        match codec.kind() {
            Kind::Video => {
                let is_same = |video: &Video| video.codec == codec && video.record == *record;
                if !self.video.as_ref().is_some_and(is_same) {
                    self.video = None;
                    self.video = Some(Video::new(codec, record)?);
                }
            }
            Kind::Audio => {
                let is_same = |audio: &Audio| audio.form.codec() == codec && audio.record == *record;
                if !self.audio.as_ref().is_some_and(is_same) {
                    self.audio = None;
                    let form = AudioForm::new(codec, record)?;
                    self.audio = Some(Audio { record: record.clone(), form });
                }
            }
        }
        Ok(())
    }

    fn compose_video(
        &self,
        packet: &Packet,
        pts: i64,
        dts: i64,
        bytes: &mut Vec<u8>,
    ) -> Result<(), MuxError> {
        let video = self.video.as_ref().filter(|video| video.codec == packet.codec);
        let video = video.ok_or(MuxError::NoConfiguration(packet.codec))?;
        pes::open(bytes, pes::ID_VIDEO, pts, dts);
        video.append(packet, bytes)?;
        if bytes.len() > VIDEO_PES_BYTES_MAX { Err(MuxError::TooLong(packet.payload.len())) } else { Ok(()) }
    }

    fn compose_audio(
        &mut self,
        packet: &Packet,
        pts: i64,
        dts: i64,
        bytes: &mut Vec<u8>,
    ) -> Result<(), MuxError> {
        let audio = self.audio.as_mut().filter(|audio| audio.form.codec() == packet.codec);
        let audio = audio.ok_or(MuxError::NoConfiguration(packet.codec))?;
        let length = packet.payload.len();
        let mut trim = 0;
        match &audio.form {
            AudioForm::Adts(template) => {
                let header = adts::header(*template, length).ok_or(MuxError::TooLong(length))?;
                pes::open(bytes, pes::ID_AUDIO, pts, dts);
                bytes.extend_from_slice(&header);
            }
            AudioForm::Opus(_, skip) => {
                let samples = opus_samples(&packet.payload).unwrap_or(0);
                trim = u16::try_from(samples).unwrap_or(u16::MAX).min(*skip).min(TRIM_MAX);
                pes::open(bytes, pes::ID_PRIVATE, pts, dts);
                opus::write(bytes, length, trim);
            }
        }
        bytes.extend_from_slice(&packet.payload);
        if bytes.len() > AUDIO_PES_BYTES_MAX {
            return Err(MuxError::TooLong(length));
        }
        if let AudioForm::Opus(_, skip) = &mut audio.form {
            *skip -= trim;
        }
        Ok(())
    }

    /// Writes the tables and clock references that are due before a packet with the decode time `time`, and returns the
    /// adaptation field of that packet. `has_clock`: it belongs to the stream that has the clock.
    fn advance(&mut self, time: i64, keyframe: bool, has_clock: bool, out: &mut Vec<u8>) -> Field {
        let last = self.clock_at.filter(|last| (time - last).abs() <= STEP_TICKS_MAX);
        if let Some(last) = last {
            let mut at = last + CLOCK_TICKS;
            while at < time {
                if self.tables_are_due(at) {
                    self.write_tables(at, out);
                }
                self.write_clock(at, false, out);
                at += CLOCK_TICKS;
            }
        }
        if keyframe || self.is_changed || last.is_none() || self.tables_are_due(time) {
            self.write_tables(time, out);
        }
        let discontinuity = last.is_none() && self.clock_at.is_some();
        if !has_clock && last.is_none() {
            self.write_clock(time, discontinuity, out);
        }
        let mut field = Field { random_access: keyframe, ..Field::default() };
        // Audio may have moved the clock beyond this frame already.
        if has_clock && (last.is_none() || self.clock_at.is_none_or(|clock| clock < time)) {
            field = Field { discontinuity, clock: Some(time - LEAD_TICKS), ..field };
            self.clock_at = Some(time);
        }
        field
    }

    /// Tables have to be written now, because the next chance may be as late as the next clock reference.
    fn tables_are_due(&self, time: i64) -> bool {
        self.tables_at.is_none_or(|last| time - last > TABLES_TICKS - CLOCK_TICKS)
    }

    fn write_tables(&mut self, time: i64, out: &mut Vec<u8>) {
        if std::mem::take(&mut self.is_changed) && self.tables_at.is_some() {
            self.version = (self.version + 1) & 0x1f;
        }
        self.tables_at = Some(time);
        let mut section = Vec::new();
        Pat::write(&mut section, PID_PMT);
        write::section(out, PID_PAT, &mut self.pat_counter, &section);
        section.clear();
        self.streams().write(&mut section, self.version, &self.note);
        write::section(out, PID_PMT, &mut self.pmt_counter, &section);
    }

    fn write_clock(&mut self, time: i64, discontinuity: bool, out: &mut Vec<u8>) {
        self.clock_at = Some(time);
        let field = Field { discontinuity, clock: Some(time - LEAD_TICKS), ..Field::default() };
        match self.video {
            Some(_) => write::field(out, PID_VIDEO, &mut self.video_counter, field),
            None => write::field(out, PID_AUDIO, &mut self.audio_counter, field),
        }
    }
}

impl AudioForm {
    fn new(codec: Codec, record: &[u8]) -> Result<Self, MuxError> {
        if codec == Codec::Opus {
            let config = OpusConfig::parse(record)?;
            let code = opus::code(&config).ok_or(MuxError::Unsupported("order of the Opus channels"))?;
            return Ok(AudioForm::Opus(code, config.pre_skip));
        }
        let template = adts::template(&AacConfig::parse(record)?);
        template.map(AudioForm::Adts).ok_or(MuxError::Unsupported("kind, rate or channels of the AAC audio"))
    }

    fn codec(&self) -> Codec {
        match self {
            AudioForm::Adts(_) => Codec::Aac,
            AudioForm::Opus(..) => Codec::Opus,
        }
    }
}

impl Video {
    fn new(codec: Codec, record: &Bytes) -> Result<Self, MuxError> {
        let mut sets = Vec::new();
        let prefix_bytes = match codec {
            Codec::H264 => {
                let config = AvcConfig::parse(record)?;
                config.sps.iter().chain(&config.pps).for_each(|set| push_annex_b(&mut sets, set));
                config.nal_length_bytes
            }
            Codec::Hevc => {
                let config = HevcConfig::parse(record)?;
                let used = [hevc::NAL_VPS, hevc::NAL_SPS, hevc::NAL_PPS];
                for nal_type in used {
                    let sets_of = config.parameter_sets.iter().filter(|set| set.nal_type == nal_type);
                    sets_of.for_each(|set| push_annex_b(&mut sets, set.nal));
                }
                config.nal_length_bytes
            }
            other => return Err(MuxError::Codec(other)),
        };
        Ok(Video { codec, record: record.clone(), prefix_bytes, sets })
    }

    /// Appends an access unit as a byte stream: the delimiter, parameter sets in a keyframe that has none, and the
    /// other units.
    fn append(&self, packet: &Packet, bytes: &mut Vec<u8>) -> Result<(), MuxError> {
        let is_hevc = self.codec == Codec::Hevc;
        bytes.extend_from_slice(if is_hevc { DELIMITER_HEVC } else { DELIMITER_H264 });
        let sets_at = bytes.len();
        let mut has_sets = !packet.keyframe;
        let mut rest = &packet.payload[..];
        while let Some(nal) = next_prefixed(&mut rest, self.prefix_bytes).map_err(|_| MuxError::AccessUnit)? {
            let (nal_type, sps, delimiter) = match is_hevc {
                true => (hevc::nal_type(nal), hevc::NAL_SPS, hevc::NAL_DELIMITER),
                false => (avc::nal_type(nal), avc::NAL_SPS, avc::NAL_DELIMITER),
            };
            has_sets |= nal_type == sps;
            if nal_type != delimiter && !nal.is_empty() {
                push_annex_b(bytes, nal);
            }
        }
        if !has_sets {
            bytes.splice(sets_at..sets_at, self.sets.iter().copied());
        }
        Ok(())
    }
}

fn push_annex_b(bytes: &mut Vec<u8>, nal: &[u8]) {
    bytes.push(0);
    bytes.extend_from_slice(&START_CODE);
    bytes.extend_from_slice(nal);
}
