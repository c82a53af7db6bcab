//! Look-ups of names: how many run at once and for whom. None waits for another but for a permit, and nothing is kept of an answer.

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

/// Look-ups running at once for one guard, first and further tries together: those of webhooks do not keep streams waiting. Each needs
/// two sockets.
pub const LOOKUPS_AT_ONCE_MAX: u64 = 512;
/// First tries of one account or part of the service at once: more than one stream may have destinations.
pub const LOOKUPS_OF_ASKER_MAX: u64 = 64;
/// Its tries at once of names that were not answered at first.
pub const SLOW_LOOKUPS_OF_ASKER_MAX: u64 = 32;
/// How long a name is asked for at first. One that is not answered by then is waited for among others of that kind alone: silent names
/// do not delay another name of the same account. Where too many of those are asked for, it is asked for again when it is its turn.
const FIRST_TRY_MS: u64 = 1_000;

/// Whom a name is looked up for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Asker {
    /// An account, for a destination, webhook or wallet of its own.
    Account(i64),
    /// A part of the service, by its name, that does not say for which account.
    Service(Arc<str>),
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
pub type Resolver = Arc<dyn Fn(String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> + Send + Sync>;

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
    /// First tries.
    first: Quota<Asker>,
    /// Tries of names that were not answered at first.
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
                    permit.map_err(|_| Unknown::NoPlace(crowd))?
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
        // A name server that had only the rest of the time is not called silent.
        Err(if ran < limit / 2 { Unknown::NoPlace(crowd) } else { Unknown::Silent(ran) })
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
