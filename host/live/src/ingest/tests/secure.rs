//! The RTMPS port: the same limits, and errors before the first byte of RTMP.

use rcgen::{CertificateParams, KeyPair};
use satcast_media::rtmp::client::ClientConfig as PublishConfig;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig as TlsConfig, RootCertStore, crypto::ring};

use super::super::end::End;
use super::*;
use satcast_net::certificates;

const NAME: &str = "live.example";

/// A certificate for [`NAME`] in files of `folder`.
pub(super) fn certificates(folder: &TempDir) -> Certificates {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec![NAME.to_owned()]).unwrap().self_signed(&key).unwrap();
    let (cert, secret) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    std::fs::write(folder.path().join("cert.der"), certificate.der()).unwrap();
    std::fs::write(&cert, certificates::pem("CERTIFICATE", certificate.der())).unwrap();
    std::fs::write(&secret, certificates::pem("PRIVATE KEY", &key.serialize_der())).unwrap();
    Certificates::load(Section::Ingest, &cert, &secret).unwrap()
}

/// TLS client that trusts the service's certificate, or none.
async fn handshake(
    service: &Service,
    believes: bool,
) -> io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    if believes {
        roots.add(std::fs::read(service._folder.path().join("cert.der")).unwrap().into()).unwrap();
    }
    let builder = TlsConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = builder.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots);
    let connector = TlsConnector::from(Arc::new(config.with_no_client_auth()));
    let socket = TcpStream::connect(service.secure).await.unwrap();
    timeout(PATIENCE, connector.connect(ServerName::try_from(NAME).unwrap(), socket)).await.unwrap()
}

#[tokio::test]
async fn encoders_publish_and_are_refused_over_tls() {
    let mut service = Service::quick().await;
    for (key, accepted) in [(service.key.clone(), true), (wrong_key(), false)] {
        let mut stream = handshake(&service, true).await.unwrap();
        let mut session =
            ClientSession::new(PublishConfig { app: "live".into(), stream_key: key, ..Default::default() });
        let mut said = None;
        while said.is_none() {
            stream.write_all(&session.output().take()).await.unwrap();
            let mut answer = bytes::BytesMut::new();
            assert!(timeout(PATIENCE, stream.read_buf(&mut answer)).await.unwrap().unwrap() > 0);
            session.input(answer.freeze()).unwrap();
            said = session.poll_event().filter(|event| !matches!(event, ClientEvent::Acknowledged { .. }));
        }
        if !accepted {
            assert!(
                matches!(&said, Some(ClientEvent::Rejected { code, .. }) if code.contains("Publish")),
                "{said:?}"
            );
            let end = timeout(PATIENCE, stream.read(&mut [0])).await.unwrap();
            assert_eq!(end.unwrap(), 0, "close notify");
            continue;
        }
        assert_eq!(said, Some(ClientEvent::Publishing));
        let sent: Vec<Packet> = (0..200).map(large_packet).collect();
        sent.iter().for_each(|packet| session.send(packet).unwrap());
        stream.write_all(&session.output().take()).await.unwrap();
        // Bytes that do not fit into the socket wait in the TLS session.
        stream.flush().await.unwrap();
        let (came, _) = service.packets(sent.len()).await;
        assert!(came == sent);
        session.end();
        stream.write_all(&session.output().take()).await.unwrap();
        stream.flush().await.unwrap();
        service.no_publisher_is_left().await;
    }
}

fn large_packet(number: i64) -> Packet {
    let payload = Bytes::from(vec![number as u8; 1 + (number as usize * 7919) % 40_000]);
    let dts_ns = number * NANOS_PER_MILLI;
    Packet::media(Codec::Aac, false, dts_ns, dts_ns, payload)
}

#[tokio::test]
async fn missing_tls_and_an_untrusted_certificate_have_their_own_texts() {
    let service = Service::quick().await;
    let log = Log::start();
    let mut plain = TcpStream::connect(service.secure).await.unwrap();
    plain.write_all(&[3; 1537]).await.unwrap();
    assert!(closed_by_service(&mut plain).await);
    log.says("use rtmps:// with this port, or rtmp:// with the RTMP port").await;
    assert!(handshake(&service, false).await.is_err());
    log.says("the encoder does not accept the certificate: UnknownCA").await;
    assert_eq!(service.publishers(), 0);
}

#[tokio::test]
async fn an_unfinished_tls_handshake_times_out() {
    let service = Service::start(0, |limits| limits.setup = Duration::from_millis(100)).await;
    let log = Log::start();
    let mut silent = TcpStream::connect(service.secure).await.unwrap();
    assert!(closed_by_service(&mut silent).await);
    log.says(End::SetupTimeout(100)).await;
}
