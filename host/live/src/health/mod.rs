//! How good a stream is: what its encoder sends, and what of it the platforms behind its destinations do not take.
//!
//! - [`gauge`]: figures, taken from packet headers on the encoder's own thread.
//! - [`verdict`]: figures and wishes to named issues.
//! - [`watch`]: which issues are shown and told, so that what flickers is not.
//!
//! All of it is pure: times are arguments. Nothing is enforced: a platform that is asked too much says so itself.

mod figures;
mod gauge;
mod issues;
mod verdict;
mod watch;
mod window;

pub use figures::{AudioHealth, Figures, VideoHealth};
pub(super) use gauge::Gauge;
pub use issues::{Issue, IssueCode};
pub(super) use verdict::{Wish, judge};
pub use watch::HealthNews;
pub(super) use watch::Watch;

/// A stream's health at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Health {
    /// What comes.
    pub figures: Figures,
    /// What is wrong with it.
    pub issues: Vec<Issue>,
}
