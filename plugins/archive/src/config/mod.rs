//! Configuration of destinations, and the operator's settings.

use std::fmt;

use satcast_plugin_api::{Error, Secret};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;

use crate::names::prefix_fault;
use crate::outside::Outside;
use crate::rules::{Bounds, Rules};

/// Default region, which stores without regions expect.
const REGION: &str = "us-east-1";
const BUCKET_BYTES_MAX: usize = 63;
/// Longest endpoint, region and key.
const FIELD_BYTES_MAX: usize = 512;
/// Longest retention in days: ten years.
pub const RETENTION_DAYS_MAX: u32 = 3650;
/// Largest `maxGigabytes`: a petabyte.
pub const GIGABYTES_MAX: u32 = 1_000_000;

/// Records the stream and uploads it to an S3-compatible store. A store of your own needs a bucket, an endpoint and both
/// keys. If this service has a store, leave all of them empty to use it.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[schemars(extend(
    "x-address" = "s3://{bucket}/{prefix}",
    "x-order" = ["bucket", "endpoint", "region", "accessKey", "secretKey"]
))]
pub struct Config {
    /// Address of your store, for example https://s3.example.org.
    #[serde(default)]
    #[schemars(length(max = 512))]
    pub endpoint: Option<String>,
    /// Region of your store. Leave it empty for us-east-1.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub region: Option<String>,
    /// Name of a bucket that exists at your store.
    #[serde(default)]
    #[schemars(length(max = 63))]
    pub bucket: Option<String>,
    /// Folder for the recordings in your bucket, for example live/2026.
    #[serde(default)]
    #[schemars(length(max = 512))]
    pub prefix: Option<String>,
    /// Identifier of a key that may write to the bucket.
    #[serde(default)]
    #[schemars(length(max = 512))]
    pub access_key: Option<String>,
    /// Secret that belongs to the access key.
    #[serde(default)]
    pub secret_key: Option<Secret<String>>,
    /// Whether addresses have the bucket in their path, as most stores expect, or before the host name.
    #[serde(default)]
    pub force_path_style: Option<bool>,
    /// Days after which recordings are deleted at the store. Leave it empty to keep them.
    #[serde(default)]
    #[schemars(range(min = 1, max = 3650))]
    pub retention_days: Option<u32>,
    /// Gigabytes that recordings may use at the store; beyond it the oldest are deleted. Leave it empty for no limit.
    #[serde(default)]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_gigabytes: Option<u32>,
}

/// Operator settings in `[archive]` and `[driver.archive]`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
#[schemars(extend("x-table" = "archive"))]
pub struct Settings {
    /// Address of the store for destinations that name none.
    pub endpoint: Option<String>,
    /// Region of that store.
    pub region: Option<String>,
    /// Bucket of that store.
    pub bucket: Option<String>,
    /// Prefix of the names of all recordings in that bucket.
    pub prefix: Option<String>,
    /// Access key id.
    pub access_key: Option<String>,
    /// Secret access key.
    pub secret_key: Option<Secret<String>>,
    /// As for destinations.
    pub force_path_style: Option<bool>,
    /// Hours for which an upload is tried before it counts as failed.
    #[schemars(range(min = 1, max = 720))]
    pub retry_hours: u32,
    /// Bytes of local disk that recordings may use before recording stops: running, waiting and failed ones.
    pub spool_quota_bytes: u64,
    /// Bytes that must stay free on the disk; below it recording stops. 0 = recording goes on until the disk is full.
    pub free_bytes_min: u64,
    /// Bytes that failed recordings may use; beyond it the oldest are deleted.
    pub failed_quota_bytes: u64,
    /// Days that failed recordings are kept.
    #[schemars(range(min = 1, max = 365))]
    pub failed_days: u32,
    /// `retentionDays` of destinations that use the operator's store and name none.
    #[schemars(range(min = 1, max = 3650))]
    pub retention_days: Option<u32>,
    /// Most days for recordings in the operator's store.
    #[schemars(range(min = 1, max = 3650))]
    pub retention_days_limit: Option<u32>,
    /// `maxGigabytes` of destinations that use the operator's store and name none.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_gigabytes: Option<u32>,
    /// Most gigabytes for one destination in the operator's store.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_gigabytes_limit: Option<u32>,
}

const GIB: u64 = 1024 * 1024 * 1024;

