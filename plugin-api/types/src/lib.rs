//! The types that encoder side, host and drivers share.
//!
//! The media crate, the driver contract, the host and the drivers use these types as they are. The C table is a view of them at the boundary
//! of a library; towards an isolated driver they are serialized with serde; their bytes are sent separately.
//!
//! Deliberately absent: I/O, clocks, policy, and any dependency but `bytes` and `serde`.

#![warn(missing_docs)]

mod error;
pub mod http;
mod packet;
pub mod playback;
pub mod recording;
mod state;

pub use error::{Class, Error};
pub use http::{HttpRequest, HttpResponse};
pub use packet::{Codec, Kind, NANOS_PER_MILLI, Packet, Role};
pub use playback::{Asset, AssetBody, Audience, Followed, Playback, Reload, SegmentPosition};
pub use state::State;
