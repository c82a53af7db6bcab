//! Who may watch a recording: its owner with a token of the API, and viewers with a public key of the stream, if it is public.

use std::sync::Arc;

use poem::Request;

use super::super::access::{Access, Age, Question};
use super::super::headers::{Keep, Readers};
use super::super::serve::{preview_token, readers};
use super::super::token::{Grant, Mint, Ticket};
use super::super::{Admission, Playback};
use super::state::{CLIP, Group, INDEX, POSTER, PREFIX, nothing_to_play, token_path};
use crate::auth::presented_key;
use crate::base::{ApiError, RequestContext};
use satcast_core::ids::{DestinationId, KeyId, UnixMillis};
use satcast_core::networks::Network;
use satcast_store::{ArchiveRecord, ArchiveState, WatchedArchive};
use url::Url;

const HOUR_MS: i64 = 3_600_000;
/// An owner's token is valid for this many full hours after the present one.
const OWNER_HOURS: i64 = 24;
/// Most recordings of a session whose store is looked up for the player page: they differ only if the destination was changed during
/// the session.
const STORES_ASKED_MAX: usize = 8;

/// A viewer of recordings, and the origins that may read the answers.
pub(super) struct Viewer {
    who: Who,
    pub(super) readers: Readers,
}

enum Who {
    /// With a token of the API, which ends at this time.
    Owner(UnixMillis),
    /// With a public key.
    Key(KeyId, Arc<Access>),
}

impl Viewer {
    /// Whether this viewer may watch a recording, which plays with one that the viewer's token or key opens.
    pub(super) fn may_watch(&self, watched: &WatchedArchive) -> bool {
        match &self.who {
            Who::Owner(_) => true,
            Who::Key(_, access) => opens(access, watched),
        }
    }

    /// The token for the bytes of a recording.
    pub(super) fn token(&self, mint: &Mint, watched: &WatchedArchive) -> String {
        let path = token_path(watched.record.id);
        match &self.who {
            Who::Owner(until) => {
                owner_token(mint, watched.record.id, watched.record.report.destination_id, *until)
            }
            Who::Key(key, access) => mint.token(Grant::Key(*key), access.destination, "", &path),
        }
    }

    /// Caching of an answer that browsers may keep for `secs`: what is private is never stored.
    pub(super) fn keep(&self, secs: u32) -> Keep {
        match &self.who {
            Who::Owner(_) => Keep::Preview,
            Who::Key(..) => Keep::Media(secs),
        }
    }
}

/// Whether a public key opens a recording: it is of a destination of the same stream, and the recording is public.
fn opens(access: &Access, watched: &WatchedArchive) -> bool {
    let is_same = (access.account, access.stream) == (watched.account, watched.stream);
    access.enabled && is_same && watched.record.public
}

/// The token is that of a preview whose session is the time of its end, so all tokens of an hour are equal.
fn owner_token(mint: &Mint, id: i64, destination: DestinationId, until: UnixMillis) -> String {
    mint.token(Grant::Preview, destination, &until.0.to_string(), &token_path(id))
}

/// The end of the token of a recording's owner, if it is not over.
fn owner_until(ticket: &Ticket, destination: DestinationId, now: UnixMillis) -> Option<UnixMillis> {
    let until: i64 = ticket.session.parse().ok()?;
    (ticket.destination == destination && now.0 < until).then_some(UnixMillis(until))
}

impl Playback {
    /// The addresses of the playlist and the poster of a recording for its owner, below the address of the service; `None` while
    /// there is nothing to play.
    pub(crate) fn recording_paths(&self, record: &ArchiveRecord) -> Option<[String; 2]> {
        let can_play = record.report.size_bytes > 0 && record.report.state != ArchiveState::Failed;
        can_play.then(|| {
            [INDEX, POSTER].map(|name| self.owner_path(record.id, record.report.destination_id, name))
        })
    }

    /// The addresses of the file and the poster of a ready clip, in the same way; `archive` is the row of its file.
    pub(crate) fn clip_paths(&self, archive: i64, destination: DestinationId) -> [String; 2] {
        [CLIP, POSTER].map(|name| self.owner_path(archive, destination, name))
    }

    fn owner_path(&self, id: i64, destination: DestinationId, file: &str) -> String {
        let hour = self.clock.now().0.div_euclid(HOUR_MS);
        let until = UnixMillis(hour.saturating_add(1 + OWNER_HOURS).saturating_mul(HOUR_MS));
        let token = owner_token(&self.mint, id, destination, until);
        format!("{PREFIX}{id}/{file}?token={token}")
    }