impl Default for Settings {
    fn default() -> Self {
        Settings {
            endpoint: None,
            region: None,
            bucket: None,
            prefix: None,
            access_key: None,
            secret_key: None,
            force_path_style: None,
            retry_hours: 24,
            spool_quota_bytes: 100 * GIB,
            free_bytes_min: GIB,
            failed_quota_bytes: 20 * GIB,
            failed_days: 7,
            retention_days: None,
            retention_days_limit: None,
            max_gigabytes: None,
            max_gigabytes_limit: None,
        }
    }
}

/// A store and its keys. `Debug` shows no key.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Target {
    pub(crate) endpoint: String,
    pub(crate) region: String,
    pub(crate) bucket: String,
    pub(crate) prefix: String,
    pub(crate) access_key: String,
    pub(crate) secret_key: String,
    pub(crate) path_style: bool,
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (bucket {})", self.endpoint, self.bucket)
    }
}

impl Target {
    /// Same endpoint, bucket and prefix; the keys may differ.
    pub(crate) fn is_same_place(&self, other: &Target) -> bool {
        self.is_same_bucket(other) && self.prefix == other.prefix
    }

    /// Same bucket; the prefix may differ.
    pub(crate) fn is_same_bucket(&self, other: &Target) -> bool {
        (&self.endpoint, &self.bucket) == (&other.endpoint, &other.bucket)
    }

    /// Encrypts the store for the journal.
    ///
    /// # Errors
    /// `Internal` when the host cannot.
    pub(crate) fn sealed(&self, outside: &dyn Outside) -> Result<String, Error> {
        let text = serde_json::to_string(self)
            .map_err(|_| Error::internal("the store's configuration cannot be saved"))?;
        outside.seal(&text)
    }

    /// Decrypts the result of [`Target::sealed`].
    ///
    /// # Errors
    /// `Internal` when it cannot be read.
    pub(crate) fn unsealed(sealed: &str, outside: &dyn Outside) -> Result<Self, Error> {
        let text = outside.unseal(sealed)?;
        serde_json::from_str(&text)
            .map_err(|_| Error::internal("the journal has a store that cannot be read"))
    }
}

impl Config {
    /// How long its recordings stay at the store.
    pub(crate) fn rules(&self) -> Rules {
        Rules { days: self.retention_days, gigabytes: self.max_gigabytes }
    }

    /// The destination's own store; `None` for the operator's.
    ///
    /// # Errors
    /// `Config`, naming the field.
    pub(crate) fn target(&self) -> Result<Option<Target>, Error> {
        let fits = |given: Option<u32>, most| given.is_none_or(|given| (1..=most).contains(&given));
        if !fits(self.retention_days, RETENTION_DAYS_MAX) {
            return Err(Error::config(format!("retentionDays: must be 1 to {RETENTION_DAYS_MAX}")));
        }
        if !fits(self.max_gigabytes, GIGABYTES_MAX) {
            return Err(Error::config(format!("maxGigabytes: must be 1 to {GIGABYTES_MAX}")));
        }
        let keys = (&self.access_key, self.secret_key.as_ref().map(Secret::expose));
        let prefix = prefix(self.prefix.as_ref())?;
        match (&self.endpoint, &self.bucket, keys) {
            (None, None, (None, None)) => {
                let extra = [self.prefix.is_some(), self.region.is_some(), self.force_path_style.is_some()];
                if extra.contains(&true) {
                    return Err(no_own_store());
                }
                Ok(None)
            }
            (Some(endpoint), Some(bucket), (Some(access_key), Some(secret_key))) => Ok(Some(Target {
                endpoint: checked_endpoint(endpoint)?,
                region: checked_region(self.region.as_ref())?,
                bucket: checked_bucket(bucket)?,
                prefix,
                access_key: checked_key("accessKey", access_key)?,
                secret_key: checked_key("secretKey", secret_key)?,
                path_style: self.force_path_style.unwrap_or(true),
            })),
            (endpoint, bucket, (access_key, secret_key)) => {
                let given = [
                    ("endpoint", endpoint.is_some()),
                    ("bucket", bucket.is_some()),
                    ("accessKey", access_key.is_some()),
                    ("secretKey", secret_key.is_some()),
                ];
                let missing = given.iter().find(|(_, given)| !given).map_or("endpoint", |(name, _)| name);
                Err(incomplete(missing))
            }
        }
    }
}

