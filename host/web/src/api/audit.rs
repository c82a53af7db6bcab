//! The audit log.

use std::sync::Arc;

use poem::Result;
use poem::web::Data;
use poem_openapi::param::Query;
use poem_openapi::payload::{Json, Response};
use poem_openapi::{Enum, Object, OpenApi};

use super::app::{App, Tag};
use super::caller::Caller;
use super::null::{AnyFields, Null, any_fields};
use super::page::{PageRequest, with_link};
use crate::base::{ApiError, Code};
use satcast_core::ids::UnixMillis;
use satcast_store::{AuditEntry, AuditFilter, By, TimeRange};

/// Longest action name in a filter, in characters.
const ACTION_CHARS_MAX: usize = 64;

/// Kind of the actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
#[oai(rename_all = "lowercase", rename = "ActorType")]
pub(super) enum ActorType {
    /// A permanent API key.
    Key,
    /// A login session.
    Session,
    /// A client without a session that tried to log in or created an account.
    Visitor,
    /// A command run by the operator.
    Command,
    /// The service itself.
    Service,
}

/// The actor of an entry.
#[derive(Clone, Debug, Object)]
#[oai(rename = "AuditActor")]
pub(super) struct Actor {
    /// Kind of the actor.
    #[oai(rename = "type")]
    kind: ActorType,
    /// Identifier of the key or session; null for other kinds.
    id: Null<i64>,
}

impl From<By> for Actor {
    fn from(by: By) -> Self {
        let kind = match by {
            By::Key(_) => ActorType::Key,
            By::Login(_) => ActorType::Session,
            By::Visitor => ActorType::Visitor,
            By::Command => ActorType::Command,
            By::Service => ActorType::Service,
        };
        Self { kind, id: by.id().into() }
    }
}

/// The resource that an entry is about.
#[derive(Clone, Debug, Object)]
#[oai(rename = "AuditTarget")]
pub(super) struct Target {
    /// Kind of the resource: `stream`, `destination`, `key`, `webhook`, `session`, `account`, `invite`.
    #[oai(rename = "type")]
    kind: String,
    /// Identifier of the resource; null when there is none.
    id: Null<i64>,
}

/// An entry of the audit log.
#[derive(Clone, Debug, Object)]
#[oai(rename_all = "camelCase", rename = "AuditEntry")]
pub(super) struct Entry {
    /// Entry identifier.
    id: i64,
    /// Time of the action, Unix milliseconds.
    at: i64,
    /// Account that the entry belongs to. Null when it belongs to none; only operators see such entries.
    account_id: Null<i64>,
    /// The key, session, command or service that did it.
    actor: Actor,
    /// Only this action, such as `stream.created`.
    action: String,
    /// The resource that was changed.
    target: Target,
    /// Details; changes have `before` and `after`. Never holds a secret.
    detail: AnyFields,
    /// Network address of the client; null for commands and the service.
    address: Null<String>,
}

impl From<AuditEntry> for Entry {
    fn from(entry: AuditEntry) -> Self {
        Self {
            id: entry.id,
            at: entry.at.0,
            account_id: entry.account_id.map(|id| id.0).into(),
            actor: entry.by.into(),
            action: entry.action,
            target: Target { kind: entry.target_kind, id: entry.target_id.into() },
            detail: any_fields(entry.detail),
            address: entry.address.into(),
        }
    }
}

/// Operations on the audit log.
pub(super) struct AuditApi;

#[OpenApi(prefix_path = "/api", tag = "Tag::Accounts")]
impl AuditApi {
    /// Read the audit log
    ///
    /// Newest first; entries must match all filters. Entries are kept forever and never changed. Operators see the entries of all
    /// accounts, other accounts only their own. The `Link` header has the next page.
    #[oai(path = "/audit", method = "get", operation_id = "getAuditLog")]
    async fn list(
        &self,
        app: Data<&Arc<App>>,
        caller: Caller,
        request: &poem::Request,
        /// Only this action, such as `stream.created`.
        #[oai(validator(max_length = 64))]
        action: Query<Option<String>>,
        /// Only entries at or after this time, Unix milliseconds.
        since: Query<Option<i64>>,
        /// Only entries before this time, Unix milliseconds.
        until: Query<Option<i64>>,
        /// Entries per page, 1 to 1000.
        #[oai(validator(minimum(value = "1"), maximum(value = "1000")))]
        limit: Query<Option<u32>>,
        /// Position of the page, from a `Link` header.
        cursor: Query<Option<String>>,
    ) -> Result<Response<Json<Vec<Entry>>>> {
        let page = PageRequest::new(limit.0, cursor.0.as_deref())?;
        let refused = |text: &str| ApiError::malformed(Code::MalformedParameter, text);
        if action.0.as_ref().is_some_and(|name| name.chars().count() > ACTION_CHARS_MAX) {
            return Err(refused("Query parameter `action` is longer than any action").into());
        }
        if let (Some(since), Some(until)) = (since.0, until.0)
            && since > until
        {
            return Err(refused("Query parameter `since` is after `until`").into());
        }
        let account = app.store.account(caller.account).await.map_err(ApiError::from)?;
        let is_operator = account.is_some_and(|account| account.operator);
        let filter = AuditFilter {
            account: (!is_operator).then_some(caller.account),
            action: action.0,
            range: TimeRange { from: since.0.map(UnixMillis), to: until.0.map(UnixMillis) },
        };
        let mut entries = app.store.audit(filter, page.to_store()).await.map_err(ApiError::from)?;
        let address = format!("{}/api/audit", app.config().public_base());
        let link = page.finish_query(&mut entries, &address, request.uri().query(), |entry| entry.id);
        Ok(with_link(Json(entries.into_iter().map(Entry::from).collect()), link))
    }
}
