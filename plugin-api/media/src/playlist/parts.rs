//! Parts in a media playlist: low latency (RFC 8216bis, sections 4.4.3.8, 4.4.4.9, 4.4.5.2, 4.4.5.3 and 6.2.5).

use std::fmt::Write as _;

use super::media::Listed;
use super::render::write_start;
use super::{GAP_NAME, HOLD_BACK_TARGETS, PARTED_SEGMENTS, SKIP_TARGETS};

const NANOS_PER_SECOND: i64 = 1_000_000_000;
const NANOS_PER_MILLI: i64 = 1_000_000;

/// A part for the playlist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartEntry<'a> {
    /// Media sequence number of its segment.
    pub sequence: u64,
    /// Duration in nanoseconds; a longer one than the target is listed as the target.
    pub duration_ns: i64,
    /// It starts with a keyframe, or has audio only.
    pub independent: bool,
    /// Wall time of the start of its segment in milliseconds since 1970.
    pub program_date_time_ms: i64,
    /// Its segment does not continue the one before.
    pub discontinuity: bool,
    /// File name of its initialization segment.
    pub init: &'a str,
    /// Its own file name.
    pub name: &'a str,
    /// File name of the next part, in this segment or the next one.
    pub next: &'a str,
}

/// Fixed values of a playlist with parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartRules {
    /// PART-TARGET in nanoseconds.
    pub target_ns: i64,
    /// PART-HOLD-BACK in nanoseconds; raised to three targets.
    pub hold_back_ns: i64,
}

/// The open segment.
#[derive(Debug)]
struct Open {
    sequence: u64,
    /// Lines before its parts.
    start: String,
    lines: String,
    parts: u32,
    duration_ns: i64,
}

/// State of the parts of a playlist.
#[derive(Debug)]
pub(super) struct Parts {
    rules: PartRules,
    open: Option<Open>,
    /// The next part's name.
    hint: String,
}

impl Parts {
    pub(super) fn new(rules: PartRules) -> Self {
        let hold_back_ns = rules.hold_back_ns.max(rules.target_ns * i64::from(HOLD_BACK_TARGETS));
        Parts { rules: PartRules { hold_back_ns, ..rules }, open: None, hint: String::new() }
    }

    pub(super) fn hold_back_ns(&self) -> i64 {
        self.rules.hold_back_ns
    }

    pub(super) fn hint(&self) -> Option<&str> {
        (!self.hint.is_empty()).then_some(&*self.hint)
    }

    pub(super) fn push(&mut self, part: &PartEntry<'_>, mapped: bool) {
        if self.open.as_ref().is_none_or(|open| open.sequence != part.sequence) {
            let mut start = String::new();
            write_start(
                &mut start,
                part.discontinuity,
                mapped.then_some(part.init),
                part.program_date_time_ms,
            );
            let (sequence, lines) = (part.sequence, String::new());
            self.open = Some(Open { sequence, start, lines, parts: 0, duration_ns: 0 });
        }
        let Some(open) = &mut self.open else { return };
        // Five digits are 10 us; 0 is not a valid duration.
        let micros = (part.duration_ns.min(self.rules.target_ns) / 10_000).max(1);
        let (seconds, rest) = (micros / 100_000, micros % 100_000);
        // Writing to a String cannot fail.
        let _ = write!(open.lines, "#EXT-X-PART:DURATION={seconds}.{rest:05},URI=\"{}\"", part.name);
        open.lines.push_str(if part.independent { ",INDEPENDENT=YES\n" } else { "\n" });
        open.parts += 1;
        open.duration_ns = open.duration_ns.saturating_add(part.duration_ns);
        part.next.clone_into(&mut self.hint);
    }

    /// Closes the complete segment; returns the lines of its parts.
    pub(super) fn close(&mut self, sequence: u64) -> String {
        let open = self.open.take().filter(|open| open.sequence == sequence);
        open.map_or_else(String::new, |open| open.lines)
    }

    pub(super) fn drop_open(&mut self) {
        self.open = None;
    }

