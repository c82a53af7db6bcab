//! The preview: groups of segments in a short playlist, made of the same segments that viewers with a key get.

use std::collections::VecDeque;
use std::time::Duration;

use satcast_media::playlist::{
    MediaPlaylist, PlaylistError, PreviewGroup, PreviewPlaylist, preview_name, segment_name,
};
use satcast_media::segment::Segment;
use satcast_plugin_api::{Asset, AssetBody, Audience};

use super::MAX_AGE_SECS;
use super::inits::Known;
use super::lists::publish_list;
use crate::host::Host;

#[derive(Debug)]
struct Group {
    group: PreviewGroup,
    /// No longer in the playlist; withdrawn at this time.
    left: Option<Duration>,
}

/// Published groups, and the playlist of the newest.
#[derive(Debug)]
pub(super) struct Preview {
    list: PreviewPlaylist,
    published: u64,
    groups: VecDeque<Group>,
    /// First segment that is in no group yet.
    ungrouped: u64,
    /// Media type of the newest segment.
    content_type: &'static str,
}

impl Preview {
    pub(super) fn new(target_seconds: u32, first: u64, follows: u64) -> Self {
        Preview {
            list: PreviewPlaylist::new(target_seconds).with_discontinuity_sequence(follows),
            published: 0,
            groups: VecDeque::new(),
            ungrouped: first,
            content_type: "",
        }
    }

    pub(super) fn playlist(&self) -> &MediaPlaylist {
        self.list.playlist()
    }

    pub(super) fn raise_target(&mut self, target_seconds: u32) {
        self.list.raise_target(target_seconds);
    }

    pub(super) fn push(&mut self, segment: &Segment, known: &Known, host: &impl Host) {
        // A discontinuity lists the segments before it, which may have another media type.
        let before = std::mem::replace(&mut self.content_type, known.content_type());
        let content_type = if segment.discontinuity { before } else { self.content_type };
        let listed = self.list.push(segment, &known.name);
        self.add(listed, content_type, host);
    }

    pub(super) fn end(&mut self, host: &impl Host) {
        let listed = self.list.end();
        self.add(listed, self.content_type, host);
    }

    fn add(
        &mut self,
        listed: Result<Option<PreviewGroup>, PlaylistError>,
        content_type: &'static str,
        host: &impl Host,
    ) {
        let group = match listed {
            Ok(Some(group)) => group,
            Ok(None) => return,
            Err(error) => return tracing::error!(%error, "a group of the preview cannot be listed"),
        };
        let parts = (group.first..).take(group.count).map(segment_name).collect();
        let name = preview_name(group.first, group.count);
        let asset =
            Asset::new(name, content_type, Audience::Preview, AssetBody::Parts(parts)).max_age(MAX_AGE_SECS);
        if let Err(error) = host.publish(asset) {
            tracing::warn!(%error, "the host refuses a group of the preview");
        }
        self.ungrouped = group.first + group.count as u64;
        self.groups.push_back(Group { group, left: None });
    }

    /// Groups that are no longer listed stay published until `until`.
    pub(super) fn age(&mut self, until: Duration) {
        let unlisted = self.groups.len() - self.playlist().len().min(self.groups.len());
        for group in self.groups.iter_mut().take(unlisted) {
            group.left.get_or_insert(until);
        }
    }

    /// A segment is lost: groups up to the one that contains it leave the playlist, and are withdrawn when the new
    /// playlist is published.
    pub(super) fn forget(&mut self, sequence: u64) {
        let unlisted = self.groups.iter().filter(|group| group.left.is_some()).count();
        let lost = self.groups.iter().take_while(|group| group.group.first <= sequence).count();
        let removed = self.list.lose_first(lost.saturating_sub(unlisted));
        for group in self.groups.iter_mut().take(lost.min(unlisted + removed)) {
            group.left = Some(Duration::ZERO);
        }
    }

    /// First segment that a published or coming group needs.
    pub(super) fn needs_from(&self) -> u64 {
        self.groups.front().map_or(self.ungrouped, |oldest| oldest.group.first)
    }

    /// When the oldest group is to be withdrawn.
    pub(super) fn next_wake(&self) -> Option<Duration> {
        self.groups.front()?.left
    }

    pub(super) fn len(&self) -> usize {
        self.groups.len()
    }

    /// Withdraws groups whose time is over.
    pub(super) fn retire(&mut self, now: Duration, host: &impl Host) {
        while let Some(oldest) = self.groups.front()
            && oldest.left.is_some_and(|until| until <= now)
        {
            host.retract(&preview_name(oldest.group.first, oldest.group.count));
            self.groups.pop_front();
        }
    }

    /// Publishes the playlist if it changed; true when viewers have one.
    pub(super) fn publish(&mut self, name: &str, host: &impl Host) -> bool {
        let version = self.playlist().version();
        if version != self.published && publish_list(self.playlist(), name, Audience::Preview, host) {
            self.published = version;
        }
        self.published > 0
    }
}
