//! What every request goes through, whatever it asks for: its id and its client, the shell around it, the one shape of errors, and which
//! answers scripts of other sites may read. Knows neither API nor playback nor pages.

pub(crate) mod cors;
pub(crate) mod error;
pub(crate) mod shell;

pub use error::ApiError;
pub use shell::{RequestContext, Shell};
