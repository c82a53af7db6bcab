//! Certificates from an authority by ACME (RFC 8555): ordered, kept in one file of the data folder, and renewed in time.
//!
//! Both ports read that file as they read any other ([`crate::certificates`]), so a new certificate needs no restart and
//! touches no connection. Until the first one came, it holds one that nobody signed and that has expired: clients that
//! check certificates refuse it, and so does the alert about expiry.

mod authority;
mod folder;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use self::authority::{Failure, RETRY_AFTER_MAX};
pub use self::folder::{Failed, FolderError, Standing};
use self::folder::{Folder, Held};
use crate::certificates::{Certificates, Challenges};
use satcast_core::clock::Clock;
use satcast_core::config::{self, Config};
use satcast_core::ids::UnixMillis;

/// Longest time of one order, with the validation by the authority.
pub const ORDER_LIMIT: Duration = Duration::from_secs(5 * 60);
/// Wait after the first failure; each further one doubles it. Let's Encrypt takes five failures of a name in an hour.
pub const RETRY_FIRST: Duration = Duration::from_secs(3 * 60);
/// Longest wait between two tries that the authority did not ask for.
pub const RETRY_MAX: Duration = Duration::from_secs(6 * 60 * 60);
/// Jitter of a wait, as a part of it, so that services that failed together do not come back together.
const JITTER: f64 = 0.2;
/// Shortest time between two orders, whatever the lifetime of a certificate.
pub const ORDER_PAUSE: Duration = Duration::from_secs(10);
/// Longest sleep: the clock may be set meanwhile.
const LOOK: Duration = Duration::from_secs(60);

/// Orders and renews the certificate.
#[derive(Debug)]
pub struct Acme {
    config: config::Acme,
    folder: Folder,
    challenges: Challenges,
    clock: Clock,
    /// Failed orders since the start.
    failures: AtomicU64,
    pace: Mutex<Pace>,
}

/// When the next order may begin.
#[derive(Debug)]
struct Pace {
    failed: Option<Failed>,
    not_before: UnixMillis,
}

/// Certificates of the ports, and their orders.
#[derive(Clone, Debug, Default)]
pub struct Ports {
    pub http: Option<Arc<Certificates>>,
    pub rtmps: Option<Arc<Certificates>>,
    pub acme: Option<Arc<Acme>>,
}

impl Ports {
    /// The port of https answers the authority of `acme` from now on.
    pub fn of(
        http: Option<Arc<Certificates>>,
        rtmps: Option<Arc<Certificates>>,
        acme: Option<Arc<Acme>>,
    ) -> Self {
        if let (Some(http), Some(acme)) = (&http, &acme) {
            http.answer(&acme.challenges);
        }
        Self { http, rtmps, acme }
    }
}

impl Acme {
    /// Makes the folder and a file that the ports can read; `None` if no certificate is to be ordered. Blocks.
    ///
    /// # Errors
    /// The folder or the file cannot be written.
    pub fn prepare(config: &Config, clock: &Clock) -> Result<Option<Arc<Self>>, FolderError> {
        if !config.acme.is_on() {
            return Ok(None);
        }
        let folder = Folder::of(config);
        folder.prepare()?;
        let failed = folder.failed();
        if let Some(failed) = &failed {
            info!(
                reason = failed.reason,
                "the last order of a certificate failed; the next one waits for its time"
            );
        }
        Ok(Some(Arc::new(Self {
            config: config.acme.clone(),
            folder,
            challenges: Challenges::default(),
            clock: clock.clone(),
            failures: AtomicU64::new(0),
            pace: Mutex::new(Pace { failed, not_before: UnixMillis(0) }),
        })))
    }

    /// What the data folder of `config` holds. Blocks.
    pub fn standing(config: &Config) -> Standing {
        Folder::of(config).standing()
    }

    /// Failed orders since the start.
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Orders the certificate and its successors.
    pub async fn keep(self: Arc<Self>) -> Infallible {
        loop {
            sleep(self.step().await).await;
        }
    }

