//! The connected wallet: read (without secrets), connect (after the wallet has responded), disconnect.

use std::sync::Arc;

use poem::Result;
use poem::web::Data;
use poem_openapi::payload::Json;
use poem_openapi::{Enum, Object, OpenApi};

use super::{NOT_SATS, wallet_refused};
use crate::api::app::{App, Tag};
use crate::api::body::{self, Body, body, choice, object, text, whole};
use crate::api::caller::Caller;
use crate::api::destinations::Done;
use crate::api::null::Null;
use crate::base::{ApiError, Code, RequestContext};
use satcast_core::ids::WalletKind;
use satcast_core::ids::{AccountId, Msat, Sats, UnixMillis};
use satcast_core::secret::is_masked_key;
use satcast_money::wallet::connection::{Connection, SECRET_BYTES_MAX, URL_BYTES_MAX};
use satcast_money::wallet::rules::day_start;
use satcast_money::wallet::topups::{Terms, TopUpError, connection_of};
use satcast_store::{FAILURES_SHOWN, RefillRules, WalletRecord};

/// Default amount of a refill in sats.
const AMOUNT_SATS_DEFAULT: i64 = 1_000;
/// Default threshold of refills in sats.
const THRESHOLD_SATS_DEFAULT: i64 = 200;
/// Default number of refills in the daily cap.
const REFILLS_A_DAY_DEFAULT: i64 = 10;

const STATE_ACTIVE: &str = "active";
const STATE_RETRYING: &str = "retrying";
const STATE_FAILING: &str = "failing";
const STATE_CAPPED: &str = "capped";

/// Kind of wallet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
#[oai(rename = "WalletType", rename_all = "lowercase")]
pub(super) enum Kind {
    /// Nostr Wallet Connect, NIP-47.
    Nwc,
    /// An LNbits instance.
    Lnbits,
    /// A phoenixd node.
    Phoenixd,
}

const KINDS: [(Kind, WalletKind); 3] = [
    (Kind::Nwc, WalletKind::Nwc),
    (Kind::Lnbits, WalletKind::Lnbits),
    (Kind::Phoenixd, WalletKind::Phoenixd),
];

impl From<WalletKind> for Kind {
    fn from(kind: WalletKind) -> Self {
        KINDS.iter().find(|(_, known)| *known == kind).map_or(Kind::Nwc, |(shown, _)| *shown)
    }
}

/// Threshold, amount and daily cap of refills.
#[derive(Clone, Copy, Debug, Object)]
#[oai(rename = "WalletRefill", rename_all = "camelCase")]
struct Refill {
    /// Credit below this is refilled. While streams run, credit is also kept above the cost of the next minutes.
    threshold_sats: i64,
    /// Amount of one refill in sats.
    amount_sats: i64,
    /// Largest sum of refills in one UTC day, in sats, without payment fees. After a fee above one percent and above 10 sats, refills
    /// pause for an hour.
    daily_cap_sats: i64,
    /// Sum of today's refills in sats, including refills in progress and refills with an unknown outcome.
    refilled_today_sats: i64,
}

/// The connected wallet.
#[derive(Clone, Debug, Object)]
#[oai(rename = "WalletConnection", rename_all = "camelCase")]
struct Shown {
    /// Whether a wallet is connected; if not, all fields that describe a wallet are null.
    connected: bool,
    /// Whether this service sells credit over Lightning, which connecting a wallet needs.
    offered: bool,
    /// Kind of wallet: `nwc`, `lnbits` or `phoenixd`.
    #[oai(rename = "type")]
    kind: Null<String>,
    /// Address of the wallet, without secrets.
    url: Null<String>,
    /// Rules for refills.
    refill: Null<Refill>,
    /// State of refills: `active`; `retrying` after a failed refill, which is repeated automatically; `failing` after several failed
    /// refills: check the wallet; `capped` when the daily cap is used up.
    state: Null<String>,
    /// The last error as text; null when there is none.
    last_error: Null<String>,
    /// The last error as a code; null when there is none.
    last_error_code: Null<String>,
    /// Time of the last credited refill, Unix milliseconds.
    last_refill_at: Null<i64>,
    /// Time at which the wallet was first connected, Unix milliseconds.
    created_at: Null<i64>,
}

