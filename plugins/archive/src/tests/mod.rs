//! The driver without its contract, against a server that checks signatures.

mod actions;
mod checked;
mod encoded;
mod failures;
mod fair;
mod follow;
mod full;
mod kept;
mod killed;
pub(crate) mod kit;
mod limits;
pub(crate) mod media;
mod played;
mod resume;
mod retention;
mod secure;
mod server;
mod texts;
mod upgrade;
mod watched;
