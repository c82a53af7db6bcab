//! A driver's description of itself before it runs: its destination types and their configuration schemas.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::http::ROUTES_MAX;
use crate::playback::is_asset_name;

/// Largest manifest the host reads, in bytes.
pub const MANIFEST_BYTES_MAX: usize = 1024 * 1024;
/// Most destination types one driver may declare.
pub const TYPES_MAX: usize = 64;
/// Largest configuration schema of one type, in bytes of JSON.
pub const SCHEMA_BYTES_MAX: usize = 64 * 1024;

/// The manifest of a driver.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Human name of the driver.
    pub title: String,
    /// Destination types it serves.
    pub types: Vec<DestType>,
    /// JSON Schema of the operator's settings below `[driver.<id>]`; `None` = the driver takes no settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings: Option<Value>,
    /// The setting with which operators add destination types, or change those of the manifest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made: Option<Box<TypesSetting>>,
}

/// A setting with which operators add destination types: an object with an entry for each, under the type's name. `title` and
/// `description` of an entry are those of the type; a field that the configuration also has becomes its default; every other field
/// goes into `x-platform` of the schema, unless the settings' schema marks it `x-private`. An entry with the name of a type in the
/// manifest changes that type. The driver gets the setting unchanged, and configurations without the defaults.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TypesSetting {
    /// Name of the setting, declared in the settings' schema as well.
    pub setting: String,
    /// Pattern for new types; its name is not used.
    pub like: DestType,
}

/// The settings a driver takes from its operator.
#[derive(Debug, Clone, PartialEq)]
pub struct SettingsSchema(Value);

impl SettingsSchema {
    /// Settings that are read as `S`. Its keys must not be `isolation`, `sha256`, `limits`, `spool_mb` or `queue`, which the host reads itself, nor look like
    /// them. Give every field a default, unless the driver cannot work without it.
    pub fn of<S: JsonSchema>() -> Self {
        Self(schemars::schema_for!(S).to_value())
    }

    /// The JSON Schema.
    pub fn into_json(self) -> Value {
        self.0
    }
}

/// One destination type.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DestType {
    /// Value of `type` in the API.
    pub name: String,
    /// Human name.
    pub title: String,
    /// JSON Schema (2020-12) of `config`; secret fields carry `x-secret: true`.
    pub schema: Value,
    /// Codecs it can forward, as in `Codec::name`; empty = all.
    #[serde(default)]
    pub codecs: Vec<String>,
    /// It publishes assets for viewers: each of its destinations gets an address and public keys.
    #[serde(default)]
    pub playback: bool,
    /// Viewer requests below that address that the driver answers itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<Route>,
    /// A destination that is added to a live stream, or enabled while the stream is live, first gets a backfill: the media in the DVR
    /// window of another destination. For recordings; best with a driver whose packets are spooled, because new media waits
    /// meanwhile.
    #[serde(default, rename = "wantsPast", skip_serializing_if = "std::ops::Not::not")]
    pub wants_backfill: bool,
}

/// Viewer requests that a driver answers itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// First part of the path below a destination's address: named like an asset. The driver reads the rest of the path.
    pub path: String,
    /// An answer may take [`LONG_ANSWER_SECS`](crate::http::LONG_ANSWER_SECS): for requests that wait for new media.
    #[serde(default)]
    pub long: bool,
    /// Viewers of the preview may use it, too.
    #[serde(default)]
    pub preview: bool,
}

impl Route {
    /// A route for viewers with a key, with the short time limit.
    pub fn new(path: &str) -> Self {
        Self { path: path.to_owned(), long: false, preview: false }
    }

    /// Answers may wait for new media.
    pub fn long(mut self) -> Self {
        self.long = true;
        self
    }

    /// Viewers of the preview may use it, too.
    pub fn preview(mut self) -> Self {
        self.preview = true;
        self
    }
}

impl DestType {
    /// The type `name` with the configuration struct `C`.
    pub fn of<C: JsonSchema>(name: &str) -> Self {
        let schema = schemars::schema_for!(C).to_value();
        let (name, title) = (name.to_string(), name.to_string());
        let (codecs, routes) = (Vec::new(), Vec::new());
        Self { name, title, schema, codecs, playback: false, routes, wants_backfill: false }
    }

    /// Sets the human name.
    pub fn title(mut self, title: &str) -> Self {
        self.title = title.to_string();
        self
    }

    /// Asks for a backfill of the DVR window at the start.
    pub fn wants_backfill(mut self) -> Self {
        self.wants_backfill = true;
        self
    }

    /// Marks a type that publishes assets for viewers.
    pub fn playback(mut self) -> Self {
        self.playback = true;
        self
    }

    /// Adds a route whose viewer requests the driver answers; implies `playback`.
    pub fn route(mut self, route: Route) -> Self {
        self.routes.push(route);
        self.playback()
    }

    /// Sets the codecs it can forward.
    pub fn codecs(mut self, codecs: &[&str]) -> Self {
        self.codecs = codecs.iter().map(ToString::to_string).collect();
        self
    }
}

