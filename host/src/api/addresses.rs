//! Lists of addresses in requests: from where a stream key may be used.

use serde_json::Value;

use super::ApiError;
use super::body::Fields;
use satcast_core::networks::Networks;

/// The field.
const FIELD: &str = "allowedAddresses";

/// Its texts, `None` when it is absent.
///
/// # Errors
/// 400 when it is no list of texts.
pub(super) fn read_addresses(fields: &mut Fields) -> Result<Option<Vec<String>>, ApiError> {
    let Some(value) = fields.take(FIELD) else { return Ok(None) };
    let text = |value| match value {
        Value::String(text) => Some(text),
        _ => None,
    };
    let texts: Option<Vec<String>> = match value {
        Value::Array(items) => items.into_iter().map(text).collect(),
        _ => None,
    };
    texts.map(Some).ok_or_else(|| fields.malformed(FIELD, "must be a list of texts"))
}

/// The networks they name.
///
/// # Errors
/// 422 saying which entry is none; never its text.
pub(super) fn checked_addresses(entries: &[String]) -> Result<Networks, ApiError> {
    Networks::parse(entries.iter().map(String::as_str))
        .map_err(|error| ApiError::refused("addresses_refused", format!("Field `{FIELD}`: {error}")))
}
