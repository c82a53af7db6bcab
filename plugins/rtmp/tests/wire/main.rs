//! The driver under the testkit's host, pushing to scripted RTMP servers over real loopback sockets.
#![allow(clippy::unwrap_used)] // A failed step is a failed test.

#[macro_use]
mod server;
mod backups;
mod login;
mod push;
mod refusals;
mod tls;
mod unread;
