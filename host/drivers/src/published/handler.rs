//! Requests of viewers that a driver answers itself.

use std::fmt::Debug;
use std::pin::Pin;
use std::sync::Arc;

use satcast_plugin_api::HttpRequest;
use satcast_plugin_api::http::{IN_FLIGHT_MAX, REQUEST_TEXT_BYTES_MAX};

use super::asset::Published;

/// A driver's answer.
#[derive(Debug)]
pub struct Answer {
    /// 200, 204, or 400 to 599.
    pub status: u16,
    /// Further headers, checked.
    pub headers: Vec<(String, String)>,
    /// Media type, caching and bytes.
    pub piece: Arc<Published>,
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unanswered {
    /// There is no such route, or the opening has ended.
    #[error("nobody answers this")]
    NoRoute,
    /// Path or query are too long.
    #[error("the path or the query has over {REQUEST_TEXT_BYTES_MAX} bytes")]
    TooLong,
    /// So many requests wait already.
    #[error("over {IN_FLIGHT_MAX} requests wait for the driver")]
    Busy,
    /// Not in time.
    #[error("the driver did not answer in time")]
    TimedOut,
    /// What the driver answered breaks a rule, or it ended.
    #[error("the driver failed to answer")]
    Failed,
}

/// An answer that comes. It may be dropped before.
pub type Answering<'a> = Pin<Box<dyn Future<Output = Result<Answer, Unanswered>> + Send + 'a>>;

/// Answers the requests to one opening.
pub trait Handler: Debug + Send + Sync {
    /// Asks the driver.
    ///
    /// # Errors
    /// There is no answer, and why.
    fn ask(&self, asked: HttpRequest) -> Answering<'_>;
}
