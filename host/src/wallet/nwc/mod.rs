//! Nostr Wallet Connect (NIP-47).

mod uri;

pub(super) use uri::{RELAYS_MAX, Uri};
