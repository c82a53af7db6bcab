//! API keys: list, create, replace, revoke.

use std::sync::Arc;

use poem::web::Data;
use poem::{Request, Result};
use poem_openapi::param::{Path, Query};
use poem_openapi::payload::{Json, Response};
use poem_openapi::types::ParseFromJSON;
use poem_openapi::{Enum, Object, OpenApi};

use super::app::{App, Tag};
use super::body::{self, Body, NoBody, body, choice, flag, label, whole};
use super::caller::Caller;
use super::destinations::Done;
use super::null::Null;
use super::page::{PageRequest, with_link};
use crate::base::{ApiError, Code, RequestContext};
use satcast_core::ids::{DestinationId, KeyId};
use satcast_core::secret::{KeyKind, mask_key, new_api_key};
use satcast_store::{KeyView, NewKey, Scopes};

/// Kind of key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
#[oai(rename_all = "lowercase", rename = "KeyType")]
pub(super) enum Kind {
    /// `pk_`: reads status and playback of one self-hosted destination, and the active cost.
    Public,
    /// `sk_`: management.
    Permanent,
}

/// Permission of a permanent key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
#[oai(rename_all = "lowercase", rename = "KeyScope")]
pub(super) enum Scope {
    /// Read the account's resources.
    Read,
    /// Change the account's resources.
    Manage,
    /// Manage webhooks.
    Webhooks,
}

/// An API key in a list.
#[derive(Clone, Object)]
#[oai(rename_all = "camelCase")]
pub(super) struct ApiKey {
    /// Key identifier.
    id: i64,
    /// Kind of key.
    #[oai(rename = "type")]
    kind: Kind,
    /// A name for people; may be empty.
    label: String,
    /// The key, for a public key; null for a permanent key, which is shown only at creation.
    key: Null<String>,
    /// The key with its middle masked.
    masked: String,
    /// Scopes of a permanent key; empty for a public key.
    scopes: Vec<Scope>,
    /// Destination of a public key; null for a permanent key.
    destination_id: Null<i64>,
    /// Whether the key ends with the login session that created it.
    ends_with_session: bool,
    /// Creation time, Unix milliseconds.
    created_at: i64,
    /// Last use, accurate to a minute, Unix milliseconds; null before the first use.
    last_used_at: Null<i64>,
}

impl From<KeyView> for ApiKey {
    fn from(view: KeyView) -> Self {
        Self {
            id: view.id.0,
            kind: if view.kind == KeyKind::Public { Kind::Public } else { Kind::Permanent },
            label: view.label,
            key: view.key.map(|key| key.into_inner()).into(),
            masked: format!("{}...{}", view.prefix, view.last4),
            scopes: scope_list(view.scopes),
            destination_id: view.destination_id.map(|id| id.0).into(),
            ends_with_session: view.login.is_some(),
            created_at: view.created_at.0,
            last_used_at: view.last_used_at.map(|time| time.0).into(),
        }
    }
}

body! {
    /// A key to create.
    pub(super) struct KeyInput: "NewApiKey" {
        /// Kind of key.
        kind "type": Kind = choice(Code::KeyRefused, "must be \"public\" or \"permanent\""),
        /// A name for people.
        label: String = label(0).or_is(String::new()),
        /// Scopes of a permanent key; default: all scopes of the caller.
        scopes: Option<Vec<Scope>> = scopes().optional(),
        /// The self-hosted destination of a public key.
        destination_id "destinationId": Option<i64> =
            whole(|place| place.malformed("must be a whole number")).optional(),
        /// Whether a permanent key ends with the login session that creates it. Only a login session may set it.
        ends_with_session "endsWithSession": Option<bool> = flag().optional(),
    }
}

