//! Accounts, for operators: list, create, add credit, disable, and new login links.

use std::sync::Arc;

use poem::Result;
use poem::web::Data;
use poem_openapi::param::{Path, Query};
use poem_openapi::payload::{Json, Response};
use poem_openapi::registry::MetaSchema;
use poem_openapi::{Object, OpenApi};

use super::app::{App, Tag};
use super::body::{Body, Kind, body, flag, text};
use super::caller::Caller;
use super::drivers::operators_only;
use super::edits::MAX_SATS_MAX;
use super::idempotency::RequestName;
use super::login::{checked_name, name_taken};
use super::null::Null;
use super::page::{PageRequest, with_link};
use crate::auth::NAME_CHARS_MAX;
use crate::auth::link::{link_address, new_link};
use crate::base::{ApiError, Code};
use satcast_core::ids::{AccountId, EndReason, Msat, Sats};
use satcast_store::{AccountChange, AccountView, Actor, CommandTarget, NewAccount, NewLink, StoreError};

body! {
    /// An account to create.
    pub(super) struct AccountInput: "NewAccount" {
        /// Account name, which no other account has.
        name: String = text().plain(1, NAME_CHARS_MAX),
        /// Initial credit in sats; default: that of the configuration.
        credit: Option<i64> = sats(0).optional(),
        /// Whether the account is an operator of the service; default `false`.
        operator: bool = flag().or_is(false),
    }
}

body! {
    /// Changes of an account. An absent field changes nothing.
    pub(super) struct AccountChangeInput: "AccountChange",
        one of ["credit", "disabled", "loginLink"] or Code::NothingToChange
    {
        /// Prepaid credit to add, in sats.
        credit: Option<i64> = sats(1).optional(),
        /// Whether the account is disabled. Its streams end, and its keys, sessions and logins get 403.
        disabled: Option<bool> = flag().optional(),
        /// `true` makes a new login link. An earlier link of the account ends; its password and sessions stay until the link is
        /// used.
        login_link "loginLink": Option<bool> = flag().optional(),
    }
}

/// An amount of at least `least` sats.
fn sats(least: i64) -> Kind<i64> {
    let sats = Kind::of::<i64>(move |value, place| match value.as_i64() {
        Some(sats) if (least..=MAX_SATS_MAX).contains(&sats) => Ok(sats),
        _ => {
            let fault = format!("must be a whole number of sats from {least} to {MAX_SATS_MAX}");
            Err(place.refused(Code::CreditRefused, &fault))
        }
    });
    let (minimum, maximum) = (Some(least as f64), Some(MAX_SATS_MAX as f64));
    sats.noted(MetaSchema { minimum, maximum, ..MetaSchema::ANY })
}

/// An account.
#[derive(Clone, Debug, Object)]
#[oai(rename_all = "camelCase")]
pub(super) struct Account {
    /// Account identifier.
    id: i64,
    /// Account name.
    name: String,
    /// Whether the account is an operator of the service.
    operator: bool,
    /// Whether the account is disabled.
    disabled: bool,
    /// Whether a person can log in with a password.
    has_password: bool,
    /// Credit in sats, rounded down.
    balance: i64,
    /// Creation time, Unix milliseconds.
    created_at: i64,
}

impl From<AccountView> for Account {
    fn from(AccountView { account, balance }: AccountView) -> Self {
        Self {
            id: account.id.0,
            name: account.name,
            operator: account.operator,
            disabled: account.disabled_at.is_some(),
            has_password: account.password_hash.is_some(),
            balance: balance.to_sats_floor().0,
            created_at: account.created_at.0,
        }
    }
}

/// The result of a change of an account.
#[derive(Clone, Object)]
#[oai(rename_all = "camelCase")]
pub(super) struct AccountChanged {
    /// `true`.
    success: bool,
    /// Account identifier.
    id: i64,
    /// Credit after the change in sats, rounded down.
    balance: i64,
    /// The new login link; secret. With it a person sets the password of the account and logs in, once and within a day. Null when
    /// none was made.
    login_link: Null<String>,
    /// Time at which the link ends, Unix milliseconds; null when none was made.
    link_expires_at: Null<i64>,
}

impl AccountChanged {
    fn new(id: AccountId, balance: Msat, link: Option<(String, NewLink)>) -> Self {
        let (login_link, link_expires_at) = link.map(|(address, link)| (address, link.expires_at.0)).unzip();
        Self {
            success: true,
            id: id.0,
            balance: balance.to_sats_floor().0,
            login_link: login_link.into(),
            link_expires_at: link_expires_at.into(),
        }
    }
}

/// The operator without its address: the person of the account reads the audit entry.
fn unlocated(caller: &Caller, app: &App) -> Actor {
    Actor { address: None, ..caller.actor(app) }
}

