//! Live sessions: one for each stream key that is being published.
//!
//! - [`hub`]: puts packets on one timeline ([`timeline`]) and into the queues; keeps codec configurations and the newest GOP
//!   ([`group`]).
//! - [`queue`]: the bounded queue of one destination; [`spool`]: the disk behind it, for drivers that must not lose packets.
//! - [`destination`]: opens, watches and reopens one destination; [`backoff`]: the wait between tries.
//! - [`backfill`]: gives a recording that is added to a live stream the media of the DVR window.
//! - [`live`]: all sessions of the service; [`shown`]: their public state.
//! - [`poster`]: the newest keyframe of a stream as a video of one frame.
//! - [`entry`]: which encoder may publish, and which must wait; [`refusals`]: the newest refusals.
//! - [`session`]: one session and the task that owns its life.
//! - [`slate`]: the clip that plays while no encoder sends.
//! - [`health`]: measures the encoder's media and compares it with the requirements of platforms.
//! - [`ingest`], above all of these: the ports of RTMP, SRT and WHIP. The other modules know nothing of these.
//!
//! Sessions report their usage through `satcast_usage`. This crate knows nothing of money and HTTP.

mod backfill;
mod backoff;
mod codes;
mod commands;
mod destination;
mod entry;
mod group;
mod health;
mod hub;
pub mod ingest;
mod live;
mod locks;
mod notifier;
mod poster;
mod queue;
#[cfg(test)]
mod queue_tests;
mod refusals;
mod session;
mod shown;
mod slate;
#[cfg(test)]
mod spill_tests;
mod spool;
mod timeline;
mod via;
mod view;

pub use codes::Closed;
pub use entry::PublishRefused;
pub use health::{
    AudioHealth, Figures, Health, HealthNews, Issue, IssueCode, LinkHealth, SrtStats, VideoHealth, WhipLink,
};
pub use live::{Admits, HEARTBEAT, LEASE_MARGIN, Live, SHUTDOWN_WAIT, Settings};
pub use poster::{POSTER_NAME, POSTER_SECS};
pub use refusals::{EncoderRefusal, REFUSALS_PER_STREAM_MAX};
pub use session::{FailoverTimes, Publisher};
pub use shown::{
    Delayed, DestState, DestinationSnapshot, EncoderRole, EncoderSnapshot, LiveDestination, LiveSession,
    SessionSnapshot, SessionState, Waiting,
};
pub use slate::slate_record;
pub use via::{VIA_MAX, Via};