    /// Ends the playlist: no open segment and no next part.
    pub(super) fn end(&mut self) {
        self.open = None;
        self.hint.clear();
    }

    /// Number of the open segment; `None` without parts of it.
    pub(super) fn open_sequence(&self) -> Option<u64> {
        self.open.as_ref().map(|open| open.sequence)
    }

    /// Writes a missing segment of one missing part. Players begin behind it, at the distance that the playlist asks
    /// for: otherwise hls.js would begin in it, and ask again after a second.
    pub(super) fn write_gap(&self, text: &mut String) {
        let open_ns = self.open.as_ref().map_or(0, |open| open.duration_ns);
        let back_ms = open_ns.min(self.rules.hold_back_ns) / NANOS_PER_MILLI;
        let part_ms = self.rules.target_ns / NANOS_PER_MILLI;
        let (back, back_millis) = (back_ms / 1000, back_ms % 1000);
        let (part, part_millis) = (part_ms / 1000, part_ms % 1000);
        let _ = writeln!(
            text,
            "#EXT-X-START:TIME-OFFSET=-{back}.{back_millis:03}\n\
             #EXT-X-PART:DURATION={part}.{part_millis:03},URI=\"{GAP_NAME}\",GAP=YES\n\
             #EXT-X-GAP\n#EXTINF:{part}.{part_millis:03},\n{GAP_NAME}"
        );
    }

    /// Number of parts of the open segment, and their duration in nanoseconds.
    pub(super) fn open(&self, sequence: u64) -> (u32, i64) {
        let open = self.open.as_ref().filter(|open| open.sequence == sequence);
        open.map_or((0, 0), |open| (open.parts, open.duration_ns))
    }

    pub(super) fn write_head(&self, text: &mut String, target_seconds: u32) {
        let millis = |nanos: i64| (nanos / NANOS_PER_SECOND, nanos % NANOS_PER_SECOND / NANOS_PER_MILLI);
        let (back, back_millis) = millis(self.rules.hold_back_ns);
        let (target, target_millis) = millis(self.rules.target_ns);
        let _ = writeln!(
            text,
            "#EXT-X-SERVER-CONTROL:CAN-BLOCK-RELOAD=YES,PART-HOLD-BACK={back}.{back_millis:03},\
             HOLD-BACK={}.0,CAN-SKIP-UNTIL={}.0\n#EXT-X-PART-INF:PART-TARGET={target}.{target_millis:03}",
            target_seconds.saturating_mul(HOLD_BACK_TARGETS),
            target_seconds.saturating_mul(SKIP_TARGETS),
        );
    }

    pub(super) fn write_tail(&self, text: &mut String) {
        if let Some(open) = &self.open {
            text.push_str(&open.start);
            text.push_str(&open.lines);
        }
        if let Some(hint) = self.hint() {
            let _ = writeln!(text, "#EXT-X-PRELOAD-HINT:TYPE=PART,URI=\"{hint}\"");
        }
    }
}

/// Drops the part lines of segments older than the newest [`PARTED_SEGMENTS`].
pub(super) fn drop_old<'a>(newest_first: impl Iterator<Item = &'a mut Listed>) {
    let old = newest_first.skip(PARTED_SEGMENTS).take_while(|listed| !listed.parts.is_empty());
    old.for_each(|listed| listed.parts = String::new());
}

/// Number of segments that a delta update skips: those that end at least [`SKIP_TARGETS`] targets before the end of the last complete
/// segment.
pub(super) fn skippable<'a>(
    newest_first: impl ExactSizeIterator<Item = &'a Listed>,
    target_seconds: u32,
) -> usize {
    let limit_ns = i64::from(target_seconds.saturating_mul(SKIP_TARGETS)) * NANOS_PER_SECOND;
    let all = newest_first.len();
    let mut later_ns: i64 = 0;
    for (kept, listed) in newest_first.enumerate() {
        if later_ns >= limit_ns {
            return all - kept;
        }
        later_ns = later_ns.saturating_add(listed.duration_ns);
    }
    0
}

