use super::*;

/// url, key; host, port, app, tcUrl, publish name
type Good =
    ((&'static str, Option<&'static str>), (&'static str, u16, &'static str, &'static str, &'static str));

const GOOD: &[Good] = &[
    (("rtmp://a.example/live/k1", None), ("a.example", 1935, "live", "rtmp://a.example/live", "k1")),
    (
        ("RTMP://A.example:1936/live/k1", None),
        ("A.example", 1936, "live", "rtmp://A.example:1936/live", "k1"),
    ),
    (
        ("rtmp://a.example/app/inst/k1", None),
        ("a.example", 1935, "app/inst", "rtmp://a.example/app/inst", "k1"),
    ),
    (
        ("rtmp://a.example/live/k1?token=a%20b&x=/1?", None),
        ("a.example", 1935, "live", "rtmp://a.example/live", "k1?token=a%20b&x=/1?"),
    ),
    (
        ("rtmp://a.example/live", Some("k1?a=1&b=2/#")),
        ("a.example", 1935, "live", "rtmp://a.example/live", "k1?a=1&b=2/#"),
    ),
    (
        ("rtmp://a.example/live/", Some("my key")),
        ("a.example", 1935, "live", "rtmp://a.example/live", "my key"),
    ),
    (
        ("rtmp://a.example/app/inst", Some("k")),
        ("a.example", 1935, "app/inst", "rtmp://a.example/app/inst", "k"),
    ),
    (
        ("rtmp://a.example/live?token=1", Some("k")),
        ("a.example", 1935, "live?token=1", "rtmp://a.example/live?token=1", "k"),
    ),
    (("rtmp://a.example/live/k1", Some("")), ("a.example", 1935, "live", "rtmp://a.example/live", "k1")),
    (("rtmp://a.example//live//k1", None), ("a.example", 1935, "live", "rtmp://a.example/live", "k1")),
    (("rtmp://a.example/live/k1/", None), ("a.example", 1935, "live", "rtmp://a.example/live", "k1")),
    (
        ("rtmp://a.example/app/inst/k1//?x=/1", None),
        ("a.example", 1935, "app/inst", "rtmp://a.example/app/inst", "k1?x=/1"),
    ),
    (("rtmp://u:p@ss@a.example/live/k", None), ("a.example", 1935, "live", "rtmp://a.example/live", "k")),
    (("rtmp://u@127.0.0.1:1/live/k", None), ("127.0.0.1", 1, "live", "rtmp://127.0.0.1:1/live", "k")),
    (("rtmp://[2001:db8::1]/live/k", None), ("2001:db8::1", 1935, "live", "rtmp://[2001:db8::1]/live", "k")),
    (("rtmps://a.example/live/k", None), ("a.example", 443, "live", "rtmps://a.example/live", "k")),
    (
        ("RTMPS://[2001:db8::1]:1936/live", Some("k?a=1&b=2")),
        ("2001:db8::1", 1936, "live", "rtmps://[2001:db8::1]:1936/live", "k?a=1&b=2"),
    ),
    (("rtmp://[::1]:65535/live/k", None), ("::1", 65535, "live", "rtmp://[::1]:65535/live", "k")),
    (("rtmp://my_host/live/k@home:x", None), ("my_host", 1935, "live", "rtmp://my_host/live", "k@home:x")),
];

/// An app without a stream key: url, app.
const APP_ALONE: &[(&str, &str)] = &[
    ("rtmp://a.example/live", "live"),
    ("rtmp://a.example/live/", "live"),
    ("rtmp://a.example/live/?x=1", "live?x=1"),
    ("rtmp://a.example/live?k=/x", "live?k=/x"),
];

#[test]
fn an_app_alone_has_an_empty_name() {
    for (url, app) in APP_ALONE {
        let target = Target::parse(url, None).unwrap_or_else(|error| panic!("{url}: {error}"));
        assert_eq!((target.app(), target.publish_name()), (*app, ""), "{url}");
    }
}

#[test]
fn every_good_form() {
    for ((url, key), (host, port, app, tc_url, name)) in GOOD {
        let target = Target::parse(url, *key).unwrap_or_else(|error| panic!("{url} {key:?}: {error}"));
        let got = (target.host(), target.port(), target.app(), target.tc_url(), target.publish_name());
        assert_eq!(target.is_tls(), tc_url.starts_with("rtmps:"), "{url}");
        assert_eq!(got, (*host, *port, *app, *tc_url, *name), "{url} {key:?}");
    }
}

