//! The media playlist of a rolling window.

use std::collections::VecDeque;
use std::fmt::Write as _;

use super::parts::{PartEntry, PartRules, Parts, drop_old};
use super::render::write_start;
use super::{
    ENTRIES_MAX, PlaylistError, WINDOW_SECONDS_MAX, WINDOW_TARGETS_MIN, name_is_plain, rounded_seconds,
};

const NANOS_PER_SECOND: i64 = 1_000_000_000;
/// Removed text that may stay in front before the remaining text is moved, in bytes.
const SLACK_BYTES: usize = 64 * 1024;

/// One segment for the playlist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Media sequence number.
    pub sequence: u64,
    /// Duration in nanoseconds.
    pub duration_ns: i64,
    /// Wall time of its start in milliseconds since 1970.
    pub program_date_time_ms: i64,
    /// It does not continue the segment before.
    pub discontinuity: bool,
    /// It starts with a keyframe, or has audio only.
    pub independent: bool,
    /// File name of its initialization segment.
    pub init: &'a str,
    /// Its own file name.
    pub name: &'a str,
}

/// State of a listed entry; its lines are in the text.
#[derive(Debug)]
pub(super) struct Listed {
    pub(super) duration_ns: i64,
    pub(super) text_bytes: usize,
    /// Of these, bytes before EXTINF.
    pub(super) start_bytes: usize,
    /// Lines of its parts, which are not in the text.
    pub(super) parts: String,
    discontinuity: bool,
    /// It has a line of its own for the initialization segment.
    pub(super) mapped: bool,
    pub(super) init: String,
}

/// A window in nanoseconds, within its bounds.
fn window_ns(target_seconds: u32, window_seconds: u32) -> i64 {
    let seconds = window_seconds.clamp(target_seconds * WINDOW_TARGETS_MIN, WINDOW_SECONDS_MAX);
    i64::from(seconds) * NANOS_PER_SECOND
}

/// Rolling media playlist: each entry is written once; a version is a short header and one copy of the text.
///
/// Only [`MediaPlaylist::raise_target`] changes the target duration. After each push the listed durations sum to at most the
/// window, unless one more removal would leave less than [`WINDOW_TARGETS_MIN`] targets. A
/// discontinuity keeps its line as long as its segment is listed, and is then counted in EXT-X-DISCONTINUITY-SEQUENCE.
/// Every version has this tag: adding it later would change the meaning of earlier versions.
///
/// [`MediaPlaylist::with_parts`] enables low latency: the parts of the newest segments and of the open segment, the name of
/// the next part, and a delta update of each version for viewers that have an earlier one ([`MediaPlaylist::render_delta`]).
#[derive(Debug)]
pub struct MediaPlaylist {
    pub(super) target_seconds: u32,
    window_ns: i64,
    /// Duration that must stay after a removal, in nanoseconds.
    least_ns: i64,
    pub(super) listed: VecDeque<Listed>,
    /// Lines of the listed entries from `text_start` on; before that, lines of removed ones.
    pub(super) text: String,
    pub(super) text_start: usize,
    pub(super) first_sequence: u64,
    pub(super) discontinuity_sequence: u64,
    total_ns: i64,
    pub(super) independent: bool,
    pub(super) ended: bool,
    version: u64,
    pub(super) parts: Option<Parts>,
}

impl MediaPlaylist {
    /// An empty playlist. The window is clamped to [`WINDOW_TARGETS_MIN`] targets and
    /// [`WINDOW_SECONDS_MAX`]; a target of 0 becomes 1.
    pub fn new(target_seconds: u32, window_seconds: u32) -> Self {
        // The longest window must hold the shortest one and the two segments by which it may be exceeded.
        let target_seconds = target_seconds.clamp(1, WINDOW_SECONDS_MAX / (WINDOW_TARGETS_MIN + 2));
        MediaPlaylist {
            target_seconds,
            window_ns: window_ns(target_seconds, window_seconds),
            least_ns: i64::from(target_seconds * WINDOW_TARGETS_MIN) * NANOS_PER_SECOND,
            listed: VecDeque::new(),
            text: String::new(),
            text_start: 0,
            first_sequence: 0,
            discontinuity_sequence: 0,
            total_ns: 0,
            independent: true,
            ended: false,
            version: 0,
            parts: None,
        }
    }

