//! Reads FLV files of H.264 and AAC. Written apart from the service's own reader, so that the two check each other.

use std::path::Path;

use crate::record::{Record, Track};

const FILE_HEADER_BYTES: usize = 9;
const TAG_HEADER_BYTES: usize = 11;
/// Length of the tag before, repeated after each tag.
const BACK_POINTER_BYTES: usize = 4;
const TAG_AUDIO: u8 = 8;
const TAG_VIDEO: u8 = 9;

/// Every H.264 and AAC packet of a file. A last tag that is still being written is left out.
///
/// # Panics
/// When the file cannot be read, is no FLV file, or holds another codec.
#[must_use]
pub fn read(path: &Path) -> Vec<Record> {
    let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()));
    parse(&bytes).unwrap_or_else(|| panic!("{} is not an FLV file", path.display()))
}

/// The same without the parameter sets inside frames, where segments after a change repeat them.
///
/// # Panics
/// As [`read`].
#[must_use]
pub fn read_without_sets(path: &Path) -> Vec<Record> {
    let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()));
    records(&bytes, without_sets).unwrap_or_else(|| panic!("{} is not an FLV file", path.display()))
}

/// Every packet of an FLV file in memory; `None` when it does not begin like one.
#[must_use]
pub fn parse(bytes: &[u8]) -> Option<Vec<Record>> {
    records(bytes, <[u8]>::to_vec)
}

fn records(bytes: &[u8], frame_bytes: fn(&[u8]) -> Vec<u8>) -> Option<Vec<Record>> {
    let mut rest = bytes.strip_prefix(b"FLV")?.get(FILE_HEADER_BYTES - 3 + BACK_POINTER_BYTES..)?;
    let mut records = Vec::new();
    while let Some((header, body)) = rest.split_at_checked(TAG_HEADER_BYTES) {
        let length = usize::from(header[1]) << 16 | usize::from(header[2]) << 8 | usize::from(header[3]);
        let Some((body, after)) = body.split_at_checked(length) else { break };
        // The low 24 bits come first, then the high 8 bits.
        let time = i32::from_be_bytes([header[7], header[4], header[5], header[6]]);
        records.extend(match header[0] {
            TAG_AUDIO => audio(body, i64::from(time)),
            TAG_VIDEO => video(body, i64::from(time), frame_bytes),
            _ => None,
        });
        let Some(after) = after.get(BACK_POINTER_BYTES..) else { break };
        rest = after;
    }
    Some(records)
}

/// The tags of `first` before `millis`, then those of `second`, with times that go on; `None` when one of them is
/// no FLV file.
///
/// A publisher of the result sends the codec configuration of `second` in mid-stream.
#[must_use]
pub fn join(first: &[u8], millis: u32, second: &[u8]) -> Option<Vec<u8>> {
    let head = FILE_HEADER_BYTES + BACK_POINTER_BYTES;
    let mut joined = first.get(..head)?.to_vec();
    for (file, from, until) in [(first, 0, millis), (second, millis, u32::MAX)] {
        let mut rest = file.strip_prefix(b"FLV")?.get(head - 3..)?;
        while let Some(header) = rest.get(..TAG_HEADER_BYTES) {
            let length = usize::from(header[1]) << 16 | usize::from(header[2]) << 8 | usize::from(header[3]);
            let Some((tag, after)) = rest.split_at_checked(TAG_HEADER_BYTES + length + BACK_POINTER_BYTES)
            else {
                break;
            };
            rest = after;
            let time = from.checked_add(u32::from_be_bytes([header[7], header[4], header[5], header[6]]))?;
            let kept = matches!(header[0], TAG_AUDIO | TAG_VIDEO) && time < until;
            // An end of sequence would end the video for a reader of the joined file.
            if kept && !(header[0] == TAG_VIDEO && tag.get(TAG_HEADER_BYTES + 1) == Some(&2)) {
                let [high, time @ ..] = time.to_be_bytes();
                joined.extend_from_slice(&tag[..4]);
                joined.extend_from_slice(&time);
                joined.push(high);
                joined.extend_from_slice(&tag[8..]);
            }
        }
    }
    Some(joined)
}

fn audio(body: &[u8], time: i64) -> Option<Record> {
    let (header, payload) = body.split_at_checked(2)?;
    assert_eq!(header[0] >> 4, 10, "the audio is not AAC");
    Some(Record::new(Track::Audio, header[1] == 0, false, (time, time), payload))
}

