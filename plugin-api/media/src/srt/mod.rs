//! SRT, the listener's side of live mode: datagrams in, the bytes of the caller in order and answers out.
//!
//! Sources: "The SRT Protocol" (draft-sharabayko-srt-01; numbers of sections are of it), and RFC 3394 for the wrapped
//! keys. The flow: [`Request::parse`] reads a handshake. An induction is answered without any state
//! ([`Induction::answer`]) with a cookie ([`Cookies`]). A conclusion that brings the cookie back is refused with a
//! [`Reason`], or becomes a [`Connection`].
//!
//! Deliberately absent: callers of version 4 handshakes, rendezvous, sending of data, file mode, messages over several
//! packets, packet filters (FEC), bonded groups, and AES in GCM. Every amount that a peer controls has a limit in
//! [`limits`].

mod buffer;
mod connection;
mod crypto;
mod handshake;
pub mod limits;
mod reason;
mod stream_id;
#[cfg(test)]
mod tests;
mod wire;

pub use buffer::Delivery;
pub use connection::{Connection, Over, Stats};
pub use crypto::{KeyMaterial, Keys};
#[doc(hidden)]
pub use handshake::calling;
pub use handshake::{Accepted, Conclusion, Cookies, Induction, Request};
pub use reason::Reason;
pub use stream_id::{Mode, StreamId};
pub use wire::destination;
