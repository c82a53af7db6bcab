//! Balances of connected wallets: read on request, and at most every few seconds.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::{TopUpError, TopUps, connection_of};
use satcast_core::ids::{AccountId, Msat, UnixMillis};
use satcast_core::secret::key_hash;
use satcast_store::WalletRecord;

/// Longest wait for a wallet's answer.
pub const ASK_LIMIT: Duration = Duration::from_secs(2);
/// How long an older answer is shown when there is no new one.
pub const CACHED_MAX: Duration = Duration::from_secs(60);
/// Shortest time between two questions to a wallet.
const ASK_INTERVAL: Duration = Duration::from_secs(3);
/// Accounts whose wallets' answers are kept.
const KEPT_MAX: usize = 10_000;

/// Balance of a wallet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldBalance {
    /// The amount.
    pub amount: Msat,
    /// Time of the answer.
    pub as_of: UnixMillis,
    /// The wallet does not answer now; this is an older answer.
    pub cached: bool,
}

/// Answers of wallets by account. Each has its own lock: callers that come while a wallet is asked get the same answer.
#[derive(Default)]
pub(super) struct Balances(Mutex<HashMap<AccountId, Arc<tokio::sync::Mutex<Kept>>>>);

#[derive(Default)]
struct Kept {
    /// The wallet of the answer: the balance of another one is never shown.
    wallet: Option<[u8; 32]>,
    answer: Option<(Msat, UnixMillis, Duration)>,
    asked: Option<Duration>,
    /// The last question was not answered.
    silent: bool,
}

impl Balances {
    fn of(&self, account: AccountId) -> Arc<tokio::sync::Mutex<Kept>> {
        let mut kept = self.0.lock();
        if kept.len() >= KEPT_MAX && !kept.contains_key(&account) {
            // Removes unused entries; that costs at most one more question.
            kept.retain(|_, entry| Arc::strong_count(entry) > 1);
        }
        kept.entry(account).or_default().clone()
    }
}

fn fingerprint(wallet: &WalletRecord) -> [u8; 32] {
    key_hash(&format!("{}\n{}\n{}", wallet.kind, wallet.url.expose(), wallet.secret.expose()))
}

impl TopUps {
    /// The balance of the account's connected wallet; `None` without a wallet.
    ///
    /// # Errors
    /// [`TopUpError::Silent`] if the wallet does not answer and did not for [`CACHED_MAX`]; [`TopUpError::Store`].
    pub async fn held(&self, account: AccountId) -> Result<Option<HeldBalance>, TopUpError> {
        let Some(wallet) = self.inner.store.wallet_of(account).await? else { return Ok(None) };
        let entry = self.inner.balances.of(account);
        let mut kept = entry.lock().await;
        let id = fingerprint(&wallet);
        if kept.wallet != Some(id) {
            *kept = Kept { wallet: Some(id), ..Kept::default() };
        }
        let clock = &self.inner.clock;
        let is_recent = |at: Duration, age: Duration| clock.monotonic().saturating_sub(at) <= age;
        if kept.asked.is_none_or(|asked| !is_recent(asked, ASK_INTERVAL)) {
            kept.asked = Some(clock.monotonic());
            kept.silent = true;
            if let Some(connection) = connection_of(&wallet) {
                let lightning = self.inner.wallets.open(account, &connection);
                match clock.timeout(ASK_LIMIT, lightning.balance()).await {
                    Some(Ok(amount)) => {
                        kept.answer = Some((amount, clock.now(), clock.monotonic()));
                        kept.silent = false;
                    }
                    Some(Err(error)) => {
                        tracing::info!(%account, fault = error.fault.as_str(), "a connected wallet does not report its balance");
                    }
                    None => tracing::info!(%account, "a connected wallet does not answer"),
                }
            }
        }
        match kept.answer {
            Some((amount, as_of, at)) if is_recent(at, CACHED_MAX) => {
                Ok(Some(HeldBalance { amount, as_of, cached: kept.silent }))
            }
            _ => Err(TopUpError::Silent),
        }
    }
}
