//! What connected wallets hold: asked when somebody looks, and not more often than every few seconds.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::{Desk, DeskError, connection_of};
use satcast_core::ids::{AccountId, Msat, UnixMillis};
use satcast_core::secret::key_hash;
use satcast_store::WalletRecord;

/// Longest wait for a wallet's answer.
pub const ASK_LIMIT: Duration = Duration::from_secs(2);
/// An older answer is shown for so long when there is no new one.
pub const CACHED_MAX: Duration = Duration::from_secs(60);
/// A wallet is not asked twice within this time.
const ASK_INTERVAL: Duration = Duration::from_secs(3);
/// Accounts whose wallets' answers are kept.
const KEPT_MAX: usize = 10_000;

/// What a wallet holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldBalance {
    /// So much.
    pub amount: Msat,
    /// When it said so.
    pub as_of: UnixMillis,
    /// It did not answer now; this is older.
    pub cached: bool,
}

/// Answers of wallets by account. Each is behind a lock of its own: who comes while a wallet is asked gets the same answer.
#[derive(Default)]
pub(super) struct Balances(Mutex<HashMap<AccountId, Arc<tokio::sync::Mutex<Kept>>>>);

#[derive(Default)]
struct Kept {
    /// Which wallet: another one's balance is never shown.
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
            // Those nobody holds; what is lost is a question more.
            kept.retain(|_, entry| Arc::strong_count(entry) > 1);
        }
        kept.entry(account).or_default().clone()
    }
}

fn fingerprint(wallet: &WalletRecord) -> [u8; 32] {
    key_hash(&format!("{}\n{}\n{}", wallet.kind, wallet.url.expose(), wallet.secret.expose()))
}

impl Desk {
    /// What the connected wallet of an account holds; `None` without one.
    ///
    /// # Errors
    /// [`DeskError::Silent`] when it does not answer and said nothing for [`CACHED_MAX`]; [`DeskError::Store`].
    pub async fn held(&self, account: AccountId) -> Result<Option<HeldBalance>, DeskError> {
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
                        tracing::info!(%account, fault = error.fault.as_str(), "a connected wallet does not say what it holds");
                    }
                    None => tracing::info!(%account, "a connected wallet does not answer"),
                }
            }
        }
        match kept.answer {
            Some((amount, as_of, at)) if is_recent(at, CACHED_MAX) => {
                Ok(Some(HeldBalance { amount, as_of, cached: kept.silent }))
            }
            _ => Err(DeskError::Silent),
        }
    }
}
