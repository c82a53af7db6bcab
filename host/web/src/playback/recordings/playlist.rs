//! The playlist of recordings that play as one (RFC 8216, section 4.3): byte ranges into each, and a discontinuity between two.

use std::fmt::Write as _;
use std::sync::Arc;

use time::OffsetDateTime;

use super::index::{Indexed, SEGMENT_US_MAX};
use satcast_core::ids::UnixMillis;

/// Longest segment in the usual case, in seconds: that of an event must not change while it grows.
const TARGET_SECS: u64 = SEGMENT_US_MAX / 1_000_000 + 2;
const US_PER_SEC: f64 = 1_000_000.0;

/// A recording in the playlist.
pub(super) struct File {
    pub(super) uri: String,
    /// The viewer asked for this one.
    pub(super) is_own: bool,
    pub(super) started_at: UnixMillis,
    pub(super) index: Arc<Indexed>,
}

/// The playlist; `None` while there is nothing to play. `is_over`: nothing follows.
pub(super) fn render(files: &[File], is_over: bool) -> Option<String> {
    let segments = || files.iter().flat_map(|file| &file.index.segments);
    let longest = segments().map(|segment| segment.duration_us.div_ceil(1_000_000)).max()?;
    let mut text = String::with_capacity(512 + segments().count() * 160);
    text.push_str("#EXTM3U\n#EXT-X-VERSION:7\n");
    line(&mut text, format_args!("#EXT-X-TARGETDURATION:{}", longest.max(TARGET_SECS)));
    line(&mut text, format_args!("#EXT-X-MEDIA-SEQUENCE:0"));
    line(&mut text, format_args!("#EXT-X-PLAYLIST-TYPE:{}", if is_over { "VOD" } else { "EVENT" }));
    if is_over && segments().all(|segment| segment.is_keyframe) {
        text.push_str("#EXT-X-INDEPENDENT-SEGMENTS\n");
    }
    // Players would begin an event at its end.
    let start = start_us(files);
    if start > 0 || !is_over {
        let secs = start as f64 / US_PER_SEC;
        line(&mut text, format_args!("#EXT-X-START:TIME-OFFSET={secs:.3},PRECISE=YES"));
    }
    let mut is_first = true;
    for file in files.iter().filter(|file| !file.index.segments.is_empty()) {
        if !std::mem::take(&mut is_first) {
            text.push_str("#EXT-X-DISCONTINUITY\n");
        }
        add(&mut text, file);
    }
    if is_over {
        text.push_str("#EXT-X-ENDLIST\n");
    }
    Some(text)
}

/// Where the recording begins that the viewer asked for, in the whole playlist.
fn start_us(files: &[File]) -> u64 {
    let before = files.iter().take_while(|file| !file.is_own);
    before.flat_map(|file| &file.index.segments).map(|segment| segment.duration_us).sum()
}

fn add(text: &mut String, file: &File) {
    let File { uri, index, started_at, .. } = file;
    line(text, format_args!("#EXT-X-MAP:URI=\"{uri}\",BYTERANGE=\"{}@0\"", index.init_bytes));
    if let Some(date) = date(*started_at) {
        line(text, format_args!("#EXT-X-PROGRAM-DATE-TIME:{date}"));
    }
    for segment in &index.segments {
        let secs = segment.duration_us as f64 / US_PER_SEC;
        line(text, format_args!("#EXTINF:{secs:.6},"));
        line(text, format_args!("#EXT-X-BYTERANGE:{}@{}", segment.bytes, segment.offset));
        line(text, format_args!("{uri}"));
    }
}

/// ISO 8601 with milliseconds, UTC.
fn date(at: UnixMillis) -> Option<String> {
    let time = OffsetDateTime::from_unix_timestamp_nanos(i128::from(at.0) * 1_000_000).ok()?;
    let (date, clock) = (time.date(), time.time());
    Some(format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z",
        date.year(),
        u8::from(date.month()),
        date.day(),
        clock.hour(),
        clock.minute(),
        clock.second(),
        clock.millisecond()
    ))
}

fn line(text: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing to a text cannot fail.
    let _ = writeln!(text, "{line}");
}

#[cfg(test)]
mod tests {
    use super::super::index::Segment;
    use super::*;

    fn file(uri: &str, is_own: bool, segments: &[(u64, u64, bool)]) -> File {
        let (mut offset, mut start_us) = (700, 0);
        let segments = segments.iter().map(|(bytes, millis, is_keyframe)| {
            let duration_us = millis * 1_000;
            let segment = Segment { offset, bytes: *bytes, start_us, duration_us, is_keyframe: *is_keyframe };
            offset += bytes;
            start_us += duration_us;
            segment
        });
        let index = Indexed { init_bytes: 700, segments: segments.collect(), ..Indexed::default() };
        File { uri: uri.into(), is_own, started_at: UnixMillis(1_800_000_000_123), index: Arc::new(index) }
    }

    #[test]
    fn recordings_of_a_session_are_one_playlist() {
        let files = [
            file("../1/t/T/media.mp4", false, &[(10, 4_000, true), (20, 2_500, true)]),
            file("../2/t/U/media.mp4", true, &[(30, 4_040, true)]),
        ];
        let expected = "#EXTM3U\n#EXT-X-VERSION:7\n#EXT-X-TARGETDURATION:10\n#EXT-X-MEDIA-SEQUENCE:0\n\
             #EXT-X-PLAYLIST-TYPE:VOD\n#EXT-X-INDEPENDENT-SEGMENTS\n\
             #EXT-X-START:TIME-OFFSET=6.500,PRECISE=YES\n\
             #EXT-X-MAP:URI=\"../1/t/T/media.mp4\",BYTERANGE=\"700@0\"\n\
             #EXT-X-PROGRAM-DATE-TIME:2027-01-15T08:00:00.123Z\n\
             #EXTINF:4.000000,\n#EXT-X-BYTERANGE:10@700\n../1/t/T/media.mp4\n\
             #EXTINF:2.500000,\n#EXT-X-BYTERANGE:20@710\n../1/t/T/media.mp4\n\
             #EXT-X-DISCONTINUITY\n\
             #EXT-X-MAP:URI=\"../2/t/U/media.mp4\",BYTERANGE=\"700@0\"\n\
             #EXT-X-PROGRAM-DATE-TIME:2027-01-15T08:00:00.123Z\n\
             #EXTINF:4.040000,\n#EXT-X-BYTERANGE:30@700\n../2/t/U/media.mp4\n#EXT-X-ENDLIST\n";
        assert_eq!(render(&files, true).unwrap(), expected);
    }

    #[test]
    fn a_recording_that_goes_on_is_an_event_from_its_beginning() {
        let text = render(&[file("m", true, &[(10, 4_000, true), (10, 8_000, false)])], false).unwrap();
        assert!(text.contains("#EXT-X-PLAYLIST-TYPE:EVENT\n") && !text.contains("ENDLIST"));
        assert!(text.contains("#EXT-X-START:TIME-OFFSET=0.000,") && !text.contains("INDEPENDENT"));
        let gap = render(&[file("m", true, &[(10, 300_500, true)])], false).unwrap();
        assert!(gap.contains("#EXT-X-TARGETDURATION:301\n"));
        assert_eq!(render(&[file("m", true, &[])], false), None);
        assert_eq!(render(&[], true), None);
    }
}
