//! End-to-end tests of the built service, one module for each promise.

mod api;
mod crash;
mod drivers;
mod encoder_returns;
mod forward;
mod hostile;
mod judges;
mod lame_servers;
mod operator;
mod peers;
mod readme;
