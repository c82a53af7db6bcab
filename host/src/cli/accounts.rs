//! `satcast account` and `satcast key`.

use std::io::{self, Read as _};

use super::{CliError, open_store, print};
use crate::first_link::end_first_link;
use satcast_core::clock::Clock;
use satcast_core::config::Config;
use satcast_core::ids::{DestinationId, Sats};
use satcast_core::secret::{KeyKind, Redacted, new_api_key, new_uid};
use satcast_store::{AccountRecord, Actor, Caps, NewAccount, NewKey, Origin, Scopes, Store, StoreError};
use satcast_web::auth::link::{link_address, new_link};
use satcast_web::auth::password::{self, PASSWORD_BYTES_MAX};
use satcast_web::auth::{NAME_CHARS_MAX, account_name};

pub(super) async fn create(
    config: &Config,
    name: &str,
    password: Option<Redacted<String>>,
    operator: bool,
) -> Result<(), CliError> {
    let name = checked_name(name)?;
    let password_hash = match password {
        Some(password) => {
            let hashing = tokio::task::spawn_blocking(move || password::hash(&password));
            let hash = hashing.await.map_err(|error| CliError::Failed(error.to_string()))?;
            Some(hash.map_err(|error| CliError::Usage(error.to_string()))?)
        }
        None => None,
    };
    let store = open_store(config).await?;
    let account = NewAccount { name, password_hash, operator, initial_credit: config.initial_credit() };
    let id = store.create_account(&Origin::command(Clock::system().now()), account).await;
    let ended = if operator && id.is_ok() { end_first_link(&store, config).await } else { Ok(()) };
    store.close().await;
    print(&format!("{}\n", id?))?;
    ended.map_err(|error| CliError::Failed(error.to_string()))
}

pub(super) async fn credit(config: &Config, name: &str, sats: i64) -> Result<(), CliError> {
    let store = open_store(config).await?;
    let account = account(&store, name).await?;
    let actor = Actor::command(account.id, Clock::system().now());
    let posted = store.credit(&actor, Sats(sats), format!("prepaid:{}", new_uid())).await;
    let balance = store.balance(account.id).await;
    store.close().await;
    match posted {
        Err(error @ StoreError::Amount(_)) => return Err(CliError::Usage(error.to_string())),
        other => other?,
    }
    print(&format!("balance {} sats\n", balance?.to_sats_floor()))
}

pub(super) async fn create_key(
    config: &Config,
    name: &str,
    kind: KeyKind,
    destination: Option<i64>,
    label: &str,
) -> Result<(), CliError> {
    match (kind, destination) {
        (KeyKind::Public, None) => {
            let text = "a public key belongs to one destination; name it with --destination ID";
            return Err(CliError::Usage(text.to_owned()));
        }
        (KeyKind::Permanent, Some(_)) => {
            let text = "a permanent key belongs to the whole account; leave --destination out";
            return Err(CliError::Usage(text.to_owned()));
        }
        _ => {}
    }
    if label.chars().count() > NAME_CHARS_MAX || label.chars().any(char::is_control) {
        return Err(CliError::Usage(format!(
            "the label must have at most {NAME_CHARS_MAX} printable characters"
        )));
    }
    let store = open_store(config).await?;
    let account = account(&store, name).await?;
    let key = new_api_key(kind);
    let limits = &config.limits;
    let new = NewKey {
        login: None,
        kind,
        key: key.clone(),
        scopes: if kind == KeyKind::Permanent { Scopes::ALL } else { Scopes::NONE },
        destination_id: destination.map(DestinationId),
        label: label.to_owned(),
        caps: Caps {
            destinations_per_stream: limits.destinations_per_stream,
            streams_per_account: limits.streams_per_account,
            keys_per_account: limits.keys_per_account,
        },
    };
    let actor = Actor::command(account.id, Clock::system().now());
    let made = store.create_key(&actor, new).await;
    store.close().await;
    made?;
    // The one place where a permanent key is shown: its owner asked for it, on standard output, alone.
    print(&format!("{}\n", key.expose()))
}

async fn account(store: &Store, name: &str) -> Result<AccountRecord, CliError> {
    let account = store.account_by_name(name.trim()).await?;
    account.ok_or_else(|| {
        CliError::Failed(format!("there is no account \"{name}\"; make it with: satcast account create"))
    })
}

fn checked_name(name: &str) -> Result<String, CliError> {
    match account_name(name) {
        Some(name) => Ok(name.to_owned()),
        None => {
            let text = format!("the account name must have 1 to {NAME_CHARS_MAX} printable characters");
            Err(CliError::Usage(text))
        }
    }
}

/// Prints a link by which one account can be made, once and within a day.
pub(super) async fn invite(config: &Config, operator: bool) -> Result<(), CliError> {
    let store = open_store(config).await?;
    let origin = Origin::command(Clock::system().now());
    let (token, link) = new_link(origin.now);
    let made = store.create_invite(&origin, &link.token_hash, operator, link.expires_at).await;
    store.close().await;
    made?;
    print(&format!("{}\n", link_address(config.public_base(), None, token.expose())))
}

/// Reads a password from standard input, without the line end.
pub(super) fn read_password() -> Result<Redacted<String>, CliError> {
    read_password_from(io::stdin().lock())
}

pub(super) fn read_password_from(input: impl io::Read) -> Result<Redacted<String>, CliError> {
    let mut text = String::new();
    // One byte more than allowed, and the line end, so that a longer password is refused and not cut.
    let max = PASSWORD_BYTES_MAX as u64 + 3;
    input.take(max).read_to_string(&mut text)?;
    let end = text.trim_end_matches(['\r', '\n']).len();
    text.truncate(end);
    Ok(Redacted::new(text))
}
