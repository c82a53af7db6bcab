//! A light load for relay servers: one thread publishes many streams in real time, and one server, also a single thread, receives
//! them. Every frame carries a stamp with its stream, its number and its time of sending, so that lost, repeated and misrouted
//! frames and latencies are measured.
//!
//! * [`frames`]: the stamp, the frames and their rhythm
//! * [`publishers`]: the senders
//! * [`sinks`]: the receivers
//! * [`srt`]: both by SRT
//! * [`servers`]: the relay servers between them; [`measure`]: one of them under one load
//! * [`webhooks`]: events for many webhooks
//!
//! Both sides speak RTMP or SRT with the project's own sessions over real sockets, and never decode anything.

pub mod frames;
pub mod measure;
pub mod publishers;
pub mod servers;
pub mod sinks;
pub mod srt;
pub mod webhooks;