fn refused(error: StoreError) -> ApiError {
    match error {
        StoreError::NameTaken(_) => name_taken(),
        StoreError::Amount(_) => {
            let text = format!("Field `credit` would raise the balance above {MAX_SATS_MAX} sats; add less");
            ApiError::refused(Code::CreditRefused, text)
        }
        other => other.into(),
    }
}

/// Operations of operators on accounts.
pub(super) struct AccountsApi;

#[OpenApi(prefix_path = "/api", tag = "Tag::Accounts")]
impl AccountsApi {
    /// List accounts
    ///
    /// Operators only. Newest first. The `Link` header has the next page.
    #[oai(path = "/accounts", method = "get", operation_id = "listAccounts")]
    async fn list(
        &self,
        app: Data<&Arc<App>>,
        caller: Caller,
        /// Entries per page, 1 to 1000.
        #[oai(validator(minimum(value = "1"), maximum(value = "1000")))]
        limit: Query<Option<u32>>,
        /// Position of the page, from a `Link` header.
        cursor: Query<Option<String>>,
    ) -> Result<Response<Json<Vec<Account>>>> {
        operators_only(&app, &caller).await?;
        let page = PageRequest::new(limit.0, cursor.0.as_deref())?;
        let mut views = app.store.accounts(page.to_store()).await.map_err(ApiError::from)?;
        let address = format!("{}/api/accounts", app.config().public_base());
        let link = page.finish(&mut views, &address, |view| view.account.id.0);
        Ok(with_link(Json(views.into_iter().map(Account::from).collect()), link))
    }

    /// Create an account for a person
    ///
    /// Operators only. The person sets the password with the login link. Making an operator needs a login session.
    #[oai(path = "/accounts", method = "post", operation_id = "createAccount")]
    async fn create(
        &self,
        app: Data<&Arc<App>>,
        caller: Caller,
        body: Body<AccountInput>,
    ) -> Result<Json<AccountChanged>> {
        operators_only(&app, &caller).await?;
        let AccountInput { name, credit, operator } = body.0;
        if operator {
            caller.login()?;
        }
        let name = checked_name(&name)?;
        let credit = credit.map_or(Some(app.config().initial_credit()), |sats| Sats(sats).to_msat());
        let initial_credit = credit.ok_or_else(ApiError::internal)?;
        let (token, link) = new_link(app.clock.now());
        let address = link_address(app.config().public_base(), Some(&name), token.expose());
        let account = NewAccount { name, password_hash: None, operator, initial_credit };
        let (store, origin) = (app.store.clone(), unlocated(&caller, &app).origin());
        let made = App::to_the_end(async move {
            store.create_linked_account(&origin, account, &link).await.map_err(refused)
        });
        Ok(Json(AccountChanged::new(made.await?, initial_credit, Some((address, link)))))
    }

    /// Add credit to an account, disable it, or make a login link
    ///
    /// Operators only. To disable an operator, or to make its login link, needs a login session. All fields of a request take effect together. Send an `Idempotency-Key` with `credit`, so that a repeated
    /// request adds it once.
    #[oai(path = "/accounts/:id", method = "patch", operation_id = "changeAccount")]
    async fn change(
        &self,
        app: Data<&Arc<App>>,
        request: &poem::Request,
        caller: Caller,
        /// Account identifier.
        id: Path<i64>,
        body: Body<AccountChangeInput>,
    ) -> Result<Json<AccountChanged>> {
        operators_only(&app, &caller).await?;
        let AccountChangeInput { credit, disabled, login_link } = body.0;
        let (id, is_end) = (AccountId(id.0), disabled == Some(true));
        if is_end && id == caller.account {
            let text = "An operator cannot disable its own account; use another operator account";
            return Err(ApiError::conflict(Code::OwnAccount, text).into());
        }
        let account = app.store.account(id).await.map_err(ApiError::from)?;
        let account = account.ok_or_else(|| ApiError::not_found("account"))?;
        let wants_link = login_link == Some(true);
        if (wants_link || is_end) && account.operator {
            caller.login()?;
        }
        let link = wants_link.then(|| {
            let (token, link) = new_link(app.clock.now());
            (link_address(app.config().public_base(), Some(&account.name), token.expose()), link)
        });
        let new_link = link.as_ref().map(|(_, link)| *link);
        let name = request.extensions().get::<RequestName>().map(|name| name.0.clone());
        let change = AccountChange {
            credit: credit.map(Sats),
            request: name,
            disabled,
            operator: Some(caller.account),
            link: new_link,
        };
        let actor = Actor { account: id, ..unlocated(&caller, &app) };
        let app = Arc::clone(&app);
        let made = App::to_the_end(async move {
            let balance = app.store.change_account(&actor, change).await.map_err(refused)?;
            if is_end {
                app.live.revoked(CommandTarget::Account(id), EndReason::AccountDisabled).await;
            }
            Ok(balance)
        });
        Ok(Json(AccountChanged::new(id, made.await?, link)))
    }
}
