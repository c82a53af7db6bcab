//! A media playlist as text.

use std::fmt::Write as _;

use super::media::{Listed, MediaPlaylist};
use super::parts::{Parts, skippable};
use super::{HOLD_BACK_TARGETS, PARTS_VERSION, VERSION, program_date_time};

const NANOS_PER_SECOND: i64 = 1_000_000_000;

impl MediaPlaylist {
    /// The full playlist; `None` without a segment and without a part.
    pub fn render(&self) -> Option<String> {
        if self.listed.is_empty() { self.render_parts() } else { self.render_from(0) }
    }

    /// The parts of the first segment. hls.js (1.7) refuses a playlist without any segment, and loads parts only behind a
    /// segment that has parts too: a missing one (EXT-X-GAP) stands in front, which leaves with the first whole segment.
    fn render_parts(&self) -> Option<String> {
        let parts = self.parts.as_ref()?;
        let before = parts.open_sequence()?.checked_sub(1)?;
        let mut text = String::with_capacity(2048);
        self.write_head(&mut text, before);
        parts.write_gap(&mut text);
        parts.write_tail(&mut text);
        Some(text)
    }

    /// The delta update (EXT-X-SKIP): skips the segments that viewers know from an earlier version. `None` without parts, or if there
    /// is no segment to skip.
    pub fn render_delta(&self) -> Option<String> {
        self.parts.as_ref()?;
        let skipped = skippable(self.listed.iter().rev(), self.target_seconds);
        if skipped == 0 { None } else { self.render_from(skipped) }
    }

    fn render_from(&self, skipped: usize) -> Option<String> {
        let first = self.listed.get(skipped)?;
        let text_bytes = |listed: &Listed| listed.text_bytes;
        // A delta update starts at an index counted from the end.
        let mut at = match skipped {
            0 => self.text_start,
            _ => self.text.len() - self.listed.iter().skip(skipped).map(text_bytes).sum::<usize>(),
        };
        let mut text = String::with_capacity(self.text.len() - at + 2048);
        self.write_head(&mut text, self.first_sequence);
        if skipped > 0 {
            let _ = writeln!(text, "#EXT-X-SKIP:SKIPPED-SEGMENTS={skipped}");
        }
        if !first.mapped {
            write_map(&mut text, &first.init);
        }
        let kept = self.listed.iter().skip(skipped);
        let parted = kept.clone().rev().take_while(|listed| !listed.parts.is_empty()).count();
        let parted = kept.skip(self.listed.len() - skipped - parted);
        let mut start = self.text.len() - parted.clone().map(text_bytes).sum::<usize>();
        for listed in parted {
            let parts_at = start + listed.start_bytes;
            text.push_str(&self.text[at..parts_at]);
            text.push_str(&listed.parts);
            at = parts_at;
            start += listed.text_bytes;
        }
        text.push_str(&self.text[at..]);
        if let Some(parts) = &self.parts {
            parts.write_tail(&mut text);
        }
        if self.ended {
            text.push_str("#EXT-X-ENDLIST\n");
        }
        Some(text)
    }

    fn write_head(&self, text: &mut String, first_sequence: u64) {
        let version = if self.parts.is_some() { PARTS_VERSION } else { VERSION };
        let _ = write!(
            text,
            "#EXTM3U\n#EXT-X-VERSION:{version}\n#EXT-X-TARGETDURATION:{}\n#EXT-X-MEDIA-SEQUENCE:{}\n",
            self.target_seconds, first_sequence
        );
        // Before EXT-X-SKIP, which hls.js counts from.
        let _ = writeln!(text, "#EXT-X-DISCONTINUITY-SEQUENCE:{}", self.discontinuity_sequence);
        if self.independent {
            text.push_str("#EXT-X-INDEPENDENT-SEGMENTS\n");
        }
        if let Some(parts) = &self.parts {
            parts.write_head(text, self.target_seconds);
        }
    }

    /// Position of the live edge: the sequence number of the first segment that is not complete, and the number of its listed parts.
    pub fn position(&self) -> (u64, u32) {
        let open = || self.parts.as_ref().and_then(Parts::open_sequence).unwrap_or(0);
        let next = self.last_sequence().map_or_else(open, |last| last + 1);
        (next, self.parts.as_ref().map_or(0, |parts| parts.open(next).0))
    }

    /// File name of the next part; `None` without parts and after the end.
    pub fn hint(&self) -> Option<&str> {
        self.parts.as_ref()?.hint()
    }

    /// PART-HOLD-BACK with parts, otherwise the HOLD-BACK that players assume, in nanoseconds.
    pub fn hold_back_ns(&self) -> i64 {
        let segments = i64::from(self.target_seconds.saturating_mul(HOLD_BACK_TARGETS)) * NANOS_PER_SECOND;
        self.parts.as_ref().map_or(segments, Parts::hold_back_ns)
    }

    /// Sequence number of the first segment whose parts are listed or may still be listed.
    pub fn first_parted(&self) -> u64 {
        let parted = self.listed.iter().rev().take_while(|listed| !listed.parts.is_empty()).count();
        self.position().0.saturating_sub(parted as u64)
    }
}

/// Writes the lines before the parts and the duration of a segment.
pub(super) fn write_start(text: &mut String, discontinuity: bool, map: Option<&str>, date_ms: i64) {
    if discontinuity {
        text.push_str("#EXT-X-DISCONTINUITY\n");
    }
    if let Some(init) = map {
        write_map(text, init);
    }
    let _ = writeln!(text, "#EXT-X-PROGRAM-DATE-TIME:{}", program_date_time(date_ms));
}

fn write_map(text: &mut String, init: &str) {
    let _ = writeln!(text, "#EXT-X-MAP:URI=\"{init}\"");
}
