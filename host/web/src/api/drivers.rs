//! Drivers and the destination types they serve.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use poem::Result;
use poem::web::Data;
use poem_openapi::payload::Json;
use poem_openapi::{Enum, Object, OpenApi};
use serde_json::{Value, json};

use super::app::{App, Tag};
use super::body::{Body, body, choice, text};
use super::caller::Caller;
use super::null::Null;
use crate::base::{ApiError, Code};
use satcast_core::config::Isolation;
use satcast_core::ids::AccountId;
use satcast_drivers::{Change, ChangeError, SetAside, State, Summary, TypeSchema};

/// State of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
#[oai(rename_all = "lowercase", rename = "DriverState")]
pub(super) enum DriverState {
    /// The driver serves its destination types.
    Loaded,
    /// The driver is loaded, but its process crashed; its destinations wait.
    Failing,
    /// The file is there, but the driver is not enabled.
    Disabled,
    /// The driver could not be loaded.
    Refused,
    /// The driver is enabled, but its file is missing.
    Missing,
}

/// Where a driver runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
#[oai(rename_all = "lowercase", rename = "DriverIsolation")]
pub(super) enum DriverIsolation {
    /// In the service's process, on threads of its own.
    Thread,
    /// In a process of its own.
    Process,
    /// Not running.
    None,
}

/// Action on a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
#[oai(rename_all = "lowercase", rename = "DriverAction")]
pub(super) enum DriverAction {
    /// Load the driver; a driver that crashed too often is started again.
    Enable,
    /// Use the driver for nothing new.
    Disable,
    /// Load the file that is in the drivers folder now.
    Replace,
}

body! {
    /// A change of a driver.
    pub(super) struct DriverChange: "DriverChange" {
        /// Driver identifier.
        driver: String = text().length(0, 32),
        /// Action.
        action: DriverAction = choice(Code::ActionRefused, "must be \"enable\", \"disable\" or \"replace\""),
    }
}

/// A destination type.
#[derive(Clone, Debug, Object)]
#[oai(rename_all = "camelCase")]
pub(super) struct DestinationType {
    /// Value of `type` of a destination.
    name: String,
    /// Name for people.
    title: String,
    /// Whether viewers can play destinations of this type over HLS.
    playback: bool,
    /// JSON Schema (2020-12) of `config`; secret fields carry `x-secret: true`.
    config_schema: Value,
}

impl From<TypeSchema> for DestinationType {
    fn from(kind: TypeSchema) -> Self {
        Self { name: kind.name, title: kind.title, playback: kind.playback, config_schema: kind.schema }
    }
}

/// A driver.
#[derive(Clone, Debug, Object)]
#[oai(rename_all = "camelCase")]
pub(super) struct Driver {
    /// Driver identifier, as in the configuration.
    id: String,
    /// Version; empty when it is not known.
    version: String,
    /// Name of the driver's file in the drivers folder; null when there is none.
    file: Null<String>,
    /// State of the driver.
    state: DriverState,
    /// Where the driver runs.
    isolation: DriverIsolation,
    /// Why the driver was refused or its process crashed, or why a changed library or changed settings were refused while the driver
    /// runs on as before. Shown to operators only; null otherwise.
    error: Null<String>,
    /// Destination types of the driver; empty unless the driver is loaded.
    types: Vec<DestinationType>,
    /// Accounts in quarantine: the driver does nothing new for them. Operators see all of them, other accounts only themselves.
    set_aside: Vec<AccountSetAside>,
}

/// An account in quarantine at a driver: the driver does nothing new for it.
#[derive(Clone, Debug, Object)]
#[oai(rename_all = "camelCase")]
pub(super) struct AccountSetAside {
    /// Account identifier.
    account_id: i64,
    /// Why the account is in quarantine, and the effect.
    reason: String,
    /// Time at which the account is served again, Unix milliseconds; null = when an operator enables the driver.
    until: Null<i64>,
}

impl From<SetAside> for AccountSetAside {
    fn from(set_aside: SetAside) -> Self {
        let SetAside { account, why, until } = set_aside;
        Self { account_id: account.0, reason: why, until: until.map(|until| until.0).into() }
    }
}

/// Prefix of the reason why a change of a driver was refused.
const REFUSED_CHANGE: &str = "the driver runs on without the refused change: ";

/// Operations on drivers.
pub(super) struct DriversApi;

