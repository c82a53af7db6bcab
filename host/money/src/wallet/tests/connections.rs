//! Connections that are accepted, and their display form.

use super::super::connection::{Connection, ConnectionFault, SECRET_BYTES_MAX, URL_BYTES_MAX};
use super::guard;
use crate::wallet::RELAYS_MAX;
use satcast_core::ids::WalletKind;
use satcast_core::secret::Redacted;
use satcast_net::outbound::Guard;

/// The generator of the curve, which is a valid key.
const KEY: &str = "79be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798";
const SECRET: &str = "0000000000000000000000000000000000000000000000000000000000000003";

fn uri(relays: &[&str]) -> String {
    let relays: Vec<String> = relays.iter().map(|relay| format!("relay={relay}")).collect();
    format!("nostr+walletconnect://{KEY}?{}&secret={SECRET}", relays.join("&"))
}

fn refused(kind: WalletKind, url: &str, secret: &str) -> (&'static str, ConnectionFault) {
    let strict = Guard::new(&[]).unwrap();
    let error = Connection::checked(kind, url, secret, &strict).unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with(&format!("`{}` ", error.field)), "{text}");
    assert!(!text.contains("hunter2") && !text.contains(SECRET) && !text.contains(KEY), "{text}");
    (error.field, error.reason)
}

#[test]
fn servers_are_https_and_public_unless_the_operator_lists_them() {
    for kind in [WalletKind::Lnbits, WalletKind::Phoenixd] {
        for (url, shown) in [
            ("https://wallet.example.com", "https://wallet.example.com"),
            ("https://Wallet.Example.com.:8443/lnbits/", "https://wallet.example.com:8443/lnbits"),
            ("https://[2606:4700::1111]/", "https://[2606:4700::1111]"),
        ] {
            let connection = Connection::checked(kind, url, "hunter2", &Guard::new(&[]).unwrap()).unwrap();
            assert_eq!(connection.shown(), shown);
            assert!(!format!("{connection:?}").contains("hunter2"));
        }
        for (url, fault) in [
            ("", ConnectionFault::Malformed),
            ("wallet.example.com", ConnectionFault::Malformed),
            ("https://", ConnectionFault::Malformed),
            ("https://a b", ConnectionFault::Malformed),
            ("https://me:hunter2@example.com", ConnectionFault::UserInfo),
            ("https://example.com/?key=hunter2", ConnectionFault::Query),
            ("https://example.com/#hunter2", ConnectionFault::Query),
            ("http://example.com", ConnectionFault::NotHttps),
            ("http://127.0.0.1:9740", ConnectionFault::NotHttps),
            ("wss://example.com", ConnectionFault::NotHttps),
        ] {
            assert_eq!(refused(kind, url, "hunter2"), ("url", fault), "{url}");
        }
        for url in ["https://127.0.0.1", "https://localhost", "https://0x7f.1", "https://[::ffff:10.0.0.1]"] {
            let (field, fault) = refused(kind, url, "hunter2");
            assert!(field == "url" && matches!(fault, ConnectionFault::Refused(_)), "{url}");
        }
        assert!(Connection::checked(kind, "http://127.0.0.1:9740", "x", &guard()).is_ok());
        let url = format!("https://example.com/{}", "x".repeat(URL_BYTES_MAX - 20));
        assert!(Connection::checked(kind, &url, "x", &guard()).is_ok());
        assert_eq!(refused(kind, &format!("{url}x"), "x"), ("url", ConnectionFault::UrlTooLong));
    }
}

#[test]
fn keys_and_passwords_can_stand_in_a_header() {
    let url = "https://example.com";
    for (secret, fault) in [
        ("", ConnectionFault::NoSecret),
        ("hunter2 ", ConnectionFault::BadSecret),
        ("hunter2\r\nx: y", ConnectionFault::BadSecret),
        ("hünter", ConnectionFault::BadSecret),
        (&*"x".repeat(SECRET_BYTES_MAX + 1), ConnectionFault::SecretTooLong),
    ] {
        assert_eq!(refused(WalletKind::Lnbits, url, secret), ("secret", fault));
    }
    let longest = "x".repeat(SECRET_BYTES_MAX);
    assert!(Connection::checked(WalletKind::Lnbits, url, &longest, &guard()).is_ok());
}

