//! Why a configuration is refused.

/// A configuration that was refused: which field, and why. Never holds a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigRefused {
    /// Path of the field inside the configuration, as `url`; empty for the whole.
    pub field: String,
    /// One sentence.
    pub reason: String,
}

impl ConfigRefused {
    /// Of the field at a place as [`Value::pointer`] takes it.
    pub(crate) fn at(place: &str, reason: impl Into<String>) -> Self {
        let field = place.trim_start_matches('/').replace('/', ".");
        Self { field: field.replace("~1", "/").replace("~0", "~"), reason: reason.into() }
    }
}