/// An H.264 access unit (ISO 14496-15: each NAL unit after its length) without SPS and PPS.
fn without_sets(unit: &[u8]) -> Vec<u8> {
    let (mut rest, mut kept) = (unit, Vec::new());
    while let Some((length, behind)) = rest.split_first_chunk::<4>() {
        let length = u32::from_be_bytes(*length) as usize;
        let Some(nal) = behind.get(..length) else { break };
        if !matches!(nal.first().map(|first| first & 0x1f), Some(7 | 8)) {
            kept.extend_from_slice(&rest[..4 + length]);
        }
        rest = &behind[length..];
    }
    kept.extend_from_slice(rest);
    kept
}

fn video(body: &[u8], time: i64, frame_bytes: fn(&[u8]) -> Vec<u8>) -> Option<Record> {
    let (header, payload) = body.split_at_checked(5)?;
    assert_eq!(header[0] & 0x0f, 7, "the video is not H.264");
    let keyframe = header[0] >> 4 == 1;
    // Signed 24 bits: presentation time minus decoding time.
    let shift = i64::from(i32::from_be_bytes([header[2], header[3], header[4], 0]) >> 8);
    match header[1] {
        0 => Some(Record::new(Track::Video, true, false, (time, time), payload)),
        1 => Some(Record::new(Track::Video, false, keyframe, (time, time + shift), &frame_bytes(payload))),
        // End of sequence: no media.
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tag(kind: u8, time: [u8; 4], body: &[u8]) -> Vec<u8> {
        let mut tag =
            vec![kind, 0, 0, u8::try_from(body.len()).unwrap(), time[0], time[1], time[2], time[3], 0, 0, 0];
        tag.extend_from_slice(body);
        tag.extend_from_slice(&u32::try_from(TAG_HEADER_BYTES + body.len()).unwrap().to_be_bytes());
        tag
    }

    #[test]
    fn packets_are_read_with_their_times() {
        let mut file = b"FLV\x01\x05\0\0\0\x09\0\0\0\0".to_vec();
        file.extend(tag(TAG_VIDEO, [0, 0, 0, 0], &[0x17, 0, 0, 0, 0, 1, 2]));
        file.extend(tag(TAG_AUDIO, [0, 0, 5, 1], &[0xaf, 1, 9]));
        file.extend(tag(TAG_VIDEO, [0, 1, 0, 0], &[0x27, 1, 0xff, 0xff, 0xff, 7]));
        file.extend(tag(TAG_VIDEO, [0, 1, 0, 0], &[0x17, 2, 0, 0, 0]));
        file.extend([TAG_VIDEO, 0, 0, 99]);
        let records = parse(&file).unwrap();
        assert_eq!(records.len(), 3);
        assert!(records[0].config && records[0].size == 2);
        assert_eq!((records[1].track, records[1].dts_ms), (Track::Audio, 0x0100_0005));
        assert_eq!((records[2].dts_ms, records[2].pts_ms, records[2].keyframe), (256, 255, false));
    }

    #[test]
    fn files_are_joined_with_times_that_go_on() {
        let mut file = b"FLV\x01\x05\0\0\0\x09\0\0\0\0".to_vec();
        file.extend(tag(TAG_VIDEO, [0, 0, 0, 0], &[0x17, 0, 0, 0, 0, 1]));
        file.extend(tag(TAG_VIDEO, [0, 0, 0, 0], &[0x17, 1, 0, 0, 0, 2]));
        file.extend(tag(TAG_VIDEO, [0, 0, 40, 0], &[0x27, 1, 0, 0, 0, 3]));
        file.extend(tag(TAG_VIDEO, [0, 0, 80, 0], &[0x17, 2, 0, 0, 0]));
        let joined = parse(&join(&file, 40, &file).unwrap()).unwrap();
        let times: Vec<_> = joined.iter().map(|record| (record.config, record.dts_ms)).collect();
        assert_eq!(times, [(true, 0), (false, 0), (true, 40), (false, 40), (false, 80)]);
        assert!(join(b"RIFF", 40, &file).is_none());
    }

    #[test]
    fn other_files_are_refused() {
        assert!(parse(b"RIFF").is_none());
        assert!(parse(b"FLV").is_none());
    }
}