#[cfg(test)]
mod tests {
    use crate::playlist::{
        Entry, MediaPlaylist, PartEntry, PartRules, PlaylistError, part_name, segment_name,
    };

    const SECOND: i64 = 1_000_000_000;
    const MS: i64 = 1_000_000;
    const WALL_MS: i64 = 1_763_660_700_000;
    const RULES: PartRules = PartRules { target_ns: 502 * MS, hold_back_ns: 2 * SECOND };

    /// A playlist with segments of four parts each.
    struct Made {
        list: MediaPlaylist,
        next: u64,
        part: u64,
        init: &'static str,
    }

    impl Made {
        fn new() -> Self {
            Made { list: MediaPlaylist::new(2, 3600).with_parts(RULES), next: 7, part: 0, init: "i0.mp4" }
        }

        fn parts(&mut self, count: u64, discontinuity: bool) {
            for index in 0..count {
                let entry = PartEntry {
                    sequence: self.next,
                    duration_ns: 500 * MS,
                    independent: index == 0,
                    program_date_time_ms: WALL_MS + self.next as i64 * 2000,
                    discontinuity,
                    init: self.init,
                    name: &part_name(7, self.part),
                    next: &part_name(7, self.part + 1),
                };
                self.list.push_part(entry).expect("valid");
                self.part += 1;
            }
        }

        fn whole(&mut self, discontinuity: bool) {
            let entry = Entry {
                sequence: self.next,
                duration_ns: 2 * SECOND,
                program_date_time_ms: WALL_MS + self.next as i64 * 2000,
                discontinuity,
                independent: true,
                init: self.init,
                name: &segment_name(self.next),
            };
            self.list.push(entry).expect("valid");
            self.next += 1;
        }

        fn segments(&mut self, count: u64) {
            for _ in 0..count {
                self.parts(4, false);
                self.whole(false);
            }
        }

        fn text(&self) -> String {
            self.list.render().expect("has media")
        }
    }

    #[test]
    fn a_playlist_with_parts_has_all_its_lines() {
        let mut made = Made::new();
        assert_eq!(made.list.render(), None);
        made.segments(1);
        made.parts(1, false);
        let head = "#EXTM3U\n#EXT-X-VERSION:9\n#EXT-X-TARGETDURATION:2\n#EXT-X-MEDIA-SEQUENCE:7\n\
            #EXT-X-DISCONTINUITY-SEQUENCE:0\n#EXT-X-INDEPENDENT-SEGMENTS\n\
            #EXT-X-SERVER-CONTROL:CAN-BLOCK-RELOAD=YES,PART-HOLD-BACK=2.000,HOLD-BACK=6.0,CAN-SKIP-UNTIL=12.0\n\
            #EXT-X-PART-INF:PART-TARGET=0.502\n";
        let body = "#EXT-X-MAP:URI=\"i0.mp4\"\n#EXT-X-PROGRAM-DATE-TIME:2025-11-20T17:45:14.000Z\n\
            #EXT-X-PART:DURATION=0.50000,URI=\"l7-0.m4s\",INDEPENDENT=YES\n\
            #EXT-X-PART:DURATION=0.50000,URI=\"l7-1.m4s\"\n#EXT-X-PART:DURATION=0.50000,URI=\"l7-2.m4s\"\n\
            #EXT-X-PART:DURATION=0.50000,URI=\"l7-3.m4s\"\n#EXTINF:2.00000,\n7.m4s\n";
        let open = "#EXT-X-PROGRAM-DATE-TIME:2025-11-20T17:45:16.000Z\n\
            #EXT-X-PART:DURATION=0.50000,URI=\"l7-4.m4s\",INDEPENDENT=YES\n\
            #EXT-X-PRELOAD-HINT:TYPE=PART,URI=\"l7-5.m4s\"\n";
        assert_eq!(made.text(), format!("{head}{body}{open}"));
        assert_eq!((made.list.position(), made.list.hint()), ((8, 1), Some("l7-5.m4s")));
        assert_eq!(made.list.render_delta(), None, "no segment to skip");
        made.parts(3, false);
        made.whole(false);
        made.list.end();
        let ended = made.text();
        assert!(
            ended.ends_with("#EXTINF:2.00000,\n8.m4s\n#EXT-X-ENDLIST\n") && !ended.contains("HINT"),
            "{ended}"
        );
        assert!(ended.starts_with(head), "the header stays unchanged");
        assert_eq!((made.list.position(), made.list.hint()), ((9, 0), None));
        let late = PartEntry {
            sequence: 9,
            duration_ns: 1,
            independent: true,
            program_date_time_ms: 0,
            discontinuity: false,
            init: "i",
            name: "a",
            next: "b",
        };
        assert_eq!(made.list.push_part(late), Err(PlaylistError::Ended));
    }

