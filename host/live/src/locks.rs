//! What the queue synchronises with. A model checker puts its own in their place (`host/model`).

pub(super) use std::sync::atomic::AtomicUsize;
pub(super) use std::sync::{Condvar, Mutex, MutexGuard};
