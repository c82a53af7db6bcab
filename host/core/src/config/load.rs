//! Merges defaults, file, environment and flags, and turns an error of serde into one sentence with its position.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::path::{Path, PathBuf};

use figment::error::{Actual, Kind};
use figment::providers::{Format as _, Toml};
use figment::value::{Dict, Map, Value};
use figment::{Figment, Metadata, Profile, Provider};
use toml::de::{DeTable, DeValue};

use super::{Config, DEFAULT_TOML, LogFormat};

/// The configuration file used when none is named.
pub const DEFAULT_FILE_NAME: &str = "satcast.toml";
/// Prefix of the service's environment variables.
const ENV_PREFIX: &str = "SATCAST_";
/// Separator of the levels of a key in the environment.
const ENV_LEVEL: &str = "__";
/// Largest configuration file.
const FILE_MAX_BYTES: u64 = 1024 * 1024;
/// Largest edit distance of a suggested name.
const NEAREST_NAME_DISTANCE_MAX: usize = 4;
/// Last parts of keys whose values are never shown.
const SECRET_KEYS: [&str; 4] = ["secret_key", "access_key", "secret", "url"];

/// One fault of the configuration: a sentence with its position and the fix. Never contains a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(pub(super) String);

/// Values from the command line; they override everything else.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    /// `--data-dir`
    pub data_dir: Option<PathBuf>,
    /// `--log-format`
    pub log_format: Option<LogFormat>,
}

/// A configuration and where it came from.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The checked configuration.
    pub config: Config,
    /// The file that was read.
    pub file: Option<PathBuf>,
    /// Number of keys set by file, environment and flags.
    pub keys_set: usize,
}

pub(super) fn load(
    file: Option<&Path>,
    env: impl IntoIterator<Item = (String, String)>,
    flags: &Flags,
) -> Result<Loaded, ConfigError> {
    let source = FileSource::read(file)?;
    let defaults = Toml::string(DEFAULT_TOML).data().map_err(|error| ConfigError(error.to_string()))?;
    let defaults = defaults.into_values().next().unwrap_or_default();
    given_twice(&source.values, &mut Vec::new(), &source)?;
    let mut env = environment(&defaults, env)?;
    let flags = flag_values(flags);
    let mut unknown_variables = Vec::new();
    loop {
        let figment = Figment::new()
            .merge(Layer { name: DEFAULTS_LAYER, values: defaults.clone() })
            .merge(Layer { name: FILE_LAYER, values: source.values.clone() })
            .merge(Layer { name: ENV_LAYER, values: env.clone() })
            .merge(Layer { name: FLAGS_LAYER, values: flags.clone() });
        let public_url = Dict::from([(PUBLIC_URL.to_owned(), Value::from(default_public_url(&figment)))]);
        let figment = figment.join(Layer { name: DEFAULTS_LAYER, values: public_url });
        let error = match figment.extract::<Config>() {
            Ok(config) => {
                let keys_set = count_leaves(&source.values) + count_leaves(&env) + count_leaves(&flags);
                return Ok(Loaded {
                    config: Config { unknown_variables, ..config },
                    file: source.path,
                    keys_set,
                });
            }
            Err(error) => error,
        };
        match &error.kind {
            Kind::UnknownField(name, known)
                if !source.values.contains_key(name)
                    && env.get(name).is_some_and(|value| !matches!(value, Value::Dict(..))) =>
            {
                env.remove(name);
                unknown_variables.push(unknown_variable(name, known));
            }
            _ => return Err(explain(error, &figment, &source)),
        }
    }
}

/// The URL of the HTTP listener for browsers on this machine.
fn default_public_url(figment: &Figment) -> String {
    let listen = figment.extract_inner("http.listen").unwrap_or(HTTP_LISTEN);
    let orders = figment.find_value("acme.domains").is_ok_and(|names| match names {
        Value::Array(_, names) => !names.is_empty(),
        Value::String(_, names) => !names.is_empty(),
        _ => false,
    });
    let https = orders || figment.contains("http.tls_cert");
    let scheme = if https { "https" } else { "http" };
    format!("{scheme}://{listen}")
}

