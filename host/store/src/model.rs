//! What goes into the store and comes out of it.

use serde_json::Value;

use super::charges::Terms;
use satcast_core::ids::{
    AccountId, DestinationId, EndReason, KeyId, LoginId, Msat, SessionId, StreamId, UnixMillis,
};
use satcast_core::networks::Networks;
use satcast_core::secret::{KeyKind, Redacted};

/// An account.
#[derive(Clone, Debug)]
pub struct AccountRecord {
    /// Its id.
    pub id: AccountId,
    /// Its unique name.
    pub name: String,
    /// Whether it may operate the service.
    pub operator: bool,
    /// Argon2id hash in PHC form; `None` when no password was set.
    pub password_hash: Option<Redacted<String>>,
    /// When it was made.
    pub created_at: UnixMillis,
}

/// An account to be made.
#[derive(Clone, Debug)]
pub struct NewAccount {
    /// Unique name.
    pub name: String,
    /// Argon2id hash in PHC form.
    pub password_hash: Option<Redacted<String>>,
    /// Whether it may operate the service.
    pub operator: bool,
    /// Credit posted as a promotion; zero posts nothing.
    pub initial_credit: Msat,
}

/// What a permanent key may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scopes {
    /// Read what belongs to the account.
    pub read: bool,
    /// Change it.
    pub manage: bool,
    /// Manage webhooks.
    pub webhooks: bool,
}

impl Scopes {
    /// All of them, the default of a permanent key.
    pub const ALL: Scopes = Scopes { read: true, manage: true, webhooks: true };
    /// None, as public keys have.
    pub const NONE: Scopes = Scopes { read: false, manage: false, webhooks: false };

    /// The stored form: names in a fixed order with commas between.
    pub fn to_text(self) -> String {
        let named = [(self.read, "read"), (self.manage, "manage"), (self.webhooks, "webhooks")];
        let names: Vec<&str> = named.into_iter().filter(|(set, _)| *set).map(|(_, name)| name).collect();
        names.join(",")
    }

    /// Reads the stored form; `None` for a name this release does not know.
    pub fn parse(text: &str) -> Option<Self> {
        let mut scopes = Self::NONE;
        for name in text.split(',').filter(|name| !name.is_empty()) {
            match name {
                "read" => scopes.read = true,
                "manage" => scopes.manage = true,
                "webhooks" => scopes.webhooks = true,
                _ => return None,
            }
        }
        Some(scopes)
    }
}

/// An API key as it is found by its hash.
#[derive(Clone, Debug)]
pub struct KeyRecord {
    /// Its id.
    pub id: KeyId,
    /// Whose it is.
    pub account_id: AccountId,
    /// Public or permanent.
    pub kind: KeyKind,
    /// What it may do.
    pub scopes: Scopes,
    /// The destination of a public key.
    pub destination_id: Option<DestinationId>,
    /// The first characters, for display.
    pub prefix: String,
    /// The last four characters, for display.
    pub last4: String,
    /// When it was last used, to the minute.
    pub last_used_at: Option<UnixMillis>,
    /// When the login session ends that it ends with, unless that is used.
    pub ends_at: Option<UnixMillis>,
}

/// An API key to be stored.
#[derive(Clone, Debug)]
pub struct NewKey {
    /// Public or permanent.
    pub kind: KeyKind,
    /// The key itself.
    pub key: Redacted<String>,
    /// What it may do.
    pub scopes: Scopes,
    /// The destination of a public key.
    pub destination_id: Option<DestinationId>,
    /// The login session that it ends with.
    pub login: Option<LoginId>,
    /// A name for people.
    pub label: String,
    /// Caps in force.
    pub caps: Caps,
}

/// Hard limits of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamLimits {
    /// Sats a session may cost.
    pub max_sats: Option<i64>,
    /// Minutes a session may last.
    pub max_duration_minutes: Option<i64>,
}

/// A stream.
#[derive(Clone, Debug)]
pub struct StreamRecord {
    /// Its id, in the API the stream key id.
    pub id: StreamId,
    /// Whose it is.
    pub account_id: AccountId,
    /// Its name for people.
    pub label: String,
    /// When it was made.
    pub created_at: UnixMillis,
    /// Its hard limits.
    pub limits: StreamLimits,
    /// From where its stream key may be used.
    pub allowed: Networks,
}

/// A stream with what only its owner sees.
#[derive(Clone, Debug)]
pub struct StreamView {
    /// The stream.
    pub stream: StreamRecord,
    /// Its stream key in clear.
    pub stream_key: Redacted<String>,
    /// Why its newest ended session ended.
    pub last_end_reason: Option<EndReason>,
}

/// A stream to be made.
#[derive(Clone, Debug)]
pub struct NewStream {
    /// Its name for people.
    pub label: String,
    /// Its stream key.
    pub stream_key: Redacted<String>,
    /// Its destinations, in the order given.
    pub destinations: Vec<NewDestination>,
    /// From where its stream key may be used.
    pub allowed: Networks,
    /// Caps in force.
    pub caps: Caps,
}

/// Longest delay of a destination, in seconds.
pub const DELAY_SECS_MAX: u32 = 300;

/// How late a destination follows what is wanted of it, in seconds from 0 to [`DELAY_SECS_MAX`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delays {
    /// It starts so long after its session began, or after it was added or enabled.
    pub start_secs: u32,
    /// It goes on for so long after it was disabled.
    pub stop_secs: u32,
}

