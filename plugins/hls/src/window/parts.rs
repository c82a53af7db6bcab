//! Parts: published as they come, and withdrawn some time after their segment replaced them in the playlist.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use satcast_media::playlist::part_name;
use satcast_media::segment::Part;
use satcast_plugin_api::{Asset, AssetBody, Audience};

use super::{MAX_AGE_SECS, Window};
use crate::folder::SegmentFile;
use crate::host::Host;

#[derive(Debug)]
struct HeldPart {
    number: u64,
    /// Number of its segment.
    sequence: u64,
    bytes: usize,
    /// Its bytes are not in the file of its segment yet.
    in_memory: bool,
    /// No longer in the playlist; withdrawn at this time.
    left: Option<Duration>,
}

/// Parts that are published, oldest first.
#[derive(Debug)]
pub(super) struct Parts {
    /// First media sequence number of the opening, with which their names begin.
    first: u64,
    /// Number of the next part.
    next: u64,
    on: bool,
    all: VecDeque<HeldPart>,
    /// Init segment and start, in milliseconds since 1970, of the segment of the newest part.
    newest: Option<(u32, i64)>,
    /// A part of the unfinished segment is missing: later ones are not listed either.
    broken: bool,
}

impl Parts {
    pub(super) fn new(first: u64) -> Self {
        Parts { first, next: 0, on: false, all: VecDeque::new(), newest: None, broken: false }
    }

    pub(super) fn started(&mut self, on: bool) {
        self.on = on;
    }

    /// The playlist has parts.
    pub(super) fn is_on(&self) -> bool {
        self.on
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Init segment and start, in milliseconds since 1970, of the segment of the newest part.
    pub(super) fn newest(&self) -> Option<(u32, i64)> {
        self.newest
    }

    /// Bytes in memory.
    pub(super) fn bytes(&self) -> usize {
        self.all.iter().filter(|part| part.in_memory).map(|part| part.bytes).sum()
    }

    /// When the oldest part is to be withdrawn.
    pub(super) fn next_wake(&self) -> Option<Duration> {
        self.all.front()?.left
    }

    /// Withdraws parts whose time is over.
    pub(super) fn retire(&mut self, now: Duration, host: &impl Host) {
        while let Some(part) = self.all.pop_front_if(|part| part.left.is_some_and(|left| left <= now)) {
            host.retract(&part_name(self.first, part.number));
        }
    }

    /// Parts of segments before `sequence`, and lost ones, leave the playlist.
    fn age(&mut self, sequence: u64, until: Duration) {
        let old = self.all.iter_mut().take_while(|part| part.sequence < sequence);
        old.for_each(|part| {
            part.left.get_or_insert(until);
        });
    }
}

impl Window {
    /// Takes a part of the unfinished segment. A part that cannot be published costs the segment its parts, not the
    /// segment. The last part is listed with the segment.
    pub(crate) fn part(&mut self, mut part: Part, now: Duration, host: &impl Host) {
        // The window owns numbers and holes; see `segment`.
        part.sequence = self.next;
        part.discontinuity |= self.hole;
        self.parts.broken &= part.index > 0;
        self.inits.observe_part(&part);
        let (Some(lists), Some(known)) = (&mut self.lists, self.inits.get(part.init_id)) else { return };
        if self.parts.broken {
            return;
        }
        let (first, number) = (self.parts.first, self.parts.next);
        let name = part_name(first, number);
        let body = AssetBody::Memory(part.bytes.clone());
        let asset = Asset::new(&name, known.content_type(), Audience::Hosted, body).max_age(MAX_AGE_SECS);
        let published = known.is_published() && {
            let published = host.publish(asset);
            published.inspect_err(|error| tracing::warn!(%error, name, "the host refuses a part")).is_ok()
        };
        if !published || !lists.push_part(&part, known, &name, &part_name(first, number + 1)) {
            host.retract(&name);
            // A name never returns with other bytes.
            self.parts.next += u64::from(published);
            self.parts.broken = true;
            self.lose_parts();
            return self.roll(now, host);
        }
        let (sequence, bytes) = (part.sequence, part.bytes.len());
        self.parts.next += 1;
        self.parts.newest = Some((part.init_id, part.program_date_time_ms));
        self.parts.all.push_back(HeldPart { number, sequence, bytes, in_memory: true, left: None });
        if !part.is_last {
            self.roll(now, host);
        }
    }

    /// Removes all parts of the unfinished segment. They stay published like others, under the number of the segment
    /// that replaces it.
    pub(super) fn lose_parts(&mut self) {
        if let Some(lists) = self.lists.as_mut().filter(|_| self.parts.on) {
            lists.drop_parts();
        }
    }

    /// The parts of a segment become ranges of its file, which they keep. A segment that lost a part has other bytes: its
    /// parts stay in memory.
    pub(super) fn hand_over_parts(&mut self, index: usize, file: &Arc<SegmentFile>, host: &impl Host) {
        let segment = &self.held.all[index].segment;
        let Some(known) = self.inits.get(segment.init_id) else { return };
        let (first, sequence) = (self.parts.first, segment.sequence);
        let mut own: Vec<_> = self.parts.all.iter_mut().filter(|part| part.sequence == sequence).collect();
        if own.iter().map(|part| part.bytes as u64).sum::<u64>() != file.bytes() {
            return;
        }
        let mut offset = 0;
        for part in &mut own {
            let (path, len) = (file.relative(), part.bytes as u64);
            let body = AssetBody::File { path, offset, len, keep: Some(Box::new(file.clone())) };
            offset += len;
            let name = part_name(first, part.number);
            let asset = Asset::new(&name, known.content_type(), Audience::Hosted, body).max_age(MAX_AGE_SECS);
            let published = host.publish(asset);
            let published =
                published.inspect_err(|error| tracing::warn!(%error, name, "the host refuses a part"));
            part.in_memory = published.is_err();
        }
    }

    /// Parts that are no longer listed stay published for some time.
    pub(super) fn age_parts(&mut self, now: Duration) {
        let Some(lists) = self.lists.as_ref().filter(|_| self.parts.on) else { return };
        let grace = lists.media().target_seconds().saturating_mul(self.limits.part_grace_targets);
        self.parts.age(lists.media().first_parted(), now + Duration::from_secs(grace.into()));
    }
}