#[test]
fn every_refusal() {
    use TargetError::{App, BadCharacter, Fragment, Host, Ipv6, Login, Port, Scheme};
    let long_host = format!("rtmp://{}/live/k", "a".repeat(HOST_BYTES_MAX + 1));
    for (url, key, error) in [
        ("", None, Scheme),
        ("a.example/live/k", None, Scheme),
        ("http://a.example/live/k", None, Scheme),
        ("rtmpt://a.example/live/k", None, Scheme),
        ("rtmpts://a.example/live/k", None, Scheme),
        ("RTMPS://", None, Host),
        ("rtmp://a.example/live/k#x", None, Fragment),
        ("rtmp:///live/k", None, Host),
        ("rtmp://u:p@/live/k", None, Host),
        ("rtmp://:1935/live/k", None, Host),
        ("rtmp://exämple/live/k", None, Host),
        ("rtmp://a%2eb/live/k", None, Host),
        (&long_host, None, Host),
        ("rtmp://2001:db8::1/live/k", None, Ipv6),
        ("rtmp://[2001:db8::1/live/k", None, Ipv6),
        ("rtmp://[a.example]/live/k", None, Ipv6),
        ("rtmp://[fe80::1%eth0]/live/k", None, Ipv6),
        ("rtmp://[::1]1935/live/k", None, Port),
        ("rtmp://a.example:/live/k", None, Port),
        ("rtmp://a.example:0/live/k", None, Port),
        ("rtmp://a.example:+80/live/k", None, Port),
        ("rtmp://a.example:65536/live/k", None, Port),
        ("rtmp://a.example:x/live/k", None, Port),
        ("rtmp://u:pa/ss@a.example/live/k", None, Login),
        ("rtmp://u:pa?ss@a.example/live/k", None, Login),
        ("rtmp://u:p@a.example:x/live/k@", None, Port),
        ("rtmp://a.example", None, App),
        ("rtmp://a.example/", Some("k"), App),
        ("rtmp://a.example//", None, App),
        ("rtmp://a.example?x=1", Some("k"), App),
        ("rtmp://a.example/?x=1", None, App),
        (" rtmp://a.example/live/k", None, BadCharacter("url")),
        ("rtmp://a.example/li ve/k", None, BadCharacter("url")),
        ("rtmp://a.example/live/k\n", None, BadCharacter("url")),
        ("rtmp://a.example/live/k\u{7f}", None, BadCharacter("url")),
        ("rtmp://a.example/live", Some("k\0"), BadCharacter("key")),
        ("rtmp://a.example/live", Some("k "), BadCharacter("key")),
    ] {
        assert_eq!(Target::parse(url, key), Err(error), "{url:?} {key:?}");
    }
}

#[test]
fn invisible_characters_are_refused_and_foreign_scripts_are_not() {
    for character in [
        '\u{85}',
        '\u{ad}',
        '\u{61c}',
        '\u{200b}',
        '\u{200d}',
        '\u{200e}',
        '\u{2028}',
        '\u{2029}',
        '\u{202a}',
        '\u{202e}',
        '\u{2060}',
        '\u{2066}',
        '\u{2069}',
        '\u{fe0f}',
        '\u{feff}',
        '\u{e0001}',
        '\u{e0041}',
    ] {
        let (key, url) = (format!("a{character}b"), format!("rtmp://a.example/live/a{character}b"));
        let refused = Target::parse("rtmp://a.example/live", Some(&key));
        assert_eq!(refused, Err(TargetError::BadCharacter("key")), "{character:?}");
        assert_eq!(Target::parse(&url, None), Err(TargetError::BadCharacter("url")), "{character:?}");
    }
    for key in ["schlüssel", "ключ", "鍵", "مفتاح", "k€y", "🔑"] {
        let target = Target::parse("rtmp://a.example/live", Some(key));
        assert_eq!(target.unwrap().publish_name(), key);
    }
}

#[test]
fn length_limits() {
    let fit = |bytes: usize| format!("rtmp://a.example/live/{}", "k".repeat(bytes - 22));
    assert!(Target::parse(&fit(TEXT_BYTES_MAX), None).is_ok());
    assert_eq!(Target::parse(&fit(TEXT_BYTES_MAX + 1), None), Err(TargetError::TooLong("url")));
    let key = "k".repeat(TEXT_BYTES_MAX);
    assert!(Target::parse("rtmp://a/b", Some(&key)).is_ok());
    let key = "k".repeat(TEXT_BYTES_MAX + 1);
    assert_eq!(Target::parse("rtmp://a/b", Some(&key)), Err(TargetError::TooLong("key")));
}

#[test]
fn nothing_shown_is_secret() {
    let target = Target::parse("rtmp://user:hunter2@[::1]:99/app/sesame?token=open", None).unwrap();
    let shown = format!("{target:?} {target}");
    for secret in ["sesame", "open", "hunter2", "user", "app"] {
        assert!(!shown.contains(secret), "{shown}");
    }
    assert_eq!(target.to_string(), "[::1]:99");
    let secrets: Vec<_> = target.secrets().collect();
    assert_eq!(secrets, ["sesame?token=open", "sesame", "token=open", "user:hunter2", "hunter2"]);
    let target = Target::parse("rtmp://a.example/app/inst//sesame/?token=open", Some("key")).unwrap();
    let secrets: Vec<_> = target.secrets().collect();
    assert_eq!(secrets, ["key", "key", "token=open", "inst", "sesame"]);
}

#[test]
fn broken_escapes_stay() {
    assert_eq!(unescape("a%20b%2Fc%zz%4"), "a b/c%zz%4");
    assert_eq!(unescape("%ff"), "\u{fffd}");
}

#[test]
fn refusals_texts() {
    for (error, text) in [
        (TargetError::TooLong("key"), "key: longer than 2048 bytes; check that only the address was pasted"),
        (
            TargetError::BadCharacter("key"),
            "key: has a space, line break, control or invisible character; remove it",
        ),
        (TargetError::Scheme, "url: must begin with rtmp:// or rtmps://"),
        (TargetError::Fragment, "url: a # is not allowed; give a stream key that has one in key"),
        (TargetError::Host, "url: has no valid host name or address after ://"),
        (TargetError::Ipv6, "url: an IPv6 address needs brackets, as in rtmp://[2001:db8::1]/app"),
        (TargetError::Port, "url: the port must be a number from 1 to 65535"),
        (
            TargetError::Login,
            "url: the login before @ has a character that ends an address; write / as %2F, ? as %3F",
        ),
        (
            TargetError::App,
            "url: has no app; give rtmp://host/app/key, or rtmp://host/app and the stream key in key",
        ),
    ] {
        assert_eq!(error.to_string(), text);
    }
}
