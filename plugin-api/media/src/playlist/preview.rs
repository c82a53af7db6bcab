//! The preview playlist: few requests for viewers of a preview.

use super::{
    Entry, MediaPlaylist, PREVIEW_GROUP_SEGMENTS, PREVIEW_WINDOW_SECONDS, PlaylistError, preview_name,
};
use crate::segment::Segment;

/// One entry of a preview playlist: concatenated media segments, served as one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PreviewGroup {
    /// Media sequence number of its first segment.
    pub first: u64,
    /// Segments in it, 1 to [`PREVIEW_GROUP_SEGMENTS`].
    pub count: usize,
}

/// The open group.
#[derive(Debug)]
struct Gathering {
    group: PreviewGroup,
    duration_ns: i64,
    program_date_time_ms: i64,
    discontinuity: bool,
    independent: bool,
    init: String,
}

/// Playlist of groups of [`PREVIEW_GROUP_SEGMENTS`] segments over [`PREVIEW_WINDOW_SECONDS`].
#[derive(Debug)]
pub struct PreviewPlaylist {
    playlist: MediaPlaylist,
    sequence: Option<u64>,
    gathering: Option<Gathering>,
}

impl PreviewPlaylist {
    /// For media segments with the given target duration. The target of the groups is a second more than the
    /// sum, because each segment may be half a second longer than its rounded duration.
    pub fn new(target_seconds: u32) -> Self {
        PreviewPlaylist {
            playlist: MediaPlaylist::new(group_target_seconds(target_seconds), PREVIEW_WINDOW_SECONDS),
            sequence: None,
            gathering: None,
        }
    }

    /// As [`MediaPlaylist::with_discontinuity_sequence`]; groups have the discontinuities of their segments.
    #[must_use]
    pub fn with_discontinuity_sequence(mut self, discontinuity_sequence: u64) -> Self {
        self.playlist = self.playlist.with_discontinuity_sequence(discontinuity_sequence);
        self
    }

    /// As [`MediaPlaylist::raise_target`], with the target duration of the media segments.
    pub fn raise_target(&mut self, target_seconds: u32) {
        self.playlist.raise_target(group_target_seconds(target_seconds));
    }

    /// Takes the next media segment; `init` is the name of its initialization segment. Returns the newly listed group,
    /// if any. A discontinuity ends a group early. Group numbers count up from the number of the first
    /// segment, so that they never go down across sessions.
    ///
    /// # Errors
    /// [`PlaylistError::Duration`] for a segment longer than its target, [`PlaylistError::Ended`].
    pub fn push(&mut self, segment: &Segment, init: &str) -> Result<Option<PreviewGroup>, PlaylistError> {
        let mut listed = None;
        if segment.discontinuity {
            listed = self.list()?;
        }
        match &mut self.gathering {
            Some(gathering) => {
                gathering.group.count += 1;
                gathering.duration_ns += segment.duration_ns;
            }
            none => {
                *none = Some(Gathering {
                    group: PreviewGroup { first: segment.sequence, count: 1 },
                    duration_ns: segment.duration_ns,
                    program_date_time_ms: segment.program_date_time_ms,
                    discontinuity: segment.discontinuity,
                    independent: segment.independent,
                    init: init.to_owned(),
                });
            }
        }
        // A full group is listed at once and does not wait for the next segment.
        if self.gathering.as_ref().is_some_and(|gathering| gathering.group.count == PREVIEW_GROUP_SEGMENTS) {
            listed = self.list()?;
        }
        Ok(listed)
    }

    fn list(&mut self) -> Result<Option<PreviewGroup>, PlaylistError> {
        let Some(done) = self.gathering.take() else { return Ok(None) };
        let sequence = self.sequence.map_or(done.group.first, |last| last + 1);
        self.playlist.push(Entry {
            sequence,
            duration_ns: done.duration_ns,
            program_date_time_ms: done.program_date_time_ms,
            discontinuity: done.discontinuity,
            independent: done.independent,
            init: &done.init,
            name: &preview_name(done.group.first, done.group.count),
        })?;
        self.sequence = Some(sequence);
        Ok(Some(done.group))
    }

    /// Lists the open group and ends the playlist.
    ///
    /// # Errors
    /// As [`PreviewPlaylist::push`].
    pub fn end(&mut self) -> Result<Option<PreviewGroup>, PlaylistError> {
        let listed = self.list()?;
        self.playlist.end();
        Ok(listed)
    }

    /// Removes the `count` oldest groups, for lost media; the last one stays. Returns the number of removed groups.
    pub fn lose_first(&mut self, count: usize) -> usize {
        let first = self.playlist.first_sequence().unwrap_or(0);
        self.playlist.lose_before(first.saturating_add(count as u64))
    }

    /// The playlist of the groups, for rendering.
    pub fn playlist(&self) -> &MediaPlaylist {
        &self.playlist
    }
}

fn group_target_seconds(target_seconds: u32) -> u32 {
    target_seconds.saturating_mul(PREVIEW_GROUP_SEGMENTS as u32).saturating_add(1)
}
