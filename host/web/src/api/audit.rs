//! The audit log: who did what.

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
use crate::base::ApiError;
use satcast_core::ids::UnixMillis;
use satcast_store::{AuditEntry, AuditFilter, By, TimeRange};

/// Longest name of an action that is looked for.
const ACTION_CHARS_MAX: usize = 64;

/// What asked for a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
#[oai(rename_all = "lowercase", rename = "ActorType")]
pub(super) enum ActorType {
    /// A permanent API key.
    Key,
    /// A login session.
    Session,
    /// Somebody who tried to log in, or made an account.
    Visitor,
    /// A command of the operator.
    Command,
    /// The service by itself.
    Service,
}

/// Who asked for a change.
#[derive(Clone, Debug, Object)]
#[oai(rename = "AuditActor")]
pub(super) struct Actor {
    /// What it was.
    #[oai(rename = "type")]
    kind: ActorType,
    /// Identifier of the key or session; null for others.
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

/// What was changed.
#[derive(Clone, Debug, Object)]
#[oai(rename = "AuditTarget")]
pub(super) struct Target {
    /// What it was: `stream`, `destination`, `key`, `webhook`, `session`, `account`, `invite`.
    #[oai(rename = "type")]
    kind: String,
    /// Its identifier; null when there is none.
    id: Null<i64>,
}

/// An entry of the audit log.
#[derive(Clone, Debug, Object)]
#[oai(rename_all = "camelCase", rename = "AuditEntry")]
pub(super) struct Entry {
    /// Entry identifier.
    id: i64,
    /// When it was done, Unix milliseconds.
    at: i64,
    /// In whose log it stands; null for what belongs to no account, which operators alone see.
    account_id: Null<i64>,
    /// Who did it.
    actor: Actor,
    /// What was done, such as `stream.created`.
    action: String,
    /// What it was done to.
    target: Target,
    /// More; with `before` and `after` for changes. Never a secret.
    detail: AnyFields,
    /// Network address it came from; null for commands and the service.
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
    /// Newest first; filters combine. Entries are kept for ever and never changed. An account that operates the service sees
    /// all accounts' entries, any other its own. A further page is named in the `Link` header. An addition to the
    /// specification.
    #[oai(path = "/audit", method = "get", operation_id = "getAuditLog")]
    async fn list(
        &self,
        app: Data<&Arc<App>>,
        caller: Caller,
        request: &poem::Request,
        /// What was done, such as `stream.created`.
        #[oai(validator(max_length = 64))]
        action: Query<Option<String>>,
        /// Done at or after, Unix milliseconds.
        since: Query<Option<i64>>,
        /// Done before, Unix milliseconds.
        until: Query<Option<i64>>,
        /// Entries per page, 1 to 1000.
        #[oai(validator(minimum(value = "1"), maximum(value = "1000")))]
        limit: Query<Option<u32>>,
        /// Where the page starts, from the `Link` header.
        cursor: Query<Option<String>>,
    ) -> Result<Response<Json<Vec<Entry>>>> {
        let page = PageRequest::new(limit.0, cursor.0.as_deref())?;
        let refused = |text: &str| ApiError::malformed("malformed_parameter", text);
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
        let address = format!("{}/api/audit", app.config.public_base());
        let link = page.finish_query(&mut entries, &address, request.uri().query(), |entry| entry.id);
        Ok(with_link(Json(entries.into_iter().map(Entry::from).collect()), link))
    }
}
