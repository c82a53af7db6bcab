//! Changes to streams, destinations and keys that exist.

use serde_json::Value;

use super::model::Scopes;
use satcast_core::ids::{DestinationId, KeyId, LoginId, UnixMillis};
use satcast_core::networks::Networks;
use satcast_core::secret::{KeyKind, Redacted};

/// What shall become of one limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LimitChange {
    /// It stays as it is.
    #[default]
    Keep,
    /// It is removed.
    Remove,
    /// It becomes this.
    Set(i64),
}

/// What shall become of a stream's limits.
#[derive(Clone, Copy, Debug, Default)]
pub struct LimitsChange {
    /// Sats one session may cost.
    pub max_sats: LimitChange,
    /// Minutes one session may last.
    pub max_duration_minutes: LimitChange,
}

/// What shall become of a stream.
#[derive(Clone, Debug, Default)]
pub struct StreamChange {
    /// Another label; `None` leaves it.
    pub label: Option<String>,
    /// From where its stream key may be used; `None` leaves it.
    pub allowed: Option<Networks>,
}

/// What shall become of a destination.
#[derive(Clone, Default)]
pub struct DestinationChange {
    /// Whether it takes part in sessions; `None` leaves it.
    pub enabled: Option<bool>,
    /// A new configuration that the driver accepted; `None` leaves it.
    pub config: Option<Value>,
    /// Seconds after which it starts; `None` leaves them.
    pub start_delay_secs: Option<u32>,
    /// Seconds after which it stops; `None` leaves them.
    pub stop_delay_secs: Option<u32>,
}

impl std::fmt::Debug for DestinationChange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // `config` holds secrets.
        f.debug_struct("DestinationChange").field("enabled", &self.enabled).finish_non_exhaustive()
    }
}

/// An API key as its owner sees it in a list.
#[derive(Clone, Debug)]
pub struct KeyView {
    /// Its id.
    pub id: KeyId,
    /// Public or permanent.
    pub kind: KeyKind,
    /// The key itself, which is kept only of public keys.
    pub key: Option<Redacted<String>>,
    /// The first characters.
    pub prefix: String,
    /// The last four characters.
    pub last4: String,
    /// What it may do.
    pub scopes: Scopes,
    /// The destination of a public key.
    pub destination_id: Option<DestinationId>,
    /// The login session that it ends with.
    pub login: Option<LoginId>,
    /// A name for people.
    pub label: String,
    /// When it was made.
    pub created_at: UnixMillis,
    /// When it was last used, to the minute.
    pub last_used_at: Option<UnixMillis>,
}
