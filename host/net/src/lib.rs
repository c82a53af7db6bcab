//! Network access of the service: the guard for every address from users, certificates, the HTTP listener.

pub mod acme;
pub mod certificates;
pub mod http;
pub mod outbound;
