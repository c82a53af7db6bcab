//! The caller of a management operation, as a poem-openapi extractor that also declares the security schemes.

use std::net::IpAddr;

use poem::Request;
use poem::http::Method;
use poem_openapi::registry::{MetaSecurityScheme, Registry};
use tracing::Instrument as _;

use super::app::{App, Subject};
use crate::auth::{login_cookie, presented_key, presents_header};
use crate::base::{ApiError, Code, RequestContext};
use satcast_core::ids::{AccountId, LoginId, UnixMillis};
use satcast_core::networks::Network;
use satcast_core::secret::{KeyKind, Redacted, api_key_kind, is_login_token, key_hash};
use satcast_store::{Actor, By, KeyRecord, LoginRecord, Origin, Scopes};

/// The last use of a session is written at most this often.
const TOUCH_INTERVAL_MS: i64 = 60_000;

/// Header that writes authenticated by cookie need (CSRF protection): a page of another origin cannot set it without a
/// preflight request.
const CSRF_HEADER: &str = "x-requested-with";
/// A login session ends after this time without use.
pub(super) const LOGIN_IDLE_MS: i64 = 24 * 60 * 60 * 1_000;
/// A login session ends this long after its start, used or not.
pub(super) const LOGIN_LIFE_MS: i64 = 30 * LOGIN_IDLE_MS;

/// Path prefix of the webhook operations.
const WEBHOOKS_PATH: &str = "/api/webhooks";

/// An authenticated permanent key or login session with the scope that the request needs.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    pub account: AccountId,
    pub subject: Subject,
    pub scopes: Scopes,
    pub address: IpAddr,
}

/// The origin of a client that is not authenticated yet.
pub(super) fn visitor(app: &App, context: &RequestContext) -> Origin {
    Origin { by: By::Visitor, address: Some(context.client), now: app.clock.now() }
}

/// Group of operations, which decides which keys may call them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Area {
    /// All operations but webhooks: permanent keys with the scope `read` or `manage`, and login sessions.
    Account,
    /// Webhooks: permanent keys with the scope `webhooks`.
    Webhooks,
}

/// Error for a login session that tries to manage webhooks.
pub(super) const NO_SESSION: &str = "Webhooks are managed with a permanent key (sk_...) that has the scope \
    \"webhooks\"; a session cannot be used here";

impl Area {
    /// The area of the operations at a path.
    pub(super) fn of_path(path: &str) -> Self {
        match path.strip_prefix(WEBHOOKS_PATH) {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => Area::Webhooks,
            _ => Area::Account,
        }
    }

    fn admits(self, caller: Caller, reads: bool) -> std::result::Result<(), ApiError> {
        let scopes = caller.scopes;
        let (allowed, scope) = match (self, caller.subject) {
            (Area::Webhooks, Subject::Login(_)) => {
                return Err(ApiError::forbidden(Code::KeyTypeNotAllowed, NO_SESSION));
            }
            (Area::Webhooks, Subject::Key(_)) => (scopes.webhooks, "webhooks"),
            (Area::Account, _) if reads => (scopes.read, "read"),
            (Area::Account, _) => (scopes.manage, "manage"),
        };
        if allowed {
            return Ok(());
        }
        let text = format!("This key lacks the scope \"{scope}\"; use a key that has it");
        Err(ApiError::forbidden(Code::ScopeNotAllowed, text))
    }
}

/// A caller that was authenticated, checked and counted for an area before the handler; an extension of the request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub(super) caller: Caller,
    pub(super) area: Area,
}

/// The caller of an operation on webhooks.
#[derive(Clone, Copy, Debug)]
pub(super) struct WebhookCaller(pub(super) Caller);

impl WebhookCaller {
    async fn of(app: &App, request: &Request) -> std::result::Result<Self, ApiError> {
        Caller::within(app, request, Area::Webhooks).await.map(Self)
    }
}

impl Caller {
    /// The actor that the store writes to the audit log.
    pub fn actor(&self, app: &App) -> Actor {
        let by = match self.subject {
            Subject::Key(id) => By::Key(id),
            Subject::Login(id) => By::Login(id),
        };
        Actor { account: self.account, by, address: Some(self.address), now: app.clock.now() }
    }