fn scopes() -> body::Kind<Vec<Scope>> {
    body::Kind::of::<Vec<Scope>>(|value, place| {
        if !value.is_array() {
            return Err(place.malformed("must be a list"));
        }
        let fault = "may hold \"read\", \"manage\" and \"webhooks\"";
        ParseFromJSON::parse_from_json(Some(value)).map_err(|_| place.refused(Code::KeyRefused, fault))
    })
}

fn refused(text: &str) -> ApiError {
    ApiError::refused(Code::KeyRefused, text)
}

/// A new API key.
#[derive(Clone, Object)]
#[oai(rename_all = "camelCase")]
pub(super) struct KeyCreated {
    /// `true`.
    success: bool,
    /// Key identifier.
    id: i64,
    /// The key; a permanent key is not shown again.
    key: String,
    /// The key with its middle masked.
    masked: String,
}

/// Operations on API keys.
pub(super) struct KeysApi;

#[OpenApi(prefix_path = "/api", tag = "Tag::Keys")]
impl KeysApi {
    /// List API keys
    ///
    /// Newest first, without revoked ones. The `Link` header has the next page.
    #[oai(path = "/keys", method = "get", operation_id = "listKeys")]
    async fn list(
        &self,
        app: Data<&Arc<App>>,
        caller: Caller,
        /// Entries per page, 1 to 1000.
        #[oai(validator(minimum(value = "1"), maximum(value = "1000")))]
        limit: Query<Option<u32>>,
        /// Position of the page, from a `Link` header.
        cursor: Query<Option<String>>,
    ) -> Result<Response<Json<Vec<ApiKey>>>> {
        let page = PageRequest::new(limit.0, cursor.0.as_deref())?;
        let mut views = app.store.keys_of(caller.account, page.to_store()).await.map_err(ApiError::from)?;
        let address = format!("{}/api/keys", app.config().public_base());
        let link = page.finish(&mut views, &address, |view| view.id.0);
        Ok(with_link(Json(views.into_iter().map(ApiKey::from).collect()), link))
    }

    /// Create an API key
    ///
    /// A public key belongs to one self-hosted destination. A permanent key cannot have scopes that the caller lacks.
    #[oai(path = "/keys", method = "post", operation_id = "createKey")]
    async fn create(
        &self,
        app: Data<&Arc<App>>,
        request: &Request,
        caller: Caller,
        body: Body<KeyInput>,
    ) -> Result<Json<KeyCreated>> {
        count_new_key(&app, request, &caller).await?;
        let input = body.0;
        let (kind, scopes) = checked_kind(&input, caller.scopes)?;
        let ends_with_session = input.ends_with_session.unwrap_or(false);
        if ends_with_session && kind == KeyKind::Public {
            return Err(refused("Field `endsWithSession` is for permanent keys").into());
        }
        let login = if ends_with_session { Some(caller.login()?) } else { None };
        let key = new_api_key(kind);
        let new = NewKey {
            kind,
            key: key.clone(),
            scopes,
            destination_id: input.destination_id.map(DestinationId),
            login,
            label: input.label,
            caps: app.caps(),
        };
        let (store, actor) = (app.store.clone(), caller.actor(&app));
        let id = App::to_the_end(async move { Ok(store.create_key(&actor, new).await?) }).await?;
        let masked = mask_key(key.expose());
        Ok(Json(KeyCreated { success: true, id: id.0, key: key.into_inner(), masked }))
    }

