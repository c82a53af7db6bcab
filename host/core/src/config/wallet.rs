//! `[wallet]`: the operator's wallet, which receives the payments for credit.

use serde::Deserialize;
use url::Url;

use super::check::{SATS_MAX, refuse};
use super::{BillingMode, Config, ConfigError, value};
use crate::ids::WalletKind;
use crate::secret::Redacted;

/// Shortest and longest time in seconds in which an invoice can be paid.
const EXPIRY_SECS: (u64, u64) = (60, 86_400);
/// Prefix of an NWC connection URI.
const NWC_SCHEME: &str = "nostr+walletconnect://";
/// The host of the example in the printed file.
const EXAMPLE_HOST: &str = "lnbits.example.com";

/// `[wallet]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wallet {
    /// Protocol of the wallet; `None` without a wallet.
    #[serde(rename = "type", default, deserialize_with = "value::plain_text")]
    pub kind: Option<String>,
    /// Address; for NWC the complete connection URI.
    #[serde(default, deserialize_with = "value::secret")]
    pub url: Option<Redacted<String>>,
    /// Key or password.
    #[serde(default, deserialize_with = "value::secret")]
    pub secret: Option<Redacted<String>>,
    /// Smallest top-up and refill in sats.
    pub topup_min_sats: i64,
    /// Largest top-up and refill in sats.
    pub topup_max_sats: i64,
    /// Highest daily refill limit that a customer can set, in sats.
    pub refill_daily_max_sats: i64,
    /// Lifetime of an invoice in seconds.
    pub invoice_expiry_secs: u64,
}

impl Wallet {
    pub fn is_set(&self) -> bool {
        self.kind.is_some()
    }

    /// Protocol, address and secret; `None` without a wallet.
    pub fn parts(&self) -> Option<(WalletKind, &str, &str)> {
        let kind = WalletKind::parse(self.kind.as_deref()?)?;
        Some((kind, text(&self.url), text(&self.secret)))
    }

    /// The hosts of the wallet. The operator configured them, so they need no entry in an allow list.
    pub fn hosts(&self) -> Vec<String> {
        let Some((kind, url, _)) = self.parts() else { return Vec::new() };
        let host =
            |url: &str| Url::parse(url).ok()?.host_str().map(|host| host.trim_matches(['[', ']']).to_owned());
        if kind != WalletKind::Nwc {
            return host(url).into_iter().collect();
        }
        let Ok(url) = Url::parse(url) else { return Vec::new() };
        url.query_pairs().filter(|(name, _)| name == "relay").filter_map(|(_, relay)| host(&relay)).collect()
    }
}

fn text(secret: &Option<Redacted<String>>) -> &str {
    secret.as_ref().map_or("", |secret| secret.expose().as_str())
}

pub(super) fn check(config: &Config) -> Result<(), ConfigError> {
    let wallet = &config.wallet;
    check_parts(config)?;
    for (name, value, min, max) in [
        ("wallet.topup_min_sats", wallet.topup_min_sats, 1, SATS_MAX),
        ("wallet.topup_max_sats", wallet.topup_max_sats, wallet.topup_min_sats, SATS_MAX),
        ("wallet.refill_daily_max_sats", wallet.refill_daily_max_sats, wallet.topup_min_sats, SATS_MAX),
    ] {
        if !(min..=max).contains(&value) {
            return refuse(format!("{name} is {value}; use {min} to {max}"));
        }
    }
    let (min, max) = EXPIRY_SECS;
    if !(min..=max).contains(&wallet.invoice_expiry_secs) {
        let expiry = wallet.invoice_expiry_secs;
        return refuse(format!("wallet.invoice_expiry_secs is {expiry}; use {min} to {max}"));
    }
    Ok(())
}

fn check_parts(config: &Config) -> Result<(), ConfigError> {
    let wallet = &config.wallet;
    let Some(kind) = &wallet.kind else {
        if wallet.url.is_some() || wallet.secret.is_some() {
            return refuse(
                "wallet.url or wallet.secret is set without wallet.type; set type to nwc, lnbits or phoenixd"
                    .to_owned(),
            );
        }
        if config.billing.mode == BillingMode::Wallet {
            return refuse("billing.mode is \"wallet\" but no receiving wallet is configured; set type, url and secret in [wallet], or use mode \"credit\"".to_owned());
        }
        return Ok(());
    };
    let Some((kind, url, secret)) = wallet.parts() else {
        return refuse(format!("wallet.type cannot be \"{kind}\"; use \"nwc\", \"lnbits\" or \"phoenixd\""));
    };
    if url.is_empty() {
        return refuse("wallet.type is set without wallet.url; set the wallet's address".to_owned());
    }
    match kind {
        WalletKind::Nwc if !url.starts_with(NWC_SCHEME) => {
            refuse(format!("wallet.url must be the complete connection URI, which begins with {NWC_SCHEME}"))
        }
        WalletKind::Nwc if !secret.is_empty() => refuse(
            "wallet.secret is set, but the text in wallet.url holds the secret; remove wallet.secret"
                .to_owned(),
        ),
        WalletKind::Lnbits | WalletKind::Phoenixd if secret.is_empty() => {
            refuse("wallet.url is set without wallet.secret; set the wallet's key or password".to_owned())
        }
        _ => Ok(()),
    }
}

