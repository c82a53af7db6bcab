//! Opus in transport streams: the control header before each packet, and the channel configuration
//! (ETSI TS draft 0.1.3, clauses 4.2 and 4.3).

use crate::codec::opus::{self, OpusConfig};

/// The eleven bits before the flags of a control header, in 16 bits.
const PREFIX: u16 = 0x7fe0;
const PREFIX_MASK: u16 = 0xffe0;
/// Flags of a control header: samples to drop at the start and at the end, and an extension.
const START_TRIM: u16 = 0x10;
const END_TRIM: u16 = 0x08;
const EXTENSION: u16 = 0x04;
/// Largest number of samples to drop: 13 bits.
pub(super) const TRIM_MAX: u16 = 0x1fff;

/// Vorbis order of channels (RFC 7845, 5.1.1.2).
const FAMILY_VORBIS: u8 = 1;
/// Channels without an order (RFC 7845, 5.1.1.3): two languages, for example.
const FAMILY_NONE: u8 = 255;
/// channel_config_code of two independent channels.
const CODE_DUAL_MONO: u8 = 0;
/// Stream count, coupled count and mapping of two independent channels.
const DUAL_MONO: &[u8] = &[2, 0, 0, 1];
/// The same for 3 to 8 channels in Vorbis order.
const VORBIS: [&[u8]; 6] = [
    &[2, 1, 0, 2, 1],
    &[2, 2, 0, 1, 2, 3],
    &[3, 2, 0, 4, 1, 2, 3],
    &[4, 2, 0, 4, 1, 2, 3, 5],
    &[4, 3, 0, 4, 1, 2, 3, 5, 6],
    &[5, 3, 0, 6, 1, 2, 3, 4, 5, 7],
];

/// Whether a channel_config_code is read: 0 to 8.
pub(super) fn is_known(code: u8) -> bool {
    usize::from(code) <= VORBIS.len() + 2
}

/// Mapping family, and stream count, coupled count and mapping behind it; `None` for a code that is not known.
fn mapping(code: u8) -> Option<(u8, &'static [u8])> {
    match code {
        CODE_DUAL_MONO => Some((FAMILY_NONE, DUAL_MONO)),
        1 | 2 => Some((0, &[])),
        _ => Some((FAMILY_VORBIS, *VORBIS.get(usize::from(code) - 3)?)),
    }
}

/// OpusHead (RFC 7845, 5.1) of a channel_config_code. Rate before encoding and gain are not sent in transport streams.
pub(super) fn head(code: u8, pre_skip: u16) -> Option<Vec<u8>> {
    let (family, mapping) = mapping(code)?;
    let channels = if code == CODE_DUAL_MONO { 2 } else { code };
    Some(opus::head(channels, pre_skip, family, mapping))
}

/// channel_config_code of a configuration; `None` if the order of its channels has none.
pub(super) fn code(config: &OpusConfig<'_>) -> Option<u8> {
    let code = if config.mapping_family == FAMILY_NONE { CODE_DUAL_MONO } else { config.channels };
    // One and two channels in Vorbis order are the streams of family 0.
    let is_plain =
        matches!(config.mapping, [1, 0, 0] | [1, 1, 0, 1]) && config.mapping_family == FAMILY_VORBIS;
    let same = mapping(code)? == (config.mapping_family, config.mapping);
    (same || is_plain).then_some(code)
}

/// A control header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Control {
    /// Where the packet begins.
    pub(super) payload_at: usize,
    /// Bytes of the packet.
    pub(super) payload_bytes: usize,
    /// Samples at 48 kHz to drop at the start.
    pub(super) start_trim: u16,
}