/// True for a driver id or type name: 1 to 32 of `a-z`, `0-9` and `-`.
pub fn is_name(name: &str) -> bool {
    (1..=32).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

/// Why a manifest was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// Longer than [`MANIFEST_BYTES_MAX`].
    #[error("its manifest has {0} bytes, more than {MANIFEST_BYTES_MAX}")]
    TooLarge(usize),
    /// Not the JSON it should be.
    #[error("its manifest cannot be read: {0}")]
    Unreadable(String),
    /// No type, or more than [`TYPES_MAX`].
    #[error("its manifest names {0} destination types; 1 to {TYPES_MAX} are allowed")]
    TypeCount(usize),
    /// A name that is not allowed by [`is_name`], or is repeated.
    #[error("its manifest has a bad or repeated destination type name {0:?}")]
    TypeName(String),
    /// Routes that cannot be served.
    #[error(
        "the routes of {0} must be at most {ROUTES_MAX}, each with a different name of a-z A-Z 0-9 . _ -, none of them index.m3u8 or t, and the type must have playback"
    )]
    Routes(String),
    /// A schema over [`SCHEMA_BYTES_MAX`].
    #[error("the configuration schema of {0} has more than {SCHEMA_BYTES_MAX} bytes")]
    SchemaTooLarge(String),
    /// A schema that points outside itself.
    #[error("the configuration schema of {0} refers to {1:?}; only references inside the schema are allowed")]
    RemoteRef(String, String),
}

impl Manifest {
    /// Reads and checks a driver's manifest.
    pub fn parse(json: &str) -> Result<Self, ManifestError> {
        if json.len() > MANIFEST_BYTES_MAX {
            return Err(ManifestError::TooLarge(json.len()));
        }
        let manifest: Manifest =
            serde_json::from_str(json).map_err(|error| ManifestError::Unreadable(error.to_string()))?;
        if manifest.types.is_empty() || manifest.types.len() > TYPES_MAX {
            return Err(ManifestError::TypeCount(manifest.types.len()));
        }
        if let Some(schema) = &manifest.settings {
            check_schema("[driver] settings", schema)?;
        }
        if let Some(made) = &manifest.made {
            check_schema(&made.setting, &made.like.schema)?;
            check_routes(&made.like)?;
        }
        for (index, kind) in manifest.types.iter().enumerate() {
            let repeated = manifest.types[..index].iter().any(|other| other.name == kind.name);
            if repeated || !is_name(&kind.name) {
                return Err(ManifestError::TypeName(kind.name.chars().take(40).collect()));
            }
            check_schema(&kind.name, &kind.schema)?;
            check_routes(kind)?;
        }
        Ok(manifest)
    }
}

/// Names below a destination's address that the host uses itself.
const HOST_ROUTES: [&str; 2] = ["index.m3u8", "t"];

fn check_routes(kind: &DestType) -> Result<(), ManifestError> {
    let is_repeated = |at: usize, path: &str| kind.routes[..at].iter().any(|route| route.path == path);
    let is_bad = |(at, route): (usize, &Route)| {
        !is_asset_name(&route.path)
            || HOST_ROUTES.contains(&route.path.as_str())
            || is_repeated(at, &route.path)
    };
    let is_wrong = kind.routes.len() > ROUTES_MAX
        || (!kind.routes.is_empty() && !kind.playback)
        || kind.routes.iter().enumerate().any(is_bad);
    if is_wrong { Err(ManifestError::Routes(kind.name.clone())) } else { Ok(()) }
}

fn check_schema(of: &str, schema: &Value) -> Result<(), ManifestError> {
    if schema.to_string().len() > SCHEMA_BYTES_MAX {
        return Err(ManifestError::SchemaTooLarge(of.to_string()));
    }
    match remote_ref(schema) {
        Some(reference) => Err(ManifestError::RemoteRef(of.to_string(), reference.to_string())),
        None => Ok(()),
    }
}