body! {
    /// A wallet to connect.
    pub(super) struct WalletInput: "WalletConnectionInput" {
        /// Kind of wallet.
        kind "type": Kind = choice(Code::WalletTypeRefused, "must be one of: nwc, lnbits, phoenixd"),
        /// Address: `https://host[:port][/path]`, or the complete `nostr+walletconnect://` text.
        url: String = text().length(0, URL_BYTES_MAX),
        /// LNbits: the admin key; phoenixd: the password; NWC: none. If absent or masked, the stored secret is kept, provided that `type`
        /// and `url` are unchanged.
        secret: Option<String> = text().length(0, SECRET_BYTES_MAX).optional(),
        /// Rules for refills. An absent rule stays unchanged.
        refill: Option<RefillInput> = object().optional(),
    }
}

body! {
    /// Rules for refills. An absent rule stays unchanged.
    #[derive(Clone, Copy, Default)]
    pub(super) struct RefillInput: "WalletRefillInput" {
        /// Credit below this is refilled, 0 or more.
        threshold_sats "thresholdSats": Option<i64> = sats().optional(),
        /// Amount of one refill in sats, within the service's limits.
        amount_sats "amountSats": Option<i64> = sats().optional(),
        /// Largest sum of refills in one UTC day, in sats; at least one refill.
        daily_cap_sats "dailyCapSats": Option<i64> = sats().optional(),
    }
}

fn sats() -> body::Kind<i64> {
    whole(|place| place.refused(Code::RefillRefused, NOT_SATS))
}

impl RefillInput {
    /// The requested rules, completed from `before` or the defaults.
    fn over(self, before: Option<RefillRules>, terms: Terms) -> std::result::Result<RefillRules, ApiError> {
        let sats = |of: fn(RefillRules) -> Msat| before.map(|rules| of(rules).to_sats_floor().0);
        let (least, most, daily_most) = (terms.least.0, terms.most.0, terms.daily_most.0);
        let amount = self.amount_sats.or(sats(|rules| rules.amount));
        let amount = amount.unwrap_or(AMOUNT_SATS_DEFAULT.clamp(least, most.min(daily_most).max(least)));
        let threshold = self.threshold_sats.or(sats(|rules| rules.threshold));
        let threshold = threshold.unwrap_or(THRESHOLD_SATS_DEFAULT.min(most));
        let cap = self.daily_cap_sats.or(sats(|rules| rules.daily_cap));
        let cap = cap.unwrap_or(amount.saturating_mul(REFILLS_A_DAY_DEFAULT).min(daily_most));
        for (name, value, min, max) in [
            ("amountSats", amount, least, most),
            ("thresholdSats", threshold, 0, most),
            ("dailyCapSats", cap, amount, daily_most),
        ] {
            if !(min..=max).contains(&value) {
                let text = format!("Field `refill.{name}` must be a whole number from {min} to {max}");
                return Err(ApiError::refused(Code::RefillRefused, text));
            }
        }
        let msat = |sats: i64| Sats(sats).to_msat().unwrap_or(Msat(i64::MAX));
        Ok(RefillRules { threshold: msat(threshold), amount: msat(amount), daily_cap: msat(cap) })
    }
}

impl WalletInput {
    /// The complete address and secret: a masked or absent value is replaced by the stored one. This is allowed only if type and
    /// address are unchanged, so that a caller who cannot read the secret cannot have it sent to another address.
    ///
    /// # Errors
    /// 422: the secret must be sent.
    fn whole(&self, stored: Option<&Connection>) -> std::result::Result<(String, String), ApiError> {
        let sent = self.secret.as_deref().filter(|secret| !is_masked_key(secret));
        let same = stored.filter(|stored| {
            Kind::from(stored.kind) == self.kind
                && (stored.url.expose() == &self.url || stored.shown() == self.url)
        });
        match (same, sent, self.kind) {
            (Some(stored), None, _) => Ok((stored.url.expose().clone(), stored.secret.expose().clone())),
            (_, Some(secret), _) => Ok((self.url.clone(), secret.to_owned())),
            (None, None, Kind::Nwc) => Ok((self.url.clone(), String::new())),
            (None, None, _) => {
                let text = "Field `secret` must be sent in full when the wallet is new or its `type` or `url` changes";
                Err(ApiError::refused(Code::WalletSecretRequired, text))
            }
        }
    }
}

