//! Accounts: log in and out, sessions, password, and creating an account.

use std::net::IpAddr;
use std::sync::Arc;

use poem::Result;
use poem::web::Data;
use poem_openapi::param::Path;
use poem_openapi::payload::{Json, Response};
use poem_openapi::{Object, OpenApi};

use super::app::{App, Tag};
use super::body::{Body, NoBody, body, text};
use super::caller::Caller;
use super::caller::{LOGIN_IDLE_MS, LOGIN_LIFE_MS, visitor};
use super::destinations::Done;
use super::passwords::{hashed, is_password};
use crate::auth::password::{PASSWORD_BYTES_MAX, PASSWORD_CHARS_MIN};
use crate::auth::{LOGIN_COOKIE, NAME_CHARS_MAX, account_name};
use crate::base::{ApiError, Code, RequestContext};
use satcast_core::config::Config;
use satcast_core::ids::{AccountId, LoginId, UnixMillis};
use satcast_core::networks::Network;
use satcast_core::secret::{Redacted, is_invite_token, key_hash, new_login_token};
use satcast_store::{AccountRecord, AuditFilter, NewAccount, NewLogin, Page, StoreError, TimeRange};

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
        /// Token of the invite link; required unless registration is open.
        token: Option<String> = text().optional(),
        /// Account name.
        name: String = text().plain(1, NAME_CHARS_MAX),
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
        let now = app.clock.monotonic();
        let network = Network::from(context.client);
        context.count(app.limits.logins.hit(network, now))?;
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
        begin(&app, &context, account.id, account.name, account.operator, stored).await
    }

    /// Create an account
    ///
    /// Requires the token of an invite link (`satcast account invite`) unless registration is open. Also logs in.
    #[oai(path = "/setup", method = "post", operation_id = "setUp")]
    async fn set_up(
        &self,
        app: Data<&Arc<App>>,
        request: &poem::Request,
        body: Body<SetupInput>,
    ) -> Result<Response<Json<LoggedIn>>> {
        let context = RequestContext::of(request);
        context.count(app.limits.logins.hit(Network::from(context.client), app.clock.monotonic()))?;
        let SetupInput { token, name, password } = body.0;
        if token.is_none() && !app.config.accounts.open_registration {
            let text = "Registration is closed; ask the operator for an invite link";
            return Err(ApiError::forbidden(Code::RegistrationClosed, text).into());
        }
        let name = account_name(&name).map(str::to_owned).ok_or_else(|| {
            let text = format!("Field `name` must have 1 to {NAME_CHARS_MAX} printable characters");
            ApiError::refused(Code::NameRefused, text)
        })?;
        if token.as_deref().is_some_and(|token| !is_invite_token(token)) {
            return Err(ApiError::link_ended().into());
        }
        let hash = hashed(&app, password, "password").await?;
        let account = NewAccount {
            name: name.clone(),
            password_hash: Some(hash),
            operator: false,
            initial_credit: app.config.initial_credit(),
        };
        let (store, origin) = (app.store.clone(), visitor(&app, &context));
        let made = App::to_the_end(async move {
            let made = match token {
                Some(token) => store.use_invite(&origin, &key_hash(&token), account).await,
                None => store.create_account(&origin, account).await,
            };
            match made {
                Err(StoreError::NameTaken(_)) => {
                    Err(ApiError::conflict(Code::NameTaken, "This account name is taken; choose another"))
                }
                other => Ok(other?),
            }
        });
        let id = made.await?;
        let operator = app.store.account(id).await.map_err(ApiError::from)?.is_some_and(|made| made.operator);
        begin(&app, &context, id, name, operator, None).await
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
        Ok(Response::new(Json(Done::new())).header("Set-Cookie", cookie(&app.config, "", 0)))
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
        context.count(app.limits.logins.hit(Network::from(context.client), app.clock.monotonic()))?;
        let PasswordInput { current_password, new_password } = body.0;
        let account = app.store.account(caller.account).await.map_err(ApiError::from)?;
        let stored = account.and_then(|account| account.password_hash);
        if !is_password(&app, Redacted::new(current_password), stored).await? {
            return Err(ApiError::refused(Code::PasswordRefused, "Field `currentPassword` is wrong").into());
        }
        let hash = hashed(&app, new_password, "newPassword").await?;
        let (store, actor) = (app.store.clone(), caller.actor(&app));
        App::to_the_end(async move { Ok(store.change_password(&actor, &hash).await?) }).await?;
        Ok(Response::new(Json(Done::new())).header("Set-Cookie", cookie(&app.config, "", 0)))
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
    tokio::spawn(async move {
        if let Err(error) = store.record_failed_login(&origin, account).await {
            tracing::error!(%error, "cannot write a failed login to the audit log");
        }
    });
}

async fn begin(
    app: &App,
    context: &RequestContext,
    account_id: AccountId,
    name: String,
    operator: bool,
    verified: Option<Redacted<String>>,
) -> Result<Response<Json<LoggedIn>>> {
    let (token, origin) = (new_login_token(), visitor(app, context));
    let expires_at = UnixMillis(origin.now.0.saturating_add(LOGIN_IDLE_MS));
    let login = NewLogin { token_hash: key_hash(token.expose()), expires_at, verified };
    app.store.begin_login(&origin, account_id, login).await.map_err(ApiError::from)?;
    let cookie = cookie(&app.config, token.expose(), LOGIN_LIFE_MS / 1_000);
    let answer = LoggedIn {
        success: true,
        token: token.into_inner(),
        expires_at: expires_at.0,
        account_id: account_id.0,
        name,
        operator,
    };
    Ok(Response::new(Json(answer)).header("Set-Cookie", cookie))
}

/// The session cookie; an age of 0 deletes it.
fn cookie(config: &Config, token: &str, max_age_secs: i64) -> String {
    let secure = if config.public_url.scheme() == "https" { "; Secure" } else { "" };
    format!("{LOGIN_COOKIE}={token}; Path=/; Max-Age={max_age_secs}; HttpOnly; SameSite=Strict{secure}")
}
