//! The lease of a node: taken at the start, renewed while it runs, and taken again after it was lost. And its wall clock, which follows
//! that of the database: what it writes must be in order with what other nodes write.

use std::fs::OpenOptions;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use super::BootError;
use super::database::close_interrupted;
use satcast_core::clock::Clock;
use satcast_core::config::Config;
use satcast_core::ids::EndReason;
use satcast_core::secret::new_uid;
use satcast_live::{Admits, LEASE_MARGIN, Live};
use satcast_store::{NewNode, Store, StoreError};
use satcast_web::api;

/// Name of the file in the data folder that tells two data folders apart.
const ID_FILE_NAME: &str = "node-id";
/// A lease is renewed each time that this part of it is over.
const RENEWALS_PER_LEASE: u32 = 3;
/// Wait between two tries to renew the lease or to take it.
const RETRY: Duration = Duration::from_secs(1);
/// Longest time of a try, as a part of the lease: on a dead connection it would last until the system gives it up.
const TRIES_PER_LEASE: u32 = 6;

/// A node that has a lease.
pub(super) struct Node {
    store: Store,
    clock: Clock,
    new: NewNode,
    /// The lease is not over before this time: it was asked for a lease time earlier.
    until: Instant,
}

impl Node {
    /// Takes the lease of the configured node; `None` for a service that has the database alone.
    pub(super) async fn join(
        store: &Store,
        clock: &Clock,
        config: &Config,
    ) -> Result<Option<Self>, BootError> {
        let cluster = &config.cluster;
        let Some(name) = cluster.node.clone() else { return Ok(None) };
        follow(clock, store).await?;
        let new = NewNode {
            name,
            holder: folder_id(&config.data_dir)?,
            advertise: cluster.advertise.as_ref().map(ToString::to_string).unwrap_or_default(),
            version: api::VERSION,
            lease: Duration::from_secs(cluster.lease_secs),
            started_at: clock.now(),
        };
        let until = Instant::now() + new.lease;
        store.take_node(&new).await?;
        Ok(Some(Self { store: store.clone(), clock: clock.clone(), new, until }))
    }

    /// Keeps the lease, and settles the sessions of lost nodes, those of earlier epochs of this one included. Without a
    /// lease `live` has no session. Never returns.
    pub(super) async fn keep(self, live: Live) {
        // Beside each other: many sessions take longer than a renewal may wait.
        let settling = settle(self.store.clone(), self.clock.clone(), self.pause(), self.new.lease);
        tokio::join!(self.hold(live), settling);
    }

    /// Time between two renewals.
    fn pause(&self) -> Duration {
        self.new.lease / RENEWALS_PER_LEASE
    }

    /// Longest time of one try.
    fn patience(&self) -> Duration {
        self.new.lease / TRIES_PER_LEASE
    }

    async fn hold(mut self, live: Live) {
        loop {
            while self.renew(&live).await {
                match timeout(self.patience(), follow(&self.clock, &self.store)).await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => {
                        tracing::warn!(node = self.new.name, %error, "the clock of the database cannot be read; retrying")
                    }
                    Err(_) => tracing::warn!(
                        node = self.new.name,
                        "the clock of the database has no answer; retrying"
                    ),
                }
                sleep(self.pause()).await;
            }
            let node = &self.new.name;
            tracing::error!(
                node,
                "the node has lost its lease: its sessions end, and it takes no streams until it has a lease"
            );
            live.admit(Admits::Nobody);
            live.end_all(EndReason::Interrupted).await;
            self.take_again().await;
        }
    }

    /// Renews the lease; `false` when it is over or was taken away, or would end before a session can end.
    async fn renew(&mut self, live: &Live) -> bool {
        let end_at = self.until.checked_sub(LEASE_MARGIN).unwrap_or(self.until);
        while Instant::now() < end_at {
            let asked = Instant::now();
            let limit = end_at.min(asked + self.patience());
            match timeout_at(limit, self.store.renew_node(self.new.lease)).await {
                Ok(Ok(Some(standing))) => {
                    self.until = asked + self.new.lease;
                    live.admit(if standing.draining { Admits::Returning } else { Admits::All });
                    if standing.moves {
                        let live = live.clone();
                        // Beside the renewals: destinations take seconds to end.
                        tokio::spawn(async move { live.give_up_all().await });
                    }
                    return true;
                }
                Ok(Ok(None)) => return false,
                Ok(Err(error)) => {
                    tracing::warn!(node = self.new.name, %error, "the lease of the node cannot be renewed; retrying")
                }
                Err(_) => {
                    tracing::warn!(node = self.new.name, "the renewal of the lease has no answer; retrying")
                }
            }
            sleep_until(end_at.min(Instant::now() + RETRY)).await;
        }
        false
    }

    async fn take_again(&mut self) {
        loop {
            let asked = Instant::now();
            match timeout(self.patience(), self.store.take_node(&self.new)).await {
                Ok(Ok(())) => {
                    self.until = asked + self.new.lease;
                    tracing::info!(node = self.new.name, "the node has a lease again");
                    return;
                }
                Ok(Err(error)) => {
                    tracing::warn!(node = self.new.name, %error, "the node cannot take a lease yet; retrying")
                }
                Err(_) => {
                    tracing::warn!(
                        node = self.new.name,
                        "the lease that was asked for has no answer; retrying"
                    )
                }
            }
            sleep(RETRY).await;
        }
    }
}

/// Sets the wall clock by that of the database.
async fn follow(clock: &Clock, store: &Store) -> Result<(), StoreError> {
    let asked = Instant::now();
    clock.follow(store.time().await?, asked.elapsed());
    Ok(())
}

/// Ends the sessions of lost nodes again and again, each time for `limit` at most. A cut loses nothing: each session has a transaction
/// of its own.
async fn settle(store: Store, clock: Clock, pause: Duration, limit: Duration) {
    loop {
        match timeout(limit, close_interrupted(&store, &clock)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(%error, "sessions of lost nodes cannot be settled yet; retrying");
            }
            Err(_) => tracing::warn!("sessions of lost nodes are not all settled yet; retrying"),
        }
        sleep(pause).await;
    }
}

/// The id of a data folder; made when it is first asked for.
fn folder_id(data_dir: &Path) -> std::io::Result<String> {
    let path = data_dir.join(ID_FILE_NAME);
    let mut file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
    let mut id = String::new();
    file.read_to_string(&mut id)?;
    if id.trim().is_empty() {
        id = new_uid();
        file.write_all(id.as_bytes())?;
        file.sync_all()?;
    }
    Ok(id.trim().to_owned())
}
