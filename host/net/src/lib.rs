//! How the service speaks with the world: the guard before every address that users give, certificates, the HTTP listener.

pub mod certificates;
pub mod http;
pub mod outbound;
