//! A light load for servers that relay: many streams published in real time by one thread, and one server that takes what
//! comes back, also one thread. Every frame carries a stamp that says which stream it is of, its number and when it was
//! sent, so that a lost, repeated or misrouted frame and the time on the way are counted, not guessed.
//!
//! * [`frames`]: the stamp, the frames and their rhythm
//! * [`publishers`]: the senders
//! * [`sinks`]: the receivers
//!
//! Both sides speak RTMP with the project's own sessions over real sockets, and never decode anything.

pub mod frames;
pub mod publishers;
pub mod sinks;
