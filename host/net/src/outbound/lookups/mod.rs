//! Name look-ups, with limits in total and per asker. A look-up waits only for a permit; answers are not cached.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use satcast_quota::Quota;
use tokio::time::{Instant, timeout_at};

use super::system::System;

/// Concurrent look-ups of one guard, first and further tries together; webhooks have a guard of their own. Each needs
/// two sockets.
pub const LOOKUPS_AT_ONCE_MAX: u64 = 512;
/// Concurrent first tries of one account or part of the service: enough for the destinations of several streams.
pub const LOOKUPS_OF_ASKER_MAX: u64 = 64;
/// Concurrent further tries of one asker, for names that were not answered at first.
pub const SLOW_LOOKUPS_OF_ASKER_MAX: u64 = 32;
/// Duration of the first try. A name without an answer by then moves to the limit of slow names, so that silent names
/// do not delay other names of the same account. When that limit is reached, the name is looked up again once a permit is free.
const FIRST_TRY_MS: u64 = 1_000;

/// The account or part of the service that a name is looked up for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Asker {
    /// An account, for one of its destinations, webhooks or wallets.
    Account(i64),
    /// A part of the service, by its name, when the account is unknown.
    Service(Arc<str>),
}

/// The look-ups that use all permits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crowd {
    /// Those of the same account.
    Own,
    /// Those of all accounts.
    All,
}

impl fmt::Display for Crowd {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Own => "too many other names of the same owner got no answer (check those names)",
            Self::All => "too many other look-ups are waiting for answers",
        })
    }
}

/// Looks a name up. The error's text is shown to the user; the kind `TimedOut` means that no name server answered.
pub type Resolver = Arc<dyn Fn(String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> + Send + Sync>;

/// Why there are no addresses.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unknown {
    /// The resolver's error.
    Failed(String),
    /// The resolver did not answer for this long.
    Silent(Duration),
    /// The resolver was not asked, or too late for an answer in time.
    NoPermit(Crowd),
}

/// Look-ups of one guard.
pub(super) struct Lookups {
    resolver: Resolver,
    /// First tries.
    first: Quota<Asker>,
    /// Further tries of names that were not answered at first.
    slow: Quota<Asker>,
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
        let half = LOOKUPS_AT_ONCE_MAX / 2;
        let (first, slow) =
            (Quota::new(half, LOOKUPS_OF_ASKER_MAX), Quota::new(half, SLOW_LOOKUPS_OF_ASKER_MAX));
        Self { resolver, first, slow }
    }

    /// The addresses of `name`, waiting at most `limit` for a permit and the answer together.
    pub(super) async fn find(
        &self,
        name: &str,
        asker: &Asker,
        limit: Duration,
    ) -> Result<Vec<IpAddr>, Unknown> {
        let deadline = Instant::now() + limit;
        let (mut ran, mut crowd) = (Duration::ZERO, Crowd::All);
        let mut question: Option<BoxFuture<'static, _>> = None;
        for (running, longest) in [(&self.first, Duration::from_millis(FIRST_TRY_MS)), (&self.slow, limit)] {
            crowd = match asker {
                Asker::Account(_) if running.taken_by(asker) >= running.share() => Crowd::Own,
                _ => Crowd::All,
            };
            let at_once = running.take(asker.clone(), 1).now_or_never();
            let _permit = match at_once {
                Some(permit) => permit,
                None => {
                    // Nothing runs without a permit.
                    question = None;
                    let permit = timeout_at(deadline, running.take(asker.clone(), 1)).await;
                    permit.map_err(|_| Unknown::NoPermit(crowd))?
                }
            };
            let since = Instant::now();
            let question = question.get_or_insert_with(|| (self.resolver)(name.to_owned()));
            let found = timeout_at(deadline.min(since + longest), question).await;
            ran += since.elapsed();
            match found {
                Ok(Ok(found)) => return Ok(found),
                Ok(Err(error)) if error.kind() == io::ErrorKind::TimedOut => {
                    return Err(Unknown::Silent(ran));
                }
                Ok(Err(error)) => return Err(Unknown::Failed(error.to_string())),
                Err(_) => {}
            }
        }
        // A name server that had only part of the time is not reported as silent.
        Err(if ran < limit / 2 { Unknown::NoPermit(crowd) } else { Unknown::Silent(ran) })
    }
}

impl fmt::Debug for Lookups {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Lookups")
            .field("first", &self.first)
            .field("slow", &self.slow)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
