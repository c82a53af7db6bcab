//! The driver contract of Satcast.
//!
//! A *driver* serves one or more destination types. It is an ordinary Rust library with a type that implements
//! [`Driver`](driver::Driver), plus a thin `cdylib` crate that exports it with [`export_driver!`]. The host loads the
//! library from its drivers folder; no Rust ABI crosses the boundary (see [`abi`]), so host and driver may be built by
//! different compilers, and a driver may be written in C.
//!
//! # The life of a driver
//!
//! ```text
//!  entry ──> head and table checked ──> init ──────────────────────────────> deinit (never unloaded)
//!                                        │                                     ▲
//!                                        ├─ open ─> run ──> stopped ─> destroy ┤   once per try of a destination:
//!                                        │    ▲      │ error                   │   the host opens again with back-off
//!                                        │    └──────┘                         │
//!                                        └─ open ─> run ──> ...                ┘
//! ```
//!
//! # Invariants
//!
//! - A driver *pulls* media ([`Media::recv_batch`](driver::Media::recv_batch)). No driver code runs on a thread that takes
//!   packets from an encoder; a driver that does not read loses only its own packets.
//! - A packet's payload is never copied on its way through the boundary.
//! - A driver never retries by itself: `run` ends with an [`Error`] whose class tells the host how to continue.
//! - A driver never resolves a name from its user: it asks the host for a checked connection
//!   ([`Ctx::connect`](driver::Ctx::connect)).
//! - A panic in a driver is an error of that destination. A memory fault is not: a driver inside the host's process is
//!   trusted code.
//! - `unsafe` is only in the modules that touch the C table; each block says why it holds.
#![deny(unsafe_op_in_unsafe_fn)]
#![warn(missing_docs)]

pub mod abi;
pub mod driver_state;
pub mod manifest;
pub mod redact;
mod secret;
#[allow(unsafe_code)] // Reads the other side's pointers.
mod text;
#[cfg(any(feature = "runtime", feature = "host"))]
#[allow(unsafe_code)] // Reads and calls through the other side's pointers.
mod wire;

#[cfg(feature = "runtime")]
pub mod driver;
#[cfg(feature = "runtime")]
pub mod export;
#[cfg(feature = "host")]
pub mod host;
#[cfg(feature = "testkit")]
pub mod testkit;

pub use manifest::{DestType, Route, SettingsSchema, TypesSetting};
pub use satcast_types::{
    Asset, AssetBody, Audience, Class, Codec, Error, Followed, HttpRequest, HttpResponse, Kind,
    NANOS_PER_MILLI, Packet, Playback, Reload, Role, SegmentPosition, http, playback, recording,
};
pub use secret::Secret;
