//! The author's side: implement [`Driver`] and [`Destination`], export with [`export_driver!`](crate::export_driver).
//!
//! ```no_run
//! use std::sync::Arc;
//! use satcast_plugin_api::driver::{Config, Ctx, Destination, Driver, DriverInfo, DynDestination, Host, Media, State};
//! use satcast_plugin_api::{DestType, Error, Secret};
//!
//! #[derive(Clone, serde::Deserialize, schemars::JsonSchema)]
//! #[serde(deny_unknown_fields)]
//! struct Cfg {
//!     host: String,
//!     token: Secret<String>,
//! }
//!
//! struct Tcp;
//! struct Out(Cfg);
//!
//! impl Driver for Tcp {
//!     const INFO: DriverInfo = DriverInfo { id: "tcp", version: env!("CARGO_PKG_VERSION"), title: "Raw TCP" };
//!     fn types() -> Vec<DestType> {
//!         vec![DestType::of::<Cfg>("tcp").codecs(&["h264", "aac"])]
//!     }
//!     fn load(_: &Host) -> Result<Self, Error> {
//!         Ok(Tcp)
//!     }
//!     fn open(&self, config: Config<'_>) -> Result<Arc<dyn DynDestination>, Error> {
//!         Ok(Arc::new(Out(config.parse()?)))
//!     }
//! }
//!
//! impl Destination for Out {
//!     async fn run(self: Arc<Self>, ctx: Ctx, mut media: Media) -> Result<(), Error> {
//!         let stream = ctx.connect(&self.0.host, 9000, std::time::Duration::from_secs(5)).await?;
//!         ctx.state(State::Live);
//!         let mut batch = Vec::new();
//!         while media.recv_batch(&mut batch).await {
//!             for packet in batch.drain(..) {
//!                 ctx.bytes_sent(packet.payload.len() as u64);
//!             }
//!         }
//!         drop(stream);
//!         Ok(())
//!     }
//! }
//!
//! satcast_plugin_api::export_driver!(Tcp);
//! ```
//!
//! # Threads and states
//!
//! A mark begins the description of each function:
//! - `[probe]`: called in a child process before anything is loaded, and whenever the host inspects the file, without a runtime.
//! - `[control]`: the host calls it on the driver's one control thread, never two at once, from `load` to the end of the process. It may spawn
//!   tasks and must not wait.
//! - `[task]`: runs as a task of the driver's runtime, or may be awaited in one.
//! - `[any]`: from any thread of the driver, also from several at once, and never blocks. With a [`Ctx`] from the beginning of
//!   [`Destination::run`] on: once `run` has returned, or was cancelled, a call has no effect. With a [`Host`] from [`Driver::load`] on. A
//!   [`Packet`](crate::Packet) stays valid for as long as it is held.

#[allow(unsafe_code)] // Calls the host's table.
mod assets;
#[allow(unsafe_code)] // Calls the host's table.
mod ctx;
mod host;
#[allow(unsafe_code)] // Calls the host's table.
pub(crate) mod hostref;
#[allow(unsafe_code)] // Calls the host's table.
mod http;
#[allow(unsafe_code)] // Calls the host's table.
pub(crate) mod log;
#[allow(unsafe_code)] // Calls the host's table.
mod media;
#[allow(unsafe_code)] // Calls the host's table.
mod net;
#[allow(unsafe_code)] // Calls the host's table.
pub(crate) mod pump;
#[allow(unsafe_code)] // Answers the host.
mod recordings;
mod time;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::Value;

pub use ctx::Ctx;
pub use host::Host;
pub(crate) use http::respond;
pub use media::{BATCH_PACKETS_MAX, Media, keep};
pub use net::unacknowledged;
pub use recordings::{Answer, BytesAnswer, IndexAnswer, Recordings};
pub use time::Time;

pub use crate::driver_state::State;
pub use crate::http::Method;
pub use crate::manifest::{Route, SettingsSchema};
pub use crate::recording::{About, FinishedFile, Fragment, Recording, RecordingIndex, RecordingState};

use crate::{DestType, Error, HttpRequest, HttpResponse, TypesSetting};

/// The identity of a driver.
#[derive(Debug, Clone, Copy)]
pub struct DriverInfo {
    /// Name in `[drivers] enabled` and `[driver.<name>]`: `a-z`, `0-9`, `-`, at most 32.
    pub id: &'static str,
    /// Semantic version.
    pub version: &'static str,
    /// Human name.
    pub title: &'static str,
}

