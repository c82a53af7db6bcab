//! Everything the HTTP port serves.
//!
//! Layers; lower rows never use higher ones:
//! - [`site`]: the API and the pages in the middleware, playback beside it.
//! - [`api`]: the only HTTP-JSON; [`watch`]: the player page. Neither knows the other.
//! - [`pages`]: the built files of all pages.
//! - [`nodes`]: requests to the other nodes.
//! - [`playback`]: HLS for viewers.
//! - [`base`]: middleware, errors and CORS of all requests; [`auth`]: keys, sessions and passwords.
//!
//! Deliberately absent: sockets (`satcast-net`), SQL (`satcast-store`), and decisions about money, sessions and recordings.

pub mod api;
pub mod auth;
pub mod base;
pub mod nodes;
pub mod pages;
pub mod playback;
pub mod site;
pub mod watch;
