//! Look-ups of names: which run, and who waits for a place among them.
//!
//! The system's resolver takes a thread for each look-up and cannot be told to stop: a name whose server is silent holds its
//! place long after everybody has given it up. So a name is looked up once at a time, whoever else asks waits for the same
//! answer, and nobody has more than a part of the places. Nothing is kept: what has ended is looked up anew.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, timeout_at};

/// Look-ups running at once for one guard: those of webhooks do not keep streams waiting. A look-up that nobody waits for
/// any more keeps its place until the resolver returns, since its thread cannot be ended; without the limit, slow names
/// would take every blocking thread.
pub const LOOKUPS_AT_ONCE_MAX: usize = 64;
/// Look-ups of one account that run at once while there are no others. The more places others have, the fewer it may
/// take: always this part of those that are left, so that many such accounts do not fill all together, either.
pub const LOOKUPS_OF_ACCOUNT_MAX: usize = 8;
/// The same for a part of the service that asks for many accounts, or for the operator.
pub const LOOKUPS_OF_SERVICE_MAX: usize = 16;

/// Names that wait for a place for one asker; a further one is not looked up.
const LOOKUPS_WAITING_MAX: usize = 1_024;

/// Whom a name is looked up for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Asker {
    /// An account, for a destination, webhook or wallet of its own.
    Account(i64),
    /// A part of the service, by its name, that does not say for which account.
    Service(Arc<str>),
}

