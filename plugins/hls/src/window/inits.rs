//! Init segments, and the measured rates of their segments.

use std::collections::VecDeque;

use satcast_media::playlist::{Rates, init_name};
use satcast_media::segment::{Init, Part, Segment};
use satcast_plugin_api::{Asset, AssetBody, Audience};

use super::MAX_AGE_SECS;
use crate::host::Host;

/// One codec configuration of the encoder.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) init: Init,
    pub(super) name: String,
    pub(super) rates: Rates,
    published: bool,
    /// A published segment has needed it.
    used: bool,
}

impl Known {
    /// Media type of the init segment and its segments.
    pub(super) fn content_type(&self) -> &'static str {
        if self.init.video.is_some() { "video/mp4" } else { "audio/mp4" }
    }

    pub(super) fn is_published(&self) -> bool {
        self.published
    }

    fn publish(&mut self, host: &impl Host) {
        if self.published {
            return;
        }
        let body = AssetBody::Memory(self.init.bytes.clone());
        let asset = Asset::new(&self.name, self.content_type(), Audience::Both, body).max_age(MAX_AGE_SECS);
        match host.publish(asset) {
            Ok(()) => self.published = true,
            Err(error) => tracing::warn!(%error, "the host refuses an initialization segment"),
        }
    }
}

/// The init segments that published segments need, and the newest.
#[derive(Debug, Default)]
pub(super) struct Inits {
    known: VecDeque<Known>,
}

impl Inits {
    pub(super) fn add(&mut self, init: Init, first: u64, host: &impl Host) {
        // Its segments would have come before this one: all of them were lost.
        while let Some(unused) = self.known.pop_back_if(|known| !known.used) {
            host.retract(&unused.name);
        }
        let name = init_name(first, init.id);
        let mut known = Known { init, name, rates: Rates::default(), published: false, used: false };
        known.publish(host);
        self.known.push_back(known);
    }

    pub(super) fn get(&self, id: u32) -> Option<&Known> {
        // Nearly always the newest.
        self.known.iter().rev().find(|known| known.init.id == id)
    }

    /// Publishes the init segment of a new segment and measures the segment; false when viewers cannot have the init
    /// segment.
    pub(super) fn ready(&mut self, segment: &Segment, target_seconds: u32, host: &impl Host) -> bool {
        let known = self.known.iter_mut().rev().find(|known| known.init.id == segment.init_id);
        let Some(known) = known else { return false };
        known.publish(host);
        if known.published {
            known.rates.observe(segment, target_seconds);
        }
        known.published
    }

    /// Measures a part until there is a segment to measure.
    pub(super) fn observe_part(&mut self, part: &Part) {
        let known = self.known.iter_mut().rev().find(|known| known.init.id == part.init_id);
        known.into_iter().for_each(|known| known.rates.observe_part(part));
    }

    /// A segment that needs it is published.
    pub(super) fn used(&mut self, id: u32) {
        let known = self.known.iter_mut().rev().find(|known| known.init.id == id);
        known.into_iter().for_each(|known| known.used = true);
    }

    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    /// Withdraws init segments that are older than `oldest`, the id that the oldest published segment needs.
    pub(super) fn retire(&mut self, oldest: Option<u32>, host: &impl Host) {
        while self.known.len() > 1 && self.known.front().is_some_and(|known| Some(known.init.id) != oldest) {
            if let Some(known) = self.known.pop_front() {
                host.retract(&known.name);
            }
        }
    }
}
