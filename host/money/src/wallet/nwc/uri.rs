//! The connection text of a wallet: `nostr+walletconnect://<wallet's key>?relay=<url>&secret=<our key>`.

use std::fmt;

use nostr::key::{Keys, PublicKey, SecretKey};
use url::form_urlencoded;

use crate::wallet::address::HttpAddress;
use crate::wallet::refusal::{ConnectionFault, RELAYS_MAX};
use satcast_net::outbound::Guard;

/// Hexadecimal digits of a key.
const KEY_DIGITS: usize = 64;
/// Prefix of a URI; some wallets leave the slashes out.
const PREFIXES: [&str; 2] = ["nostr+walletconnect://", "nostr+walletconnect:"];

/// A parsed URI. Never printed: it can spend.
#[derive(Clone)]
pub(crate) struct Uri {
    wallet: PublicKey,
    relays: Vec<HttpAddress>,
    keys: Keys,
}

impl fmt::Debug for Uri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Uri").field("relays", &self.relays).finish_non_exhaustive()
    }
}

impl Uri {
    /// Parses a URI; unknown parameters are ignored.
    pub(crate) fn parse(text: &str) -> Result<Self, ConnectionFault> {
        if text.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err(ConnectionFault::NotNwc);
        }
        let rest = PREFIXES.into_iter().find_map(|prefix| text.strip_prefix(prefix));
        let (wallet, query) = rest.and_then(|rest| rest.split_once('?')).ok_or(ConnectionFault::NotNwc)?;
        let wallet = wallet.trim_end_matches('/');
        let (mut relays, mut secret) = (Vec::new(), None);
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            match name.as_ref() {
                "relay" if relays.len() == RELAYS_MAX => return Err(ConnectionFault::NwcRelays),
                "relay" => relays.push(HttpAddress::parse_relay(&value)?),
                "secret" => secret = Some(value),
                _ => {}
            }
        }
        if relays.is_empty() {
            return Err(ConnectionFault::NwcRelays);
        }
        let secret = secret.filter(|text| is_key(text)).ok_or(ConnectionFault::NwcKeys)?;
        let secret = SecretKey::from_hex(&secret).map_err(|_| ConnectionFault::NwcKeys)?;
        let wallet = Some(wallet).filter(|text| is_key(text)).ok_or(ConnectionFault::NwcKeys)?;
        let wallet = PublicKey::from_hex(wallet).map_err(|_| ConnectionFault::NwcKeys)?;
        // The bytes of a key that is not on the curve are accepted too.
        wallet.xonly().map_err(|_| ConnectionFault::NwcKeys)?;
        Ok(Self { wallet, relays, keys: Keys::new(secret) })
    }

    /// Whether every relay may be connected to, as far as this can be decided without a name lookup.
    pub(crate) fn check(&self, guard: &Guard) -> Result<(), ConnectionFault> {
        self.relays.iter().try_for_each(|relay| relay.check(guard))
    }

    /// The wallet's public key.
    pub(crate) fn wallet(&self) -> &PublicKey {
        &self.wallet
    }

    /// Our secret key.
    pub(crate) fn keys(&self) -> &Keys {
        &self.keys
    }

    /// The relays in the order of the URI.
    pub(crate) fn relays(&self) -> &[HttpAddress] {
        &self.relays
    }
}

fn is_key(text: &str) -> bool {
    text.len() == KEY_DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}
