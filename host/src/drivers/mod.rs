//! Which driver serves which destination type.

use serde_json::Value;

/// The loaded drivers; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Drivers;

/// A configuration the driver accepts.
#[derive(Clone, Debug)]
pub struct Validated;

/// A configuration the driver refuses.
#[derive(Clone, Debug)]
pub struct ConfigRefused {
    /// Path of the field inside the configuration, `url`.
    pub field: String,
    /// Why, without the value.
    pub reason: String,
}

/// Why a destination cannot be made.
#[derive(Clone, Debug)]
pub enum ValidateError {
    /// No driver serves the type.
    UnknownType,
    /// Its driver refuses the configuration.
    Config(ConfigRefused),
}

/// What is shown of a destination.
#[derive(Clone, Debug)]
pub struct PublicView {
    /// Platform name.
    pub platform: String,
    /// Masked address.
    pub url: String,
}

impl Drivers {
    /// Checks a configuration with the schema of its type.
    ///
    /// # Errors
    /// Unknown type, or the field and reason of the refusal.
    pub fn validate(&self, kind: &str, config: &Value) -> Result<Validated, ValidateError> {
        let _ = config;
        if kind == "rtmp" { Ok(Validated) } else { Err(ValidateError::UnknownType) }
    }

    /// Every destination type.
    pub fn known_types(&self) -> Vec<String> {
        vec!["rtmp".to_owned()]
    }

    /// What is shown of a destination.
    pub fn public_view(&self, kind: &str, config: &Value) -> PublicView {
        let url = config.get("url").and_then(Value::as_str).unwrap_or_default();
        PublicView { platform: kind.to_owned(), url: crate::secret::mask_url(url) }
    }
}
