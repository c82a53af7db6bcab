//! Parts: published as they come, and taken away some time after their segment has taken their place in the list.

use std::collections::VecDeque;
use std::time::Duration;

use satcast_media::playlist::part_name;
use satcast_media::segment::Part;
use satcast_plugin_api::{Asset, AssetBody, Audience};

use super::{MAX_AGE_SECS, Window};
use crate::shelf::Shelf;

#[derive(Debug)]
struct HeldPart {
    number: u64,
    /// Of its segment.
    sequence: u64,
    bytes: usize,
    /// No longer in the list; taken away at this time.
    left: Option<Duration>,
}

/// Parts that are published, oldest first.
#[derive(Debug)]
pub(super) struct Parts {
    /// First media sequence number of the opening, which their names begin with.
    first: u64,
    /// Number of the next one.
    next: u64,
    on: bool,
    all: VecDeque<HeldPart>,
    /// One of the segment that is being made is missing: the others are not listed either.
    broken: bool,
}

impl Parts {
    pub(super) fn new(first: u64) -> Self {
        Parts { first, next: 0, on: false, all: VecDeque::new(), broken: false }
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

    /// Bytes in memory.
    pub(super) fn bytes(&self) -> usize {
        self.all.iter().map(|part| part.bytes).sum()
    }

    /// When the oldest is to be taken away.
    pub(super) fn next_wake(&self) -> Option<Duration> {
        self.all.front()?.left
    }

    /// Takes away those whose time is over.
    pub(super) fn retire(&mut self, now: Duration, shelf: &impl Shelf) {
        while let Some(part) = self.all.pop_front_if(|part| part.left.is_some_and(|left| left <= now)) {
            shelf.retract(&part_name(self.first, part.number));
        }
    }

    /// Parts of segments before `sequence` are not listed any more, nor are those that were lost.
    fn age(&mut self, sequence: u64, until: Duration) {
        let old = self.all.iter_mut().take_while(|part| part.sequence < sequence);
        old.for_each(|part| {
            part.left.get_or_insert(until);
        });
    }
}

impl Window {
    /// Takes a part of the segment that is being made. One that viewers cannot have costs the segment its parts, not the segment. The
    /// last is listed with the segment.
    pub(crate) fn part(&mut self, mut part: Part, now: Duration, shelf: &impl Shelf) {
        // Numbers and holes are the window's; see `segment`.
        part.sequence = self.next;
        part.discontinuity |= self.hole;
        self.parts.broken &= part.index > 0;
        let (Some(lists), Some(known)) = (&mut self.lists, self.inits.get(part.init_id)) else { return };
        if self.parts.broken {
            return;
        }
        let (first, number) = (self.parts.first, self.parts.next);
        let name = part_name(first, number);
        let body = AssetBody::Memory(part.bytes.clone());
        let asset = Asset::new(&name, known.content_type(), Audience::Hosted, body).max_age(MAX_AGE_SECS);
        let published = known.is_published() && {
            let published = shelf.publish(asset);
            published.inspect_err(|error| tracing::warn!(%error, name, "the host refuses a part")).is_ok()
        };
        if !published || !lists.push_part(&part, known, &name, &part_name(first, number + 1)) {
            shelf.retract(&name);
            // A name never comes back with other bytes.
            self.parts.next += u64::from(published);
            self.parts.broken = true;
            self.lose_parts();
            return self.roll(now, shelf);
        }
        let (sequence, bytes) = (part.sequence, part.bytes.len());
        self.parts.next += 1;
        self.parts.all.push_back(HeldPart { number, sequence, bytes, left: None });
        if !part.is_last {
            self.roll(now, shelf);
        }
    }

    /// The segment that is being made has no parts any more. They stay published as others do, by the number of what comes in its
    /// place.
    pub(super) fn lose_parts(&mut self) {
        if let Some(lists) = self.lists.as_mut().filter(|_| self.parts.on) {
            lists.drop_parts();
        }
    }

    /// What is no longer listed stays published for some time.
    pub(super) fn age_parts(&mut self, now: Duration) {
        let Some(lists) = self.lists.as_ref().filter(|_| self.parts.on) else { return };
        let grace = lists.media().target_seconds().saturating_mul(self.limits.part_grace_targets);
        self.parts.age(lists.media().first_parted(), now + Duration::from_secs(grace.into()));
    }
}
