//! The driver under the testkit's host, over real loopback sockets: calling scripted receivers, and called by them.
#![allow(clippy::unwrap_used)] // A failed step is a failed test.

#[macro_use]
mod kit;
mod called;
mod calls;
mod refused;
