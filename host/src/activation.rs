//! Listening sockets from the service manager (`LISTEN_FDS`, sd_listen_fds(3)): they stay open while the service
//! restarts, so that no connection is refused.

use std::net::TcpListener;
use std::{env, process};

use listenfd::ListenFd;
use satcast_core::config::Config;

/// The names of the sockets, as `FileDescriptorName=` of a socket unit gives them.
const NAMES: [&str; 3] = ["http", "rtmp", "rtmps"];

/// The sockets that were handed over, by their names.
#[derive(Debug, Default)]
pub struct Sockets {
    pub http: Option<TcpListener>,
    pub rtmp: Option<TcpListener>,
    pub rtmps: Option<TcpListener>,
}

/// Why the sockets cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ActivationError {
    /// A socket has no name that the service knows.
    #[error(
        "the service manager hands over a socket \"{0}\"; name it http, rtmp or rtmps (FileDescriptorName=)"
    )]
    Name(String),
    /// Two sockets have one name.
    #[error("the service manager hands over two sockets \"{0}\"; hand over one")]
    Twice(&'static str),
    /// It is no listening TCP socket.
    #[error(
        "the socket \"{name}\" of the service manager cannot be used ({source}); use ListenStream= with an address and a port"
    )]
    Socket {
        /// Its name.
        name: &'static str,
        /// The system's error.
        source: std::io::Error,
    },
    /// RTMPS is not configured.
    #[error(
        "the service manager hands over a socket \"rtmps\", but RTMPS is not configured; set [ingest] rtmps_listen, \
         tls_cert and tls_key, or [acme] domains"
    )]
    NoTls,
}

impl Sockets {
    /// Takes the sockets that are meant for this process; none is the usual case. Call it once, before any thread
    /// starts: it changes the environment.
    ///
    /// # Errors
    /// A socket that cannot be used; ignoring it would leave its clients waiting for ever.
    pub fn take() -> Result<Self, ActivationError> {
        let own = env::var("LISTEN_PID").is_ok_and(|pid| pid == process::id().to_string());
        if !own {
            return Ok(Self::default());
        }
        let names = env::var("LISTEN_FDNAMES").unwrap_or_default();
        Self::named(ListenFd::from_env(), &names)
    }

    /// Refuses a socket that the configuration has no use for.
    ///
    /// # Errors
    /// [`ActivationError::NoTls`].
    pub fn check(&self, config: &Config) -> Result<(), ActivationError> {
        if self.rtmps.is_some() && config.ingest.rtmps().is_none() {
            return Err(ActivationError::NoTls);
        }
        Ok(())
    }

    fn named(mut handed: ListenFd, names: &str) -> Result<Self, ActivationError> {
        let mut sockets = Self::default();
        for index in 0..handed.len() {
            let name = names.split(':').nth(index).unwrap_or_default();
            let Some(name) = NAMES.into_iter().find(|known| *known == name) else {
                return Err(ActivationError::Name(name.to_owned()));
            };
            let taken = handed.take_tcp_listener(index);
            let socket = taken.map_err(|source| ActivationError::Socket { name, source })?;
            let place = match name {
                "http" => &mut sockets.http,
                "rtmp" => &mut sockets.rtmp,
                _ => &mut sockets.rtmps,
            };
            if std::mem::replace(place, socket).is_some() {
                return Err(ActivationError::Twice(name));
            }
        }
        Ok(sockets)
    }
}
