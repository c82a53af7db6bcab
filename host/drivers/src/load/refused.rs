/// A refused configuration: the field and the reason. Never holds a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigRefused {
    /// Path of the field inside the configuration, as `url`; empty for the whole configuration.
    pub field: String,
    /// One sentence.
    pub reason: String,
}

impl ConfigRefused {
    /// For the field at the JSON pointer `place` ([`Value::pointer`]).
    pub(crate) fn at(place: &str, reason: impl Into<String>) -> Self {
        let field = place.trim_start_matches('/').replace('/', ".");
        Self { field: field.replace("~1", "/").replace("~0", "~"), reason: reason.into() }
    }
}
