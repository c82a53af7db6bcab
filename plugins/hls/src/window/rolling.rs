//! How the window moves on: listing, handing over, shortening, taking away.

use satcast_plugin_api::AssetBody;
use std::time::Duration;

use satcast_media::playlist::segment_name;

use super::held::{Held, Place, Stored};
use super::{PIECES_MAX, Window};
use crate::shelf::Shelf;

impl Window {
    /// Does everything that is due.
    pub(crate) fn roll(&mut self, now: Duration, shelf: &impl Shelf) {
        self.list(now, shelf);
        self.shorten(now, shelf);
        self.keep_quota(now, shelf);
        self.make_room(now, shelf);
        self.age_parts(now);
        self.publish_lists(false, shelf);
        self.hand_over(shelf);
        self.retire(now, shelf);
    }

    /// Viewers can go back `seconds` from now on: a shorter window drops its oldest segments, a longer one grows.
    pub(crate) fn set_dvr(&mut self, seconds: u32, now: Duration, shelf: &impl Shelf) {
        if std::mem::replace(&mut self.dvr_seconds, seconds) == seconds {
            return;
        }
        if let Some(lists) = &mut self.lists {
            let removed = lists.set_window(seconds);
            self.held.leave(removed, now + self.limits.leave_grace);
        }
        self.roll(now, shelf);
    }

    /// Lists, in order, what is written or has waited long enough.
    pub(super) fn list(&mut self, now: Duration, shelf: &impl Shelf) {
        let Some(lists) = &mut self.lists else { return };
        let leave_at = now + self.limits.leave_grace;
        let from = self.held.all.partition_point(|held| !held.is_pending());
        let behind = self.held.behind_edge(self.limits.edge_segments);
        for index in from..self.held.all.len() {
            let held = &mut self.held.all[index];
            let due = matches!(held.place, Place::Pending(by) if by <= now) || self.health.is_failing();
            // A burst of short segments does not wait: only the live edge may be pending.
            if !due && index >= behind && !held.has_file() {
                break;
            }
            let Some(known) = self.inits.get(held.segment.init_id) else { break };
            held.place = Place::Listed;
            let removed = lists.push(&held.segment, known, now, &self.limits, shelf);
            self.held.leave(removed, leave_at);
        }
    }

    /// Listed segments behind the live edge that have no file: how many, and their bytes.
    pub(super) fn unwritten(&self) -> (usize, usize) {
        let behind = self.held.behind_edge(self.limits.edge_segments);
        let unwritten = self.held.all.iter().take(behind).filter(|held| is_unwritten(held));
        unwritten.fold((0, 0), |(count, bytes), held| (count + 1, bytes + held.bytes))
    }

    /// Takes the oldest segments without a file, and all before them, off the list when the disk does not keep up.
    fn shorten(&mut self, now: Duration, shelf: &impl Shelf) {
        if self.dvr_seconds == 0 {
            return;
        }
        let (mut count, mut bytes) = self.unwritten();
        let mut lost = 0;
        while count > self.limits.unwritten_segments_max || bytes > self.limits.unwritten_bytes_max {
            let Some(oldest) = self.held.all.iter().find(|held| is_unwritten(held)) else { break };
            let (sequence, size) = (oldest.sequence(), oldest.bytes);
            self.take_off(sequence, now);
            // The list gets no shorter. What it keeps is bounded by `make_room`.
            if self.held.find(sequence).is_some_and(|held| held.place == Place::Listed) {
                break;
            }
            (count, bytes, lost) = (count - 1, bytes - size, lost + 1);
        }
        self.health.lost(lost, shelf);
    }

    /// Takes the oldest segments off the list while all that is listed takes more than the destination may have.
    fn keep_quota(&mut self, now: Duration, shelf: &impl Shelf) {
        let is_listed = |held: &&Held| held.place == Place::Listed;
        let mut bytes: u64 = self.held.all.iter().filter(is_listed).map(|held| held.bytes as u64).sum();
        while bytes > self.limits.window_bytes_max {
            let behind = self.held.behind_edge(self.limits.edge_segments);
            let Some(oldest) = self.held.all.iter().take(behind).find(is_listed) else { break };
            let (sequence, size) = (oldest.sequence(), oldest.bytes as u64);
            self.take_off(sequence, now);
            // The list gets no shorter.
            if self.held.find(sequence).is_some_and(|held| held.place == Place::Listed) {
                break;
            }
            bytes -= size;
            self.health.bounded(shelf);
        }
    }