/// The connected wallet as its owner sees it.
fn shown(record: Option<&WalletRecord>, refilled: Msat, offered: bool, now: UnixMillis) -> Shown {
    let sats = |amount: Msat| amount.to_sats_floor().0;
    let connection = record.and_then(connection_of);
    let state = |record: &WalletRecord| match record.failures {
        failures if failures >= FAILURES_SHOWN => STATE_FAILING,
        failures if failures > 0 || record.retry_at > now => STATE_RETRYING,
        _ if refilled.0.saturating_add(record.rules.amount.0) > record.rules.daily_cap.0 => STATE_CAPPED,
        _ => STATE_ACTIVE,
    };
    let refill = |record: &WalletRecord| Refill {
        threshold_sats: sats(record.rules.threshold),
        amount_sats: sats(record.rules.amount),
        daily_cap_sats: sats(record.rules.daily_cap),
        refilled_today_sats: sats(refilled),
    };
    let fault = record.and_then(|record| record.last_error.as_ref());
    Shown {
        connected: record.is_some(),
        offered,
        kind: Null(connection.as_ref().map(|connection| connection.kind.as_str().to_owned())),
        url: Null(connection.as_ref().map(Connection::shown)),
        refill: Null(record.map(refill)),
        state: Null(record.map(state).map(str::to_owned)),
        last_error: Null(fault.map(|fault| fault.text.clone())),
        last_error_code: Null(fault.map(|fault| fault.code.clone())),
        last_refill_at: Null(record.and_then(|record| record.last_refill_at).map(|at| at.0)),
        created_at: Null(record.map(|record| record.created_at.0)),
    }
}

async fn read(app: &App, account: AccountId) -> std::result::Result<Shown, ApiError> {
    let record = app.store.wallet_of(account).await?;
    let refilled = match record {
        Some(_) => app.store.refilled_since(account, day_start(app.clock.now())).await?,
        None => Msat(0),
    };
    Ok(shown(record.as_ref(), refilled, app.wallets.terms().offered, app.clock.now()))
}

/// Operations on the connected wallet.
pub(in crate::api) struct ConnectionApi;

#[OpenApi(prefix_path = "/api/wallet", tag = "Tag::Wallet")]
impl ConnectionApi {
    /// Read the connected wallet
    ///
    /// Secrets are not shown.
    #[oai(path = "/connection", method = "get", operation_id = "getWalletConnection")]
    async fn read(&self, app: Data<&Arc<App>>, caller: Caller) -> Result<Json<Shown>> {
        Ok(Json(read(&app, caller.account).await?))
    }

    /// Connect a wallet
    ///
    /// The wallet refills the account's credit: when the credit falls below the threshold, the service asks the wallet to pay an
    /// invoice. The service reads the wallet's balance before it stores the connection, so that a wrong secret fails at once.
    /// Replaces the wallet that was connected before. At most 10 requests a minute per account.
    #[oai(path = "/connection", method = "put", operation_id = "connectWallet")]
    async fn connect(
        &self,
        app: Data<&Arc<App>>,
        request: &poem::Request,
        caller: Caller,
        body: Body<WalletInput>,
    ) -> Result<Json<Shown>> {
        app.count(&RequestContext::of(request), request, &app.limits.connections, caller.account).await?;
        if !app.wallets.terms().offered {
            return Err(ApiError::from(TopUpError::NotOffered).into());
        }
        let stored = app.store.wallet_of(caller.account).await.map_err(ApiError::from)?;
        let (url, secret) = body.0.whole(stored.as_ref().and_then(connection_of).as_ref())?;
        let kind =
            KINDS.iter().find(|(shown, _)| *shown == body.0.kind).map_or(WalletKind::Nwc, |(_, kind)| *kind);
        let connection = Connection::checked(kind, &url, &secret, &app.guard)
            .map_err(|error| ApiError::refused(Code::WalletRefused, format!("Field {error}")))?;
        let before = stored.map(|record| record.rules);
        let rules = body.0.refill.unwrap_or_default().over(before, app.wallets.terms())?;
        let (actor, app, account) = (caller.actor(&app), app.0.clone(), caller.account);
        let work = async move {
            let connected = app.wallets.connect(&actor, &connection, rules).await;
            connected.map_err(|error| wallet_refused(error, kind))?;
            read(&app, account).await
        };
        Ok(Json(App::to_the_end(work).await?))
    }

