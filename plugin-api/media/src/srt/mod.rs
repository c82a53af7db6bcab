//! SRT in live mode: a listener that receives from callers, and both sides of a connection that sends.
//!
//! Sources: "The SRT Protocol" (draft-sharabayko-srt-01; numbers of sections are of it), and RFC 3394 for the wrapped
//! keys. The flow: [`Request::parse`] reads a handshake. An induction is answered without any state
//! ([`Induction::answer`]) with a cookie ([`Cookies`]). A conclusion that brings the cookie back is refused with a
//! [`Reason`], or becomes a [`Connection`], which gives the bytes of the caller in order; [`Sender::accept`] makes of it a
//! connection to a caller that receives. A [`Caller`] calls a listener, and becomes a [`Sender`] too.
//!
//! Deliberately absent: callers of version 4 handshakes, rendezvous, media in both directions of a connection, file mode,
//! messages over several packets, packet filters (FEC), bonded groups, AES in GCM, and new keys of a connection that
//! sends. Every amount that a peer controls has a limit in [`limits`].

mod buffer;
mod caller;
#[doc(hidden)]
pub mod calling;
mod connection;
mod crypto;
mod handshake;
pub mod limits;
mod pace;
mod reason;
mod sender;
#[cfg(test)]
mod sending;
mod stream_id;
#[cfg(test)]
mod tests;
mod wire;

pub use buffer::Delivery;
pub use caller::{Call, Called, Caller, Seed};
pub use connection::{Connection, Over, Stats};
pub use crypto::{KeyMaterial, Keys};
pub use handshake::{Accepted, Conclusion, Cookies, Induction, Request};
pub use reason::Reason;
pub use sender::{SendStats, Sender};
pub use stream_id::{Mode, StreamId};
pub use wire::destination;
