//! A poem server that does nothing but answer.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::OnceLock;

use poem::listener::TcpListener;
use poem::{Route, Server, handler};
use satcast_tests::hosted::STATUS;

static ANSWER: OnceLock<String> = OnceLock::new();

#[handler]
fn bare() -> poem::Response {
    let text = ANSWER.get().expect("set before the server starts");
    poem::Response::builder().content_type("application/json; charset=utf-8").body(text.as_str())
}

/// Gives `answer` as the status until it is ended.
pub(crate) fn serve(port: u16, answer: String) {
    ANSWER.set(answer).expect("one server in a process");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let routes = Route::new().at(STATUS, poem::get(bare));
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    runtime.block_on(Server::new(TcpListener::bind(address)).run(routes)).expect("a server");
}
