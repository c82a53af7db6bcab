//! Shared state of the driver. It knows the stores: those of destinations, and the operator's, which may change.
//!
//! The journal keeps the store of each recording, encrypted with its keys, also the operator's. An upload ends where it
//! began, and an object is looked for where it was stored, whatever the settings say by then. `follow` says what may
//! change.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use satcast_plugin_api::Error;
use tokio::time::Instant;

use crate::config::{Own, Settings, Target, no_operator_store};
use crate::entry::{Bucket, State};
use crate::limits::{Limits, READS_AT_ONCE};
use crate::names;
use crate::outside::Outside;
use crate::rules::Rules;
use crate::table::{Item, Table};
use crate::upload::blocks::Blocks;
use crate::upload::permits::{Client, Permits};
use crate::upload::sockets::Sockets;
use crate::upload::store::Store;

/// The operator's store in the current settings.
#[derive(Debug)]
struct Operator {
    target: Option<Target>,
    sealed: Option<String>,
}

impl Operator {
    /// # Errors
    /// `Config` for a bad store in the settings.
    fn new(settings: &Settings, outside: &dyn Outside) -> Result<Self, Error> {
        let target = settings.target()?;
        let sealed = target.as_ref().map(|target| target.sealed(outside)).transpose();
        let sealed = sealed.unwrap_or_else(|error| {
            tracing::warn!(%error, "the operator's store cannot be saved with recordings; after a change of [archive] they are looked up in the new store");
            None
        });
        Ok(Operator { target, sealed })
    }
}

/// The part of a destination's configuration that its recordings follow.
#[derive(Debug, Clone)]
pub(crate) struct Said {
    pub(crate) own: Own,
    pub(crate) rules: Rules,
}

/// The latest configurations of destinations.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) said: Mutex<BTreeMap<i64, Said>>,
    /// Held while recordings take a new configuration, so that the latest one wins.
    pub(crate) following: tokio::sync::Mutex<()>,
}

/// The driver without its contract.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) outside: Arc<dyn Outside>,
    pub(crate) limits: Limits,
    pub(crate) table: Arc<Table>,
    /// One for each request to a store.
    pub(crate) requests: Permits,
    /// One for each read of a store for a viewer.
    pub(crate) reads: Permits,
    /// One for each MiB of parts in memory.
    pub(crate) memory: Permits,
    pub(crate) blocks: Arc<Blocks>,
    operator: Operator,
    pub(crate) sockets: Arc<Sockets>,
    pub(crate) started: Instant,
    pub(crate) wanted: Wanted,
}

impl Core {
    /// Starts no task.
    ///
    /// # Errors
    /// `Config` for a bad store in the settings, `Internal` when the folders below `data` cannot be used.
    pub(crate) fn new(
        data: &Path,
        settings: &Settings,
        limits: Limits,
        outside: Arc<dyn Outside>,
    ) -> Result<Self, Error> {
        Ok(Core {
            operator: Operator::new(settings, &*outside)?,
            table: Arc::new(Table::open(data, &limits, outside.clone())?),
            requests: Permits::new(limits.requests_at_once),
            reads: Permits::new(READS_AT_ONCE),
            memory: Permits::new(limits.parts_mib),
            blocks: Arc::default(),
            sockets: Arc::new(Sockets::new(outside.clone(), limits.times)),
            started: Instant::now(),
            wanted: Wanted::default(),
            outside,
            limits,
        })
    }

    /// The operator's store.
    ///
    /// # Errors
    /// `Config` when there is none.
    pub(crate) fn operator(&self) -> Result<&Target, Error> {
        self.operator.target.as_ref().ok_or_else(no_operator_store)
    }

    /// The store of a destination's recordings, as the journal keeps it.
    pub(crate) fn bucket(&self, own: &Own) -> Bucket {
        match own {
            Some((_, sealed)) => Bucket::Own(sealed.clone()),
            None => Bucket::Operators(self.operator.sealed.clone()),
        }
    }

    /// The store of a recording, and its key there.
    ///
    /// # Errors
    /// `Config` or `Internal` when the store is gone or cannot be decrypted.
    pub(crate) fn store(&self, item: &Item) -> Result<(Store, String), Error> {
        let (target, key) = self.place(item)?;
        Ok((Store::new(target, self.sockets.clone()), key))
    }

    /// The client for permits of this recording's requests.
    pub(crate) fn client(&self, item: &Item) -> Client {
        let owner = item.data().entry.owner();
        let Ok((target, _)) = self.place(item) else {
            return Client { owner, store: String::new(), is_operators: false };
        };
        let operators = self.operator.target.as_ref();
        Client {
            owner,
            is_operators: operators.is_some_and(|present| present.is_same_bucket(&target)),
            store: format!("{}/{}", target.endpoint, target.bucket),
        }
    }

    /// The store of a recording with current keys, and its key there.
    ///
    /// # Errors
    /// As [`Core::store`].
    pub(crate) fn place(&self, item: &Item) -> Result<(Target, String), Error> {
        let (bucket, key) = {
            let entry = &item.data().entry;
            (entry.bucket.clone(), entry.at_store.as_ref().map(|at_store| at_store.key.clone()))
        };
        let (sealed, is_operators) = match bucket {
            Bucket::Own(sealed) => (Some(sealed), false),
            Bucket::Operators(sealed) => (sealed, true),
        };
        let known = sealed.map(|sealed| Target::unsealed(&sealed, &*self.outside)).transpose()?;
        let target = match (known, &self.operator.target) {
            // The settings may have new keys or a corrected region; only the place belongs to the recording.
            (Some(known), Some(present)) if is_operators && present.is_same_bucket(&known) => {
                Target { prefix: known.prefix, ..present.clone() }
            }
            (Some(known), _) => known,
            // The store could not be sealed.
            (None, _) => {
                let present = self.operator()?;
                if let State::Done { url } = item.data().reported()
                    && !url.starts_with(&format!("s3://{}/", present.bucket))
                {
                    return Err(Error::config(format!(
                        "the recording is in another bucket than [archive] names now ({}); ask the operator",
                        present.bucket
                    )));
                }
                present.clone()
            }
        };
        let key = key.unwrap_or_else(|| names::key(&target.prefix, &item.file_name));
        Ok((target, key))
    }
}