/// A variable without a level separator may belong to another program, such as a container or an orchestrator.
fn unknown_variable(name: &str, known: &[&str]) -> String {
    let variable = |key: &str| format!("{ENV_PREFIX}{}", key.to_ascii_uppercase());
    let meant = nearest(name, known.iter().copied())
        .map_or(String::new(), |candidate| format!("; did you mean {}?", variable(candidate)));
    format!("{} is not a setting and has no effect{meant}", variable(name))
}

/// Used for `public_url` when `http.listen` is not an address, which is refused later.
const HTTP_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);
const PUBLIC_URL: &str = "public_url";
const DEFAULTS_LAYER: &str = "defaults";
const FILE_LAYER: &str = "file";
const ENV_LAYER: &str = "environment";
const FLAGS_LAYER: &str = "flags";

/// One named layer of values.
struct Layer {
    name: &'static str,
    values: Dict,
}

impl Provider for Layer {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.name)
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        Ok(Profile::Default.collect(self.values.clone()))
    }
}

/// The configuration file: its values, and its text for finding line numbers.
struct FileSource {
    path: Option<PathBuf>,
    text: String,
    values: Dict,
}

impl FileSource {
    fn read(named: Option<&Path>) -> Result<Self, ConfigError> {
        let path = match named {
            Some(path) => path.to_owned(),
            None if Path::new(DEFAULT_FILE_NAME).is_file() => PathBuf::from(DEFAULT_FILE_NAME),
            None => return Ok(Self { path: None, text: String::new(), values: Dict::new() }),
        };
        let unreadable = |error: std::io::Error| {
            ConfigError(format!(
                "cannot read {}: {error}; name an existing file with --config",
                path.display()
            ))
        };
        let size = std::fs::metadata(&path).map_err(unreadable)?.len();
        if size > FILE_MAX_BYTES {
            return Err(ConfigError(format!("{} is larger than 1 MiB; name the right file", path.display())));
        }
        let text = std::fs::read_to_string(&path).map_err(unreadable)?;
        if let Err(error) = DeTable::parse(&text) {
            let line = error.span().map(|span| line_of(&text, &span)).unwrap_or(1);
            let reason = error.message().lines().next().unwrap_or("not TOML").to_owned();
            return Err(ConfigError(format!("{}:{line}: {reason}; correct the line", path.display())));
        }
        let data = Toml::string(&text).data();
        let data =
            data.map_err(|error| ConfigError(format!("{}: {error}; correct the file", path.display())))?;
        Ok(Self { path: Some(path), text, values: data.into_values().next().unwrap_or_default() })
    }

    /// `file:line: ` of the key at `path`, or of its nearest table in the file.
    fn place(&self, path: &[String]) -> Option<String> {
        let file = self.path.as_ref()?;
        let table = DeTable::parse(&self.text).ok()?;
        let mut span = None;
        let mut table = Some(table.get_ref());
        for part in path {
            let Some((key, value)) =
                table.and_then(|table| table.iter().find(|(key, _)| key.get_ref() == part))
            else {
                break;
            };
            span = Some(key.span());
            table = match value.get_ref() {
                DeValue::Table(inner) => Some(inner),
                _ => None,
            };
        }
        let line = span.map(|span| line_of(&self.text, &span))?;
        Some(format!("{}:{line}: ", file.display()))
    }

    fn holds(&self, path: &[String]) -> bool {
        let mut values = &self.values;
        for (index, part) in path.iter().enumerate() {
            match values.get(part) {
                Some(Value::Dict(_, inner)) => values = inner,
                Some(_) => return index + 1 == path.len(),
                None => return false,
            }
        }
        true
    }
}

fn line_of(text: &str, span: &Range<usize>) -> usize {
    text.as_bytes().iter().take(span.start).filter(|byte| **byte == b'\n').count() + 1
}