    /// Sets the first EXT-X-DISCONTINUITY-SEQUENCE, for a URL that had another playlist before: players must not see the number
    /// go down. Use small numbers: hls.js 1.7 counts up to the number with every version.
    #[must_use]
    pub fn with_discontinuity_sequence(mut self, discontinuity_sequence: u64) -> Self {
        self.discontinuity_sequence = discontinuity_sequence;
        self
    }

    /// Enables parts. Values that depend on the target duration follow [`MediaPlaylist::raise_target`].
    #[must_use]
    pub fn with_parts(mut self, rules: PartRules) -> Self {
        self.parts = Some(Parts::new(rules));
        self
    }

    /// Raises the target duration, and the window to its minimum for that target; a lower target changes nothing.
    /// Later versions have the new target.
    ///
    /// EXT-X-TARGETDURATION must not change (RFC 8216, 6.2.1): call this only if the alternative is a segment
    /// at which players cannot start. See [`crate::segment::Event::TargetRaised`].
    pub fn raise_target(&mut self, target_seconds: u32) {
        let raised = MediaPlaylist::new(target_seconds, 0);
        if raised.target_seconds > self.target_seconds {
            self.target_seconds = raised.target_seconds;
            self.least_ns = raised.least_ns;
            self.window_ns = self.window_ns.max(raised.window_ns);
            self.version += 1;
        }
    }

    /// Changes the length of the window, within the bounds of [`MediaPlaylist::new`]; returns the number of segments that no longer
    /// fit and were removed from the front. Segments that were removed before do not come back.
    pub fn set_window(&mut self, window_seconds: u32) -> usize {
        self.window_ns = window_ns(self.target_seconds, window_seconds);
        self.remove_while(Self::is_too_long)
    }

    /// Lists a segment and removes segments that no longer fit the window from the front; returns their number.
    ///
    /// # Errors
    /// Any [`PlaylistError`]; the playlist stays unchanged.
    pub fn push(&mut self, entry: Entry<'_>) -> Result<usize, PlaylistError> {
        self.check(&entry)?;
        if self.listed.is_empty() {
            self.first_sequence = entry.sequence;
        }
        let mapped = self.needs_map(entry.discontinuity, entry.init);
        let before = self.text.len();
        write_start(
            &mut self.text,
            entry.discontinuity,
            mapped.then_some(entry.init),
            entry.program_date_time_ms,
        );
        let start_bytes = self.text.len() - before;
        self.write_entry(&entry);
        let parts = self.parts.as_mut().map_or_else(String::new, |parts| parts.close(entry.sequence));
        self.listed.push_back(Listed {
            duration_ns: entry.duration_ns,
            text_bytes: self.text.len() - before,
            start_bytes,
            parts,
            discontinuity: entry.discontinuity,
            mapped,
            init: entry.init.to_owned(),
        });
        self.total_ns += entry.duration_ns;
        // After one dependent segment, EXT-X-INDEPENDENT-SEGMENTS stays off for the session.
        self.independent &= entry.independent;
        self.version += 1;
        let mut removed = 0;
        while self.is_too_long() {
            self.remove_first();
            removed += 1;
        }
        if self.parts.is_some() {
            drop_old(self.listed.iter_mut().rev());
        }
        self.compact();
        Ok(removed)
    }

    /// Lists a part of the next segment. No effect without [`MediaPlaylist::with_parts`].
    ///
    /// # Errors
    /// As [`MediaPlaylist::push`]; the playlist stays unchanged.
    pub fn push_part(&mut self, part: PartEntry<'_>) -> Result<(), PlaylistError> {
        if self.ended {
            return Err(PlaylistError::Ended);
        }
        if let Some(last) = self.last_sequence()
            && last.checked_add(1) != Some(part.sequence)
        {
            return Err(PlaylistError::Sequence { last, given: part.sequence });
        }
        if ![part.init, part.name, part.next].into_iter().all(name_is_plain) {
            return Err(PlaylistError::Name);
        }
        let mapped = self.needs_map(part.discontinuity, part.init);
        if let Some(parts) = &mut self.parts {
            parts.push(&part, mapped);
            self.version += 1;
        }
        Ok(())
    }

    /// Removes the parts of the open segment, for a segment that is lost.
    pub fn drop_open_parts(&mut self) {
        if let Some(parts) = &mut self.parts {
            parts.drop_open();
            self.version += 1;
        }
    }

    fn needs_map(&self, discontinuity: bool, init: &str) -> bool {
        discontinuity || self.listed.back().is_none_or(|last| last.init != init)
    }

