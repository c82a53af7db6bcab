//! Accounts: log in and out, sessions, password, and creating an account.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use poem::Result;
use poem::web::Data;
use poem_openapi::param::Path;
use poem_openapi::payload::{Json, Response};
use poem_openapi::{Object, OpenApi};
use tracing::Instrument as _;

use super::app::{App, HASHING_WAIT, Tag};
use super::body::{Body, NoBody, body, text};
use super::caller::Caller;
use super::caller::{LOGIN_IDLE_MS, LOGIN_LIFE_MS, visitor};
use super::destinations::Done;
use crate::auth::password::{self, PASSWORD_BYTES_MAX, PASSWORD_CHARS_MIN, PasswordError};
use crate::auth::{LOGIN_COOKIE, NAME_CHARS_MAX, account_name};
use crate::base::{ApiError, Code, RequestContext};
use satcast_core::config::Config;
use satcast_core::ids::{AccountId, LoginId, UnixMillis};
use satcast_core::networks::Network;
use satcast_core::secret::{Redacted, is_invite_token, key_hash, new_login_token};
use satcast_store::{
    AccountRecord, AuditFilter, LinkRecord, NewAccount, NewLogin, Page, StoreError, TimeRange,
};

/// How long a network counts as known to an account after a login from it.
const USUAL_NETWORKS_MS: i64 = 90 * 24 * 3_600_000;
/// Newest logins that are searched for a known network.
const USUAL_NETWORKS_MAX: i64 = 100;

body! {
    /// Name and password.
    pub(super) struct LoginInput: "LoginRequest" {
        /// Account name.
        name: String = text().length(1, NAME_CHARS_MAX),
        /// Password.
        password: String = text().length(0, PASSWORD_BYTES_MAX),
    }
}

body! {
    /// An account to create.
    pub(super) struct SetupInput: "SetupRequest" {
        /// Token of the link, the part after `#`; required unless registration is open.
        token: Option<String> = text().optional(),
        /// Name of the new account; required unless the link belongs to an account, which keeps its name.
        name: Option<String> = text().plain(1, NAME_CHARS_MAX).optional(),
        /// Password, at least 8 characters.
        password: String = text().length(PASSWORD_CHARS_MIN, PASSWORD_BYTES_MAX),
    }
}

body! {
    /// The current and the new password.
    pub(super) struct PasswordInput: "PasswordChange" {
        /// Current password.
        current_password "currentPassword": String = text().length(0, PASSWORD_BYTES_MAX),
        /// New password, at least 8 characters.
        new_password "newPassword": String = text().length(PASSWORD_CHARS_MIN, PASSWORD_BYTES_MAX),
    }
}

/// A new session; its token is also set as a cookie.
#[derive(Clone, Object)]
#[oai(rename_all = "camelCase")]
pub(super) struct LoggedIn {
    /// `true`.
    success: bool,
    /// Token for `Authorization: Bearer`; secret.
    token: String,
    /// Time at which the session ends if it is not used, Unix milliseconds.
    expires_at: i64,
    /// Account identifier.
    account_id: i64,
    /// Account name.
    name: String,
    /// Whether the account is an operator of the service.
    operator: bool,
}

/// The account of the caller.
#[derive(Clone, Debug, Object)]
#[oai(rename_all = "camelCase")]
pub(super) struct OwnAccount {
    /// Account identifier.
    account_id: i64,
    /// Account name.
    name: String,
    /// Whether the account is an operator of the service.
    operator: bool,
}

/// A login session.
#[derive(Clone, Debug, Object)]
#[oai(rename_all = "camelCase")]
pub(super) struct LoginSession {
    /// Session identifier.
    id: i64,
    /// Whether this is the session of the request.
    current: bool,
    /// Network address of the login.
    client: String,
    /// Time of the login, Unix milliseconds.
    created_at: i64,
    /// Last use, accurate to a minute, Unix milliseconds.
    last_used_at: i64,
    /// Time at which the session ends if it is not used, Unix milliseconds.
    expires_at: i64,
}

/// Operations on accounts and login sessions.
pub(super) struct LoginApi;

