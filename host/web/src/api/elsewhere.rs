//! Live sessions that are not at this node: this node asks their owners for what it shows, with the credential of its own caller.
//!
//! The sessions of a node that does not answer are shown as the database knows them: reconnecting, since their start. So are those that
//! wait for their encoder without an owner.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use poem::Request;
use poem_openapi::types::ParseFromJSON;

use super::app::App;
use crate::base::ApiError;
use crate::nodes::Nodes;
use crate::playback::Peer;
use satcast_core::ids::{AccountId, StreamId};
use satcast_live::{LiveSession, SessionSnapshot, SessionState};
use satcast_store::SessionElsewhere;

/// Sessions of an account that are not at this node.
pub(super) struct Elsewhere(Vec<SessionElsewhere>);

impl Elsewhere {
    /// None for a service that is alone, and for a request of another node, which wants what this one has.
    ///
    /// # Errors
    /// The store failed.
    pub(super) async fn of(app: &App, account: AccountId, request: &Request) -> Result<Self, ApiError> {
        match &app.nodes {
            Some(_) if !Nodes::has_node_header(request.headers()) => {
                Ok(Self(app.store.sessions_elsewhere(account).await?))
            }
            _ => Ok(Self(Vec::new())),
        }
    }

    /// The session of a stream, as the database knows it.
    pub(super) fn session(&self, stream: StreamId) -> Option<SessionSnapshot> {
        self.0.iter().find(|session| session.stream == stream).map(snapshot)
    }

    /// The session of a stream, and what its owner shows.
    pub(super) async fn stream<T: ParseFromJSON>(
        &self,
        app: &App,
        stream: StreamId,
        request: &Request,
    ) -> Option<(SessionSnapshot, Option<T>)> {
        let session = self.0.iter().find(|session| session.stream == stream)?;
        Some((snapshot(session), shown(app, session, request).await))
    }

    /// What each owner shows, and the sessions of those that do not answer.
    pub(super) async fn all<T: ParseFromJSON>(
        &self,
        app: &App,
        request: &Request,
    ) -> (Vec<T>, Vec<LiveSession>) {
        let mut owners: BTreeMap<Option<&str>, Vec<&SessionElsewhere>> = BTreeMap::new();
        for session in &self.0 {
            let name = session.node.as_ref().map(|(name, _)| name.as_str());
            owners.entry(name).or_default().push(session);
        }
        let asked = owners.into_values().map(async |sessions| {
            let shown = shown::<T>(app, sessions[0], request).await;
            let silent = if shown.is_some() { Vec::new() } else { sessions };
            (shown, silent)
        });
        let (shown, silent): (Vec<_>, Vec<_>) = join_all(asked).await.into_iter().unzip();
        let live =
            |session: &SessionElsewhere| LiveSession { stream: session.stream, session: snapshot(session) };
        (shown.into_iter().flatten().collect(), silent.into_iter().flatten().map(live).collect())
    }
}

/// What the owner shows for this request; `None` when it does not answer, or in another form, as another version may.
async fn shown<T: ParseFromJSON>(app: &App, session: &SessionElsewhere, request: &Request) -> Option<T> {
    let (nodes, (name, address)) = (app.nodes.as_ref()?, session.node.as_ref()?);
    let peer = Peer { name: name.as_str().into(), address: address.as_str().into() };
    let body = nodes.shown(&peer, request).await?;
    T::parse_from_json(Some(serde_json::from_slice(&body).ok()?)).ok()
}

fn snapshot(session: &SessionElsewhere) -> SessionSnapshot {
    SessionSnapshot {
        session_id: session.session.clone(),
        started_at: session.started_at,
        state: SessionState::Reconnecting,
    }
}
