//! `rtmps://`: real TLS servers, good and bad, and the errors that the owner of the destination gets.

use std::io::{self, Write as _};
use std::net::TcpStream;
use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;

use bytes::Bytes;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd};
use satcast_driver_rtmp::target::Target;
use satcast_driver_rtmp::tls::{self, Trust, failed};
use satcast_plugin_api::driver::State;
use satcast_plugin_api::testkit::{self, Testkit};
use satcast_plugin_api::{Class, Codec, Error};
use serde_json::json;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::{
    self, CertificateError, InvalidMessage, OtherError, RootCertStore, ServerConfig, ServerConnection,
    StreamOwned, crypto::ring,
};

use crate::refusals::assert_closed;
use crate::server::{Conn, Quick, Server, Stream, assert_same, push_all, push_until_live, stream};

const KEY: &str = "live_sesame5555566666";

fn authority(name: &str) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

fn known() -> &'static CertifiedIssuer<'static, KeyPair> {
    static KNOWN: OnceLock<CertifiedIssuer<'static, KeyPair>> = OnceLock::new();
    KNOWN.get_or_init(|| authority("known"))
}

/// Trusts the one authority of these tests.
pub(crate) fn trust() -> Trust {
    let mut roots = RootCertStore::empty();
    roots.add(known().der().clone()).unwrap();
    Trust::with_roots(roots).unwrap()
}

/// A server's configuration with a certificate for `names`, changed by `change`.
fn config(
    issuer: &CertifiedIssuer<'static, KeyPair>,
    names: &[&str],
    change: impl FnOnce(&mut CertificateParams),
) -> Arc<ServerConfig> {
    let mut params =
        CertificateParams::new(names.iter().map(ToString::to_string).collect::<Vec<_>>()).unwrap();
    change(&mut params);
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, issuer).unwrap();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    Arc::new(builder.with_single_cert(vec![certificate.der().clone()], key).unwrap())
}

fn good() -> Arc<ServerConfig> {
    config(known(), &["localhost", "127.0.0.1", "::1"], |_| {})
}

fn server(config: Arc<ServerConfig>, script: impl FnOnce(&mut Conn) + Send + 'static) -> Server {
    let dress = move |socket: TcpStream| -> Box<dyn Stream> {
        Box::new(StreamOwned::new(ServerConnection::new(config).unwrap(), socket))
    };
    Server::over(dress, script)
}

fn url(server: &Server, host: &str) -> String {
    format!("rtmps://{host}:{}/live", server.port)
}

/// The target of this server.
fn target(server: &Server) -> Target {
    Target::parse(&url(server, "127.0.0.1"), Some(KEY)).unwrap()
}

/// The reported error for an error of the TLS library.
fn handshake_failed(target: &Target, error: rustls::Error) -> Error {
    failed(target, &io::Error::new(io::ErrorKind::InvalidData, error))
}

#[test]
fn a_whole_stream_arrives_encrypted_and_the_end_is_announced() {
    let kit = kit!(Quick);
    for host in ["127.0.0.1", "localhost"] {
        let server = server(good(), |conn| {
            conn.accept();
            conn.read_out();
        });
        let dest = kit.open("rtmp", &json!({ "url": url(&server, host), "key": KEY })).unwrap();
        let sent = stream(0, 2000);
        push_all(&dest, &sent);
        assert!(dest.wait_for_state(State::Live));
        dest.stop();
        dest.wait_for_end().unwrap();
        let seen = server.finish();
        assert_same(&seen, &sent);
        assert!(seen.unpublished && seen.closed, "the closing alert came");
        assert_eq!(dest.counter("bytes_sent"), seen.bytes, "bytes without the TLS overhead");
        assert_eq!((seen.app.as_str(), seen.stream_key.as_str()), ("live", KEY));
    }
    testkit::assert_not_logged(KEY);
}

#[test]
fn the_server_gets_the_requested_host_name() {
    let kit = kit!(Quick);
    let (tell, asked) = mpsc::channel();
    let config = good();
    let dress = move |mut socket: TcpStream| -> Box<dyn Stream> {
        let mut tls = ServerConnection::new(config).unwrap();
        while tls.is_handshaking() {
            tls.complete_io(&mut socket).unwrap();
        }
        tell.send(tls.server_name().map(str::to_owned)).unwrap();
        Box::new(StreamOwned::new(tls, socket))
    };
    let server = Server::over(dress, |conn| conn.read_out());
    let dest = kit.open("rtmp", &json!({ "url": url(&server, "localhost"), "key": KEY })).unwrap();
    assert_eq!(asked.recv_timeout(testkit::WAIT_MAX).unwrap().as_deref(), Some("localhost"));
    dest.stop();
    dest.wait_for_end().unwrap();
    server.finish();
}

