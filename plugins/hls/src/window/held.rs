//! Segments that are published, oldest first.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use satcast_media::segment::Segment;

use crate::folder::SegmentFile;

/// Where the bytes of a segment are.
#[derive(Debug)]
pub(super) enum Stored {
    /// In memory only.
    Memory,
    /// In memory, and being written.
    Writing,
    /// In memory and in a file.
    Both(Arc<SegmentFile>),
    /// In a file that the host serves.
    File,
    /// In memory only: the host refused the file.
    Stuck,
}

/// Stage of a segment's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// Published but not listed; listed at this time at the latest.
    Pending(Duration),
    /// In the playlist.
    Listed,
    /// No longer in the playlist; withdrawn at this time.
    Left(Duration),
    /// To be withdrawn at once.
    Gone,
}

#[derive(Debug)]
pub(super) struct Held {
    /// Its bytes are empty when the host has the file.
    pub(super) segment: Segment,
    pub(super) bytes: usize,
    pub(super) stored: Stored,
    pub(super) place: Place,
}

impl Held {
    pub(super) fn new(segment: Segment, list_by: Duration) -> Self {
        let bytes = segment.bytes.len();
        Held { segment, bytes, stored: Stored::Memory, place: Place::Pending(list_by) }
    }

    pub(super) fn sequence(&self) -> u64 {
        self.segment.sequence
    }

    pub(super) fn is_pending(&self) -> bool {
        matches!(self.place, Place::Pending(_))
    }

    pub(super) fn has_file(&self) -> bool {
        matches!(self.stored, Stored::Both(_) | Stored::File)
    }

    fn is_to_write(&self) -> bool {
        matches!(self.stored, Stored::Memory) && matches!(self.place, Place::Pending(_) | Place::Listed)
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.segment.bytes.len()
    }

    /// The host has the file now.
    pub(super) fn handed_over(&mut self) {
        self.stored = Stored::File;
        self.segment.bytes = Bytes::new();
    }
}

/// All published segments, by rising number; numbers may be missing.
#[derive(Debug, Default)]
pub(super) struct HeldSegments {
    pub(super) all: VecDeque<Held>,
}

impl HeldSegments {
    pub(super) fn find(&mut self, sequence: u64) -> Option<&mut Held> {
        let index = self.all.binary_search_by_key(&sequence, Held::sequence).ok()?;
        self.all.get_mut(index)
    }

    /// Number of segments that are older than the newest `edge`.
    pub(super) fn behind_edge(&self, edge: usize) -> usize {
        self.all.len().saturating_sub(edge)
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.all.iter().map(Held::memory_bytes).sum()
    }

    /// The `count` oldest listed segments leave the playlist.
    pub(super) fn leave(&mut self, count: usize, until: Duration) {
        let listed = self.all.iter_mut().filter(|held| held.place == Place::Listed);
        listed.take(count).for_each(|held| held.place = Place::Left(until));
    }

    pub(super) fn to_write(&self) -> Option<&Held> {
        self.all.iter().find(|held| held.is_to_write())
    }

    /// Bytes that are to be written.
    pub(super) fn waiting_bytes(&self) -> usize {
        let waiting = self.all.iter().filter(|held| held.is_to_write());
        waiting.map(|held| held.bytes).sum()
    }

    pub(super) fn first_listed(&self) -> Option<&Held> {
        self.all.iter().find(|held| held.place == Place::Listed)
    }

    pub(super) fn last_listed(&self) -> Option<&Held> {
        self.all.iter().rev().find(|held| held.place == Place::Listed)
    }

    pub(super) fn first_pending(&self) -> Option<&Held> {
        self.all.iter().find(|held| held.is_pending())
    }
}
