//! node-media-server, from npm: a peer of benchmarks.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::ports::Port;
use crate::process::{Process, guarded};
use crate::wait;

/// A running node-media-server with one application, `live`.
#[derive(Debug)]
pub struct NodeMediaServer {
    process: Process,
    port: Port,
    _folder: TempDir,
}

impl NodeMediaServer {
    /// Relays everything that is published to it to `targets` (RTMP URLs without a stream name) under the same name.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn relaying(targets: &[String]) -> Self {
        let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers");
        assert!(scripts.join("node_modules").is_dir(), "`cargo xtask bench` installs the peers first");
        let folder = tempfile::tempdir().expect("a folder for node-media-server");
        let port = Port::lease();
        let mut command = guarded(&PathBuf::from("node"));
        command.arg(scripts.join("relay.mjs")).arg(port.address().port().to_string()).arg(folder.path());
        command.args(targets).current_dir(folder.path());
        let mut process = Process::start("node-media-server", command, &folder.path().join("server.log"));
        wait::until("node-media-server to listen", || {
            assert!(process.ended().is_none(), "node-media-server ended: {}", process.log());
            std::net::TcpStream::connect(port.address()).map_err(|error| error.to_string())
        });
        Self { process, port, _folder: folder }
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> std::net::SocketAddr {
        self.port.address()
    }

    /// The process, to measure it.
    #[must_use]
    pub fn process(&self) -> &Process {
        &self.process
    }
}
