//! Shared by all requests: request id and client address, the middleware, the error body, and CORS. Depends on neither API, playback
//! nor pages.

pub(crate) mod codes;
pub(crate) mod error;
pub(crate) mod middleware;
pub(crate) mod requests;

pub use codes::Code;
pub use error::ApiError;
pub use middleware::{Middleware, RequestContext};
pub use requests::Requests;
