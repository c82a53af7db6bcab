//! A bare hyper server that answers with files from its memory.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;

/// Serves the files of `folder` until it is ended.
pub(crate) fn serve(port: u16, folder: &str) {
    let files = Arc::new(files(Path::new(folder)));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let address = (Ipv4Addr::LOCALHOST, port);
        let listener = tokio::net::TcpListener::bind(address).await.expect("the leased port is free");
        loop {
            let (socket, _) = listener.accept().await.expect("the server can accept");
            socket.set_nodelay(true).expect("a socket of ours");
            let files = Arc::clone(&files);
            let answer = service_fn(move |request: Request<hyper::body::Incoming>| {
                let file = files.get(request.uri().path()).cloned();
                async move { Ok::<_, Infallible>(answer(file)) }
            });
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(socket), answer));
        }
    });
}

fn answer(file: Option<Bytes>) -> Response<Full<Bytes>> {
    let status = if file.is_some() { StatusCode::OK } else { StatusCode::NOT_FOUND };
    let mut answer = Response::new(Full::new(file.unwrap_or_default()));
    *answer.status_mut() = status;
    answer
}

/// The files by path.
fn files(folder: &Path) -> BTreeMap<String, Bytes> {
    let entries = std::fs::read_dir(folder).expect("the folder to serve");
    let file = |entry: std::fs::DirEntry| {
        let bytes = std::fs::read(entry.path()).expect("a file to serve");
        (format!("/{}", entry.file_name().to_string_lossy()), Bytes::from(bytes))
    };
    entries.map(|entry| file(entry.expect("a file to serve"))).collect()
}