impl Control {
    /// Reads the header at the front; `None` if these bytes are not a header or are cut off.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes;
        let head = take_u16(&mut rest)?;
        if head & PREFIX_MASK != PREFIX {
            return None;
        }
        let mut payload_bytes = 0;
        loop {
            let (part, behind) = rest.split_first()?;
            rest = behind;
            payload_bytes += usize::from(*part);
            if *part != 255 {
                break;
            }
        }
        let mut trim = |flag: u16| if head & flag == 0 { Some(0) } else { take_u16(&mut rest) };
        let start_trim = trim(START_TRIM)? & TRIM_MAX;
        trim(END_TRIM)?;
        if head & EXTENSION != 0 {
            let (length, behind) = rest.split_first()?;
            rest = behind.get(usize::from(*length)..)?;
        }
        Some(Control { payload_at: bytes.len() - rest.len(), payload_bytes, start_trim })
    }
}

fn take_u16(rest: &mut &[u8]) -> Option<u16> {
    let (bytes, behind) = rest.split_first_chunk()?;
    *rest = behind;
    Some(u16::from_be_bytes(*bytes))
}

/// Appends the header of a packet of `payload_bytes`; `start_trim` is at most [`TRIM_MAX`].
pub(super) fn write(out: &mut Vec<u8>, payload_bytes: usize, start_trim: u16) {
    let flags = if start_trim > 0 { START_TRIM } else { 0 };
    out.extend_from_slice(&(PREFIX | flags).to_be_bytes());
    out.resize(out.len() + payload_bytes / 255, 255);
    out.push((payload_bytes % 255) as u8);
    if start_trim > 0 {
        out.extend_from_slice(&start_trim.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_code_has_a_header_and_comes_back() {
        for known in 0..=8 {
            assert!(is_known(known));
            let record = head(known, 312).expect("known");
            let config = OpusConfig::parse(&record).expect("valid");
            let channels = if known == 0 { 2 } else { known };
            assert_eq!((config.channels, config.pre_skip, config.input_sample_rate), (channels, 312, 48_000));
            assert_eq!(code(&config), Some(known));
        }
        assert!(!is_known(9));
        assert_eq!(head(9, 0), None);
    }

    #[test]
    fn other_orders_of_channels_have_no_code() {
        let record = |channels: u8, family: u8, mapping: &[u8]| {
            [&b"OpusHead\x01"[..], &[channels, 0, 0, 0, 0, 0, 0, 0, 0, family], mapping].concat()
        };
        let coded = |record: Vec<u8>| code(&OpusConfig::parse(&record).expect("valid"));
        assert_eq!(coded(record(2, 1, &[1, 1, 0, 1])), Some(2));
        assert_eq!(coded(record(1, 1, &[1, 0, 0])), Some(1));
        assert_eq!(coded(record(3, 1, &[2, 1, 0, 1, 2])), None);
        assert_eq!(coded(record(2, 255, &[1, 1, 0, 1])), None);
        assert_eq!(coded(record(9, 255, &[9, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8])), None);
        assert_eq!(coded(record(9, 1, &[9, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8])), None);
    }

    #[test]
    fn control_headers_survive_and_optional_fields_are_skipped() {
        for payload_bytes in [0, 1, 254, 255, 256, 1275, 4000] {
            for start_trim in [0, 312, TRIM_MAX] {
                let mut bytes = Vec::new();
                write(&mut bytes, payload_bytes, start_trim);
                let payload_at = bytes.len();
                assert_eq!(Control::parse(&bytes), Some(Control { payload_at, payload_bytes, start_trim }));
                for end in 0..payload_at {
                    assert_eq!(Control::parse(&bytes[..end]), None, "cut at {end}");
                }
            }
        }
        let all = [0x7f, 0xfc, 3, 0xe1, 0x38, 0, 9, 2, 0, 0];
        let expected = Control { payload_at: 10, payload_bytes: 3, start_trim: 312 };
        assert_eq!(Control::parse(&all), Some(expected));
        assert_eq!((Control::parse(&all[..9]), Control::parse(&[0x7f, 0xc0, 3])), (None, None));
    }
}