    fn check(&self, entry: &Entry<'_>) -> Result<(), PlaylistError> {
        if self.ended {
            return Err(PlaylistError::Ended);
        }
        if let Some(last) = self.last_sequence()
            && last.checked_add(1) != Some(entry.sequence)
        {
            return Err(PlaylistError::Sequence { last, given: entry.sequence });
        }
        let target = i64::from(self.target_seconds);
        let plausible = 1..=(target + 1) * NANOS_PER_SECOND;
        if !plausible.contains(&entry.duration_ns) || rounded_seconds(entry.duration_ns) > target {
            let (duration_ns, target_seconds) = (entry.duration_ns, self.target_seconds);
            return Err(PlaylistError::Duration { duration_ns, target_seconds });
        }
        if name_is_plain(entry.name) && name_is_plain(entry.init) { Ok(()) } else { Err(PlaylistError::Name) }
    }

    fn write_entry(&mut self, entry: &Entry<'_>) {
        // Five digits are 10 us, less than a video tick. Truncation keeps the value from rounding up to the next second.
        let micros = entry.duration_ns / 10_000;
        let (seconds, part) = (micros / 100_000, micros % 100_000);
        // Writing to a String cannot fail.
        let _ = write!(self.text, "#EXTINF:{seconds}.{part:05},\n{}\n", entry.name);
    }

    fn is_too_long(&self) -> bool {
        self.listed.len() > ENTRIES_MAX || (self.total_ns > self.window_ns && self.may_remove())
    }

    /// At least [`WINDOW_TARGETS_MIN`] targets stay without the first segment (RFC 8216, 6.2.2).
    fn may_remove(&self) -> bool {
        self.listed.front().is_some_and(|first| self.total_ns - first.duration_ns >= self.least_ns)
    }

    fn remove_first(&mut self) {
        let Some(first) = self.listed.pop_front() else { return };
        self.total_ns -= first.duration_ns;
        self.text_start += first.text_bytes;
        self.first_sequence += 1;
        self.discontinuity_sequence += u64::from(first.discontinuity);
    }

    /// Moves the text to the front once more text was removed than remains.
    fn compact(&mut self) {
        if self.text_start > SLACK_BYTES.max(self.text.len() / 2) {
            self.text.drain(..self.text_start);
            self.text_start = 0;
        }
    }

    /// Removes the segments before `sequence`, but keeps [`WINDOW_TARGETS_MIN`] targets. Returns the number of removed segments.
    pub fn remove_before(&mut self, sequence: u64) -> usize {
        self.remove_while(|list| list.first_sequence < sequence && list.may_remove())
    }

    /// Removes every segment before `sequence`, for lost media: a window that is too short is better than missing files. The last
    /// segment stays. Returns the number of removed segments.
    pub fn lose_before(&mut self, sequence: u64) -> usize {
        self.remove_while(|list| list.first_sequence < sequence && list.listed.len() > 1)
    }

    fn remove_while(&mut self, is_next: impl Fn(&Self) -> bool) -> usize {
        let mut removed = 0;
        while is_next(self) {
            self.remove_first();
            removed += 1;
        }
        self.version += u64::from(removed > 0);
        self.compact();
        removed
    }

    /// Ends the playlist: it gets EXT-X-ENDLIST and accepts no more segments.
    pub fn end(&mut self) {
        self.version += u64::from(!self.ended);
        self.ended = true;
        self.parts.iter_mut().for_each(Parts::end);
    }

    /// Counts up with every change, so that each version is rendered only once.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Sequence number of the first listed segment.
    pub fn first_sequence(&self) -> Option<u64> {
        (!self.listed.is_empty()).then_some(self.first_sequence)
    }

    /// Sequence number of the last listed segment.
    pub fn last_sequence(&self) -> Option<u64> {
        (!self.listed.is_empty()).then(|| self.first_sequence + self.listed.len() as u64 - 1)
    }

    /// Players can start at every segment of the session so far.
    pub fn is_independent(&self) -> bool {
        self.independent
    }

    /// Listed segments.
    pub fn len(&self) -> usize {
        self.listed.len()
    }

    /// No segment is listed.
    pub fn is_empty(&self) -> bool {
        self.listed.is_empty()
    }

    /// Sum of the listed durations in nanoseconds.
    pub fn duration_ns(&self) -> i64 {
        self.total_ns
    }

    /// Target duration in seconds.
    pub fn target_seconds(&self) -> u32 {
        self.target_seconds
    }
}