    #[test]
    fn parts_alone_stand_behind_a_missing_segment() {
        let mut made = Made::new();
        made.parts(1, false);
        let head = |sequence: u64, target: u32| {
            format!(
                "#EXTM3U\n#EXT-X-VERSION:9\n#EXT-X-TARGETDURATION:{target}\n#EXT-X-MEDIA-SEQUENCE:{sequence}\n\
                 #EXT-X-DISCONTINUITY-SEQUENCE:0\n#EXT-X-INDEPENDENT-SEGMENTS\n#EXT-X-SERVER-CONTROL:"
            )
        };
        let gap = "#EXT-X-START:TIME-OFFSET=-0.500\n\
            #EXT-X-PART:DURATION=0.502,URI=\"gap.m4s\",GAP=YES\n#EXT-X-GAP\n#EXTINF:0.502,\ngap.m4s\n\
            #EXT-X-MAP:URI=\"i0.mp4\"\n#EXT-X-PROGRAM-DATE-TIME:2025-11-20T17:45:14.000Z\n\
            #EXT-X-PART:DURATION=0.50000,URI=\"l7-0.m4s\",INDEPENDENT=YES\n\
            #EXT-X-PRELOAD-HINT:TYPE=PART,URI=\"l7-1.m4s\"\n";
        let text = made.text();
        assert!(text.starts_with(&head(6, 2)) && text.ends_with(gap), "{text}");
        assert_eq!((made.list.position(), made.list.first_parted()), ((7, 1), 7));
        assert_eq!(made.list.render_delta(), None);
        // Viewers begin at the hold-back, and the GOP may be longer than the target of the start.
        made.parts(8, false);
        made.list.raise_target(5);
        assert!(made.text().starts_with(&head(6, 5)) && made.text().contains("TIME-OFFSET=-2.000\n"));
        made.whole(false);
        let text = made.text();
        assert!(text.starts_with(&head(7, 5)) && !text.contains("gap"), "{text}");
        let mut made = Made::new();
        made.parts(1, false);
        made.list.drop_open_parts();
        assert_eq!((made.list.render(), made.list.position()), (None, (0, 0)));
    }

    #[test]
    fn old_parts_are_removed_and_the_hint_becomes_a_part() {
        let mut made = Made::new();
        for _ in 0..40 {
            made.parts(4, false);
            let hint = made.list.hint().expect("goes on").to_owned();
            made.whole(false);
            assert_eq!(made.list.hint(), Some(hint.as_str()));
            let text = made.text();
            let whole = made.list.len().min(2);
            assert_eq!(text.matches("#EXT-X-PART:").count(), whole * 4, "{text}");
            assert_eq!(made.list.first_parted(), made.next - whole as u64);
            made.parts(1, false);
            assert!(made.text().contains(&format!("URI=\"{hint}\",INDEPENDENT=YES\n")));
            // The remaining parts of the segment.
            made.list.parts.as_mut().expect("with parts").close(made.next);
            made.part = made.part.next_multiple_of(4);
        }
    }

