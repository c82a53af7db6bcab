//! Look-ups of names: how many run at once and for whom. None waits for another but for a permit, and nothing is kept of an answer.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use super::system::System;

/// Look-ups running at once for one guard: those of webhooks do not keep streams waiting. Each needs two sockets.
pub const LOOKUPS_AT_ONCE_MAX: usize = 512;
/// Those of one account: more than one stream may have destinations, so that silent names do not delay another.
pub const LOOKUPS_OF_ACCOUNT_MAX: usize = 64;
/// Those of a part of the service that asks for many accounts, or for the operator.
pub const LOOKUPS_OF_SERVICE_MAX: usize = 128;

/// Whom a name is looked up for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Asker {
    /// An account, for a destination, webhook or wallet of its own.
    Account(i64),
    /// A part of the service, by its name, that does not say for which account.
    Service(Arc<str>),
}

impl Asker {
    fn share(&self) -> usize {
        match self {
            Self::Account(_) => LOOKUPS_OF_ACCOUNT_MAX,
            Self::Service(_) => LOOKUPS_OF_SERVICE_MAX,
        }
    }
}

/// Whose look-ups keep a name from being looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crowd {
    /// Its account's own.
    Own,
    /// Everybody's.
    All,
}

impl fmt::Display for Crowd {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Own => "too many other names of its owner are not answered (check those names)",
            Self::All => "too many other look-ups wait for answers",
        })
    }
}

/// Looks a name up. An error is words for the user; of kind `TimedOut`, it means that no name server answered.
pub(crate) type Resolver = Arc<dyn Fn(String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> + Send + Sync>;

/// Why there are no addresses.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unknown {
    /// The resolver's words.
    Failed(String),
    /// It says nothing since so long.
    Silent(Duration),
    /// It was not asked, or too late to blame it.
    NoPlace(Crowd),
}

/// Look-ups of one guard.
pub(super) struct Lookups {
    resolver: Resolver,
    all: Arc<Semaphore>,
    /// Of those that have a look-up or wait for one.
    shares: Mutex<HashMap<Asker, Arc<Semaphore>>>,
}

impl Lookups {
    /// With the system's resolver.
    pub(super) fn of_system() -> Self {
        let system = Arc::new(System::default());
        Self::with_resolver(Arc::new(move |name| {
            let system = Arc::clone(&system);
            Box::pin(async move { system.look_up(&name).await })
        }))
    }

    pub(super) fn with_resolver(resolver: Resolver) -> Self {
        Self { resolver, all: Arc::new(Semaphore::new(LOOKUPS_AT_ONCE_MAX)), shares: Mutex::default() }
    }

    /// The addresses of `name`, waiting at most `limit` for a permit and the answer together.
    pub(super) async fn find(
        &self,
        name: &str,
        asker: &Asker,
        limit: Duration,
    ) -> Result<Vec<IpAddr>, Unknown> {
        let deadline = Instant::now() + limit;
        let share = self.share_of(asker);
        let crowd = match asker {
            Asker::Account(_) if share.available_permits() == 0 => Crowd::Own,
            _ => Crowd::All,
        };
        let permits = async { (permit(&share).await, permit(&self.all).await) };
        let Ok(_permits) = timeout_at(deadline, permits).await else { return Err(Unknown::NoPlace(crowd)) };
        let since = Instant::now();
        match timeout_at(deadline, (self.resolver)(name.to_owned())).await {
            Ok(Ok(found)) => Ok(found),
            Ok(Err(error)) if error.kind() == io::ErrorKind::TimedOut => {
                Err(Unknown::Silent(since.elapsed()))
            }
            Ok(Err(error)) => Err(Unknown::Failed(error.to_string())),
            // A name server that had only the rest of the time is not called silent.
            Err(_) if since.elapsed() < limit / 2 => Err(Unknown::NoPlace(crowd)),
            Err(_) => Err(Unknown::Silent(since.elapsed())),
        }
    }

    fn share_of(&self, asker: &Asker) -> Arc<Semaphore> {
        let mut shares = self.shares.lock();
        shares.retain(|_, share| Arc::strong_count(share) > 1);
        let share = shares.entry(asker.clone()).or_insert_with(|| Arc::new(Semaphore::new(asker.share())));
        Arc::clone(share)
    }
}

/// `None` would be a semaphore that was closed, and none is.
async fn permit(of: &Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
    Arc::clone(of).acquire_owned().await.ok()
}

impl fmt::Debug for Lookups {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Lookups").field("all", &self.all).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