#[OpenApi(prefix_path = "/api", tag = "Tag::Destinations")]
impl DriversApi {
    /// List drivers
    ///
    /// All drivers, with their destination types and the schema of each type's configuration. Accounts that are not operators see
    /// only loaded drivers.
    #[oai(path = "/drivers", method = "get", operation_id = "listDrivers")]
    async fn list(&self, app: Data<&Arc<App>>, caller: Caller) -> Result<Json<Vec<Driver>>> {
        let is_operator = is_operator(&app, &caller).await?;
        let shown =
            |driver: &Summary| is_operator || matches!(driver.state, State::Loaded | State::Failing(_));
        let drivers = app.drivers.summaries().into_iter().filter(shown);
        let mut schemas = schemas(&app);
        let account = (!is_operator).then_some(caller.account);
        Ok(Json(drivers.map(|driver| view(driver, account, &mut schemas)).collect()))
    }

    /// Enable, disable or replace a driver
    ///
    /// Operators only. Destinations that are open continue with the driver that opened them. The change lasts until the service
    /// restarts or reloads its configuration, which then decides.
    #[oai(path = "/drivers", method = "post", operation_id = "changeDriver")]
    async fn change(
        &self,
        app: Data<&Arc<App>>,
        caller: Caller,
        body: Body<DriverChange>,
    ) -> Result<Json<Driver>> {
        operators_only(&app, &caller).await?;
        let DriverChange { driver: id, action } = body.0;
        let (change, done) = match action {
            DriverAction::Enable => (Change::Enable, "driver.enabled"),
            DriverAction::Disable => (Change::Disable, "driver.disabled"),
            DriverAction::Replace => (Change::Replace, "driver.replaced"),
        };
        let app = Arc::clone(&app);
        let made = App::to_the_end(async move {
            let drivers = app.drivers.clone();
            // Starts processes and waits for them.
            let changed = tokio::task::spawn_blocking(move || drivers.change(&id, change)).await;
            let summary = changed.map_err(|_| ApiError::internal())?.map_err(|error| match error {
                ChangeError::Unknown(_) => ApiError::not_found("driver"),
                ChangeError::Refused { .. } => ApiError::refused(Code::DriverRefused, error.to_string()),
            })?;
            let detail = json!({ "driver": summary.id, "version": summary.version });
            let entry = satcast_store::Change { action: done, target: ("driver", None), detail };
            // The change is made even if the log cannot be written.
            if let Err(error) = app.store.record(&caller.actor(&app), entry).await {
                tracing::error!(%error, driver = summary.id, "cannot write a change of a driver to the audit log");
            }
            Ok(view(summary, None, &mut schemas(&app)))
        });
        Ok(Json(made.await?))
    }
}

pub(super) async fn is_operator(app: &App, caller: &Caller) -> Result<bool> {
    let account = app.store.account(caller.account).await.map_err(ApiError::from)?;
    Ok(account.is_some_and(|account| account.operator))
}

/// Refuses a caller whose account is not an operator.
pub(super) async fn operators_only(app: &App, caller: &Caller) -> Result<()> {
    if is_operator(app, caller).await? {
        return Ok(());
    }
    let text = "Only operators may do this; use a key or session of an operator account";
    Err(ApiError::forbidden(Code::NotOperator, text).into())
}

fn schemas(app: &App) -> HashMap<String, TypeSchema> {
    app.drivers.schemas().into_iter().map(|kind| (kind.name.clone(), kind)).collect()
}

