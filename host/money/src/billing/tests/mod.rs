//! Charges with a real store: agreed examples, interleavings and crashes.

mod examples;
mod held;
mod long;
mod notices;
mod playback;
mod prices;
mod property;
mod sessions;