/// Refuses a setting of a driver that the file has under both of its names, such as `retryHours` and `retry_hours`. One in the
/// environment may be combined with one in the file, and overrides it.
fn given_twice(values: &Dict, path: &mut Vec<String>, source: &FileSource) -> Result<(), ConfigError> {
    for (key, value) in values {
        path.push(key.clone());
        let is_of_driver = path.first().is_some_and(|table| table == "driver");
        let other = camel_case(key);
        if is_of_driver && other != *key && values.contains_key(&other) {
            let (at, table) = (place(path, source, true), path[..path.len() - 1].join("."));
            return Err(ConfigError(format!("{at}{}", both_names(&other, key, &table))));
        }
        if let (true, Value::Dict(_, inner)) = (is_of_driver, value) {
            given_twice(inner, path, source)?;
        }
        path.pop();
    }
    Ok(())
}

pub(super) fn both_names(camel: &str, snake: &str, table: &str) -> String {
    format!("{camel} and {snake} in [{table}] are one setting; remove one of the two")
}

/// `retryHours` for `retry_hours`.
fn camel_case(name: &str) -> String {
    let mut parts = name.split('_');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let mut chars = part.chars();
        text.extend(chars.next().map(|first| first.to_ascii_uppercase()));
        text.push_str(chars.as_str());
    }
    text
}

/// The values of `SATCAST_...` variables, parsed by the type of the key's default, so that a secret
/// of digits stays text. Keys without a default are text; the types of a driver's own settings are guessed.
fn environment(
    defaults: &Dict,
    env: impl IntoIterator<Item = (String, String)>,
) -> Result<Dict, ConfigError> {
    let mut values = Dict::new();
    let mut ours: Vec<(String, String)> =
        env.into_iter().filter(|(name, _)| name.starts_with(ENV_PREFIX)).collect();
    ours.sort();
    for (name, text) in ours {
        let mut path: Vec<String> =
            name[ENV_PREFIX.len()..].split(ENV_LEVEL).map(str::to_ascii_lowercase).collect();
        // Shells allow no `-` in a name, and no driver's name contains `_`.
        if let [table, driver, ..] = path.as_mut_slice()
            && table == "driver"
        {
            *driver = driver.replace('_', "-");
        }
        let value = env_value(&name, &path, &text, defaults)?;
        insert(&mut values, &path, value).ok_or_else(|| {
            ConfigError(format!("{name} is set together with one of its keys; unset one of the two"))
        })?;
    }
    Ok(values)
}

fn env_value(name: &str, path: &[String], text: &str, defaults: &Dict) -> Result<Value, ConfigError> {
    let refused =
        |wanted: &str| ConfigError(format!("{name} is not a {wanted}; set it to a {wanted} or unset it"));
    match find(defaults, path) {
        Some(Value::Num(..)) => {
            text.trim().parse::<i64>().map(Value::from).map_err(|_| refused("whole number"))
        }
        Some(Value::Bool(..)) => match text.trim() {
            "true" | "1" => Ok(Value::from(true)),
            "false" | "0" => Ok(Value::from(false)),
            _ => Err(refused("boolean (true or false)")),
        },
        Some(Value::Array(..)) if text.trim_start().starts_with('[') => {
            toml_value(text).filter(|value| matches!(value, Value::Array(..))).ok_or_else(|| refused("list"))
        }
        Some(Value::Dict(..)) => Err(refused("single key (add __ and the name of the key)")),
        None if path.first().is_some_and(|table| table == "driver")
            && path.get(2).is_some_and(|k| k != "sha256") =>
        {
            Ok(toml_value(text).unwrap_or_else(|| Value::from(text)))
        }
        _ => Ok(Value::from(text)),
    }
}

/// `text` parsed as a TOML value.
fn toml_value(text: &str) -> Option<Value> {
    let data = Toml::string(&format!("value = {text}")).data().ok()?;
    data.into_values().next()?.remove("value")
}

