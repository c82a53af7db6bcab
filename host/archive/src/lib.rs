//! Recordings that outlive their sessions.
//!
//! The journals of the recording drivers are the truth. [`mirror`] saves their reports and compares them with their
//! lists; [`recovery`] retries a failed upload for a fee; [`notify`] notifies drivers of the configuration of
//! destinations. [`clips`] cuts files out of a stream. This crate knows no HTTP, and of media only the boxes of clips.

mod account;
mod clips;
mod making;
mod mirror;
mod notify;
mod objections;
mod recovery;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod uploads;

pub use account::{Archive, DELETE_LIMIT, DeleteError, OPEN_LIMIT, SIGNED_FOR};
pub use clips::{CLIP_SECS_MAX, CLIPS_WAITING_MAX, ClipOrder, ClipPlan, ClipRange, ClipSlot, NoClip};
pub use making::{CLIPS_AT_ONCE, COPIES_AT_ONCE};
pub use recovery::RecoveryError;