#[OpenApi(prefix_path = "/api/auth", tag = "Tag::Accounts")]
impl LoginApi {
    /// Log in
    ///
    /// Starts a session of 24 hours; each use extends it, up to 30 days in total. The token is in the response and in a cookie. After
    /// wrong passwords the response is delayed by up to 30 seconds. Only one login attempt at a time is allowed per account and
    /// network; others get 429.
    #[oai(path = "/login", method = "post", operation_id = "logIn")]
    async fn log_in(
        &self,
        app: Data<&Arc<App>>,
        request: &poem::Request,
        body: Body<LoginInput>,
    ) -> Result<Response<Json<LoggedIn>>> {
        let context = RequestContext::of(request);
        let network = Network::from(context.client);
        app.count(&context, request, &app.limits.logins, network).await?;
        let now = app.clock.monotonic();
        let LoginInput { name, password } = body.0;
        let attempt = app.limits.guesses.begin(key_hash(name.trim()), network, now);
        let attempt = attempt.map_err(ApiError::login_waits)?;
        let account = match account_name(&name) {
            Some(name) => app.store.account_by_name(name).await.map_err(ApiError::from)?,
            None => None,
        };
        let is_strange = attempt.is_under_attack(now) && is_strange(&app, account.as_ref(), network).await?;
        app.clock.sleep(attempt.delay(is_strange, now)).await;
        let stored = account.as_ref().and_then(|account| account.password_hash.clone());
        let is_right = is_password(&app, Redacted::new(password), stored.clone()).await?;
        let known = account.as_ref().map(|account| account.id);
        let Some(account) = account.filter(|_| is_right) else {
            attempt.failed(app.clock.monotonic());
            tracing::warn!(client = %context.client, "a login failed");
            note_failure(&app, &context, known);
            return Err(ApiError::invalid_login().into());
        };
        begin(&app, &context, account, stored).await
    }

    /// Use a link, or create an account
    ///
    /// Requires the token of a link unless registration is open. The link of an invitation (`satcast account invite`) or of the
    /// service's first start makes an account; the login link of an account sets its password. Also logs in.
    #[oai(path = "/setup", method = "post", operation_id = "setUp")]
    async fn set_up(
        &self,
        app: Data<&Arc<App>>,
        request: &poem::Request,
        body: Body<SetupInput>,
    ) -> Result<Response<Json<LoggedIn>>> {
        let context = RequestContext::of(request);
        app.count(&context, request, &app.limits.logins, Network::from(context.client)).await?;
        let SetupInput { token, name, password } = body.0;
        if token.is_none() && !app.config().accounts.open_registration {
            let text = "Registration is closed; ask the operator for an invite link";
            return Err(ApiError::forbidden(Code::RegistrationClosed, text).into());
        }
        let name = name.as_deref().map(checked_name).transpose()?;
        let owner = match &token {
            Some(token) => known_link(&app, token).await?.account,
            None => None,
        };
        if owner.is_none() && name.is_none() {
            return Err(ApiError::refused(
                Code::NameRefused,
                "Field `name` is required without a login link",
            )
            .into());
        }
        let hash = hashed(&app, password, "password").await?;
        let account = NewAccount {
            name: name.unwrap_or_default(),
            password_hash: Some(hash),
            operator: false,
            initial_credit: app.config().initial_credit(),
        };
        let (origin, shared) = (visitor(&app, &context), Arc::clone(&app));
        let made = App::to_the_end(async move {
            let made = match token {
                Some(token) => shared.store.use_invite(&origin, &key_hash(&token), account).await,
                None => shared.store.create_account(&origin, account).await,
            };
            let id = made.map_err(|error| match error {
                StoreError::NameTaken(_) => name_taken(),
                other => other.into(),
            })?;
            let account = shared.store.account(id).await?;
            if account.as_ref().is_some_and(|account| account.operator) {
                forget_first_link(&shared.config()).await;
            }
            Ok(account)
        });
        let account = made.await?.ok_or_else(ApiError::internal)?;
        begin(&app, &context, account, None).await
    }

    /// Read the account of the caller
    #[oai(path = "/me", method = "get", operation_id = "getOwnAccount")]
    async fn own_account(&self, app: Data<&Arc<App>>, caller: Caller) -> Result<Json<OwnAccount>> {
        let account = app.store.account(caller.account).await.map_err(ApiError::from)?;
        let AccountRecord { id, name, operator, .. } = account.ok_or_else(ApiError::internal)?;
        Ok(Json(OwnAccount { account_id: id.0, name, operator }))
    }

