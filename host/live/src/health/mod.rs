//! Health of a stream: measures the encoder's media, and compares it with the requirements of the destinations' platforms.
//!
//! - [`gauge`]: figures, measured from packet headers on the encoder's own thread.
//! - [`verdict`]: derives issues from figures and requirements.
//! - [`watch`]: decides which issues are shown and reported, without flicker.
//!
//! All modules are pure: times are arguments. Nothing is enforced: a platform that does not accept the media refuses it itself.

use std::time::Duration;

mod gauge;
mod issues;
mod verdict;
mod watch;

pub(super) use gauge::Gauge;
pub use gauge::{AudioHealth, Figures, VideoHealth};
pub use issues::{Issue, IssueCode};
pub(super) use verdict::{PlatformRequirements, Verdict, judge};
pub use watch::HealthNews;
pub(super) use watch::Watch;

/// A stream's health at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Health {
    pub figures: Figures,
    pub issues: Vec<Issue>,
    /// How often another encoder took over in this session, since its start at this node.
    pub failovers: u64,
    /// The connection of the encoder by SRT or WHIP; `None` by RTMP.
    pub link: Option<LinkHealth>,
}

pub use satcast_media::srt::Stats as SrtStats;

/// Numbers of an encoder's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkHealth {
    Srt(SrtStats),
    Whip(WhipLink),
}

/// Numbers of a WHIP connection, since it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct WhipLink {
    /// Round-trip time; `None` until the sender has reported it.
    pub rtt: Option<Duration>,
    /// Packets that never came.
    pub lost: u64,
    /// Requests to the sender to send packets again.
    pub nacks: u64,
}