    /// Authenticates the key or session of a management request and counts the request against its limits.
    ///
    /// # Errors
    /// 401 without a valid key or session, 403 for a public key, a disabled account, a missing scope or a write by cookie without
    /// [`CSRF_HEADER`], 429 over a limit, 502 from the store.
    pub async fn of(app: &App, request: &Request) -> std::result::Result<Self, ApiError> {
        Self::within(app, request, Area::Account).await
    }

    /// As [`Caller::of`], for operations of one area.
    pub(super) async fn within(
        app: &App,
        request: &Request,
        area: Area,
    ) -> std::result::Result<Self, ApiError> {
        if let Some(known) = request.extensions().get::<Known>().filter(|known| known.area == area) {
            return Ok(known.caller);
        }
        let context = RequestContext::of(request);
        let reads = matches!(*request.method(), Method::GET | Method::HEAD);
        let caller = match (presented_login(request), presented_key(request)) {
            (Some(token), key) => {
                if area == Area::Account
                    && key.is_none()
                    && !reads
                    && !request.headers().contains_key(CSRF_HEADER)
                {
                    let text = "A write that is authenticated by cookie needs the header X-Requested-With";
                    return Err(ApiError::forbidden(Code::CsrfHeaderMissing, text));
                }
                login(app, &context, &token).await?
            }
            (None, Some(key)) => permanent_key(app, &context, &key).await?,
            (None, None) => return Err(ApiError::key_required()),
        };
        let limiter = if reads { &app.limits.reads } else { &app.limits.writes };
        app.count(&context, request, limiter, caller.subject).await?;
        area.admits(caller, reads)?;
        Ok(caller)
    }

    /// The login session.
    ///
    /// # Errors
    /// 403 for a key.
    pub fn login(self) -> std::result::Result<LoginId, ApiError> {
        match self.subject {
            Subject::Login(login) => Ok(login),
            Subject::Key(_) => {
                Err(ApiError::forbidden(Code::SessionRequired, "An API key cannot do this; log in"))
            }
        }
    }
}

/// The token of a login session: from a header that may hold a key, or, if there is no key, from the cookie. Never from the
/// URL, which proxies log.
pub(super) fn presented_login(request: &Request) -> Option<Redacted<String>> {
    match presented_key(request) {
        Some(token) => (is_login_token(token.expose()) && presents_header(request)).then_some(token),
        None => login_cookie(request),
    }
}

async fn permanent_key(
    app: &App,
    context: &RequestContext,
    key: &Redacted<String>,
) -> std::result::Result<Caller, ApiError> {
    let key = known_key(app, context, key, ApiError::invalid_key()).await?;
    if key.kind == KeyKind::Public {
        return Err(ApiError::forbidden(
            Code::KeyTypeNotAllowed,
            "A public key cannot be used here; use a permanent key (sk_...)",
        ));
    }
    app.key_uses.note(&app.store, key.id, app.clock.now());
    let address = context.client;
    Ok(Caller { account: key.account_id, subject: Subject::Key(key.id), scopes: key.scopes, address })
}

/// The caller behind the token of a login session.
///
/// # Errors
/// 401 when the session is unknown or has ended, 403 when its account is disabled, 429 after too many of these, 502 from the
/// store.
pub(super) async fn login(
    app: &App,
    context: &RequestContext,
    token: &Redacted<String>,
) -> std::result::Result<Caller, ApiError> {
    let now = app.clock.now();
    let found = match is_login_token(token.expose()) {
        true => app.store.login_by_hash(&key_hash(token.expose()), now).await?,
        false => None,
    };
    let Some(login) = found else {
        return Err(count_invalid(app, context, ApiError::invalid_session()));
    };
    if login.account_disabled {
        return Err(count_invalid(app, context, ApiError::account_disabled()));
    }
    renew(app, &login, now);
    let subject = Subject::Login(login.id);
    Ok(Caller { account: login.account_id, subject, scopes: Scopes::ALL, address: context.client })
}

/// Extends a session in the background, at most once a minute: no request waits for that write.
fn renew(app: &App, login: &LoginRecord, now: UnixMillis) {
    if login.last_used_at.0.saturating_add(TOUCH_INTERVAL_MS) > now.0 {
        return;
    }
    let (store, id) = (app.store.clone(), login.id);
    let expires_at = login_end(login.created_at, now);
    let renewing = async move {
        if let Err(error) = store.renew_login(id, now, expires_at).await {
            tracing::warn!(%error, login_id = id.0, "cannot renew a login session");
        }
    };
    tokio::spawn(renewing.in_current_span());
}