/// One per process: makes destinations.
///
/// Everything but [`Driver::types`] and [`Driver::settings`] is called on the driver's control thread, one call at a time, inside the
/// driver's runtime (so that it may spawn tasks) but not asynchronously: a function that blocks delays the opening of all
/// destinations of the driver, and after the stated time the host abandons the driver.
pub trait Driver: Send + Sync + Sized + 'static {
    /// Name and version.
    const INFO: DriverInfo;

    /// Threads its destinations run on, 1 to 8. One is right for work that waits for the network: a second one mostly
    /// wakes for nothing. Use more for work that computes.
    const WORKERS: usize = 1;

    /// Packets must not be lost when a destination is slow: the host spools them to disk, up to the operator's limit, instead of
    /// dropping them. For drivers that record; live destinations are better off without old media. A host before minor version 4
    /// ignores this.
    const LOSSLESS: bool = false;

    /// `[probe]` The destination types it serves. Called before `load`, without a runtime, whenever the host inspects the file: no side effects.
    fn types() -> Vec<DestType>;

    /// `[probe]` The settings that an operator may make; without them any key below `[driver.<id>]` that the host does not read is an error.
    /// Called as [`Driver::types`] is.
    fn settings() -> Option<SettingsSchema> {
        None
    }

    /// `[probe]` The setting with which operators add destination types, or change those of [`Driver::types`]. Called as
    /// [`Driver::types`] is.
    fn made_types() -> Option<TypesSetting> {
        None
    }

    /// `[control]` Called once, before anything is opened; within five seconds.
    ///
    /// # Errors
    /// The driver cannot work here; the host then lists it as refused, with this text.
    fn load(host: &Host) -> Result<Self, Error>;

    /// `[control]` Checks a configuration that its schema accepts. No I/O; within one second.
    ///
    /// # Errors
    /// Class `Config`. A text that begins with a field's name and a colon is shown at that field.
    fn validate(&self, config: Config<'_>) -> Result<(), Error> {
        let _ = config;
        Ok(())
    }

    /// `[control]` Makes a destination; no I/O. Within one second. Called again for each try.
    ///
    /// # Errors
    /// As [`Destination::run`], which is then not called.
    fn open(&self, config: Config<'_>) -> Result<Arc<dyn DynDestination>, Error>;

    /// `[control]` The functions for recordings that outlive their sessions, if the driver keeps any.
    fn recordings(&self) -> Option<&dyn Recordings> {
        None
    }
}

/// Result of a change of configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reconfigured {
    /// The new configuration is in effect.
    Taken,
    /// The new configuration needs a new opening: the host stops this one and opens the destination again.
    Reopen,
}

/// One per opening of a destination.
pub trait Destination: Send + Sync + 'static {
    /// `[task]` Runs on the driver's runtime from `open` to the end. Return `Ok` when [`Media::recv_batch`] returns false,
    /// after flushing; return an error at the first failure: the host opens the destination again after its back-off. The future is
    /// dropped when it does not end within the stop deadline, and a panic in it is its outcome.
    fn run(self: Arc<Self>, ctx: Ctx, media: Media) -> impl Future<Output = Result<(), Error>> + Send;

    /// `[control]` The owner changed the configuration while `run` runs; the new one is valid. Called on the control thread, concurrently
    /// with `run`: pass it on through a lock or a `watch` channel, and return. The default asks for a new opening.
    ///
    /// # Errors
    /// The same as [`Reconfigured::Reopen`], and logged.
    fn reconfigure(&self, config: Config<'_>) -> Result<Reconfigured, Error> {
        let _ = config;
        Ok(Reconfigured::Reopen)
    }

    /// `[task]` A viewer request below one of the type's [`routes`](crate::DestType::route). Runs on the driver's runtime, concurrently with
    /// `run` and other requests, within [`ANSWER_SECS`](crate::http::ANSWER_SECS), or [`LONG_ANSWER_SECS`](crate::http::LONG_ANSWER_SECS) for a
    /// long route. The default answers 404.
    ///
    /// # Errors
    /// The viewer gets status 500 without the reason, which is logged. The same after a panic.
    fn http(
        self: Arc<Self>,
        request: HttpRequest,
    ) -> impl Future<Output = Result<HttpResponse, Error>> + Send {
        let _ = request;
        async { Ok(HttpResponse::not_found()) }
    }
}

/// A future in a box.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// [`Destination`] without its type; implemented for every destination.
pub trait DynDestination: Send + Sync + 'static {
    /// See [`Destination::run`].
    fn run_dyn(self: Arc<Self>, ctx: Ctx, media: Media) -> BoxFuture<Result<(), Error>>;

    /// See [`Destination::reconfigure`].
    ///
    /// # Errors
    /// As there.
    fn reconfigure_dyn(&self, config: Config<'_>) -> Result<Reconfigured, Error>;

    /// See [`Destination::http`].
    fn http_dyn(self: Arc<Self>, request: HttpRequest) -> BoxFuture<Result<HttpResponse, Error>>;
}

impl<D: Destination> DynDestination for D {
    fn run_dyn(self: Arc<Self>, ctx: Ctx, media: Media) -> BoxFuture<Result<(), Error>> {
        Box::pin(self.run(ctx, media))
    }

    fn reconfigure_dyn(&self, config: Config<'_>) -> Result<Reconfigured, Error> {
        self.reconfigure(config)
    }

    fn http_dyn(self: Arc<Self>, request: HttpRequest) -> BoxFuture<Result<HttpResponse, Error>> {
        Box::pin(self.http(request))
    }
}

/// A destination's type and configuration.
#[derive(Clone, Copy)]
pub struct Config<'a> {
    type_name: &'a str,
    json: &'a Value,
}

impl<'a> Config<'a> {
    pub(crate) fn new(type_name: &'a str, json: &'a Value) -> Self {
        Self { type_name, json }
    }

    /// One of the names in [`Driver::types`], or one that an operator added ([`Driver::made_types`]).
    pub fn type_name(&self) -> &'a str {
        self.type_name
    }

    /// Reads it as `C`.
    ///
    /// # Errors
    /// Class `Config`, without a value in the text: values may be secret.
    pub fn parse<C: DeserializeOwned>(&self) -> Result<C, Error> {
        C::deserialize(self.json).map_err(|_| does_not_fit(self.type_name))
    }
}

fn does_not_fit(type_name: &str) -> Error {
    Error::config(format!("the configuration does not fit destination type {type_name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn does_not_fit_text() {
        let text = "the configuration does not fit destination type rtmp";
        assert_eq!(does_not_fit("rtmp"), Error::config(text));
    }
}