    /// Disconnect the wallet
    ///
    /// Deletes the connection and its secret. A payment in progress is still credited. Without a wallet, nothing changes.
    #[oai(path = "/connection", method = "delete", operation_id = "disconnectWallet")]
    async fn disconnect(&self, app: Data<&Arc<App>>, caller: Caller) -> Result<Json<Done>> {
        let (store, actor) = (app.store.clone(), caller.actor(&app));
        App::to_the_end(async move { Ok(store.disconnect_wallet(&actor).await?) }).await?;
        Ok(Json(Done::new()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use satcast_core::secret::Redacted;

    fn stored() -> Connection {
        let hidden = |text: &str| Redacted::new(text.to_owned());
        Connection {
            kind: WalletKind::Lnbits,
            url: hidden("https://ln.example/a"),
            secret: hidden("0123456789abcdef"),
        }
    }

    fn input(kind: Kind, url: &str, secret: Option<&str>) -> WalletInput {
        WalletInput { kind, url: url.to_owned(), secret: secret.map(str::to_owned), refill: None }
    }

    #[test]
    fn a_secret_is_kept_only_if_type_and_address_are_unchanged() {
        let whole = |input: WalletInput| input.whole(Some(&stored())).ok();
        let kept = Some(("https://ln.example/a".to_owned(), "0123456789abcdef".to_owned()));
        for secret in [None, Some("012...def"), Some("***")] {
            assert_eq!(whole(input(Kind::Lnbits, "https://ln.example/a", secret)), kept);
            assert_eq!(whole(input(Kind::Lnbits, "https://evil.example/a", secret)), None);
            assert_eq!(whole(input(Kind::Lnbits, "https://ln.example/b", secret)), None);
            assert_eq!(whole(input(Kind::Phoenixd, "https://ln.example/a", secret)), None);
            assert!(input(Kind::Lnbits, "https://ln.example/a", secret).whole(None).is_err());
        }
        let (_, secret) = whole(input(Kind::Lnbits, "https://evil.example", Some("theirs"))).unwrap();
        assert_eq!(secret, "theirs");
    }

    #[test]
    fn rules_are_checked_and_absent_rules_stay_unchanged() {
        let terms = Terms {
            offered: true,
            least: Sats(100),
            most: Sats(5_000),
            daily_most: Sats(6_000),
            expiry: std::time::Duration::from_secs(600),
        };
        let rules = |input: RefillInput| input.over(None, terms);
        let default = rules(RefillInput::default()).unwrap();
        assert_eq!(
            default,
            RefillRules { threshold: Msat(200_000), amount: Msat(1_000_000), daily_cap: Msat(6_000_000) }
        );
        let one = RefillInput { amount_sats: Some(300), ..RefillInput::default() };
        assert_eq!(one.over(Some(default), terms).unwrap(), RefillRules { amount: Msat(300_000), ..default });
        for (refused, name) in [
            (RefillInput { amount_sats: Some(99), ..one }, "refill.amountSats"),
            (RefillInput { amount_sats: Some(5_001), ..one }, "refill.amountSats"),
            (RefillInput { threshold_sats: Some(-1), ..one }, "refill.thresholdSats"),
            (RefillInput { daily_cap_sats: Some(299), ..one }, "refill.dailyCapSats"),
            (RefillInput { daily_cap_sats: Some(6_001), ..one }, "refill.dailyCapSats"),
        ] {
            let text = rules(refused).unwrap_err().to_string();
            assert!(text.contains(name), "{text}");
        }
    }

    #[test]
    fn inputs_are_not_printed() {
        assert!(!format!("{:?}", input(Kind::Nwc, "hunter2", Some("hunter2"))).contains("hunter2"));
    }
}