/// Valid settings that are probably not intended.
pub(super) fn warnings(config: &Config, warnings: &mut Vec<String>) {
    let wallet = &config.wallet;
    if wallet.hosts().iter().any(|host| host == EXAMPLE_HOST) {
        warnings.push("wallet.url is the example address; set your wallet's address".to_owned());
    }
    if wallet.is_set() && config.billing.mode == BillingMode::Off {
        warnings.push("[wallet] is set, but billing.mode is \"off\", so nobody can buy credit".to_owned());
    }
}

#[cfg(test)]
mod tests {
    use crate::config::{Config, Flags};

    fn load(toml: &str) -> Result<Config, String> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("satcast.toml");
        std::fs::write(&file, toml).unwrap();
        Config::load(Some(&file), [], &Flags::default())
            .map(|loaded| loaded.config)
            .map_err(|error| error.to_string())
    }

    const LNBITS: &str = "[wallet]\ntype = \"lnbits\"\nurl = \"https://ln.example/x\"\nsecret = 123456\n";
    const NWC: &str = "[wallet]\ntype = \"nwc\"\nurl = \"nostr+walletconnect://ab?relay=wss%3A%2F%2Fone.example&relay=wss://[2001:db8::1]:7&secret=hunter2\"\n";

    #[test]
    fn a_wallet_is_complete_or_absent_and_errors_show_no_secret() {
        for (toml, part) in [
            ("[billing]\nmode = \"wallet\"", "set type, url and secret in [wallet]"),
            ("[wallet]\nsecret = \"hunter2\"", "without wallet.type"),
            ("[wallet]\nurl = \"hunter2\"", "without wallet.type"),
            ("[wallet]\ntype = \"lnd\"\nurl = \"hunter2\"", "cannot be \"lnd\""),
            ("[wallet]\ntype = \"lnbits\"\nsecret = \"hunter2\"", "without wallet.url"),
            ("[wallet]\ntype = \"lnbits\"\nurl = \"https://hunter2\"", "without wallet.secret"),
            ("[wallet]\ntype = \"nwc\"\nurl = \"https://hunter2\"", "begins with nostr+walletconnect://"),
            (&format!("{NWC}secret = \"hunter2\""), "remove wallet.secret"),
            ("[wallet]\nsecret = [\"hunter2\"]", "wallet.secret"),
        ] {
            let text = load(toml).unwrap_err();
            assert!(text.contains(part) && !text.contains("hunter2"), "{toml}: {text}");
        }
        let config = load(&format!("{LNBITS}[billing]\nmode = \"wallet\"")).unwrap();
        assert_eq!(config.wallet.parts().unwrap().2, "123456", "a secret may look like a number");
        assert!(!format!("{config:?}").contains("123456"));
        assert!(!format!("{:?}", load(NWC).unwrap()).contains("hunter2"));
    }

    #[test]
    fn limits_have_consistent_ranges() {
        for (line, part) in [
            ("topup_min_sats = 0", "wallet.topup_min_sats"),
            ("topup_max_sats = 99", "use 100 to"),
            ("refill_daily_max_sats = 99", "use 100 to"),
            ("invoice_expiry_secs = 59", "use 60 to 86400"),
            ("invoice_expiry_secs = 86401", "use 60 to 86400"),
        ] {
            let text = load(&format!("[wallet]\n{line}")).unwrap_err();
            assert!(text.contains(part), "{line}: {text}");
        }
        load("[wallet]\ntopup_min_sats = 1\ntopup_max_sats = 1\nrefill_daily_max_sats = 1").unwrap();
    }

    #[test]
    fn the_hosts_of_the_wallet_are_known() {
        assert_eq!(load(LNBITS).unwrap().wallet.hosts(), ["ln.example"]);
        assert_eq!(load(NWC).unwrap().wallet.hosts(), ["one.example", "2001:db8::1"]);
    }

    #[test]
    fn doubtful_wallets_are_warned_about_in_these_texts() {
        let example = LNBITS.replace("ln.example", "lnbits.example.com");
        let warnings = load(&format!("{example}[billing]\nmode = \"off\"")).unwrap().warnings();
        assert_eq!(
            warnings,
            [
                "wallet.url is the example address; set your wallet's address",
                "[wallet] is set, but billing.mode is \"off\", so nobody can buy credit"
            ]
        );
    }
}