impl Asker {
    /// Places it may hold while nobody else has any.
    fn places_max(&self) -> usize {
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

/// Looks a name up, e.g. with the system's resolver.
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

type Found = Result<Vec<IpAddr>, String>;

/// A look-up that runs.
#[derive(Debug, Clone)]
struct Running {
    asker: Asker,
    since: Instant,
    found: watch::Receiver<Option<Found>>,
}

/// Somebody whose name is not being looked up yet.
#[derive(Debug)]
struct Waiting {
    name: String,
    asker: Asker,
    told: oneshot::Sender<Running>,
}

/// Look-ups of one guard.
pub(super) struct Lookups {
    resolver: Resolver,
    places: Mutex<Places>,
}

#[derive(Debug, Default)]
struct Places {
    /// By name; at most [`LOOKUPS_AT_ONCE_MAX`].
    running: HashMap<String, Running>,
    /// How many of them were begun for whom; never 0.
    held: HashMap<Asker, usize>,
    /// In the order of asking. Who has given up is forgotten when somebody asks or a look-up ends.
    waiting: Vec<Waiting>,
}

impl Lookups {
    /// With the system's resolver.
    pub(super) fn of_system() -> Self {
        Self::with_resolver(Arc::new(|name| Box::pin(system_lookup(name))))
    }

    pub(super) fn with_resolver(resolver: Resolver) -> Self {
        Self { resolver, places: Mutex::default() }
    }

    /// The addresses of `name`, waiting at most `limit` for a place and the answer together.
    pub(super) async fn find(
        self: &Arc<Self>,
        name: &str,
        asker: &Asker,
        limit: Duration,
    ) -> Result<Vec<IpAddr>, Unknown> {
        let deadline = Instant::now() + limit;
        let Ok(Ok(mut running)) = timeout_at(deadline, self.ask(name, asker)).await else {
            return Err(Unknown::NoPlace(self.lock().crowd(asker)));
        };
        match timeout_at(deadline, running.found.wait_for(Option::is_some)).await {
            Ok(Ok(found)) => found.clone().unwrap_or_else(|| Ok(Vec::new())).map_err(Unknown::Failed),
            Ok(Err(_)) => Err(Unknown::Failed("the look-up was broken off".to_owned())),
            // A name server that had only the rest of the time is not called silent.
            Err(_) if running.since.elapsed() < limit / 2 => Err(Unknown::NoPlace(self.lock().crowd(asker))),
            Err(_) => Err(Unknown::Silent(running.since.elapsed())),
        }
    }

    /// Joins the look-up of `name` that runs, begins one, or waits until either can be done.
    fn ask(self: &Arc<Self>, name: &str, asker: &Asker) -> oneshot::Receiver<Running> {
        let (told, running) = oneshot::channel();
        let asking = Waiting { name: name.to_owned(), asker: asker.clone(), told };
        let mut places = self.lock();
        places.forget_gone();
        if let Some(running) = places.running.get(name) {
            // Who asks has the other end still.
            let _ = asking.told.send(running.clone());
        } else if places.has_room(asker) {
            self.begin(&mut places, asking);
        } else if places.waiting_for(asker) < LOOKUPS_WAITING_MAX {
            places.waiting.push(asking);
        }
        // Whoever is not told has no place.
        running
    }

    /// Begins a look-up, which whoever else waits for the same name joins.
    fn begin(self: &Arc<Self>, places: &mut Places, asking: Waiting) {
        let (answer, found) = watch::channel(None);
        let Waiting { name, asker, told } = asking;
        let running = Running { asker: asker.clone(), since: Instant::now(), found };
        *places.held.entry(asker).or_default() += 1;
        for joining in places.waiting.extract_if(.., |waiting| waiting.name == name) {
            let _ = joining.told.send(running.clone());
        }
        let _ = told.send(running.clone());
        places.running.insert(name.clone(), running);
        let (lookups, resolver) = (Arc::clone(self), Arc::clone(&self.resolver));
        tokio::spawn(async move {
            let asked = name.clone();
            // A task of its own: a panic in it must not keep the place.
            let found = tokio::spawn(async move { resolver(asked).await }).await;
            let found = found.map_err(io::Error::other).flatten().map_err(|error| error.to_string());
            lookups.end(&name, &answer, found);
        });
    }

    /// Gives the place of a look-up back, hands its answer out, and begins what waits.
    fn end(self: &Arc<Self>, name: &str, answer: &watch::Sender<Option<Found>>, found: Found) {
        let mut places = self.lock();
        places.give_back(name);
        places.forget_gone();
        answer.send_replace(Some(found));
        while let Some(next) = places.next() {
            let asking = places.waiting.remove(next);
            self.begin(&mut places, asking);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Lookups {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Lookups").field("places", &self.places).finish_non_exhaustive()
    }
}

impl Places {
    fn held_by(&self, asker: &Asker) -> usize {
        self.held.get(asker).copied().unwrap_or_default()
    }

    fn waiting_for(&self, asker: &Asker) -> usize {
        self.waiting.iter().filter(|waiting| waiting.asker == *asker).count()
    }

    fn is_full(&self) -> bool {
        self.running.len() >= LOOKUPS_AT_ONCE_MAX
    }

    /// Whether `asker` may begin one more: its part of what others have left, and one in any case while there is a place.
    fn has_room(&self, asker: &Asker) -> bool {
        let held = self.held_by(asker);
        let left_by_others = LOOKUPS_AT_ONCE_MAX.saturating_sub(self.running.len() - held);
        let is_within_part = held * LOOKUPS_AT_ONCE_MAX < left_by_others * asker.places_max();
        !self.is_full() && (held == 0 || is_within_part)
    }

    fn crowd(&self, asker: &Asker) -> Crowd {
        let is_own = matches!(asker, Asker::Account(_)) && self.held_by(asker) > 0 && !self.is_full();
        if is_own { Crowd::Own } else { Crowd::All }
    }

    /// Who may begin next: of those that hold the fewest places the one that waits longest.
    fn next(&self) -> Option<usize> {
        let waiting = self.waiting.iter().enumerate();
        waiting
            .filter(|(_, waiting)| self.has_room(&waiting.asker))
            .min_by_key(|(_, waiting)| self.held_by(&waiting.asker))
            .map(|(index, _)| index)
    }

    /// Who has given up waits no more.
    fn forget_gone(&mut self) {
        self.waiting.retain(|waiting| !waiting.told.is_closed());
    }

    fn give_back(&mut self, name: &str) {
        let Some(Running { asker, .. }) = self.running.remove(name) else { return };
        if let Some(held) = self.held.get_mut(&asker) {
            *held -= 1;
            if *held == 0 {
                self.held.remove(&asker);
            }
        }
    }
}

async fn system_lookup(name: String) -> io::Result<Vec<IpAddr>> {
    // The port is of no meaning to the resolver.
    Ok(tokio::net::lookup_host((name.as_str(), 0)).await?.map(|found| found.ip()).collect())
}

#[cfg(test)]
mod tests;
