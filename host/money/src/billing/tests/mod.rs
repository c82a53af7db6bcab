//! Charges with a real store: the examples that were decided, interleavings and crashes.

mod examples;
mod held;
mod long;
mod notices;
mod playback;
mod property;
mod sessions;
