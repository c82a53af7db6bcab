//! Track details from a codec configuration: sample entry, codec string, size, rate.

use bytes::Bytes;
use mp4_atom::{
    Atom, Audio, Av01, Av1c, Avc1, Avcc, Codec as SampleEntry, Dops, FixedPoint, Hvc1, Hvcc, Mp4a, Opus,
    OpusChannelMapping, Visual, esds,
};
use shiguredo_mp4::bitstream::av1::{Av1ObuParseContext, Av1ObuType, parse_obus, parse_sequence_header};

use super::{Fmp4Error, RECORD_BYTES_MAX, VIDEO_TIMESCALE, clock};
use crate::Codec;
use crate::codec::aac::AacConfig;
use crate::codec::av1::{self, Av1Config};
use crate::codec::avc::{self, AvcConfig};
use crate::codec::hevc::{self, HevcConfig};
use crate::codec::opus::OpusConfig;
use crate::codec::{CodecError, VideoSize};

/// Opus always counts at this rate (RFC 7845, section 4).
const OPUS_RATE: u32 = 48_000;
/// MPEG-4 audio in `esds` (ISO/IEC 14496-1, table 5).
const OBJECT_TYPE_AAC: u8 = 0x40;
const STREAM_TYPE_AUDIO: u8 = 5;

/// Dynamic range of the video, with the names of EXT-X-STREAM-INF (RFC 8216bis, 4.4.6.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VideoRange {
    /// Standard range; also used if the range is not signalled.
    Sdr,
    /// Hybrid log-gamma: transfer characteristics 18.
    Hlg,
    /// Perceptual quantizer: transfer characteristics 16.
    Pq,
}

impl VideoRange {
    /// `SDR`, `HLG` or `PQ`.
    pub fn as_str(self) -> &'static str {
        match self {
            VideoRange::Sdr => "SDR",
            VideoRange::Hlg => "HLG",
            VideoRange::Pq => "PQ",
        }
    }

    /// By transfer characteristics (ISO/IEC 23091-2, table 3).
    pub(crate) fn of_transfer(transfer: Option<u32>) -> Self {
        match transfer {
            Some(16) => VideoRange::Pq,
            Some(18) => VideoRange::Hlg,
            _ => VideoRange::Sdr,
        }
    }
}

/// Track details that a player needs before it requests segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrackDetails {
    /// Video.
    Video {
        /// Size after cropping.
        size: VideoSize,
        /// Dynamic range.
        range: VideoRange,
    },
    /// Audio.
    Audio {
        /// Ticks per second of the track; for HE-AAC the rate of the core, half of the output rate.
        sample_rate: u32,
        /// Channels; 2 if only the bitstream has the number.
        channels: u8,
        /// Samples of an access unit; `None` if each packet has its own number (Opus).
        frame_samples: Option<u32>,
    },
}

/// One track as it is packaged.
#[derive(Debug, Clone, PartialEq)]
pub struct TrackConfig {
    codec: Codec,
    record: Bytes,
    entry: SampleEntry,
    codec_string: String,
    details: TrackDetails,
}

impl TrackConfig {
    /// Reads a codec configuration in the form that [`crate::Packet`]s carry.
    ///
    /// HE-AAC with explicit signalling runs at the rate of its core with 1024 (or 960) ticks per frame, and is
    /// named `mp4a.40.5` or `mp4a.40.29`. Implicit signalling is not visible in the codec configuration; such a track is named
    /// `mp4a.40.2`, and players use the extension that they find. AV1 needs a sequence header in `av1C`.
    ///
    /// # Errors
    /// [`Fmp4Error::Record`], [`Fmp4Error::RecordTooLong`] or [`Fmp4Error::Unsupported`]: AAC other than
    /// Main, LC, SSR and LTP cores, AV1 without a sequence header.
    pub fn parse(codec: Codec, record: &Bytes) -> Result<Self, Fmp4Error> {
        if record.len() > RECORD_BYTES_MAX {
            return Err(Fmp4Error::RecordTooLong(record.len()));
        }
        let (entry, codec_string, details) = match codec {
            Codec::H264 => avc_parts(record)?,
            Codec::Hevc => hevc_parts(record)?,
            Codec::Av1 => av1_parts(record)?,
            Codec::Aac => aac_parts(record)?,
            Codec::Opus => opus_parts(record)?,
        };
        Ok(TrackConfig { codec, record: record.clone(), entry, codec_string, details })
    }

