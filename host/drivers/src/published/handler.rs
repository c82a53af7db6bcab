//! Requests of viewers that a driver answers itself.

use std::fmt::Debug;
use std::pin::Pin;
use std::sync::Arc;

use satcast_plugin_api::HttpRequest;
use satcast_plugin_api::http::{IN_FLIGHT_MAX, REQUEST_TEXT_BYTES_MAX};

use super::asset::Published;

#[derive(Debug)]
pub struct Answer {
    /// 200, 204, or 400 to 599.
    pub status: u16,
    /// Further headers, checked.
    pub headers: Vec<(String, String)>,
    /// Media type, caching and bytes.
    pub asset: Arc<Published>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unanswered {
    /// There is no such route, or the opening has ended.
    #[error("no driver answers this path")]
    NoRoute,
    #[error("the path or the query is longer than {REQUEST_TEXT_BYTES_MAX} bytes")]
    TooLong,
    /// [`IN_FLIGHT_MAX`] requests are waiting.
    #[error("{IN_FLIGHT_MAX} requests already wait for the driver")]
    Busy,
    #[error("the driver did not answer in time")]
    TimedOut,
    /// The driver's answer breaks a rule, or the driver ended.
    #[error("the driver failed to answer")]
    Failed,
}

/// A pending answer. It may be dropped early.
pub type Answering<'a> = Pin<Box<dyn Future<Output = Result<Answer, Unanswered>> + Send + 'a>>;

/// Passes the requests to one opening on to its driver.
pub trait Handler: Debug + Send + Sync {
    fn ask(&self, asked: HttpRequest) -> Answering<'_>;
}
