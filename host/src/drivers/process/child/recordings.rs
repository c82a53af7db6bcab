//! What the host asks about recordings, passed on to the library.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use satcast_plugin_api::Error;
use satcast_plugin_api::host::{Done, Driver, Recordings};
use serde::Serialize;

use super::super::handed::{sealed, sealed_memory};
use super::super::message::{Failure, ToHost};
use super::link::Link;

/// A question or a request.
pub(super) enum Asked {
    List { call: u64 },
    Sign { call: u64, valid: Duration, names: Vec<OwnedFd> },
    Retry { call: u64, request: u64, file_name: String },
    Delete { call: u64, request: u64, file_name: String, remote: bool },
    Probe { call: u64, request: u64, kind: String, config: String },
    Configured { call: u64, destination_id: i64, kind: String, config: Option<String> },
}

impl Asked {
    /// Answers it with what the library says.
    pub(super) fn answer(self, link: &Arc<Link>, driver: &Driver) {
        let recordings = driver.recordings().ok_or_else(|| Error::internal("the driver keeps no recordings"));
        let (call, outcome) = match self {
            Asked::List { call } => (call, recordings.and_then(|it| it.list()).and_then(|it| handed(&it))),
            Asked::Sign { call, valid, names } => {
                (call, recordings.and_then(|recordings| sign(recordings, valid, names)))
            }
            Asked::Retry { call, request, file_name } => {
                let begin = |recordings: Recordings| recordings.retry(&file_name, told(link, request));
                (call, recordings.map(begin).map(|()| None))
            }
            Asked::Delete { call, request, file_name, remote } => {
                let begin =
                    |recordings: Recordings| recordings.delete(&file_name, remote, told(link, request));
                (call, recordings.map(begin).map(|()| None))
            }
            Asked::Probe { call, request, kind, config } => {
                let begin = |recordings: Recordings| recordings.probe(&kind, &config, told(link, request));
                (call, recordings.map(begin).map(|()| None))
            }
            Asked::Configured { call, destination_id, kind, config } => {
                let tell = |it: Recordings| it.configured(destination_id, &kind, config.as_deref());
                (call, recordings.and_then(tell).map(|()| None))
            }
        };
        match outcome {
            Ok(Some(memory)) => link.send_with(&ToHost::Answer { call, outcome: Ok(true) }, &memory),
            Ok(None) => link.send(&ToHost::Answer { call, outcome: Ok(true) }),
            Err(error) => link.send(&ToHost::Answer { call, outcome: Err(Failure::from(error)) }),
        }
    }
}

fn sign(recordings: Recordings, valid: Duration, names: Vec<OwnedFd>) -> Result<Option<OwnedFd>, Error> {
    let names = sealed(names, u64::MAX)?;
    let names: Vec<String> = serde_json::from_slice(&names)
        .map_err(|error| Error::internal(format!("the host's names cannot be read: {error}")))?;
    let signed: Vec<Option<String>> = names.iter().map(|name| recordings.sign(name, valid).ok()).collect();
    handed(&signed)
}

fn handed(list: &impl Serialize) -> Result<Option<OwnedFd>, Error> {
    let json = serde_json::to_vec(list).map_err(|error| Error::internal(error.to_string()))?;
    sealed_memory(&json).map(Some)
}

/// Tells the host what became of a request.
fn told(link: &Arc<Link>, request: u64) -> Done {
    let link = link.clone();
    Box::new(move |outcome| {
        link.send(&ToHost::Done { request, failure: outcome.err().map(Failure::from) });
    })
}
