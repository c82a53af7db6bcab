//! Tests a store before anything is recorded: opens and aborts an upload, with the rights that a recording needs.

use std::sync::Arc;
use std::time::Duration;

use satcast_plugin_api::recording::PROBE_SECS;
use satcast_plugin_api::{Class, Error};
use tokio::time::timeout;

use super::fault::{Fault, Kind};
use super::store::{Labels, Store};
use crate::config::{Config, Target};
use crate::core::Core;
use crate::names;

/// Not the name of any recording: those begin with a letter or a digit.
const NAME: &str = "_satcast/check";

/// Tests the store of a configuration.
///
/// # Errors
/// As [`satcast_plugin_api::driver::Recordings::probe`]. The user cannot fix a refusal by the operator's store, so it
/// is not reported as a refusal.
pub(crate) async fn probe(core: &Arc<Core>, config: &Config) -> Result<(), Error> {
    let own = config.target()?;
    let target = own.as_ref().map_or_else(|| core.operator().cloned(), |own| Ok(own.clone()))?;
    let looked = timeout(Duration::from_secs(PROBE_SECS), look(core, target)).await;
    let fault = match looked {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(fault)) => fault,
        Err(_) => silent(Duration::from_secs(PROBE_SECS)),
    };
    let error = fault.error;
    let field = match (fault.kind, error.class) {
        (Kind::Refused, _) => "accessKey",
        (Kind::NoBucket, _) => "bucket",
        (_, Class::Config) => "endpoint",
        _ => return Err(Error::new(Class::Network, error.message)),
    };
    if own.is_none() {
        let text = format!("the store of this service: {}; ask the operator", error.message);
        return Err(Error::new(Class::Remote, text));
    }
    Err(Error::config(format!("{field}: {}", error.message)))
}

/// The store does not answer.
pub(super) fn silent(waited: Duration) -> Fault {
    Fault::network(format!("the store gave no answer in {} s", waited.as_secs()))
}

async fn look(core: &Core, target: Target) -> Result<(), Fault> {
    let key = names::key(&target.prefix, NAME);
    let store = Store::new(target, core.sockets.clone());
    let labels = Labels { title: String::new(), session: "check".to_owned(), started: String::new() };
    let opened = store.open(&key, &labels).await?;
    store.abort(&key, &opened.id).await
}