    /// Orders if it is time; the wait until the next look.
    async fn step(self: &Arc<Self>) -> Duration {
        let this = Arc::clone(self);
        let held = spawn_blocking(move || this.folder.held()).await.ok().flatten();
        let wait = self.due(held).0.saturating_sub(self.clock.now().0);
        if let Ok(wait @ 1..) = u64::try_from(wait) {
            return Duration::from_millis(wait).min(LOOK);
        }
        self.attempt().await;
        Duration::ZERO
    }

    /// When the next order begins.
    fn due(&self, held: Option<Held>) -> UnixMillis {
        let pace = self.pace.lock();
        let renewal = match held {
            Some(Held { validity: Some(validity), is_wanted: true }) => validity.renewal(),
            _ => UnixMillis(0),
        };
        // A time that is farther away was noted while the clock was wrong.
        let latest = later(self.clock.now(), RETRY_AFTER_MAX);
        let noted = [pace.failed.as_ref().map(|failed| failed.next_at), Some(pace.not_before)];
        let allowed = noted.into_iter().flatten().filter(|at| *at <= latest).max();
        renewal.max(allowed.unwrap_or(UnixMillis(0)))
    }

    async fn attempt(self: &Arc<Self>) {
        let ordered = self.order().await;
        self.challenges.clear();
        let now = self.clock.now();
        match ordered {
            Ok(()) => {
                *self.pace.lock() = Pace { failed: None, not_before: later(now, ORDER_PAUSE) };
                info!(
                    domains = self.config.domains.join(", "),
                    "a certificate was ordered; new connections use it"
                );
            }
            Err(failure) => self.fail(failure, now).await,
        }
    }

    async fn order(self: &Arc<Self>) -> Result<(), Failure> {
        // A certificate that cannot be stored would count at the authority, again and again.
        let this = Arc::clone(self);
        spawn_blocking(move || this.folder.probe()).await??;
        let (config, folder, challenges) =
            (self.config.clone(), self.folder.clone(), self.challenges.clone());
        // In a task of its own, because the ACME library panics at some answers. Dropped, the set ends it.
        let mut task = JoinSet::new();
        task.spawn(async move { authority::order(&config, &folder, &challenges).await });
        let late = |_| Failure::new("the order took longer than five minutes");
        let pem = match timeout(ORDER_LIMIT, task.join_next()).await.map_err(late)? {
            Some(Ok(ordered)) => ordered?,
            _ => return Err(Failure::new("an answer of the authority cannot be used; tell the authority")),
        };
        let this = Arc::clone(self);
        let validity = spawn_blocking(move || this.folder.store(&pem)).await??;
        // Ordered again at once, it would be the same. Others may have the right time, so it is used.
        if validity.is_some_and(|validity| validity.renewal() <= self.clock.now()) {
            return Err(Failure::new(
                "by the clock of this machine the new certificate is old already; set the clock",
            ));
        }
        Ok(())
    }

    async fn fail(self: &Arc<Self>, failure: Failure, now: UnixMillis) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        let before = self.pace.lock().failed.as_ref().map_or(0, |failed| failed.failures);
        let failures = before.saturating_add(1);
        let wait = wait(failures, failure.retry_after, rand::random());
        let failed = Failed { failures, next_at: later(now, wait), reason: failure.reason };
        warn!(
            failures,
            retry_secs = wait.as_secs(),
            reason = failed.reason,
            "a certificate could not be ordered; the current one stays in use"
        );
        self.pace.lock().failed = Some(failed.clone());
        // A restart waits as well: without the file it would only ask the authority too early.
        let this = Arc::clone(self);
        if let Ok(Err(error)) = spawn_blocking(move || this.folder.note(&failed)).await {
            warn!(%error, "the failed order cannot be noted");
        }
    }
}

fn later(now: UnixMillis, wait: Duration) -> UnixMillis {
    UnixMillis(now.0.saturating_add(i64::try_from(wait.as_millis()).unwrap_or(i64::MAX)))
}

/// The wait after this many failures, with `random` from the whole range of `u64`.
fn wait(failures: u32, retry_after: Option<Duration>, random: u64) -> Duration {
    let doubled =
        RETRY_FIRST.saturating_mul(1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX));
    let part = random as f64 / u64::MAX as f64;
    let wait = doubled.min(RETRY_MAX).mul_f64(1.0 - JITTER + 2.0 * JITTER * part);
    wait.max(retry_after.unwrap_or_default().min(RETRY_AFTER_MAX))
}