    /// Log out
    #[oai(path = "/logout", method = "post", operation_id = "logOut")]
    async fn log_out(
        &self,
        app: Data<&Arc<App>>,
        caller: Caller,
        _none: NoBody,
    ) -> Result<Response<Json<Done>>> {
        let login = caller.login()?;
        let (store, actor) = (app.store.clone(), caller.actor(&app));
        App::to_the_end(async move { Ok(store.end_login(&actor, login).await?) }).await?;
        Ok(Response::new(Json(Done::new())).header("Set-Cookie", cookie(&app.config(), "", 0)))
    }

    /// List login sessions
    ///
    /// Newest first.
    #[oai(path = "/sessions", method = "get", operation_id = "listLoginSessions")]
    async fn sessions(&self, app: Data<&Arc<App>>, caller: Caller) -> Result<Json<Vec<LoginSession>>> {
        let own = caller.login().ok();
        let found = app.store.logins_of(caller.account, app.clock.now()).await.map_err(ApiError::from)?;
        let sessions = found.into_iter().map(|login| LoginSession {
            id: login.id.0,
            current: own == Some(login.id),
            client: login.client,
            created_at: login.created_at.0,
            last_used_at: login.last_used_at.0,
            expires_at: login.expires_at.0,
        });
        Ok(Json(sessions.collect()))
    }

    /// End a login session
    #[oai(path = "/sessions/:id", method = "delete", operation_id = "endLoginSession")]
    async fn end_session(
        &self,
        app: Data<&Arc<App>>,
        caller: Caller,
        /// Session identifier.
        id: Path<i64>,
    ) -> Result<Json<Done>> {
        let (store, actor) = (app.store.clone(), caller.actor(&app));
        App::to_the_end(async move { Ok(store.end_login(&actor, LoginId(id.0)).await?) }).await?;
        Ok(Json(Done::new()))
    }

    /// Change the password
    ///
    /// Ends all sessions of the account, including the current one.
    #[oai(path = "/password", method = "post", operation_id = "changePassword")]
    async fn change_password(
        &self,
        app: Data<&Arc<App>>,
        request: &poem::Request,
        caller: Caller,
        body: Body<PasswordInput>,
    ) -> Result<Response<Json<Done>>> {
        caller.login()?;
        let context = RequestContext::of(request);
        app.count(&context, request, &app.limits.logins, Network::from(context.client)).await?;
        let PasswordInput { current_password, new_password } = body.0;
        let account = app.store.account(caller.account).await.map_err(ApiError::from)?;
        let stored = account.and_then(|account| account.password_hash);
        if !is_password(&app, Redacted::new(current_password), stored).await? {
            return Err(ApiError::refused(Code::PasswordRefused, "Field `currentPassword` is wrong").into());
        }
        let hash = hashed(&app, new_password, "newPassword").await?;
        let (store, actor) = (app.store.clone(), caller.actor(&app));
        App::to_the_end(async move { Ok(store.change_password(&actor, &hash).await?) }).await?;
        Ok(Response::new(Json(Done::new())).header("Set-Cookie", cookie(&app.config(), "", 0)))
    }
}

/// The trimmed account name.
///
/// # Errors
/// 422 for a name that is not valid.
pub(super) fn checked_name(name: &str) -> std::result::Result<String, ApiError> {
    account_name(name).map(str::to_owned).ok_or_else(|| {
        let text = format!("Field `name` must have 1 to {NAME_CHARS_MAX} printable characters");
        ApiError::refused(Code::NameRefused, text)
    })
}

/// 409: another account has the name.
pub(super) fn name_taken() -> ApiError {
    ApiError::conflict(Code::NameTaken, "This account name is taken; choose another")
}

/// The link with this token.
///
/// # Errors
/// 404 for a link that is unknown, used or expired, 502 from the store.
async fn known_link(app: &App, token: &str) -> std::result::Result<LinkRecord, ApiError> {
    let known = match is_invite_token(token) {
        true => app.store.link(&key_hash(token), app.clock.now()).await?,
        false => None,
    };
    known.ok_or_else(ApiError::link_ended)
}

/// Removes the file with the link of the service's first start: there is an operator now.
async fn forget_first_link(config: &Config) {
    let file = config.setup_link_file();
    match tokio::fs::remove_file(&file).await {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(%error, file = %file.display(), "cannot remove the file with the first link");
        }
        _ => {}
    }
}