    /// The disk is full: the oldest files go at once, so that what waits can be written. Nobody's grace time counts: who reads one
    /// of them reads on, and who asks later is at the far end of the window and goes on with the next list.
    pub(super) fn free_disk(
        &mut self,
        short_bytes: u64,
        going_bytes: u64,
        now: Duration,
        shelf: &impl Shelf,
    ) {
        let Some(lists) = &self.lists else { return };
        // What a group of the preview needs would stay, so it makes no room.
        let needed = lists.preview.needs_from();
        let newest = self.held.all.back().map_or(0, |held| held.bytes);
        let wanted = self.held.waiting_bytes().saturating_add(newest.saturating_mul(self.limits.spare_files));
        // Removing takes its time on a busy disk: what is on its way must not be asked for twice.
        let mut room = short_bytes.saturating_add(wanted as u64).saturating_sub(going_bytes);
        let mut lost = 0;
        for index in 0..self.held.behind_edge(self.limits.edge_segments) {
            let held = &self.held.all[index];
            let (sequence, bytes) = (held.sequence(), held.bytes as u64);
            if room == 0 || sequence >= needed {
                break;
            }
            if !held.has_file() {
                continue;
            }
            lost += self.take_off(sequence, now);
            let held = &mut self.held.all[index];
            if held.place == Place::Listed {
                break;
            }
            held.place = Place::Gone;
            room = room.saturating_sub(bytes);
        }
        self.health.lost(lost, shelf);
    }

    /// Everything up to `sequence` leaves the list, as far as enough is left of it; returns how many did.
    fn take_off(&mut self, sequence: u64, now: Duration) -> usize {
        let Some(lists) = &mut self.lists else { return 0 };
        let removed = lists.remove_before(sequence + 1);
        // A file in its grace time takes the room that the next one needs.
        let grace = if self.health.is_full() { Duration::ZERO } else { self.limits.leave_grace };
        self.held.leave(removed, now + grace);
        removed
    }

    /// Keeps memory and pieces within their limits: the oldest go at once, the newest never.
    fn make_room(&mut self, now: Duration, shelf: &impl Shelf) {
        let Some(lists) = &self.lists else { return };
        let mut bytes = self.held.memory_bytes() + self.parts.bytes();
        let mut pieces = self.held.all.len() + self.inits.len() + lists.preview.len() + self.parts.len();
        let mut lost = 0;
        for index in 0..self.held.behind_edge(self.limits.edge_segments) {
            let too_many = pieces > PIECES_MAX;
            if bytes <= self.limits.memory_bytes_max && !too_many {
                break;
            }
            let held = &self.held.all[index];
            if held.memory_bytes() == 0 && !too_many {
                continue;
            }
            let sequence = held.sequence();
            lost += usize::from(is_unwritten(held));
            bytes -= held.memory_bytes();
            pieces -= 1;
            if let Some(lists) = &mut self.lists {
                let removed = lists.lose_before(sequence + 1);
                self.held.leave(removed, now + self.limits.leave_grace);
                lists.preview.forget(sequence);
            }
            self.held.all[index].place = Place::Gone;
        }
        if self.dvr_seconds > 0 {
            self.health.lost(lost, shelf);
        }
    }

    /// Gives the host the file in place of the memory for what is no longer at the live edge.
    fn hand_over(&mut self, shelf: &impl Shelf) {
        for index in 0..self.held.behind_edge(self.limits.edge_segments) {
            let held = &mut self.held.all[index];
            if held.place == Place::Gone || !matches!(held.stored, Stored::Both(_)) {
                continue;
            }
            let Stored::Both(file) = std::mem::replace(&mut held.stored, Stored::Stuck) else { continue };
            let (path, len) = (file.relative(), file.bytes());
            let body = AssetBody::File { path, offset: 0, len, keep: Some(Box::new(file)) };
            // When it is refused the file is given back, and the memory stays published.
            if self.publish_body(&self.held.all[index].segment, body, shelf).is_ok() {
                self.held.all[index].handed_over();
            }
        }
    }

    /// Takes away what nobody can ask for any more. The lists that do not name it are published.
    fn retire(&mut self, now: Duration, shelf: &impl Shelf) {
        let needed = self.lists.as_mut().map_or(0, |lists| {
            lists.preview.retire(now, shelf);
            lists.preview.needs_from()
        });
        self.parts.retire(now, shelf);
        self.held.all.retain(|held| {
            let over = match held.place {
                Place::Gone => true,
                Place::Left(until) => until <= now && held.sequence() < needed,
                Place::Pending(_) | Place::Listed => false,
            };
            if over {
                shelf.retract(&segment_name(held.sequence()));
            }
            !over
        });
        if let Some(oldest) = self.held.all.front() {
            self.inits.retire(Some(oldest.segment.init_id), shelf);
        }
    }

    /// When the oldest segment that left the list is to be taken away, unless the preview needs it longer.
    pub(super) fn next_retirement(&self) -> Option<Duration> {
        let needed = self.lists.as_ref()?.preview.needs_from();
        let oldest = self.held.all.front().filter(|held| held.sequence() < needed)?;
        match oldest.place {
            Place::Left(until) => Some(until),
            _ => None,
        }
    }
}

/// Listed, and in memory alone.
fn is_unwritten(held: &Held) -> bool {
    held.place == Place::Listed && !held.has_file()
}
