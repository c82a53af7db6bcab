//! End-to-end tests of the built service, one module for each promise.

mod api;
mod billing;
mod clients;
mod codecs;
mod crash;
mod document;
mod drivers;
mod encoder_returns;
mod events;
mod forward;
mod hostile;
mod isolation;
mod judges;
mod lame_servers;
mod metering;
mod native;
mod odd_streams;
mod operator;
mod peers;
mod playback;
mod player;
mod readme;
mod schemathesis;
mod status;
mod viewers;
mod webhooks;