/// Whether there was no recent login to the account from this network.
async fn is_strange(
    app: &App,
    account: Option<&AccountRecord>,
    network: Network,
) -> std::result::Result<bool, ApiError> {
    let Some(account) = account else { return Ok(true) };
    let from = UnixMillis(app.clock.now().0.saturating_sub(USUAL_NETWORKS_MS));
    let filter = AuditFilter {
        account: Some(account.id),
        action: Some("login.began".to_owned()),
        range: TimeRange { from: Some(from), to: None },
    };
    let page = Page { before: None, limit: USUAL_NETWORKS_MAX };
    let logins = app.store.audit(filter, page).await?;
    let addresses = logins.iter().filter_map(|login| login.address.as_deref()?.parse::<IpAddr>().ok());
    Ok(!addresses.map(Network::from).any(|usual| usual == network))
}

/// Writes a failed login to the audit log in the background, so that the response time does not reveal which names exist.
fn note_failure(app: &App, context: &RequestContext, account: Option<AccountId>) {
    let (store, origin) = (app.store.clone(), visitor(app, context));
    let writing = async move {
        if let Err(error) = store.record_failed_login(&origin, account).await {
            tracing::error!(%error, "cannot write a failed login to the audit log");
        }
    };
    tokio::spawn(writing.in_current_span());
}

async fn begin(
    app: &App,
    context: &RequestContext,
    account: AccountRecord,
    verified: Option<Redacted<String>>,
) -> Result<Response<Json<LoggedIn>>> {
    let (token, origin) = (new_login_token(), visitor(app, context));
    let expires_at = UnixMillis(origin.now.0.saturating_add(LOGIN_IDLE_MS));
    let login = NewLogin { token_hash: key_hash(token.expose()), expires_at, verified };
    app.store.begin_login(&origin, account.id, login).await.map_err(ApiError::from)?;
    let cookie = cookie(&app.config(), token.expose(), LOGIN_LIFE_MS / 1_000);
    let answer = LoggedIn {
        success: true,
        token: token.into_inner(),
        expires_at: expires_at.0,
        account_id: account.id.0,
        name: account.name,
        operator: account.operator,
    };
    Ok(Response::new(Json(answer)).header("Set-Cookie", cookie))
}

/// The session cookie; an age of 0 deletes it.
fn cookie(config: &Config, token: &str, max_age_secs: i64) -> String {
    let secure = if config.public_url.scheme() == "https" { "; Secure" } else { "" };
    format!("{LOGIN_COOKIE}={token}; Path=/; Max-Age={max_age_secs}; HttpOnly; SameSite=Strict{secure}")
}

// Passwords are hashed and compared on blocking threads, few at once: each takes tens of milliseconds and 19 MiB.

/// A hash that matches no password: an unknown name must take as long as a wrong password.
const NOBODYS_HASH: &str =
    "$argon2id$v=19$m=19456,t=2,p=1$c29tZXNhbHRzb21lc2FsdA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

/// Hashes a new password; `field` is its name in errors.
async fn hashed(app: &App, password: String, field: &str) -> std::result::Result<Redacted<String>, ApiError> {
    let hashed = on_own_thread(app, move || password::hash(&Redacted::new(password))).await?;
    hashed.map_err(|error| match error {
        PasswordError::Hash => ApiError::internal(),
        error => ApiError::refused(Code::PasswordRefused, format!("Field `{field}`: {error}")),
    })
}

/// Whether the password matches the stored hash; takes as long when there is none.
async fn is_password(
    app: &App,
    password: Redacted<String>,
    stored: Option<Redacted<String>>,
) -> std::result::Result<bool, ApiError> {
    on_own_thread(app, move || {
        let real = stored.is_some();
        let stored = stored.unwrap_or_else(|| Redacted::new(NOBODYS_HASH.to_owned()));
        password::verify(&password, &stored) && real
    })
    .await
}

async fn on_own_thread<R: Send + 'static>(
    app: &App,
    work: impl FnOnce() -> R + Send + 'static,
) -> std::result::Result<R, ApiError> {
    let acquired = app.clock.timeout(HASHING_WAIT, app.limits.hashing.clone().acquire_owned()).await;
    // The semaphore is never closed.
    let permit = acquired.ok_or_else(ApiError::busy)?.map_err(|_| ApiError::internal())?;
    let done = tokio::task::spawn_blocking(move || {
        let result = work();
        drop(permit);
        result
    });
    done.await.map_err(|_| ApiError::internal())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dummy_hash_is_a_valid_hash() {
        let stored = Redacted::new(NOBODYS_HASH.to_owned());
        assert!(argon2::password_hash::phc::PasswordHash::new(stored.expose()).is_ok());
        assert!(!password::verify(&Redacted::new("hunter2hunter2".into()), &stored));
    }
}
