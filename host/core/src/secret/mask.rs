//! Masks of secrets: enough to recognise a secret, too little to use it.

use url::Url;

/// Shorter keys are hidden completely.
const KEY_SHOWN_CHARS_MIN: usize = 12;
/// Characters shown at each end of a key.
const KEY_SHOWN_CHARS_EACH_END: usize = 3;
/// Mask of a hidden key.
const HIDDEN: &str = "***";

/// The first and last three characters of a key with `...` between, or `***` under 12 characters.
pub fn mask_key(key: &str) -> String {
    let chars: Vec<char> = key.chars().collect();
    if chars.len() < KEY_SHOWN_CHARS_MIN {
        return HIDDEN.to_owned();
    }
    let head: String = chars[..KEY_SHOWN_CHARS_EACH_END].iter().collect();
    let tail: String = chars[chars.len() - KEY_SHOWN_CHARS_EACH_END..].iter().collect();
    format!("{head}...{tail}")
}

/// Whether a text has the form of a result of [`mask_key`].
pub fn is_masked_key(text: &str) -> bool {
    let hidden = text
        .char_indices()
        .nth(KEY_SHOWN_CHARS_EACH_END)
        .and_then(|(at, _)| text[at..].strip_prefix("..."))
        .is_some_and(|tail| tail.chars().count() == KEY_SHOWN_CHARS_EACH_END);
    text == HIDDEN || hidden
}

/// A target address as it may be shown: scheme, host, port and the first path part (the RTMP app) are kept,
/// everything after it is masked as a key, user info and query are dropped.
///
/// Text without a host becomes `***`, because any part of it may be secret.
pub fn mask_url(address: &str) -> String {
    let Ok(url) = Url::parse(address) else { return HIDDEN.to_owned() };
    let Some(host) = url.host_str() else { return HIDDEN.to_owned() };
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    let mut shown = format!("{}://{host}{port}", url.scheme());
    let path = url.path().trim_matches('/');
    if path.is_empty() {
        return shown;
    }
    let (app, rest) = path.split_once('/').unwrap_or((path, ""));
    shown.push('/');
    shown.push_str(app);
    if !rest.is_empty() {
        shown.push('/');
        shown.push_str(&mask_key(rest));
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_show_three_characters_at_each_end_or_nothing() {
        assert_eq!(mask_key("live_abcdefgh"), "liv...fgh");
        assert_eq!(mask_key("abcdefghijkl"), "abc...jkl");
        assert_eq!(mask_key("abcdefghijk"), "***");
        assert_eq!(mask_key(""), "***");
        assert_eq!(mask_key("äöüäöüäöüäöü"), "äöü...äöü");
        for masked in ["liv...fgh", "***", "äöü...äöü"] {
            assert!(is_masked_key(masked), "{masked}");
        }
        for whole in ["", "liv..fgh", "live...fgh", "liv...fghi", "a", "äöü..."] {
            assert!(!is_masked_key(whole), "{whole}");
        }
    }

    #[test]
    fn masked_addresses_keep_host_and_app_only() {
        for (address, shown) in [
            ("rtmp://a.example/live", "rtmp://a.example/live"),
            ("rtmp://a.example:1936/live/", "rtmp://a.example:1936/live"),
            ("rtmp://a.example/live/live_0123456789abc", "rtmp://a.example/live/liv...abc"),
            ("rtmps://u:p@a.example/app/k?token=1#x", "rtmps://a.example/app/***"),
            ("rtmp://[2001:db8::1]:1935/a", "rtmp://[2001:db8::1]:1935/a"),
            ("rtmp://a.example", "rtmp://a.example"),
            ("sk_live_something", "***"),
            ("data:text,secret", "***"),
            ("", "***"),
        ] {
            assert_eq!(mask_url(address), shown, "{address}");
        }
    }
}