    /// Checks that the key or token of a request opens a recording, for the player page.
    ///
    /// # Errors
    /// As [`Playback::viewer_of_index`].
    pub(crate) async fn admit_recording(
        &self,
        request: &Request,
        context: &RequestContext,
        id: i64,
    ) -> Result<Admission, ApiError> {
        let (viewer, group) = self.viewer_of_index(request, context, id).await?;
        let watched = group.iter().find(|watched| watched.record.id == id).ok_or_else(nothing_to_play)?;
        let origins = match &viewer.who {
            Who::Owner(_) => Vec::new(),
            Who::Key(_, access) => access.origins.clone(),
        };
        let destination = watched.record.report.destination_id;
        let (label, is_clip) = (watched.label.clone(), watched.record.clip.is_some());
        let stores = self.stores(&viewer, watched, &group).await;
        Ok(Admission { destination, label, origins, stores, is_clip })
    }

    /// Origins of the stores to which the viewer of a recording is redirected. What is still uploaded has none yet.
    async fn stores(&self, viewer: &Viewer, own: &WatchedArchive, group: &Group) -> Vec<String> {
        let mut stores: Vec<String> = Vec::new();
        if !self.recordings.signs {
            return stores;
        }
        let others = group.iter().filter(|other| other.record.id != own.record.id && viewer.may_watch(other));
        let uploaded = |watched: &&WatchedArchive| watched.record.report.state == ArchiveState::Ready;
        for watched in std::iter::once(own).chain(others).filter(uploaded).take(STORES_ASKED_MAX) {
            let Ok(source) = self.recordings.source(watched).await else { continue };
            let address = source.sign().await.and_then(|address| Url::parse(&address).ok());
            let origin = address.map(|address| address.origin().ascii_serialization());
            stores.extend(origin.filter(|origin| !stores.contains(origin)));
        }
        stores
    }

    /// Whether the driver of a recording of this node can read it.
    pub(crate) async fn can_play(&self, driver: &str) -> bool {
        self.recordings.drivers.reads_recordings(driver).await
    }

    /// The viewer of a playlist, by key or token, and the recordings that play together.
    ///
    /// # Errors
    /// 400 without key and token, 401 for wrong ones, 403 for an origin that is not on the list, 404 for a recording that the key
    /// does not open, 429 after too many of these, 502 from the store.
    pub(super) async fn viewer_of_index(
        &self,
        request: &Request,
        context: &RequestContext,
        id: i64,
    ) -> Result<(Viewer, Group), ApiError> {
        let token = match (presented_key(request), preview_token(request)) {
            (Some(key), _) => {
                let (access, key) = self.key_access(context, &key).await?;
                if !access.enabled {
                    return Err(ApiError::invalid_public_key());
                }
                let group = self.recordings.group(id).await?;
                let is_open = group.iter().any(|watched| watched.record.id == id && opens(&access, watched));
                if !is_open {
                    // A search through all numbers is a guess like any other.
                    context.count(
                        self.invalid_keys.hit(Network::from(context.client), self.clock.monotonic()),
                    )?;
                    return Err(nothing_to_play());
                }
                let readers = readers(request, &access)?;
                return Ok((Viewer { who: Who::Key(key, access), readers }, group));
            }
            (None, Some(token)) => token,
            (None, None) => return Err(ApiError::public_key_required()),
        };
        let ticket = self.mint.read(&token, &token_path(id)).ok_or_else(ApiError::invalid_token)?;
        if ticket.grant != Grant::Preview {
            return Err(ApiError::invalid_token());
        }
        self.owner(&ticket, id).await
    }

    /// The viewer of a recording's bytes, by the token of the playlist.
    ///
    /// # Errors
    /// As [`Playback::viewer_of_index`].
    pub(super) async fn viewer_of_media(
        &self,
        request: &Request,
        id: i64,
        token: &str,
    ) -> Result<(Viewer, Group), ApiError> {
        let ticket = self.mint.read(token, &token_path(id)).ok_or_else(ApiError::invalid_public_key)?;
        let Grant::Key(key) = ticket.grant else { return self.owner(&ticket, id).await };
        let access = self.accesses.find(Question::Key(key), Age::Fresh).await?;
        let access = access.filter(|access| access.enabled && access.destination == ticket.destination);
        let access = access.ok_or_else(ApiError::invalid_public_key)?;
        let group = self.recordings.group(id).await?;
        if !group.iter().any(|watched| watched.record.id == id && opens(&access, watched)) {
            return Err(nothing_to_play());
        }
        let readers = readers(request, &access)?;
        Ok((Viewer { who: Who::Key(key, access), readers }, group))
    }

    async fn owner(&self, ticket: &Ticket, id: i64) -> Result<(Viewer, Group), ApiError> {
        let group = self.recordings.group(id).await?;
        let watched = group.iter().find(|watched| watched.record.id == id).ok_or_else(nothing_to_play)?;
        let destination = watched.record.report.destination_id;
        let until = owner_until(ticket, destination, self.clock.now());
        let until = until.ok_or_else(ApiError::invalid_token)?;
        Ok((Viewer { who: Who::Owner(until), readers: Readers::All }, group))
    }
}
