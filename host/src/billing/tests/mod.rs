//! Charges with a real store.
