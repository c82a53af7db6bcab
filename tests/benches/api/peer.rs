//! A poem server that does nothing but answer: the same program started again, so that its CPU is its own.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::sync::OnceLock;

use poem::listener::TcpListener;
use poem::{Route, Server, handler};

/// Port and answer of the peer.
const PORT: &str = "BENCH_PEER_PORT";
const ANSWER: &str = "BENCH_PEER_ANSWER";

/// The port this process shall serve, if it was started as the peer.
pub(crate) fn asked_for() -> Option<u16> {
    std::env::var(PORT).ok()?.parse().ok()
}

/// The command that starts the peer.
pub(crate) fn command(port: u16, answer: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("the benchmark's own file"));
    command.env(PORT, port.to_string()).env(ANSWER, answer);
    command
}

#[handler]
fn bare() -> poem::Response {
    static TEXT: OnceLock<String> = OnceLock::new();
    let text = TEXT.get_or_init(|| std::env::var(ANSWER).unwrap_or_default());
    poem::Response::builder().content_type("application/json; charset=utf-8").body(text.as_str())
}

/// Serves until it is ended.
pub(crate) fn serve(port: u16) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let routes = Route::new().at("/api/public/stream/status", poem::get(bare));
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    runtime.block_on(Server::new(TcpListener::bind(address)).run(routes)).expect("a server");
}
