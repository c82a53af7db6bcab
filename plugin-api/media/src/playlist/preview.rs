//! The preview playlist: few requests for a viewer who only looks in.

use super::{
    Entry, MediaPlaylist, PREVIEW_GROUP_SEGMENTS, PREVIEW_WINDOW_SECONDS, PlaylistError, preview_name,
};
use crate::segment::Segment;

/// One entry of a preview playlist: media segments that are sent one after the other as one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PreviewGroup {
    /// Media sequence number of its first segment.
    pub first: u64,
    /// Segments in it, 1 to [`PREVIEW_GROUP_SEGMENTS`].
    pub count: usize,
}

/// A group that is being gathered.
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
    /// For media segments with the target duration given. The target of the groups is a second more than the
    /// sum, as each of the segments may be half a second longer than it rounds to.
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

    /// Takes the next media segment, `init` being the name of its initialization segment; returns the group that
    /// it made listed, if any. A discontinuity ends a group early. Groups are numbered up from the first
    /// segment's number, so that they never fall over sessions.
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
        // Whole at once: nobody has to wait for the next segment to see it.
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

    /// Lists what is gathered and ends the playlist.
    ///
    /// # Errors
    /// As [`PreviewPlaylist::push`].
    pub fn end(&mut self) -> Result<Option<PreviewGroup>, PlaylistError> {
        let listed = self.list()?;
        self.playlist.end();
        Ok(listed)
    }

    /// Removes the `count` oldest groups, as when their media is lost; the last one stays. Returns how many.
    pub fn lose_first(&mut self, count: usize) -> usize {
        let first = self.playlist.first_sequence().unwrap_or(0);
        self.playlist.lose_before(first.saturating_add(count as u64))
    }

    /// The playlist under the groups, for rendering.
    pub fn playlist(&self) -> &MediaPlaylist {
        &self.playlist
    }
}

fn group_target_seconds(target_seconds: u32) -> u32 {
    target_seconds.saturating_mul(PREVIEW_GROUP_SEGMENTS as u32).saturating_add(1)
}
