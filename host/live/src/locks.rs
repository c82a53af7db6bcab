//! The synchronisation types of the queue. The model checker replaces them (`host/model`).

pub(super) use std::sync::atomic::AtomicUsize;
pub(super) use std::sync::{Condvar, Mutex, MutexGuard};
