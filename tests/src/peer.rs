//! A server that is the benchmark's own program, started again, so that its CPU is its own.

use std::net::SocketAddr;

use tempfile::TempDir;

use crate::ports::Port;
use crate::process::{Process, guarded};
use crate::wait;

/// Port and argument of the server.
const PORT: &str = "BENCH_PEER_PORT";
const ARGUMENT: &str = "BENCH_PEER_ARGUMENT";

/// Port and argument, when this process was started as the server. A benchmark asks first of all.
#[must_use]
pub fn asked_for() -> Option<(u16, String)> {
    let port = std::env::var(PORT).ok()?.parse().ok()?;
    Some((port, std::env::var(ARGUMENT).unwrap_or_default()))
}

/// The running server.
#[derive(Debug)]
pub struct Peer {
    process: Process,
    port: Port,
    _folder: TempDir,
}

impl Peer {
    /// Starts this program as the server `name`, and waits until it listens.
    ///
    /// # Panics
    /// When it does not.
    #[must_use]
    pub fn start(name: &str, argument: &str) -> Self {
        let port = Port::lease();
        let folder = tempfile::tempdir().expect("a folder for the log");
        let mut command = guarded(&std::env::current_exe().expect("the benchmark's own file"));
        command.env(PORT, port.address().port().to_string()).env(ARGUMENT, argument);
        let process = Process::start(name, command, &folder.path().join("log"));
        wait::until(name, || {
            std::net::TcpStream::connect(port.address()).map(drop).map_err(|error| error.to_string())
        });
        Self { process, port, _folder: folder }
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// The process, to measure it.
    #[must_use]
    pub fn process(&self) -> &Process {
        &self.process
    }
}
