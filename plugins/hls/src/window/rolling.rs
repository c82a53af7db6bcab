//! How the window moves on: listing, handing over, shortening, withdrawing.

use satcast_plugin_api::AssetBody;
use std::time::Duration;

use satcast_media::playlist::segment_name;

use super::held::{Held, Place, Stored};
use super::{ASSETS_MAX, Window};
use crate::host::Host;

impl Window {
    /// Does everything that is due.
    pub(crate) fn roll(&mut self, now: Duration, host: &impl Host) {
        self.list(now, host);
        self.shorten(now, host);
        self.keep_quota(now, host);
        self.free_memory(now, host);
        self.age_parts(now);
        self.publish_lists(false, host);
        self.hand_over(host);
        self.retire(now, host);
    }

    /// Changes how far viewers can go back: a shorter window drops its oldest segments, a longer one grows.
    pub(crate) fn set_dvr(&mut self, seconds: u32, now: Duration, host: &impl Host) {
        if std::mem::replace(&mut self.dvr_seconds, seconds) == seconds {
            return;
        }
        if let Some(lists) = &mut self.lists {
            let removed = lists.set_window(seconds);
            self.held.leave(removed, now + self.limits.leave_grace);
        }
        self.roll(now, host);
    }

    /// Lists, in order, segments that are written or have waited long enough.
    pub(super) fn list(&mut self, now: Duration, host: &impl Host) {
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
            let removed = lists.push(&held.segment, known, now, &self.limits, host);
            self.held.leave(removed, leave_at);
        }
    }

    /// Listed segments behind the live edge that have no file: their number and bytes.
    pub(super) fn unwritten(&self) -> (usize, usize) {
        let behind = self.held.behind_edge(self.limits.edge_segments);
        let unwritten = self.held.all.iter().take(behind).filter(|held| is_unwritten(held));
        unwritten.fold((0, 0), |(count, bytes), held| (count + 1, bytes + held.bytes))
    }

    /// Removes the oldest segments without a file, and all before them, from the playlist when the disk is too slow.
    fn shorten(&mut self, now: Duration, host: &impl Host) {
        if self.dvr_seconds == 0 {
            return;
        }
        let (mut count, mut bytes) = self.unwritten();
        let mut lost = 0;
        while count > self.limits.unwritten_segments_max || bytes > self.limits.unwritten_bytes_max {
            let Some(oldest) = self.held.all.iter().find(|held| is_unwritten(held)) else { break };
            let (sequence, size) = (oldest.sequence(), oldest.bytes);
            self.take_off(sequence, now);
            // The playlist cannot get shorter. `free_memory` bounds the rest.
            if self.held.find(sequence).is_some_and(|held| held.place == Place::Listed) {
                break;
            }
            (count, bytes, lost) = (count - 1, bytes - size, lost + 1);
        }
        self.health.lost(lost, host);
    }

    /// Removes the oldest segments from the playlist while all listed segments exceed the quota of the destination.
    fn keep_quota(&mut self, now: Duration, host: &impl Host) {
        let is_listed = |held: &&Held| held.place == Place::Listed;
        let mut bytes: u64 = self.held.all.iter().filter(is_listed).map(|held| held.bytes as u64).sum();
        while bytes > self.limits.window_bytes_max {
            let behind = self.held.behind_edge(self.limits.edge_segments);
            let Some(oldest) = self.held.all.iter().take(behind).find(is_listed) else { break };
            let (sequence, size) = (oldest.sequence(), oldest.bytes as u64);
            self.take_off(sequence, now);
            // The playlist cannot get shorter.
            if self.held.find(sequence).is_some_and(|held| held.place == Place::Listed) {
                break;
            }
            bytes -= size;
            self.health.bounded(host);
        }
    }

    /// The disk is full: removes the oldest files at once, without their grace time, so that waiting segments can be
    /// written. A running read of such a file continues; a later request is from a viewer at the far end of the window,
    /// who continues with the next playlist.
    pub(super) fn free_disk(&mut self, short_bytes: u64, going_bytes: u64, now: Duration, host: &impl Host) {
        let Some(lists) = &self.lists else { return };
        // Segments that a group of the preview needs would stay, so they free no space.
        let needed = lists.preview.needs_from();
        let newest = self.held.all.back().map_or(0, |held| held.bytes);
        let wanted = self.held.waiting_bytes().saturating_add(newest.saturating_mul(self.limits.spare_files));
        // Removal takes time on a busy disk: bytes that are being removed must not be counted again.
        let mut missing = short_bytes.saturating_add(wanted as u64).saturating_sub(going_bytes);
        let mut lost = 0;
        for index in 0..self.held.behind_edge(self.limits.edge_segments) {
            let held = &self.held.all[index];
            let (sequence, bytes) = (held.sequence(), held.bytes as u64);
            if missing == 0 || sequence >= needed {
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
            missing = missing.saturating_sub(bytes);
        }
        self.health.lost(lost, host);
    }

    /// Removes everything up to `sequence` from the playlist, as far as enough remain; returns how many.
    fn take_off(&mut self, sequence: u64, now: Duration) -> usize {
        let Some(lists) = &mut self.lists else { return 0 };
        let removed = lists.remove_before(sequence + 1);
        // A file in its grace time occupies space that the next one needs.
        let grace = if self.health.is_full() { Duration::ZERO } else { self.limits.leave_grace };
        self.held.leave(removed, now + grace);
        removed
    }

    /// Keeps memory and assets within their limits: the oldest are removed at once, the newest never.
    fn free_memory(&mut self, now: Duration, host: &impl Host) {
        let Some(lists) = &self.lists else { return };
        let mut bytes = self.held.memory_bytes() + self.parts.bytes();
        let mut assets = self.held.all.len() + self.inits.len() + lists.preview.len() + self.parts.len();
        let mut lost = 0;
        for index in 0..self.held.behind_edge(self.limits.edge_segments) {
            let too_many = assets > ASSETS_MAX;
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
            assets -= 1;
            if let Some(lists) = &mut self.lists {
                let removed = lists.lose_before(sequence + 1);
                self.held.leave(removed, now + self.limits.leave_grace);
                lists.preview.forget(sequence);
            }
            self.held.all[index].place = Place::Gone;
        }
        if self.dvr_seconds > 0 {
            self.health.lost(lost, host);
        }
    }

    /// Replaces memory by the file in the host for segments, and their parts, that few players ask for any more.
    fn hand_over(&mut self, host: &impl Host) {
        for index in 0..self.held.behind_edge(self.limits.memory_segments) {
            let held = &mut self.held.all[index];
            if held.place == Place::Gone || !matches!(held.stored, Stored::Both(_)) {
                continue;
            }
            let Stored::Both(file) = std::mem::replace(&mut held.stored, Stored::Stuck) else { continue };
            let (path, len) = (file.relative(), file.bytes());
            let body = AssetBody::File { path, offset: 0, len, keep: Some(Box::new(file.clone())) };
            // If the host refuses, the file is returned, and the memory stays published.
            if self.publish_body(&self.held.all[index].segment, body, host).is_ok() {
                self.held.all[index].handed_over();
                self.hand_over_parts(index, &file, host);
            }
        }
    }

    /// Withdraws assets that no viewer can ask for any more. The playlists without them are already published.
    fn retire(&mut self, now: Duration, host: &impl Host) {
        let needed = self.lists.as_mut().map_or(0, |lists| {
            lists.preview.retire(now, host);
            lists.preview.needs_from()
        });
        self.parts.retire(now, host);
        self.held.all.retain(|held| {
            let over = match held.place {
                Place::Gone => true,
                Place::Left(until) => until <= now && held.sequence() < needed,
                Place::Pending(_) | Place::Listed => false,
            };
            if over {
                host.retract(&segment_name(held.sequence()));
            }
            !over
        });
        if let Some(oldest) = self.held.all.front() {
            self.inits.retire(Some(oldest.segment.init_id), host);
        }
    }

    /// When the oldest unlisted segment is to be withdrawn, unless the preview needs it longer.
    pub(super) fn next_retirement(&self) -> Option<Duration> {
        let needed = self.lists.as_ref()?.preview.needs_from();
        let oldest = self.held.all.front().filter(|held| held.sequence() < needed)?;
        match oldest.place {
            Place::Left(until) => Some(until),
            _ => None,
        }
    }
}

/// Listed, but only in memory.
fn is_unwritten(held: &Held) -> bool {
    held.place == Place::Listed && !held.has_file()
}