/// The end of a session that is used at `now`.
pub(super) fn login_end(created_at: UnixMillis, now: UnixMillis) -> UnixMillis {
    UnixMillis(now.0.saturating_add(LOGIN_IDLE_MS).min(created_at.0.saturating_add(LOGIN_LIFE_MS)))
}

/// The record of a valid key. A key that is unknown, revoked, of a deleted destination or of a disabled account counts against
/// the client's network.
///
/// # Errors
/// `refused` for an invalid key, 403 when its account is disabled, 429 after too many of these, 502 from the store.
pub(super) async fn known_key(
    app: &App,
    context: &RequestContext,
    key: &Redacted<String>,
    refused: ApiError,
) -> std::result::Result<KeyRecord, ApiError> {
    let found = match api_key_kind(key.expose()) {
        Some(_) => app.store.key_by_hash(&key_hash(key.expose())).await?,
        None => None,
    };
    let now = app.clock.now();
    match found.filter(|key| key.ends_at.is_none_or(|end| end > now)) {
        Some(key) if key.account_disabled => Err(count_invalid(app, context, ApiError::account_disabled())),
        Some(key) => Ok(key),
        None => Err(count_invalid(app, context, refused)),
    }
}

/// `refused`, or 429 when the client's network tried too many invalid keys.
pub(super) fn count_invalid(app: &App, context: &RequestContext, refused: ApiError) -> ApiError {
    let verdict = app.limits.invalid_keys.hit(Network::from(context.client), app.clock.monotonic());
    context.count(verdict).err().unwrap_or(refused)
}

/// The security schemes in order of precedence.
const SCHEMES: [(&str, MetaSecurityScheme); 4] = [
    ("apiKeyHeader", api_key("X-API-Key", "header", "Recommended.")),
    ("bearer", BEARER),
    ("apiKeyQuery", api_key("apiKey", "query", "Fallback for clients that cannot set headers.")),
    ("keyQuery", api_key("key", "query", "Fallback, short form.")),
];

const BEARER: MetaSecurityScheme = MetaSecurityScheme {
    ty: "http",
    description: Some("The key as a bearer token."),
    name: None,
    key_in: None,
    scheme: Some("bearer"),
    bearer_format: None,
    flows: None,
    openid_connect_url: None,
};

const fn api_key(name: &'static str, key_in: &'static str, description: &'static str) -> MetaSecurityScheme {
    MetaSecurityScheme {
        ty: "apiKey",
        description: Some(description),
        name: Some(name),
        key_in: Some(key_in),
        scheme: None,
        bearer_format: None,
        flows: None,
        openid_connect_url: None,
    }
}

/// Declares the security schemes.
pub(super) fn register_schemes(registry: &mut Registry) {
    for (name, scheme) in SCHEMES {
        registry.create_security_scheme(name, scheme);
    }
}

/// Names of the security schemes in order of precedence.
pub(super) fn scheme_names() -> Vec<&'static str> {
    SCHEMES.iter().map(|(name, _)| *name).collect()
}

/// Makes a type with `async fn of(&App, &Request)` an extractor for operations that need a key, and declares the schemes.
macro_rules! key_extractor {
    ($($name:ty),+) => {$(
        impl<'a> poem_openapi::ApiExtractor<'a> for $name {
            const TYPES: &'static [poem_openapi::ApiExtractorType] =
                &[poem_openapi::ApiExtractorType::SecurityScheme];

            type ParamType = ();
            type ParamRawType = ();

            fn register(registry: &mut poem_openapi::registry::Registry) {
                $crate::api::caller::register_schemes(registry);
            }

            fn security_schemes() -> Vec<&'static str> {
                $crate::api::caller::scheme_names()
            }

            async fn from_request(
                request: &'a poem::Request,
                _body: &mut poem::RequestBody,
                _options: poem_openapi::ExtractParamOptions<Self::ParamType>,
            ) -> poem::Result<Self> {
                match request.data::<std::sync::Arc<$crate::api::app::App>>() {
                    Some(app) => Ok(<$name>::of(app, request).await?),
                    None => Err($crate::base::ApiError::internal().into()),
                }
            }
        }
    )+};
}
pub(super) use key_extractor;

key_extractor!(Caller, WebhookCaller);