fn find<'a>(values: &'a Dict, path: &[String]) -> Option<&'a Value> {
    let (first, rest) = path.split_first()?;
    let value = values.get(first)?;
    match value {
        Value::Dict(_, inner) if !rest.is_empty() => find(inner, rest),
        _ if rest.is_empty() => Some(value),
        _ => None,
    }
}

fn insert(values: &mut Dict, path: &[String], value: Value) -> Option<()> {
    let (first, rest) = path.split_first()?;
    if rest.is_empty() {
        return values.insert(first.clone(), value).is_none().then_some(());
    }
    let slot = values.entry(first.clone()).or_insert_with(|| Value::from(Dict::new()));
    match slot {
        Value::Dict(_, inner) => insert(inner, rest, value),
        _ => None,
    }
}

fn flag_values(flags: &Flags) -> Dict {
    let mut values = Dict::new();
    if let Some(data_dir) = &flags.data_dir {
        values.insert("data_dir".to_owned(), Value::from(data_dir.to_string_lossy().into_owned()));
    }
    if let Some(format) = flags.log_format {
        let name = if format == LogFormat::Json { "json" } else { "text" };
        values.insert("log".to_owned(), Value::from(Dict::from([("format".to_owned(), Value::from(name))])));
    }
    values
}

fn count_leaves(values: &Dict) -> usize {
    let count = |value: &Value| match value {
        Value::Dict(_, inner) => count_leaves(inner),
        _ => 1,
    };
    values.values().map(count).sum()
}

/// One sentence for the first error of serde.
fn explain(error: figment::Error, figment: &Figment, source: &FileSource) -> ConfigError {
    let mut path = error.path.clone();
    if let Kind::UnknownField(name, known) = &error.kind {
        if path.last() != Some(name) {
            path.push(name.clone());
        }
        return ConfigError(format!("{}{}", place(&path, source, true), unknown_key(name, known, &path)));
    }
    let layer = figment.find_metadata(&path.join(".")).map(|metadata| metadata.name.as_ref());
    let at = place(&path, source, layer != Some(ENV_LAYER) && layer != Some(FLAGS_LAYER));
    let key = path.join(".");
    let hidden = path.last().is_some_and(|last| SECRET_KEYS.contains(&last.as_str()));
    let found = |actual: &Actual| if hidden { "another value".to_owned() } else { actual.to_string() };
    let fault = match &error.kind {
        Kind::Message(message) => message.clone(),
        Kind::InvalidType(actual, expected) | Kind::InvalidValue(actual, expected) => {
            format!("must be {expected}, not {}", found(actual))
        }
        Kind::UnknownVariant(name, known) => format!("cannot be \"{name}\"; use {}", alternatives(known)),
        Kind::ISizeOutOfRange(_) | Kind::USizeOutOfRange(_) => {
            "is out of range; use a smaller number".to_owned()
        }
        _ => "has a value of the wrong form; see: satcast config".to_owned(),
    };
    ConfigError(format!("{at}{key} {fault}"))
}

fn place(path: &[String], source: &FileSource, prefer_file: bool) -> String {
    if prefer_file && source.holds(path) {
        return source.place(path).unwrap_or_default();
    }
    format!("{ENV_PREFIX}{}: ", path.join(ENV_LEVEL).to_ascii_uppercase())
}

fn unknown_key(name: &str, known: &[&str], path: &[String]) -> String {
    let table = match path.len() {
        0 | 1 => String::new(),
        levels => format!(" in [{}]", path[..levels - 1].join(".")),
    };
    match nearest(name, known.iter().copied()) {
        Some(candidate) => format!("unknown key \"{name}\"{table}; did you mean \"{candidate}\"?"),
        None => format!("unknown key \"{name}\"{table}; known are {}", alternatives(known)),
    }
}

/// The known name that is probably intended.
pub fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let distances = known.map(|known| (strsim::damerau_levenshtein(name, known), known));
    distances.filter(|(distance, _)| *distance <= NEAREST_NAME_DISTANCE_MAX).min().map(|(_, known)| known)
}

fn alternatives(names: &[&str]) -> String {
    names.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ")
}