/// A destination.
#[derive(Clone, PartialEq)]
pub struct DestinationRecord {
    /// Its id.
    pub id: DestinationId,
    /// The stream it belongs to.
    pub stream_id: StreamId,
    /// Its type, which names a driver: `rtmp`, `self-hosted`, ...
    pub kind: String,
    /// Its platform name for display.
    pub platform: String,
    /// Whether it takes part in sessions.
    pub enabled: bool,
    /// How late it follows.
    pub delays: Delays,
    /// The driver's configuration in clear, secrets included.
    pub config: Value,
    /// The part of its playback URL that names it; `None` for types without playback.
    pub playback_path: Option<String>,
}

impl std::fmt::Debug for DestinationRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // `config` holds secrets.
        f.debug_struct("DestinationRecord")
            .field("id", &self.id)
            .field("stream_id", &self.stream_id)
            .field("kind", &self.kind)
            .field("enabled", &self.enabled)
            .finish_non_exhaustive()
    }
}

/// A destination as its owner sees it in a list, one whose stored configuration was damaged too.
#[derive(Clone, PartialEq)]
pub struct DestinationView {
    /// Its id.
    pub id: DestinationId,
    /// The stream it belongs to.
    pub stream_id: StreamId,
    /// Its type, which names a driver: `rtmp`, `self-hosted`, ...
    pub kind: String,
    /// Its platform name for display.
    pub platform: String,
    /// Whether it takes part in sessions.
    pub enabled: bool,
    /// How late it follows.
    pub delays: Delays,
    /// The driver's configuration in clear, secrets included; `None` when it can no longer be read.
    pub config: Option<Value>,
    /// The part of its playback URL that names it; `None` for types without playback.
    pub playback_path: Option<String>,
}

impl std::fmt::Debug for DestinationView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // `config` holds secrets.
        f.debug_struct("DestinationView").field("id", &self.id).finish_non_exhaustive()
    }
}

/// A destination to be made; its configuration was accepted by the driver.
#[derive(Clone)]
pub struct NewDestination {
    /// Its type.
    pub kind: String,
    /// Its platform name.
    pub platform: String,
    /// The driver's configuration in clear.
    pub config: Value,
    /// Whether viewers can play it: then it gets a playback path.
    pub has_playback: bool,
    /// How late it follows what is wanted of it.
    pub delays: Delays,
}

impl std::fmt::Debug for NewDestination {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // `config` holds secrets.
        f.debug_struct("NewDestination").field("kind", &self.kind).finish_non_exhaustive()
    }
}

/// Caps that writes check inside their transaction.
#[derive(Clone, Copy, Debug)]
pub struct Caps {
    /// Destinations of one stream.
    pub destinations_per_stream: i64,
    /// Streams of one account.
    pub streams_per_account: i64,
    /// API keys of one account.
    pub keys_per_account: i64,
}

/// One page of a list that runs from the newest to the oldest.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    /// Only rows with a smaller id; `None` starts at the newest.
    pub before: Option<i64>,
    /// At most this many rows.
    pub limit: i64,
}

impl Page {
    /// Everything at once; for lists that a cap keeps short.
    pub const ALL: Page = Page { before: None, limit: i64::MAX };
}

/// A session that begins.
#[derive(Clone, Debug)]
pub struct NewSession {
    /// Its id.
    pub id: SessionId,
    /// The stream that is live.
    pub stream_id: StreamId,
    /// Time of the first media.
    pub started_at: UnixMillis,
    /// The prices that hold for it.
    pub terms: Terms,
}

/// A session.
#[derive(Clone, Debug)]
pub struct SessionRecord {
    /// Its id.
    pub id: SessionId,
    /// The stream.
    pub stream_id: StreamId,
    /// Time of the first media.
    pub started_at: UnixMillis,
    /// When it was last known alive.
    pub heartbeat_at: UnixMillis,
    /// When it ended.
    pub ended_at: Option<UnixMillis>,
    /// Why it ended.
    pub end_reason: Option<EndReason>,
}

/// What a transfer is for; the house account on its other side follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferKind {
    /// Credit given to a new account, from the promotion account.
    Promotion,
    /// Credit the operator sold, from the prepaid account.
    Prepaid,
    /// Credit that somebody bought with a Lightning invoice, from the lightning account.
    TopUp,
    /// The same, bought by the connected wallet.
    Refill,
}

impl TransferKind {
    /// The name in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            TransferKind::Promotion => "promotion",
            TransferKind::Prepaid => "prepaid",
            TransferKind::TopUp => "topup",
            TransferKind::Refill => "refill",
        }
    }
}

/// One posting between a house account and a customer's account.
#[derive(Clone, Debug)]
pub struct Transfer {
    /// The customer.
    pub account_id: AccountId,
    /// What it is for.
    pub kind: TransferKind,
    /// Millisats, above zero.
    pub amount: Msat,
    /// Unique for ever: posting the same name again changes nothing.
    pub idem: String,
    /// When.
    pub now: UnixMillis,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_survive_their_text_and_unknown_ones_are_refused() {
        for scopes in [Scopes::ALL, Scopes::NONE, Scopes { manage: false, ..Scopes::ALL }] {
            assert_eq!(Scopes::parse(&scopes.to_text()), Some(scopes));
        }
        assert_eq!(Scopes::parse("read,admin"), None);
    }

    #[test]
    fn destination_configs_are_not_printed() {
        let new = NewDestination {
            kind: "rtmp".into(),
            platform: "rtmp".into(),
            config: serde_json::json!({"key": "hunter2"}),
            has_playback: false,
            delays: Delays::default(),
        };
        assert!(!format!("{new:?}").contains("hunter2"));
    }
}