/// A driver as `account` sees it; `None` = an operator.
fn view(driver: Summary, account: Option<AccountId>, schemas: &mut HashMap<String, TypeSchema>) -> Driver {
    let (state, error) = match driver.state {
        State::Loaded => (DriverState::Loaded, None),
        State::Failing(why) => (DriverState::Failing, Some(why)),
        State::Disabled => (DriverState::Disabled, None),
        State::Refused(why) => (DriverState::Refused, Some(why)),
        State::Missing => (DriverState::Missing, None),
    };
    let refused = driver.refused.map(|why| format!("{REFUSED_CHANGE}{why}"));
    let error = match (error, refused) {
        (Some(error), Some(refused)) => Some(format!("{error}. {refused}")),
        (error, refused) => error.or(refused),
    };
    let is_loaded = matches!(state, DriverState::Loaded | DriverState::Failing);
    let types = if is_loaded { driver.types } else { Vec::new() };
    let isolation = match driver.isolation {
        Some(Isolation::Thread) => DriverIsolation::Thread,
        Some(Isolation::Process) => DriverIsolation::Process,
        None => DriverIsolation::None,
    };
    let file_name = driver.file.as_deref().and_then(Path::file_name);
    let is_shown = |set_aside: &SetAside| account.is_none_or(|account| account == set_aside.account);
    Driver {
        id: driver.id,
        version: driver.version,
        file: file_name.map(|name| name.to_string_lossy().into_owned()).into(),
        state,
        isolation,
        error: error.filter(|_| account.is_none()).into(),
        types: types.iter().filter_map(|name| schemas.remove(name)).map(DestinationType::from).collect(),
        set_aside: driver.set_aside.into_iter().filter(is_shown).map(AccountSetAside::from).collect(),
    }
}

#[cfg(test)]
mod tests {
    use poem_openapi::types::ToJSON as _;

    use super::*;
    use satcast_core::ids::UnixMillis;

    #[test]
    fn operators_see_what_is_wrong_and_what_was_refused() {
        let summary = |state, refused: Option<&str>| Summary {
            id: "x".into(),
            file: None,
            version: "1".into(),
            types: Vec::new(),
            state,
            refused: refused.map(str::to_owned),
            isolation: None,
            crashes: 0,
            set_aside: Vec::new(),
        };
        let seen = |summary: Summary, is_operator: bool| {
            let driver = view(summary, (!is_operator).then_some(AccountId(1)), &mut HashMap::new());
            (driver.state, driver.to_json().unwrap()["error"].clone())
        };
        let failing = || State::Failing("died".into());
        let refused = format!("{REFUSED_CHANGE}it has another hash");
        let both = format!("died. {refused}");
        for (state, why, expected) in [
            (State::Loaded, None, Value::Null),
            (State::Loaded, Some("it has another hash"), json!(refused)),
            (failing(), None, json!("died")),
            (failing(), Some("it has another hash"), json!(both)),
        ] {
            assert_eq!(seen(summary(state.clone(), why), true).1, expected);
            assert_eq!(seen(summary(state, why), false).1, Value::Null, "hidden from other accounts");
        }
        assert_eq!(seen(summary(State::Loaded, Some("x")), true).0, DriverState::Loaded);
        let all = [State::Loaded, failing(), State::Disabled, State::Refused("x".into()), State::Missing];
        for state in all {
            let named = json!(state.as_str());
            assert_eq!(seen(summary(state, None), true).0.to_json(), Some(named));
        }
    }

    #[test]
    fn the_file_has_its_name_without_the_folder() {
        let summary = Summary {
            id: "x".into(),
            file: Some("/srv/drivers/x.so".into()),
            version: "1".into(),
            types: Vec::new(),
            state: State::Loaded,
            refused: None,
            isolation: None,
            crashes: 0,
            set_aside: Vec::new(),
        };
        let seen = |summary: Summary| {
            view(summary, Some(AccountId(1)), &mut HashMap::new()).to_json().unwrap()["file"].clone()
        };
        assert_eq!(seen(Summary { file: None, ..summary.clone() }), Value::Null);
        assert_eq!(seen(summary), json!("x.so"));
    }

    #[test]
    fn operators_see_which_accounts_are_set_aside_and_accounts_see_themselves() {
        let set_aside = |account, until: Option<i64>| SetAside {
            account: AccountId(account),
            why: "crashed".into(),
            until: until.map(UnixMillis),
        };
        let summary = Summary {
            id: "x".into(),
            file: None,
            version: "1".into(),
            types: Vec::new(),
            state: State::Loaded,
            refused: None,
            isolation: None,
            crashes: 3,
            set_aside: vec![set_aside(1, None), set_aside(2, Some(5_000))],
        };
        let seen = |account| {
            view(summary.clone(), account, &mut HashMap::new()).to_json().unwrap()["setAside"].clone()
        };
        let first = json!({"accountId": 1, "reason": "crashed", "until": null});
        let second = json!({"accountId": 2, "reason": "crashed", "until": 5_000});
        assert_eq!(seen(None), json!([first, second]));
        assert_eq!(seen(Some(AccountId(1))), json!([first]));
        assert_eq!(seen(Some(AccountId(3))), json!([]));
    }
}
