//! One-time links: with one a person makes an account, or sets the password of an existing account.

use url::form_urlencoded;

use satcast_core::ids::UnixMillis;
use satcast_core::secret::{Redacted, key_hash, new_invite_token};
use satcast_store::NewLink;

/// How long a link can be used, in milliseconds.
const LINK_LIFE_MS: i64 = 24 * 60 * 60 * 1_000;
/// Query parameter with the name of the account that the link belongs to.
const ACCOUNT_PARAMETER: &str = "account";

/// The token of a new link, and the stored form of the link.
pub fn new_link(now: UnixMillis) -> (Redacted<String>, NewLink) {
    let token = new_invite_token();
    let expires_at = UnixMillis(now.0.saturating_add(LINK_LIFE_MS));
    let link = NewLink { token_hash: key_hash(token.expose()), expires_at };
    (token, link)
}

/// The address of the link. `base` is the address of the service; `account` is the name of the account whose password the link
/// sets, `None` for a link that makes an account.
pub fn link_address(base: &str, account: Option<&str>, token: &str) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    let query = account.map(|name| format!("?{}", query.append_pair(ACCOUNT_PARAMETER, name).finish()));
    // Behind the `#`, so that neither servers nor logs see the token.
    format!("{base}/setup{}#{token}", query.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_the_account_and_hides_the_token_from_servers() {
        assert_eq!(link_address("https://a.example", None, "inv_x"), "https://a.example/setup#inv_x");
        let named = link_address("https://a.example", Some("ann & b#"), "inv_x");
        assert_eq!(named, "https://a.example/setup?account=ann+%26+b%23#inv_x");
    }

    #[test]
    fn a_link_lives_for_a_day() {
        let (token, link) = new_link(UnixMillis(1_000));
        assert_eq!((link.token_hash, link.expires_at.0), (key_hash(token.expose()), 86_401_000));
    }
}
