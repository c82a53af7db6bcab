//! The envelope of requests and answers: encryption to the wallet, tags, our signature.

use std::time::Duration;

use nostr::event::{Event, EventBuilder, FinalizeEvent as _, Kind, Tag};
use nostr::nips::{nip04, nip44};
use nostr::types::Timestamp;
use serde_json::Value;

use super::uri::Uri;
use satcast_core::ids::UnixMillis;

/// How long a wallet may treat a request as valid: a late request must not pay.
pub const REQUEST_LIFE: Duration = Duration::from_secs(60);

/// Encryption of requests and answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cipher {
    /// NIP-44, version 2.
    Nip44,
    /// NIP-04, which is older and has no authentication; the signatures of the events provide it.
    Nip04,
}

impl Cipher {
    /// The name in the tag `encryption`.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Nip44 => "nip44_v2",
            Self::Nip04 => "nip04",
        }
    }

    fn encrypt(self, uri: &Uri, text: &str) -> Result<String, nostr::error::Error> {
        let (secret, wallet) = (uri.keys().secret_key(), uri.wallet());
        match self {
            Self::Nip44 => nip44::encrypt(secret, wallet, text, nip44::Version::V2),
            Self::Nip04 => nip04::encrypt(secret, wallet, text),
        }
    }

    fn decrypt(self, uri: &Uri, text: &str) -> Result<String, nostr::error::Error> {
        let (secret, wallet) = (uri.keys().secret_key(), uri.wallet());
        match self {
            Self::Nip44 => nip44::decrypt(secret, wallet, text),
            Self::Nip04 => nip04::decrypt(secret, wallet, text),
        }
    }
}

/// The wallet's announcement (kind 13194).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Info {
    /// `None`: no cipher that we support.
    pub(super) cipher: Option<Cipher>,
    /// Whether payments can be looked up.
    pub(super) looks_up: bool,
}

/// Reads a wallet's announcement; `None` if it is from another author or was changed.
pub(super) fn info(uri: &Uri, event: &Value) -> Option<Info> {
    let event = verified(uri, event, Kind::WalletConnectInfo)?;
    let named = event.tags.iter().find(|tag| tag.kind() == "encryption");
    let cipher = match named {
        // Wallets that support only the older cipher do not name it.
        None => Some(Cipher::Nip04),
        Some(tag) => {
            let names: Vec<&str> =
                tag.as_slice().iter().skip(1).flat_map(|names| names.split([' ', ','])).collect();
            [Cipher::Nip44, Cipher::Nip04].into_iter().find(|cipher| names.contains(&cipher.as_str()))
        }
    };
    let looks_up = event.content.split_whitespace().any(|method| method == "lookup_invoice");
    Some(Info { cipher, looks_up })
}

/// A signed request; `None` when it cannot be encrypted.
pub(super) fn request(uri: &Uri, cipher: Cipher, body: &Value, now: UnixMillis) -> Option<Event> {
    let now = u64::try_from(now.to_secs_floor()).ok()?;
    let content = cipher.encrypt(uri, &body.to_string()).ok()?;
    EventBuilder::new(Kind::WalletConnectRequest, content)
        .tag(Tag::public_key(*uri.wallet()))
        .tag(Tag::custom("encryption", [cipher.as_str()]))
        .tag(Tag::expiration(Timestamp::from_secs(now.saturating_add(REQUEST_LIFE.as_secs()))))
        .custom_created_at(Timestamp::from_secs(now))
        .finalize(uri.keys())
        .ok()
}

/// The content of an answer. `None`: it is not from the wallet or not for this request. `Some(Null)`: it is, but cannot
/// be read.
pub(super) fn answer(uri: &Uri, cipher: Cipher, request: &Event, event: &Value) -> Option<Value> {
    let event = verified(uri, event, Kind::WalletConnectResponse)?;
    let id = request.id.to_hex();
    let ours = event.tags.iter().any(|tag| tag.kind() == "e" && tag.content() == Some(id.as_str()));
    ours.then(|| {
        let text = cipher.decrypt(uri, &event.content).ok();
        text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or(Value::Null)
    })
}

/// An event of the wallet, with its id and signature checked.
fn verified(uri: &Uri, event: &Value, kind: Kind) -> Option<Event> {
    let event = Event::from_json(event.to_string()).ok()?;
    (event.pubkey == *uri.wallet() && event.kind == kind && event.verify().is_ok()).then_some(event)
}
