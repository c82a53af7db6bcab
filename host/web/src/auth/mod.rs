//! Authentication: the key of a request, its rate limits, and passwords.
//!
//! Only the first non-empty of `X-API-Key`, `Authorization: Bearer`, `apiKey` and `key` is used. `api` checks the checksum of the
//! key and looks the key up in the database. Without a key, the session cookie is used.

mod guesses;
pub mod link;
pub mod password;
pub mod uses;

pub use guesses::{DELAY_MAX, Guesses};

use poem::Request;
use poem::http::header::{AUTHORIZATION, COOKIE};

use satcast_core::rate::RateRule;
use satcast_core::secret::{KEY_TEXT_MAX_BYTES, Redacted};

/// Management requests that read, per key.
pub const RATE_READS: RateRule = RateRule::per_minute("reads", 300);
/// Management requests that write, per key.
pub const RATE_WRITES: RateRule = RateRule::per_minute("writes", 60);
/// Requests for `/api/public/stream/status`, per key.
pub const RATE_STATUS: RateRule = RateRule::per_minute("status", 60);
/// Requests for `/api/public/streams/active/cost`, per key or login session.
pub const RATE_COST: RateRule = RateRule::per_minute("cost", 60);
/// Requests with an invalid key, per address.
pub const RATE_INVALID_KEYS: RateRule = RateRule::per_minute("invalid-keys", 60);

/// Attempts to log in and to create accounts, per address.
pub const RATE_LOGINS: RateRule = RateRule::per_minute("login", 20);
/// Tests of webhooks, per key.
pub const RATE_WEBHOOK_TESTS: RateRule = RateRule::per_minute("webhook-tests", 10);
/// Requests for `/api/public/config`, per address.
pub const RATE_CONFIG: RateRule = RateRule::per_minute("config", 60);
/// Requests for `/api/archives/recover-pay`, per key or login session.
pub const RATE_RECOVERIES: RateRule = RateRule::per_minute("recover", 10);
/// Requests for `/api/wallet/topup`, per account.
pub const RATE_TOPUPS: RateRule = RateRule::per_minute("topups", 10);
/// Wallet connections, per account.
pub const RATE_CONNECTIONS: RateRule = RateRule::per_minute("connections", 10);
/// API keys created and replaced, per account.
pub const RATE_NEW_KEYS: RateRule = RateRule::per_minute("new-keys", 300);

/// Name of the session cookie.
pub const LOGIN_COOKIE: &str = "satcast_session";
/// Longest account name in characters.
pub const NAME_CHARS_MAX: usize = 128;

/// Header that carries a key.
pub(crate) const API_KEY_HEADER: &str = "x-api-key";
/// Query parameters that carry a key, in order of precedence.
const API_KEY_PARAMETERS: [&str; 2] = ["apiKey", "key"];

/// The key of a request; an unreadable header counts as an invalid key.
pub fn presented_key(request: &Request) -> Option<Redacted<String>> {
    let header = |name: &str| {
        let value = request.headers().get(name)?;
        Some(value.to_str().unwrap_or("unreadable").trim().to_owned())
    };
    let bearer = || {
        let value = header(AUTHORIZATION.as_str())?;
        let (scheme, token) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim().to_owned())
    };
    let parameter = |name: &str| {
        let query = request.uri().query()?;
        let mut pairs = url::form_urlencoded::parse(query.as_bytes());
        pairs.find(|(key, value)| key == name && !value.is_empty()).map(|(_, value)| value.into_owned())
    };
    let not_empty = |key: &String| !key.is_empty();
    header(API_KEY_HEADER)
        .filter(not_empty)
        .or_else(|| bearer().filter(not_empty))
        .or_else(|| API_KEY_PARAMETERS.iter().find_map(|name| parameter(name)))
        .map(|mut key| {
            if key.len() > KEY_TEXT_MAX_BYTES {
                key.clear();
            }
            Redacted::new(key)
        })
}

/// The token in the session cookie.
pub fn login_cookie(request: &Request) -> Option<Redacted<String>> {
    let lines = request.headers().get_all(COOKIE).iter().filter_map(|line| line.to_str().ok());
    let mut pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let (_, token) = pairs.find(|(name, _)| *name == LOGIN_COOKIE)?;
    (!token.is_empty() && token.len() <= KEY_TEXT_MAX_BYTES).then(|| Redacted::new(token.to_owned()))
}

/// The trimmed account name; `None` if the name is not valid.
pub fn account_name(name: &str) -> Option<&str> {
    let name = name.trim();
    let fits = (1..=NAME_CHARS_MAX).contains(&name.chars().count());
    (fits && !name.chars().any(char::is_control)).then_some(name)
}

/// Whether the key may have come in a header instead of the URL.
pub fn presents_header(request: &Request) -> bool {
    request.headers().contains_key(API_KEY_HEADER) || request.headers().contains_key(AUTHORIZATION)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key_of(uri: &str, headers: &[(&str, &str)]) -> Option<String> {
        let mut request = Request::builder().uri_str(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        presented_key(&request.finish()).map(Redacted::into_inner)
    }

    #[test]
    fn the_first_non_empty_form_wins() {
        let all = [("X-API-Key", "a"), ("Authorization", "Bearer b")];
        assert_eq!(key_of("/?apiKey=c&key=d", &all).as_deref(), Some("a"));
        assert_eq!(key_of("/?apiKey=c&key=d", &[("X-API-Key", " "), all[1]]).as_deref(), Some("b"));
        assert_eq!(key_of("/?key=d&apiKey=c", &[("Authorization", "bearer ")]).as_deref(), Some("c"));
        assert_eq!(key_of("/?apiKey=&key=d%2B", &[("Authorization", "Basic eA==")]).as_deref(), Some("d+"));
        assert_eq!(key_of("/?apiKey=&other=1", &[]), None);
        assert_eq!(key_of("/", &[]), None);
    }

    #[test]
    fn oversized_and_unreadable_keys_are_present_but_never_valid() {
        let long = "k".repeat(KEY_TEXT_MAX_BYTES + 1);
        assert_eq!(key_of("/?key=good", &[("X-API-Key", &long)]).as_deref(), Some(""));
        let mut request = Request::builder().uri_str("/?key=good").finish();
        let latin1 = poem::http::HeaderValue::from_bytes(b"sk_\xe4").unwrap();
        request.headers_mut().insert(API_KEY_HEADER, latin1);
        assert_eq!(presented_key(&request).map(Redacted::into_inner).as_deref(), Some("unreadable"));
    }

    #[test]
    fn the_cookie_is_found_among_others() {
        let cookie = |line: &str| {
            let request = Request::builder().header("Cookie", line).finish();
            login_cookie(&request).map(Redacted::into_inner)
        };
        assert_eq!(cookie("a=b; satcast_session=st_x; c=d").as_deref(), Some("st_x"));
        assert_eq!(cookie("satcast_session="), None);
        assert_eq!(cookie("xsatcast_session=st_x"), None);
        assert_eq!(cookie(&format!("satcast_session={}", "x".repeat(KEY_TEXT_MAX_BYTES + 1))), None);
    }

    #[test]
    fn names_are_trimmed_and_bounded() {
        assert_eq!(account_name("  me "), Some("me"));
        for bad in ["", "  ", "a\nb", &"n".repeat(NAME_CHARS_MAX + 1)] {
            assert_eq!(account_name(bad), None, "{bad:?}");
        }
    }
}
