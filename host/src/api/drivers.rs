//! Drivers and the destination types they serve.

use std::collections::HashMap;
use std::sync::Arc;

use poem::Result;
use poem::web::Data;
use poem_openapi::payload::Json;
use poem_openapi::{Enum, Object, OpenApi};
use serde_json::Value;

use super::null::Null;
use super::{ApiError, App, Caller, Tag};
use crate::drivers::{State, Summary, TypeSchema};

/// What became of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
#[oai(rename_all = "lowercase", rename = "DriverState")]
pub(super) enum DriverState {
    /// It serves its types.
    Loaded,
    /// It is loaded, but its process crashed; its destinations wait.
    Failing,
    /// It is there and not enabled.
    Disabled,
    /// It could not be loaded.
    Refused,
    /// It is enabled, but there is no file.
    Missing,
}

/// A destination type.
#[derive(Clone, Debug, Object)]
#[oai(rename_all = "camelCase")]
pub(super) struct DestinationType {
    /// Value of `type` of a destination.
    name: String,
    /// Human name.
    title: String,
    /// Whether viewers can play its destinations here.
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
    /// Its name in the configuration.
    id: String,
    /// Its version; empty when it is not known.
    version: String,
    /// What became of it.
    state: DriverState,
    /// Why it was refused, for operators; null otherwise.
    error: Null<String>,
    /// The destination types it serves; empty unless it is loaded.
    types: Vec<DestinationType>,
}

/// Operations on drivers.
pub(super) struct DriversApi;

#[OpenApi(prefix_path = "/api", tag = "Tag::Destinations")]
impl DriversApi {
    /// List drivers
    ///
    /// With their destination types and the schema of each type's configuration. Accounts that do not operate the service see
    /// loaded drivers alone. An addition to the specification.
    #[oai(path = "/drivers", method = "get", operation_id = "listDrivers")]
    async fn list(&self, app: Data<&Arc<App>>, caller: Caller) -> Result<Json<Vec<Driver>>> {
        let account = app.store.account(caller.account).await.map_err(ApiError::from)?;
        let is_operator = account.is_some_and(|account| account.operator);
        let mut schemas: HashMap<String, TypeSchema> =
            app.drivers.schemas().into_iter().map(|kind| (kind.name.clone(), kind)).collect();
        let shown = |driver: &Summary| is_operator || driver.state == State::Loaded || matches!(driver.state, State::Failing(_));
        let drivers = app.drivers.summaries().into_iter().filter(shown).map(|driver| {
            let (state, error) = match &driver.state {
                State::Loaded => (DriverState::Loaded, None),
                State::Failing(why) => (DriverState::Failing, Some(why.clone())),
                State::Disabled => (DriverState::Disabled, None),
                State::Refused(why) => (DriverState::Refused, Some(why.clone())),
                State::Missing => (DriverState::Missing, None),
            };
            let types = if matches!(state, DriverState::Loaded | DriverState::Failing) { driver.types.as_slice() } else { &[] };
            Driver {
                id: driver.id.clone(),
                version: driver.version.clone(),
                state,
                error: error.into(),
                types: types
                    .iter()
                    .filter_map(|name| schemas.remove(name))
                    .map(DestinationType::from)
                    .collect(),
            }
        });
        Ok(Json(drivers.collect()))
    }
}