#[test]
fn connection_texts_are_read_and_shown_without_their_secret() {
    let strict = Guard::new(&[]).unwrap();
    let text =
        format!("{}&lud16=me@example.com", uri(&["wss%3A%2F%2Fa.example%2Fv1", "wss://b.example:7777"]));
    let connection = Connection::checked(WalletKind::Nwc, &text, "", &strict).unwrap();
    assert_eq!(connection.shown(), "nostr+walletconnect://79b...798 via a.example, b.example:7777");
    let short = uri(&["wss://a.example"]).replace("://79", ":79");
    assert!(Connection::checked(WalletKind::Nwc, &short, "", &strict).is_ok());
    assert!(Connection::checked(WalletKind::Nwc, &uri(&["ws://127.0.0.1:4848"]), "", &guard()).is_ok());
    let unread = Connection {
        kind: WalletKind::Nwc,
        url: Redacted::new("hunter2".to_owned()),
        secret: Redacted::default(),
    };
    assert_eq!(unread.shown(), "***");
}

#[test]
fn broken_connection_texts_are_refused() {
    let good = uri(&["wss://a.example"]);
    let nwc = |text: &str| refused(WalletKind::Nwc, text, "");
    for (text, fault) in [
        (String::new(), ConnectionFault::NotNwc),
        ("https://example.com".to_owned(), ConnectionFault::NotNwc),
        (format!("nostr+walletconnect://{KEY}"), ConnectionFault::NotNwc),
        (good.replace("wss://a.example", "a.example"), ConnectionFault::NotNwc),
        (format!("{good} "), ConnectionFault::NotNwc),
        (good.replace(KEY, &KEY[1..]), ConnectionFault::NwcKeys),
        (good.replace(KEY, &"f".repeat(64)), ConnectionFault::NwcKeys),
        (good.replace(SECRET, &"0".repeat(64)), ConnectionFault::NwcKeys),
        (good.replace(SECRET, "hunter2"), ConnectionFault::NwcKeys),
        (good.replace("&secret", "&other"), ConnectionFault::NwcKeys),
        (uri(&[]), ConnectionFault::NwcRelays),
        (uri(&["ws://a.example"]), ConnectionFault::NotWss),
        (uri(&["https://a.example"]), ConnectionFault::NotWss),
        (uri(&["wss://me:hunter2@a.example"]), ConnectionFault::UserInfo),
        (uri(&["wss://a.example", "ws://b.example"]), ConnectionFault::NotWss),
    ] {
        assert_eq!(nwc(&text), ("url", fault), "{text}");
    }
    let (_, fault) = nwc(&uri(&["wss://a.example", "wss://10.0.0.1"]));
    assert!(matches!(fault, ConnectionFault::Refused(_)), "every relay is checked");
    let most = vec!["wss://a.example"; RELAYS_MAX];
    assert!(Connection::checked(WalletKind::Nwc, &uri(&most), "", &guard()).is_ok());
    let more = vec!["wss://a.example"; RELAYS_MAX + 1];
    assert_eq!(nwc(&uri(&more)), ("url", ConnectionFault::NwcRelays));
    assert_eq!(refused(WalletKind::Nwc, &good, "hunter2"), ("secret", ConnectionFault::SecretInUrl));
}

#[tokio::test]
async fn an_unreadable_connection_fails_at_every_call() {
    let wallets = crate::wallet::Wallets::new(guard(), satcast_core::clock::Clock::manual(super::NOW));
    for kind in WalletKind::ALL {
        let connection =
            Connection { kind, url: Redacted::new("hunter2".to_owned()), secret: Redacted::default() };
        let wallet = wallets.open(&connection);
        let error = wallet.balance().await.unwrap_err();
        assert!(error.certain && error.message.contains(kind.as_str()), "{error}");
        assert!(!error.message.contains("hunter2"), "{error}");
        assert_eq!(wallet.pay(&super::invoice(1_000)).await.unwrap_err(), error);
        assert_eq!(
            wallet.make_invoice(satcast_core::ids::Msat(10_000), "", super::EXPIRY).await.unwrap_err(),
            error
        );
        assert_eq!(wallet.lookup("00").await.unwrap_err(), error);
    }
}