// serde_json limits the nesting of its input (128), so the recursion is bounded, too.
fn remote_ref(schema: &Value) -> Option<&str> {
    match schema {
        Value::Object(fields) => fields.iter().find_map(|(name, value)| match (name.as_str(), value) {
            ("$ref" | "$dynamicRef", Value::String(target)) if !target.starts_with('#') => {
                Some(target.as_str())
            }
            _ => remote_ref(value),
        }),
        Value::Array(items) => items.iter().find_map(remote_ref),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn with_types(types: Value) -> Result<Manifest, ManifestError> {
        Manifest::parse(&json!({ "title": "t", "types": types }).to_string())
    }

    fn kind(name: &str, schema: Value) -> Value {
        json!({ "name": name, "title": "x", "schema": schema })
    }

    #[test]
    fn good_manifest() {
        let manifest = with_types(json!([kind("rtmp", json!({ "$ref": "#/$defs/a" }))])).unwrap();
        assert_eq!((manifest.types[0].name.as_str(), manifest.types[0].wants_backfill), ("rtmp", false));
        assert!(!serde_json::to_string(&manifest).unwrap().contains("wantsPast"));
        let wanting = json!({ "name": "a", "title": "x", "schema": {}, "wantsPast": true });
        assert!(with_types(json!([wanting])).unwrap().types[0].wants_backfill);
    }

    #[test]
    fn every_limit_refuses() {
        assert!(matches!(
            Manifest::parse(&" ".repeat(MANIFEST_BYTES_MAX + 1)),
            Err(ManifestError::TooLarge(_))
        ));
        assert!(matches!(Manifest::parse("{"), Err(ManifestError::Unreadable(_))));
        assert_eq!(with_types(json!([])), Err(ManifestError::TypeCount(0)));
        let many: Vec<_> = (0..=TYPES_MAX).map(|n| kind(&format!("t{n}"), json!({}))).collect();
        assert_eq!(with_types(json!(many)), Err(ManifestError::TypeCount(TYPES_MAX + 1)));
        assert!(matches!(with_types(json!([kind("A b", json!({}))])), Err(ManifestError::TypeName(_))));
        let twice = json!([kind("a", json!({})), kind("a", json!({}))]);
        assert_eq!(with_types(twice), Err(ManifestError::TypeName("a".into())));
        let large = json!({ "description": "x".repeat(SCHEMA_BYTES_MAX) });
        assert_eq!(with_types(json!([kind("a", large)])), Err(ManifestError::SchemaTooLarge("a".into())));
        let remote = json!({ "anyOf": [{ "$ref": "https://example.org/s.json" }] });
        assert!(matches!(with_types(json!([kind("a", remote)])), Err(ManifestError::RemoteRef(..))));
        let made = |schema: Value| {
            let made = json!({ "setting": "types", "like": kind("a", schema) });
            let types = json!([kind("a", json!({}))]);
            Manifest::parse(&json!({ "title": "t", "types": types, "made": made }).to_string())
        };
        assert!(made(json!({})).unwrap().made.is_some());
        assert!(matches!(made(json!({ "$ref": "file:///x" })), Err(ManifestError::RemoteRef(..))));
        let routed = |routes: Value, playback: bool| {
            let kind =
                json!({ "name": "a", "title": "x", "schema": {}, "routes": routes, "playback": playback });
            with_types(json!([kind]))
        };
        let paths =
            |count: usize| json!((0..count).map(|n| json!({ "path": format!("r{n}") })).collect::<Vec<_>>());
        assert_eq!(routed(paths(ROUTES_MAX), true).unwrap().types[0].routes[1], Route::new("r1"));
        let refused = Err(ManifestError::Routes("a".into()));
        assert_eq!(routed(paths(ROUTES_MAX + 1), true), refused);
        assert_eq!(routed(paths(1), false), refused);
        for bad in ["", "a/b", ".a", "t", "index.m3u8", "\u{e4}"] {
            assert_eq!(routed(json!([{ "path": bad }]), true), refused, "{bad:?}");
        }
        assert_eq!(routed(json!([{ "path": "a" }, { "path": "a" }]), true), refused);
        let settings = |schema: Value| {
            let types = json!([kind("a", json!({}))]);
            Manifest::parse(&json!({ "title": "t", "types": types, "settings": schema }).to_string())
        };
        assert!(settings(json!({ "type": "object" })).unwrap().settings.is_some());
        let large = json!({ "description": "x".repeat(SCHEMA_BYTES_MAX) });
        assert!(matches!(settings(large), Err(ManifestError::SchemaTooLarge(_))));
        assert!(matches!(settings(json!({ "$ref": "file:///x" })), Err(ManifestError::RemoteRef(..))));
    }
    #[test]
    fn refusals_texts() {
        let a = || "a".to_owned();
        for (refusal, text) in [
            (ManifestError::TooLarge(9), format!("its manifest has 9 bytes, more than {MANIFEST_BYTES_MAX}")),
            (ManifestError::Unreadable(a()), "its manifest cannot be read: a".to_owned()),
            (
                ManifestError::TypeCount(0),
                format!("its manifest names 0 destination types; 1 to {TYPES_MAX} are allowed"),
            ),
            (
                ManifestError::TypeName(a()),
                "its manifest has a bad or repeated destination type name \"a\"".to_owned(),
            ),
            (
                ManifestError::Routes(a()),
                format!(
                    "the routes of a must be at most {ROUTES_MAX}, each with a different name of a-z A-Z 0-9 . _ -, none of them \
                     index.m3u8 or t, and the type must have playback"
                ),
            ),
            (
                ManifestError::SchemaTooLarge(a()),
                format!("the configuration schema of a has more than {SCHEMA_BYTES_MAX} bytes"),
            ),
            (
                ManifestError::RemoteRef(a(), "b".to_owned()),
                "the configuration schema of a refers to \"b\"; only references inside the schema are allowed"
                    .to_owned(),
            ),
        ] {
            assert_eq!(refusal.to_string(), text);
        }
    }
}