    /// Codec of the track.
    pub fn codec(&self) -> Codec {
        self.codec
    }

    /// The codec configuration from which this track was parsed.
    pub fn record(&self) -> &Bytes {
        &self.record
    }

    /// Codec string for CODECS (RFC 6381; ISO/IEC 14496-15, annex E; AV1 in ISO base media, section 5).
    pub fn codec_string(&self) -> &str {
        &self.codec_string
    }

    /// Details for playlists.
    pub fn details(&self) -> TrackDetails {
        self.details
    }

    /// Ticks per second.
    pub fn timescale(&self) -> u32 {
        match self.details {
            TrackDetails::Video { .. } => VIDEO_TIMESCALE,
            TrackDetails::Audio { sample_rate, .. } => sample_rate,
        }
    }

    /// Ticks in an audio packet; `None` for video and for an invalid packet.
    pub fn audio_samples(&self, payload: &[u8]) -> Option<u32> {
        match self.details {
            TrackDetails::Audio { frame_samples: Some(samples), .. } => Some(samples),
            TrackDetails::Audio { frame_samples: None, .. } => clock::opus_samples(payload),
            TrackDetails::Video { .. } => None,
        }
    }

    pub(super) fn sample_entry(&self) -> &SampleEntry {
        &self.entry
    }
}

type Parts = (SampleEntry, String, TrackDetails);

fn visual(size: VideoSize) -> Visual {
    // Sizes are at most 65,535: the type guarantees it.
    Visual {
        data_reference_index: 1,
        width: size.width as u16,
        height: size.height as u16,
        ..Visual::default()
    }
}

fn audio(channels: u8, sample_rate: u32) -> Audio {
    // Rates over 65,535 do not fit into the field; the codec configuration has them.
    let rate = u16::try_from(sample_rate).unwrap_or(0);
    Audio {
        data_reference_index: 1,
        channel_count: u16::from(channels),
        sample_size: 16,
        sample_rate: FixedPoint::from(rate),
    }
}

fn avc_parts(record: &[u8]) -> Result<Parts, Fmp4Error> {
    let config = AvcConfig::parse(record)?;
    let size = config.video_size()?;
    let owned = |sets: &[&[u8]]| sets.iter().map(|set| set.to_vec()).collect();
    // The fields after the parameter sets are optional; they are kept if they can be read.
    let avcc = Avcc::decode_body(&mut &record[..]).unwrap_or_else(|_| Avcc {
        configuration_version: 1,
        avc_profile_indication: config.profile,
        profile_compatibility: config.compatibility,
        avc_level_indication: config.level,
        length_size: config.nal_length_bytes,
        sequence_parameter_sets: owned(&config.sps),
        picture_parameter_sets: owned(&config.pps),
        ext: None,
    });
    let name = format!("avc1.{:02x}{:02x}{:02x}", config.profile, config.compatibility, config.level);
    let range = VideoRange::of_transfer(config.sps.first().and_then(|sps| avc::transfer(sps)));
    let entry = Avc1 { visual: visual(size), avcc, ..Avc1::default() };
    Ok((entry.into(), name, TrackDetails::Video { size, range }))
}

fn hevc_parts(record: &[u8]) -> Result<Parts, Fmp4Error> {
    let config = HevcConfig::parse(record)?;
    let size = config.video_size()?;
    let mut hvcc = Hvcc::decode_body(&mut &record[..])?;
    // hvc1 requires that all parameter sets are here (ISO/IEC 14496-15, 8.4.1.1).
    hvcc.arrays.iter_mut().for_each(|array| array.completeness = true);
    let sps = config.parameter_sets.iter().find(|set| set.nal_type == hevc::NAL_SPS);
    let range = VideoRange::of_transfer(sps.and_then(|sps| hevc::transfer(sps.nal)));
    let entry = Hvc1 { visual: visual(size), hvcc, ..Hvc1::default() };
    Ok((entry.into(), hevc_string(&config), TrackDetails::Video { size, range }))
}