    #[test]
    fn a_delta_keeps_six_targets_and_counts_skipped_segments() {
        let mut made = Made::new();
        made.segments(6);
        assert_eq!(made.list.render_delta(), None);
        made.segments(1);
        for listed in 7..1800_usize {
            let (full, delta) = (made.text(), made.list.render_delta().expect("long enough"));
            let (head, rest) = delta.split_once("#EXT-X-SKIP:SKIPPED-SEGMENTS=").expect("skips");
            let (skipped, rest) = rest.split_once('\n').expect("a line");
            assert_eq!(skipped, (listed - 6).to_string());
            assert!(full.starts_with(head), "the same header before the skipped segments");
            assert!(head.contains("#EXT-X-MEDIA-SEQUENCE:7\n#EXT-X-DISCONTINUITY-SEQUENCE:0\n"), "{head}");
            let (map, rest) = rest.split_once('\n').expect("a line");
            assert_eq!(map, "#EXT-X-MAP:URI=\"i0.mp4\"");
            assert!(full.ends_with(rest) && rest.matches("#EXTINF").count() == 6, "{delta}");
            assert!(delta.len() <= 2048, "{} bytes", delta.len());
            made.segments(1);
        }
    }

    #[test]
    fn a_discontinuity_is_in_a_delta_and_before_its_first_part() {
        let mut made = Made::new();
        made.segments(20);
        made.init = "i1.mp4";
        made.parts(2, true);
        let start = "#EXT-X-DISCONTINUITY\n#EXT-X-MAP:URI=\"i1.mp4\"\n#EXT-X-PROGRAM-DATE-TIME:";
        let check = |made: &Made, is_in: bool| {
            let delta = made.list.render_delta().expect("long enough");
            let map = if is_in { "i0.mp4" } else { "i1.mp4" };
            assert!(delta.contains(&format!("\n#EXT-X-MAP:URI=\"{map}\"\n#EXT-X-PROGRAM")), "{delta}");
            assert_eq!(delta.matches(start).count(), usize::from(is_in), "{delta}");
            assert_eq!(made.text().matches(start).count(), 1);
            assert!(delta.contains("#EXT-X-DISCONTINUITY-SEQUENCE:0\n"), "skipped segments are not removed");
        };
        check(&made, true);
        made.parts(2, true);
        made.whole(true);
        for _ in 0..5 {
            check(&made, true);
            made.segments(1);
        }
        // It is the oldest kept segment: its own lines stay.
        let delta = made.list.render_delta().expect("long enough");
        assert!(delta.contains(&format!("SKIPPED-SEGMENTS=20\n{start}")), "{delta}");
        made.segments(1);
        check(&made, false);
    }

    #[test]
    fn parts_of_a_lost_segment_and_long_ones() {
        let mut made = Made::new();
        made.segments(1);
        made.parts(2, false);
        let wrong = |sequence| PartEntry {
            sequence,
            duration_ns: 3 * SECOND,
            independent: false,
            program_date_time_ms: WALL_MS,
            discontinuity: true,
            init: "i0.mp4",
            name: "l7-9.m4s",
            next: "l7-10.m4s",
        };
        assert_eq!(made.list.push_part(wrong(9)), Err(PlaylistError::Sequence { last: 7, given: 9 }));
        assert_eq!(made.list.push_part(PartEntry { next: "a b", ..wrong(8) }), Err(PlaylistError::Name));
        assert_eq!(made.list.position(), (8, 2));
        made.list.push_part(wrong(8)).expect("valid");
        assert!(made.text().contains("DURATION=0.50200,URI=\"l7-9.m4s\"\n"), "no longer than the target");
        made.list.drop_open_parts();
        assert_eq!((made.list.position(), made.list.hint()), ((8, 0), Some("l7-10.m4s")));
        assert!(!made.text().contains("l7-9"));
        assert_eq!(MediaPlaylist::new(2, 60).position(), (0, 0));
        assert_eq!(MediaPlaylist::new(3, 60).hold_back_ns(), 9 * SECOND);
        let short = PartRules { target_ns: SECOND, hold_back_ns: 2 * SECOND };
        assert_eq!(
            MediaPlaylist::new(2, 60).with_parts(short).hold_back_ns(),
            3 * SECOND,
            "three targets at least"
        );
    }
}