impl Settings {
    /// The operator's rules for recordings in the operator's store.
    pub(crate) fn bounds(&self) -> Bounds {
        Bounds {
            usual: Rules { days: self.retention_days, gigabytes: self.max_gigabytes },
            most: Rules { days: self.retention_days_limit, gigabytes: self.max_gigabytes_limit },
        }
    }

    /// The operator's store; `None` when there is none.
    ///
    /// # Errors
    /// `Config`, naming the field of `[archive]`.
    pub(crate) fn target(&self) -> Result<Option<Target>, Error> {
        let config = Config {
            endpoint: self.endpoint.clone(),
            region: self.region.clone(),
            bucket: self.bucket.clone(),
            prefix: self.prefix.clone(),
            access_key: self.access_key.clone(),
            secret_key: self.secret_key.clone(),
            force_path_style: self.force_path_style,
            retention_days: None,
            max_gigabytes: None,
        };
        config.target().map_err(|error| Error::config(format!("[archive] {}", error.message)))
    }
}

/// A destination's own store lacks this field.
fn incomplete(missing: &str) -> Error {
    Error::config(format!(
        "{missing}: is missing; a store of your own needs a bucket, an endpoint and both keys; leave all four empty \
         to use the store of this service"
    ))
}

/// Fields of an own store are given without endpoint.
fn no_own_store() -> Error {
    Error::config(
        "endpoint: is missing; prefix, region and bucket in the path are for a store of your own, which needs a \
         bucket, an endpoint and both keys",
    )
}

/// A destination's own store, plain and encrypted; `None` = the operator's.
pub(crate) type Own = Option<(Target, String)>;

/// Error for a destination without its own store when the operator has none.
pub(crate) fn no_operator_store() -> Error {
    Error::config(
        "endpoint: is missing, and this service has no store of its own; enter the bucket, the endpoint and both keys of \
         your store, or ask the operator to set endpoint, bucket, access_key and secret_key in [archive]",
    )
}

fn prefix(prefix: Option<&String>) -> Result<String, Error> {
    let prefix = prefix.map(String::as_str).unwrap_or_default();
    match prefix_fault(prefix) {
        Some(fault) => Err(Error::config(format!("prefix: {fault}"))),
        None => Ok(prefix.trim_end_matches('/').to_owned()),
    }
}

fn checked_endpoint(text: &str) -> Result<String, Error> {
    let refuse = |why: &str| Error::config(format!("endpoint: {why}, for example https://s3.example.org"));
    if text.len() > FIELD_BYTES_MAX {
        return Err(refuse("is too long"));
    }
    let url = Url::parse(text).map_err(|_| refuse("must be an address"))?;
    if !["http", "https"].contains(&url.scheme()) || url.host_str().is_none_or(str::is_empty) {
        return Err(refuse("must begin with https:// or http://"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(refuse("must not hold a user or password; the keys have fields of their own"));
    }
    if url.path() != "/" || url.query().is_some() || url.fragment().is_some() {
        return Err(refuse("must end with the host or port; the bucket has a field of its own"));
    }
    Ok(url.as_str().trim_end_matches('/').to_owned())
}

fn checked_region(region: Option<&String>) -> Result<String, Error> {
    let region = region.map_or(REGION, String::as_str);
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if region.is_empty() || region.len() > 64 || !region.bytes().all(plain) {
        return Err(Error::config("region: must be 1 to 64 letters, digits, - and _"));
    }
    Ok(region.to_owned())
}

fn checked_bucket(bucket: &str) -> Result<String, Error> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let is_name = bucket.bytes().any(|byte| byte.is_ascii_alphanumeric());
    if bucket.len() > BUCKET_BYTES_MAX || !is_name || !bucket.bytes().all(plain) {
        return Err(Error::config("bucket: must be 1 to 63 letters, digits, dots, - and _"));
    }
    Ok(bucket.to_owned())
}

fn checked_key(field: &str, key: &str) -> Result<String, Error> {
    if key.is_empty() || key.len() > FIELD_BYTES_MAX || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(Error::config(format!(
            "{field}: must be 1 to {FIELD_BYTES_MAX} characters without spaces"
        )));
    }
    Ok(key.to_owned())
}

#[cfg(test)]
mod tests;
