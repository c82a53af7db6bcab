//! Live sessions: one for each stream key that is being published.
//!
//! - [`hub`]: packets in, on one timeline ([`timeline`]), out to the queues; keeps configurations and the last keyframe
//!   group ([`group`]).
//! - [`queue`]: the bounded queue of one destination; [`spool`]: the disk behind it, for who must not lose anything.
//! - [`destination`]: opens, watches and reopens one destination; waits by [`backoff`].
//! - [`backfill`]: gives a recording that is added to a live stream what the DVR window holds.
//! - [`live`]: all sessions of the service; [`shown`]: what others see of them.
//! - [`entry`]: which encoder is let in, and which has to wait.
//! - [`session`]: the task that owns a session's life; [`quiet`]: whose encoder has to be quiet first; [`allowed`]: whose has to go.
//! - [`health`]: what the encoder sends, and what of it platforms do not take.
//! - [`ingest`], above all of these: the RTMP and RTMPS ports. The others know no RTMP.
//!
//! What a session uses it tells through `satcast_usage`. Knows no money and no HTTP.

mod allowed;
mod backfill;
mod backoff;
mod codes;
mod destination;
mod entry;
mod group;
mod health;
mod heartbeat;
mod hub;
pub mod ingest;
mod live;
mod locks;
mod mailbox;
mod queue;
#[cfg(test)]
mod queue_tests;
mod quiet;
mod session;
mod shown;
#[cfg(test)]
mod spill_tests;
mod spool;
mod teller;
mod timeline;
mod via;
mod view;

pub use codes::Closed;
pub use entry::PublishRefused;
pub use health::{AudioHealth, Figures, Health, HealthNews, Issue, IssueCode, VideoHealth};
pub use heartbeat::HEARTBEAT;
pub use live::{Live, SHUTDOWN_WAIT, Settings};
pub use session::publisher::Publisher;
pub use shown::{
    Delayed, DestState, DestinationSnapshot, LiveDestination, LiveSession, SessionSnapshot, SessionState,
};
pub use via::{VIA_MAX, Via};
