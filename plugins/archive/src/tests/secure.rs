//! `https://` and connections: the certificates that the driver trusts, and time-outs without progress.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use object_store::client::HttpRequestBody;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::{RootCertStore, ServerConfig, crypto::ring};

use super::kit::Host;
use crate::upload::fault::Fault;
use crate::upload::sockets::{Sockets, Times, half_answer, silent};
use crate::upload::tls::{Trust, no_handshake, not_believed};

/// Answers with the number of received bytes and the host of the request.
async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let host = request.headers()["host"].to_str().unwrap().to_owned();
    let path = request.uri().to_string();
    let bytes = request.into_body().collect().await?.to_bytes().len();
    Ok(Response::new(Full::new(format!("{bytes} to {host}{path}").into())))
}

/// A TLS server for `localhost`, and the roots that know it.
async fn serve() -> (SocketAddr, RootCertStore) {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                if let Ok(stream) = acceptor.accept(socket).await {
                    let _ = http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service_fn(answer))
                        .await;
                }
            });
        }
    });
    (address, roots)
}

fn times() -> Times {
    let ms = Duration::from_millis;
    Times { connect: ms(5000), stall: ms(300), answer: ms(600) }
}

fn sockets(trust: Trust) -> Sockets {
    Sockets::new(Arc::new(Host::default()), times()).trusting(trust)
}

fn request(url: &str, body: Vec<u8>) -> Request<HttpRequestBody> {
    Request::put(url).header("content-length", body.len()).body(body.into()).unwrap()
}

async fn put(sockets: &Sockets, url: &str) -> Result<String, Fault> {
    let answer = sockets.exchange(request(url, vec![7; 3_000_000])).await?;
    Ok(String::from_utf8(answer.into_body().to_vec()).unwrap())
}

#[tokio::test]
async fn only_trusted_certificates_are_accepted() {
    let (address, roots) = serve().await;
    let port = address.port();
    let url = format!("https://localhost:{port}/a?b=c");
    let known = sockets(Trust::with_roots(roots));
    // Twice: the second request uses the kept connection.
    for _ in 0..2 {
        assert_eq!(put(&known, &url).await.unwrap(), format!("3000000 to localhost:{port}/a?b=c"));
    }
    let name = put(&known, &format!("https://127.0.0.1:{port}/")).await.unwrap_err();
    assert_eq!(name, not_believed("127.0.0.1"));
    let stranger = sockets(Trust::with_roots(RootCertStore::empty()));
    let fault = put(&stranger, &url).await.unwrap_err();
    assert_eq!(fault, not_believed("localhost"));
}

#[tokio::test]
async fn servers_without_tls_or_answers_are_distinguished() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let times = times();
    let strict = sockets(Trust::with_roots(RootCertStore::empty()));
    // It takes the connection and a part of the body, and then nothing.
    let fault = put(&strict, &format!("http://127.0.0.1:{port}/")).await.unwrap_err();
    assert_eq!(fault, silent(&format!("127.0.0.1:{port}"), times.stall));
    // The same for a request that is all gone, into buffers, and has no answer.
    let fault =
        strict.exchange(request(&format!("http://127.0.0.1:{port}/"), vec![7; 100])).await.unwrap_err();
    assert_eq!(fault, silent(&format!("127.0.0.1:{port}"), times.answer));
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let _ = tokio::io::AsyncWriteExt::write_all(&mut socket, b"HTTP/1.1 400 no\r\n\r\n").await;
        }
    });
    let fault = put(&strict, &format!("https://127.0.0.1:{port}/")).await.unwrap_err();
    assert_eq!(fault, no_handshake("127.0.0.1"));
}

#[tokio::test]
async fn an_answer_that_is_too_long_is_not_taken() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let long = service_fn(|_: Request<Incoming>| async {
                Ok::<_, hyper::Error>(Response::new(Full::new(Bytes::from(vec![b'x'; 2_000_000]))))
            });
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(socket), long));
        }
    });
    let url = format!("http://127.0.0.1:{port}/");
    let fault = sockets(Trust::default()).exchange(request(&url, Vec::new())).await.unwrap_err();
    assert_eq!(fault, half_answer(&format!("127.0.0.1:{port}")));
}
