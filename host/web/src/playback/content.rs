//! Content of this node's sessions, for its viewers and for other nodes; and the choice between this node and the owner of a session.

use std::sync::Arc;

use poem::http::HeaderMap;
use satcast_plugin_api::Audience;

use super::Playback;
use super::access::Access;
use super::follow::is_media_player;
use super::relay::{Content, Relay, Resource, What};
use crate::base::ApiError;
use satcast_core::ids::{AccountId, DestinationId, StreamId};
use satcast_drivers::published::{Opening, PlaybackFacts, Published};

impl Playback {
    /// The relay for a destination that has published nothing at this node yet; `None` for a service that is alone.
    pub(super) fn relay_for(&self, destination: DestinationId) -> Option<&Arc<Relay>> {
        let has_published = |opening: Arc<Opening>| opening.assets().playback().is_some();
        self.relay.as_ref().filter(|_| !self.live.opening(destination).is_some_and(has_published))
    }

    /// Content of the owner of a session; `None` if the session belongs to this node or to none.
    ///
    /// # Errors
    /// As the owner answered; 503 if it does not answer.
    pub(super) async fn relayed(
        &self,
        account: AccountId,
        resource: &Resource<'_>,
    ) -> Result<Option<Content>, ApiError> {
        let Some(relay) = self.relay_for(resource.destination) else { return Ok(None) };
        let viewers = self.viewers.count(resource.destination, self.clock.monotonic());
        relay.fetch(resource, account, viewers).await
    }

    /// Content for a viewer, from this node or from the owner of the session. Not for hosted assets, which viewers may wait for.
    ///
    /// # Errors
    /// 404 if the stream is offline or starting; 503 if the owner does not answer.
    pub(super) async fn content(
        &self,
        account: AccountId,
        resource: &Resource<'_>,
    ) -> Result<Content, ApiError> {
        match self.relayed(account, resource).await? {
            Some(content) => Ok(content),
            None => self.own(resource),
        }
    }

    /// The same of this node alone.
    ///
    /// # Errors
    /// 404 if the stream is not live here.
    pub(super) fn own(&self, resource: &Resource<'_>) -> Result<Content, ApiError> {
        let opening = self.own_opening(resource)?;
        let asset = match resource.what {
            What::Entry => {
                let facts = facts(&opening)?;
                let name = match resource.audience {
                    Audience::Preview => facts.preview.as_deref().ok_or_else(ApiError::starting)?,
                    Audience::Hosted | Audience::Both => &facts.entry,
                };
                Some(opening.assets().get(name).ok_or_else(ApiError::offline)?)
            }
            What::Poster => {
                Some(self.live.poster(resource.stream).ok_or_else(|| self.nothing_yet(resource.stream))?)
            }
            What::Asset { name, .. } => {
                opening.assets().get(name).filter(|asset| asset.audience.is_preview())
            }
            What::Driver { .. } => None,
        };
        Ok(Content { opening, asset, max_age_secs: None, waited: false })
    }

    /// The live opening of this node.
    ///
    /// # Errors
    /// 404 if the stream is not live here, or not the session of the resource.
    pub(super) fn own_opening(&self, resource: &Resource<'_>) -> Result<Arc<Opening>, ApiError> {
        let opening = self.live.opening(resource.destination);
        match resource.session {
            None => opening.ok_or_else(|| self.nothing_yet(resource.stream)),
            Some(session) => {
                opening.filter(|opening| opening.session.as_str() == session).ok_or_else(ApiError::offline)
            }
        }
    }

    /// Error for a stream that has no media yet: offline, or starting, because a session starts before its destinations publish.
    fn nothing_yet(&self, stream: StreamId) -> ApiError {
        if self.live.session(stream).is_some() { ApiError::starting() } else { ApiError::offline() }
    }

    /// The resource of a viewer with a key for an asset of a session.
    pub(super) fn asset_resource<'a>(
        &self,
        access: &Access,
        session: &'a str,
        name: &'a str,
        query: &'a str,
        headers: &HeaderMap,
    ) -> Resource<'a> {
        let has_begun = |relay: &Arc<Relay>| relay.has_begun(access.destination, session);
        let player = is_media_player(headers) && !self.relay.as_ref().is_some_and(has_begun);
        access.resource(Some(session), Audience::Hosted, What::Asset { name, query, player })
    }
}

impl Content {
    /// The asset.
    ///
    /// # Errors
    /// 404: it is not published.
    pub(super) fn published(&self) -> Result<Arc<Published>, ApiError> {
        self.asset.clone().ok_or_else(ApiError::offline)
    }
}

impl Access {
    /// A resource for content of this destination.
    pub(super) fn resource<'a>(
        &self,
        session: Option<&'a str>,
        audience: Audience,
        what: What<'a>,
    ) -> Resource<'a> {
        Resource { stream: self.stream, destination: self.destination, session, audience, what }
    }
}

/// The driver's last playback facts, unless playback has ended.
fn facts(opening: &Opening) -> Result<Arc<PlaybackFacts>, ApiError> {
    let facts = opening.assets().playback().ok_or_else(ApiError::starting)?;
    if facts.ended { Err(ApiError::offline()) } else { Ok(facts) }
}
