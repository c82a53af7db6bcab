//! ADTS (ISO/IEC 14496-3, annex 1.A.2.2): AAC frames with a header each.

use crate::codec::aac::AacConfig;

/// Bytes of a header without a checksum, and of the checksum.
pub(super) const HEADER_BYTES: usize = 7;
const CRC_BYTES: usize = 2;
/// Largest frame with its header: the length has 13 bits.
pub(super) const FRAME_BYTES_MAX: usize = 0x1fff;
/// Indexes of sample rates that have a meaning (table 1.18).
const RATES: u8 = 13;

/// First byte of a header.
pub(super) const FIRST_BYTE: u8 = 0xff;

/// What stands at the front of bytes that should be frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framed {
    /// A frame of so many bytes.
    Whole(usize),
    /// The beginning of a frame.
    Short,
    /// No frame.
    Not,
}

/// Finds the length of the frame at the front.
pub(super) fn framed(bytes: &[u8]) -> Framed {
    if bytes.first() != Some(&FIRST_BYTE) {
        return Framed::Not;
    }
    let Some(head) = bytes.first_chunk::<HEADER_BYTES>() else { return Framed::Short };
    // Twelve bits of synchronisation and the layer, which is 0.
    let is_header = head[1] & 0xf6 == 0xf0 && rate_index(head) < RATES;
    let total = usize::from(head[3] & 3) << 11 | usize::from(head[4]) << 3 | usize::from(head[5] >> 5);
    match total {
        total if !is_header || total < payload_at(head) => Framed::Not,
        total if bytes.len() < total => Framed::Short,
        total => Framed::Whole(total),
    }
}

/// The codec configuration of a whole frame, and where its payload begins. `None` if the frame has several blocks,
/// or a channel configuration that only the payload describes.
pub(super) fn parse(frame: &[u8]) -> Option<([u8; 2], usize)> {
    let head = frame.first_chunk::<HEADER_BYTES>()?;
    let object_type = (head[2] >> 6) + 1;
    let rate = rate_index(head);
    let channels = (head[2] & 1) << 2 | head[3] >> 6;
    let blocks = head[6] & 3;
    let config = [object_type << 3 | rate >> 1, (rate & 1) << 7 | channels << 3];
    (blocks == 0 && channels != 0).then_some((config, payload_at(head)))
}

fn rate_index(head: &[u8; HEADER_BYTES]) -> u8 {
    head[2] >> 2 & 0x0f
}

fn payload_at(head: &[u8; HEADER_BYTES]) -> usize {
    let has_crc = head[1] & 1 == 0;
    HEADER_BYTES + if has_crc { CRC_BYTES } else { 0 }
}

/// The header of a configuration with the length 0, for [`header`]. `None` if ADTS has no words for it.
pub(super) fn template(config: &AacConfig) -> Option<[u8; HEADER_BYTES]> {
    let profile = config.object_type.checked_sub(1).filter(|profile| *profile < 4)?;
    let rate = config.rate_index()?;
    let channels = config.channel_configuration;
    let has_words = (1..=7).contains(&channels) && config.frame_samples == 1024;
    // The fullness of the buffer is not told: all ones. One block.
    has_words.then_some([
        0xff,
        0xf1,
        profile << 6 | rate << 2 | channels >> 2,
        (channels & 3) << 6,
        0,
        0x1f,
        0xfc,
    ])
}

/// The header of a frame of `payload_bytes`; `None` if it is too long.
pub(super) fn header(template: [u8; HEADER_BYTES], payload_bytes: usize) -> Option<[u8; HEADER_BYTES]> {
    let total = u16::try_from(HEADER_BYTES.checked_add(payload_bytes)?).ok()?;
    let mut header = template;
    header[3] |= (total >> 11) as u8;
    header[4] |= (total >> 3) as u8;
    header[5] |= (total << 5) as u8;
    (usize::from(total) <= FRAME_BYTES_MAX).then_some(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(record: &[u8]) -> AacConfig {
        AacConfig::parse(record).expect("valid")
    }

    #[test]
    fn written_frames_are_read() {
        for record in [[0x11, 0x90], [0x12, 0x08], [0x0a, 0x38], [0x26, 0x10]] {
            let template = template(&config(&record)).expect("a header");
            for bytes in [1, 400, FRAME_BYTES_MAX - HEADER_BYTES] {
                let header = header(template, bytes).expect("short");
                let frame = [&header[..], &vec![7; bytes], &[0xff]].concat();
                assert_eq!(framed(&frame), Framed::Whole(HEADER_BYTES + bytes));
                assert_eq!(framed(&frame[..frame.len() - 2]), Framed::Short);
                assert_eq!(parse(&frame), Some((record, HEADER_BYTES)));
            }
            assert_eq!(header(template, FRAME_BYTES_MAX - HEADER_BYTES + 1), None);
            assert_eq!(header(template, usize::MAX), None);
        }
    }

    #[test]
    fn he_aac_is_written_with_its_core() {
        let record = [0x2b, 0x11, 0x88, 0x00];
        let header = header(template(&config(&record)).expect("a header"), 9).expect("short");
        assert_eq!(parse(&header), Some(([0x13, 0x10], HEADER_BYTES)));
    }

    #[test]
    fn configurations_without_words_are_refused() {
        // 960 samples, a rate outside of the table, no and too many channels, USAC.
        for record in [
            &[0x11, 0x94][..],
            &[0x17, 0x80, 0x5d, 0xc8, 0x30],
            &[0x11, 0x80],
            &[0x11, 0xd8],
            &[0xf9, 0x46, 0x40],
        ] {
            assert_eq!(template(&config(record)), None, "{record:?}");
        }
    }

    #[test]
    fn other_bytes_are_no_frames() {
        let good = header(template(&config(&[0x11, 0x90])).expect("a header"), 2).expect("short");
        assert_eq!(framed(&[&good[..], &[1, 2]].concat()), Framed::Whole(9));
        let with = |index: usize, byte: u8| {
            let mut frame = [&good[..], &[1, 2, 3, 4]].concat();
            frame[index] = byte;
            (framed(&frame), parse(&frame))
        };
        // Another first byte, layer 1, rate 13, and a length within the header.
        let others = [(0, 0xfe), (1, 0xf3), (2, 0x74), (4, 0)].map(|(index, byte)| with(index, byte).0);
        assert_eq!(others, [Framed::Not; 4]);
        // A checksum; two blocks; no channels.
        assert_eq!(with(1, 0xf0), (Framed::Whole(9), Some(([0x11, 0x90], 9))));
        assert_eq!((with(6, 0xfd).1, with(3, 0).1), (None, None));
        for end in 1..good.len() {
            assert_eq!(framed(&good[..end]), Framed::Short, "cut at {end}");
        }
        assert_eq!((framed(&[]), parse(&good[..6])), (Framed::Not, None));
    }
}
