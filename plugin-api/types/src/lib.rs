//! What passes between encoder, host and drivers, once for everyone.
//!
//! The media crate, the driver contract, the host and the drivers use these types as they are. The C table is a view of them at the boundary
//! of a library; towards a driver in a process of its own they are written with serde: bytes are left out and go beside them.
//!
//! Not here on purpose: I/O, clocks, policy, and any dependency but `bytes` and `serde`.

mod error;
pub mod http;
mod packet;
pub mod playback;
pub mod recording;
mod state;

pub use error::{Class, Error};
pub use http::{HttpRequest, HttpResponse};
pub use packet::{Codec, Kind, NANOS_PER_MILLI, Packet, Role};
pub use playback::{Asset, AssetBody, Audience, Followed, Playback, Reload, SegmentPlace};
pub use state::State;