#[test]
fn a_server_that_reads_late_gets_everything_and_counts_as_stalled_meanwhile() {
    let kit = kit!(Quick);
    let (resume, resumed) = mpsc::channel();
    let server = server(good(), move |conn| {
        conn.accept();
        conn.until(|seen| seen.packets.len() > 3);
        resumed.recv().unwrap();
        conn.read_out();
    });
    let dest = kit.open("rtmp", &json!({ "url": url(&server, "127.0.0.1"), "key": KEY })).unwrap();
    let payload = Bytes::from(vec![7; 64 * 1024]);
    let mut sent: Vec<_> = (0..400)
        .map(|index| testkit::media(Codec::H264, index, index as i64, index == 0, payload.clone()))
        .collect();
    push_all(&dest, &sent);
    assert!(dest.wait_for_state(State::Live));
    assert!(dest.wait_for_state(State::Connecting), "the server takes no data");
    resume.send(()).unwrap();
    push_until_live(&dest, &mut sent);
    dest.stop();
    let end = dest.wait_for_end();
    let seen = server.finish();
    // The flush has a deadline, which a slow machine may miss; the received data is correct in any case.
    if end.is_ok() {
        assert_same(&seen, &sent);
    }
    assert!(seen.media().count() > 4);
}

/// Opens a destination at `server` that must fail, and checks the rules for every failure.
fn failure(kit: &Testkit, server: Server, host: &str) -> Error {
    let dest = kit.open("rtmp", &json!({ "url": url(&server, host), "key": KEY })).unwrap();
    push_all(&dest, &stream(0, 10));
    let error = dest.wait_for_end().unwrap_err();
    assert!(!error.message.contains("sesame"), "{error}");
    dest.report(|report| assert!(report.states.is_empty(), "never live: {report:?}"));
    assert_eq!(dest.counter("bytes_sent"), 0, "nothing was sent to it");
    server.finish();
    testkit::assert_not_logged("sesame");
    error
}

#[test]
fn untrusted_certificates_have_plain_errors() {
    let (kit, other) = (kit!(Quick), authority("unknown"));
    let authority_too =
        |params: &mut CertificateParams| params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let early = |params: &mut CertificateParams| params.not_before = date_time_ymd(2999, 1, 1);
    let late = |params: &mut CertificateParams| params.not_after = date_time_ymd(2020, 1, 1);
    let authority = CertificateError::Other(OtherError(Arc::new(io::Error::other("CaUsedAsEndEntity"))));
    for (config, why) in [
        (config(known(), &["127.0.0.1"], late), CertificateError::Expired),
        (config(known(), &["127.0.0.1"], early), CertificateError::NotValidYet),
        (config(known(), &["other.example"], |_| {}), CertificateError::NotValidForName),
        (config(known(), &["127.0.0.1"], authority_too), authority),
        (config(&other, &["127.0.0.1"], |_| {}), CertificateError::UnknownIssuer),
    ] {
        let server = server(config, |conn| {
            // The client disconnects in the handshake.
            let _ = conn.stream.flush();
            conn.drain();
        });
        let target = target(&server);
        let error = failure(&kit, server, "127.0.0.1");
        assert_eq!(error, handshake_failed(&target, rustls::Error::InvalidCertificate(why)));
        assert_eq!((error.class, error.retry_after), (Class::Remote, Some(Duration::from_secs(60))));
    }
}

#[test]
fn servers_without_tls_and_aborted_handshakes_have_different_errors() {
    let kit = kit!(Quick);
    let plain = Server::start(|conn| {
        conn.stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n").unwrap();
        conn.drain();
    });
    let no_tls = rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType);
    let expected = handshake_failed(&target(&plain), no_tls);
    assert_eq!(failure(&kit, plain, "127.0.0.1"), expected);
    let closing = Server::start(|_| {});
    let expected = failed(&target(&closing), &io::ErrorKind::UnexpectedEof.into());
    assert_eq!(failure(&kit, closing, "127.0.0.1"), expected);
    let silent = Server::start(|conn| conn.drain());
    let expected = tls::late(&target(&silent));
    assert_eq!(failure(&kit, silent, "127.0.0.1"), expected);
}

#[test]
fn a_cut_in_the_middle_is_a_failure_of_the_server() {
    let kit = kit!(Quick);
    let server = server(good(), |conn| {
        conn.accept();
        conn.until(|seen| seen.packets.len() > 50);
    });
    let dest = kit.open("rtmp", &json!({ "url": url(&server, "127.0.0.1"), "key": KEY })).unwrap();
    push_all(&dest, &stream(0, 500));
    let error = dest.wait_for_end().unwrap_err();
    assert_closed(&error, &target(&server));
    server.finish();
}