/// Codec string of HEVC (ISO/IEC 14496-15, annex E.3).
fn hevc_string(config: &HevcConfig<'_>) -> String {
    let space = ["", "A", "B", "C"][usize::from(config.profile_space & 3)];
    let tier = if config.high_tier { 'H' } else { 'L' };
    let mut name = format!(
        "hvc1.{space}{}.{:x}.{tier}{}",
        config.profile,
        config.compatibility.reverse_bits(),
        config.level
    );
    let used = config.constraints.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    for byte in &config.constraints[..used] {
        name.push_str(&format!(".{byte:x}"));
    }
    name
}

fn av1_parts(record: &[u8]) -> Result<Parts, Fmp4Error> {
    let config = Av1Config::parse(record)?;
    let av1c = Av1c::decode_body(&mut &record[..])?;
    let missing = Fmp4Error::Unsupported("AV1 without a sequence header in its configuration record");
    let obus = parse_obus(config.config_obus, Av1ObuParseContext::ConfigObus).map_err(|_| missing.clone())?;
    let header = obus.iter().find(|obu| obu.obu_type == Av1ObuType::SequenceHeader).ok_or(missing.clone())?;
    let sequence = parse_sequence_header(header.payload).map_err(|_| missing)?;
    let side = |side: u32| {
        let fits = (1..=u32::from(u16::MAX)).contains(&side);
        fits.then_some(side).ok_or(CodecError::Field("video size"))
    };
    let size = VideoSize { width: side(sequence.max_frame_width)?, height: side(sequence.max_frame_height)? };
    let tier = if config.high_tier { 'H' } else { 'M' };
    let name = format!("av01.{}.{:02}{tier}.{:02}", config.profile, config.level, config.bit_depth);
    let range = VideoRange::of_transfer(av1::transfer(header.payload));
    let entry = Av01 { visual: visual(size), av1c, ..Av01::default() };
    Ok((entry.into(), name, TrackDetails::Video { size, range }))
}

fn aac_parts(record: &[u8]) -> Result<Parts, Fmp4Error> {
    let config = AacConfig::parse(record)?;
    if !(1..=4).contains(&config.object_type) {
        return Err(Fmp4Error::Unsupported("AAC of another kind than Main, LC, SSR or LTP"));
    }
    let channels = if config.channels == 0 { 2 } else { config.channels };
    let name = format!("mp4a.40.{}", config.signalled_type);
    let entry = Mp4a {
        audio: audio(channels, config.sample_rate),
        esds: mp4_atom::Esds {
            es_desc: esds::EsDescriptor {
                dec_config: esds::DecoderConfig {
                    object_type_indication: OBJECT_TYPE_AAC,
                    stream_type: STREAM_TYPE_AUDIO,
                    dec_specific: Some(esds::DecoderSpecific { raw: record.to_vec(), ..Default::default() }),
                    ..Default::default()
                },
                ..Default::default()
            },
        },
        btrt: None,
        taic: None,
    };
    let details = TrackDetails::Audio {
        sample_rate: config.sample_rate,
        channels,
        frame_samples: Some(config.frame_samples),
    };
    Ok((entry.into(), name, details))
}

/// OpusHead is little-endian with a magic, `dOps` big-endian without (Opus in ISO base media, 4.3.2).
fn opus_parts(record: &[u8]) -> Result<Parts, Fmp4Error> {
    let config = OpusConfig::parse(record)?;
    let channel_mapping = match config.mapping {
        [stream_count, coupled_count, mapping @ ..] => Some(OpusChannelMapping {
            family: config.mapping_family,
            stream_count: *stream_count,
            coupled_count: *coupled_count,
            channel_mapping: mapping.to_vec(),
        }),
        _ => None,
    };
    let dops = Dops {
        output_channel_count: config.channels,
        pre_skip: config.pre_skip,
        input_sample_rate: config.input_sample_rate,
        output_gain: config.output_gain,
        channel_mapping,
    };
    // An invalid channel table fails here and not when a viewer requests the segment.
    dops.encode_body(&mut Vec::new())?;
    let entry = Opus { audio: audio(config.channels, OPUS_RATE), dops, btrt: None };
    let details =
        TrackDetails::Audio { sample_rate: OPUS_RATE, channels: config.channels, frame_samples: None };
    Ok((entry.into(), "opus".to_owned(), details))
}
