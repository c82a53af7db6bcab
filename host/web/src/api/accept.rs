//! Checks before a destination is created or changed: by its driver, the address guard and its store.

use poem_openapi::registry::MetaSchema;
use serde_json::{Value, json};

use super::app::{App, STORE_CHECK_WAIT};
use super::body::{Kind, any_object, body, flag, text};
use crate::base::{ApiError, Code};
use satcast_core::ids::AccountId;
use satcast_drivers::{ConfigRefused, ProbeError, ValidateError};
use satcast_store::{DELAY_SECS_MAX, Delays, NewDestination};

body! {
    /// A destination to create.
    pub(super) struct DestinationInput: "NewDestination" {
        /// Destination type, such as `rtmp`.
        kind "type": String = text(),
        /// Configuration of the type; for `rtmp`: `url` and optionally `key`.
        config: Value = any_object().or(json!({})),
        /// Seconds until the destination starts, counted from the start of the session, or from when it is added or enabled.
        start_delay_seconds "startDelaySeconds": u32 = delay().or(0),
        /// Seconds for which the destination continues after it was disabled. It stops without delay when the session ends, a limit
        /// is reached, or it is deleted.
        stop_delay_seconds "stopDelaySeconds": u32 = delay().or(0),
        /// For types that record: whether to test the store first. If the store refuses, the request fails. `false` skips the test.
        check_store "checkStore": bool = flag().or(true),
    }
}

/// A delay in seconds.
pub(super) fn delay() -> Kind<u32> {
    let delay = Kind::of::<u32>(|value, place| {
        let secs = value.as_u64().and_then(|secs| u32::try_from(secs).ok());
        secs.filter(|secs| *secs <= DELAY_SECS_MAX).ok_or_else(|| {
            let fault = format!("must be a whole number of seconds from 0 to {DELAY_SECS_MAX}");
            place.refused(Code::DelayRefused, &fault)
        })
    });
    delay.noted(MetaSchema { maximum: Some(DELAY_SECS_MAX.into()), ..MetaSchema::ANY })
}

impl DestinationInput {
    /// A destination without delays.
    pub(super) fn new(kind: String, config: Value, check_store: bool) -> Self {
        Self { kind, config, start_delay_seconds: 0, stop_delay_seconds: 0, check_store }
    }
}

/// Error shown at a destination whose store could not be tested in time.
pub(super) const NOT_ASKED: &str = "the store was not tested, because too many other tests are running; save the destination again later, \
or start recording, which tests it";

/// A destination that passed the checks.
pub(super) struct Accepted {
    pub(super) destination: NewDestination,
    /// Why its store could not be reached or was not tested.
    pub(super) trouble: Option<String>,
}

/// Checks a destination with the driver of its type, the address guard and the store; `path` is the prefix of field names.
///
/// # Errors
/// 422 naming the field and the reason, never the value; 503 when the driver does not answer.
pub(super) async fn accept(
    app: &App,
    account: AccountId,
    input: DestinationInput,
    path: &str,
) -> std::result::Result<Accepted, ApiError> {
    if let Err(error) = app.drivers.validate(account, &input.kind, &input.config).await {
        return Err(refusal(app, error, path));
    }
    // Host names are resolved only when the destination connects.
    for (name, value) in input.config.as_object().into_iter().flatten() {
        app.guard.check_url(value.as_str().unwrap_or_default()).map_err(|refused| {
            ApiError::refused(Code::AddressRefused, format!("Field `{path}config.{name}`: {refused}"))
        })?;
    }
    let platform = input.kind.clone();
    let has_playback = app.drivers.has_playback(&input.kind);
    let delays = Delays { start_secs: input.start_delay_seconds, stop_secs: input.stop_delay_seconds };
    let trouble = if input.check_store { check_store(app, account, &input, path).await? } else { None };
    let destination =
        NewDestination { kind: input.kind, platform, config: input.config, has_playback, delays };
    Ok(Accepted { destination, trouble })
}

/// Tests the store; returns the reason if it could not be reached or tested.
async fn check_store(
    app: &App,
    account: AccountId,
    input: &DestinationInput,
    path: &str,
) -> std::result::Result<Option<String>, ApiError> {
    if !app.drivers.keeps_recordings(&input.kind).await {
        return Ok(None);
    }
    let permit = app.clock.timeout(STORE_CHECK_WAIT, app.limits.store_checks.take(account, 1)).await;
    let Some(_permit) = permit else { return Ok(Some(NOT_ASKED.to_owned())) };
    match app.drivers.probe(&input.kind, &input.config).await {
        Ok(()) => Ok(None),
        Err(ProbeError::Refused(refused)) => Err(config_refused(&refused, path)),
        Err(ProbeError::Unreachable(why)) => Ok(Some(why)),
    }
}

fn refusal(app: &App, error: ValidateError, path: &str) -> ApiError {
    match error {
        ValidateError::UnknownType => {
            let known = app.drivers.known_types().join(", ");
            let text =
                format!("Field `{path}type` is not a destination type of this service; known types: {known}");
            ApiError::refused(Code::UnknownDestinationType, text)
        }
        ValidateError::Config(refused) => config_refused(&refused, path),
        ValidateError::SetAside(reason) => ApiError::driver_unavailable(Some(&reason)),
        ValidateError::Driver(reason) => {
            tracing::error!(reason, "a driver cannot check a configuration");
            ApiError::driver_unavailable(None)
        }
    }
}

/// 422 for a configuration; `path` is the prefix of the field's name.
pub(super) fn config_refused(refused: &ConfigRefused, path: &str) -> ApiError {
    let field = if refused.field.is_empty() { String::new() } else { format!(".{}", refused.field) };
    ApiError::refused(Code::ConfigRefused, format!("Field `{path}config{field}`: {}", refused.reason))
}