    /// Replace an API key
    ///
    /// Creates a key of the same kind, label, scopes and destination. The old key is refused from then on, and playback with it
    /// ends. A permanent key cannot replace a key with scopes that it lacks.
    #[oai(path = "/keys/:id/rotate", method = "post", operation_id = "rotateKey")]
    async fn rotate(
        &self,
        app: Data<&Arc<App>>,
        request: &Request,
        caller: Caller,
        _none: NoBody,
        /// Key identifier.
        id: Path<i64>,
    ) -> Result<Json<KeyCreated>> {
        count_new_key(&app, request, &caller).await?;
        let old = app.store.key_of(caller.account, KeyId(id.0)).await.map_err(ApiError::from)?;
        let old = old.ok_or_else(|| ApiError::not_found("key"))?;
        if exceeds(old.scopes, caller.scopes) {
            let text =
                "A key cannot replace a key with scopes that it lacks; use a key that has these scopes";
            return Err(ApiError::forbidden(Code::ScopeNotAllowed, text).into());
        }
        let key = new_api_key(old.kind);
        let new = NewKey {
            kind: old.kind,
            key: key.clone(),
            scopes: old.scopes,
            destination_id: old.destination_id,
            login: old.login,
            label: old.label,
            caps: app.caps(),
        };
        let (store, actor) = (app.store.clone(), caller.actor(&app));
        let id = App::to_the_end(async move { Ok(store.replace_key(&actor, old.id, new).await?) }).await?;
        let masked = mask_key(key.expose());
        Ok(Json(KeyCreated { success: true, id: id.0, key: key.into_inner(), masked }))
    }

    /// Revoke an API key
    ///
    /// The key is refused from then on. A key with the scope `manage` can revoke every key of its account.
    #[oai(path = "/keys/:id", method = "delete", operation_id = "revokeKey")]
    async fn revoke(
        &self,
        app: Data<&Arc<App>>,
        caller: Caller,
        /// Key identifier.
        id: Path<i64>,
    ) -> Result<Json<Done>> {
        let (store, actor) = (app.store.clone(), caller.actor(&app));
        App::to_the_end(async move { Ok(store.revoke_key(&actor, KeyId(id.0)).await?) }).await?;
        Ok(Json(Done::new()))
    }
}

/// Counts a new key against the limit of its account.
async fn count_new_key(app: &App, request: &Request, caller: &Caller) -> std::result::Result<(), ApiError> {
    app.count(&RequestContext::of(request), request, &app.limits.new_keys, caller.account).await
}

/// Kind and scopes of the new key, if `creator` may create it.
fn checked_kind(input: &KeyInput, creator: Scopes) -> std::result::Result<(KeyKind, Scopes), ApiError> {
    match (input.kind, input.destination_id, &input.scopes) {
        (Kind::Public, None, _) => {
            Err(refused("Field `destinationId` is required: a public key belongs to one destination"))
        }
        (Kind::Public, Some(_), Some(_)) => Err(refused("Field `scopes` is for permanent keys")),
        (Kind::Public, Some(_), None) => Ok((KeyKind::Public, Scopes::NONE)),
        (Kind::Permanent, Some(_), _) => Err(refused("Field `destinationId` is for public keys")),
        (Kind::Permanent, None, None) => Ok((KeyKind::Permanent, creator)),
        (Kind::Permanent, None, Some(list)) => {
            let has = |scope| list.contains(&scope);
            let scopes =
                Scopes { read: has(Scope::Read), manage: has(Scope::Manage), webhooks: has(Scope::Webhooks) };
            if scopes == Scopes::NONE {
                return Err(refused("Field `scopes` must name at least one scope"));
            }
            if exceeds(scopes, creator) {
                let text = "A key cannot create a key with scopes that it lacks; leave these scopes out";
                return Err(ApiError::forbidden(Code::ScopeNotAllowed, text));
            }
            Ok((KeyKind::Permanent, scopes))
        }
    }
}

/// Whether `scopes` has a scope that `maker` lacks.
fn exceeds(scopes: Scopes, maker: Scopes) -> bool {
    (scopes.read && !maker.read) || (scopes.manage && !maker.manage) || (scopes.webhooks && !maker.webhooks)
}

fn scope_list(scopes: Scopes) -> Vec<Scope> {
    let named =
        [(scopes.read, Scope::Read), (scopes.manage, Scope::Manage), (scopes.webhooks, Scope::Webhooks)];
    named.into_iter().filter(|(set, _)| *set).map(|(_, scope)| scope).collect()
}
