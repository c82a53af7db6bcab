//! The target is checked at every attempt; TLS is checked against the name.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::{RootCertStore, ServerConfig, crypto::ring};

use super::receiver::{Receiver, Reply};
use super::{Rig, SETTING, guard};
use crate::Sender;
use crate::target::Targets;
use satcast_core::ids::WebhookId;
use satcast_net::outbound::{Answers, Refused};
use satcast_store::{DeliveryState, EventType};

const OK: Reply = Reply::Status(204, "", "");
const NAME: &str = "hooks.example.com";
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const PRIVATE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

async fn last_error(rig: &Rig, webhook: WebhookId) -> String {
    let attempts = rig.log(webhook).await.remove(0).attempts;
    attempts.last().unwrap().error.clone().unwrap_or_default()
}

#[tokio::test]
async fn a_forbidden_target_in_the_database_is_refused_when_sending() {
    for (url, words) in [
        ("https://10.0.0.1/in", "private"),
        ("https://[::ffff:10.0.0.1]/in", "private"),
        ("https://0x0a000001/in", "private"),
        ("https://169.254.169.254/latest", "link-local"),
        ("https://localhost/in", "loopback"),
        ("http://192.0.2.1/in", "must begin with https"),
        ("http://me:hunter2@127.0.0.1/in", "must not hold a user"),
        ("ftp://127.0.0.1/in", "must begin with https"),
    ] {
        let nothing_listed = Targets::with_guard(guard(&[]));
        let sender = Sender::with_roots(nothing_listed, RootCertStore::empty()).unwrap();
        let rig = Rig::with_sender(sender).await;
        let webhook = rig.webhook(url, &[EventType::StreamStarted], None).await;
        rig.begin().await;
        rig.round().await;
        let error = last_error(&rig, webhook).await;
        assert!(error.contains(words) && !error.contains("hunter2"), "{url}: {error}");
        assert_eq!(rig.states(webhook).await, [DeliveryState::Pending]);
    }
}

/// A certificate authority, and a server that it certifies for [`NAME`].
fn authority() -> (RootCertStore, TlsAcceptor) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate =
        CertificateParams::new(vec![NAME.to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(issuer.der().clone()).unwrap();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let server = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    (roots, TlsAcceptor::from(Arc::new(server)))
}

fn sender(answers: &Answers, roots: RootCertStore) -> Sender {
    let guard = guard(&["127.0.0.0/8"]).answering(answers.clone());
    Sender::with_roots(Targets::with_guard(guard), roots).unwrap().with_limit(super::LIMIT * 10)
}

#[tokio::test]
async fn a_name_is_resolved_once_per_attempt_and_rebinding_is_refused() {
    let (roots, tls) = authority();
    let receiver = Receiver::at("127.0.0.1", OK, Some(tls)).await;
    let answers = Answers::default();
    answers.lock().extend([vec![HERE], vec![PRIVATE], vec![HERE, PRIVATE], vec![], vec![HERE]]);
    let rig = Rig::with_sender(sender(&answers, roots)).await;
    let url = format!("https://{NAME}:{}/in", receiver.address.port());
    let webhook = rig.webhook(&url, &[EventType::StreamStarted], None).await;
    let mut errors = Vec::new();
    for _ in 0..5 {
        rig.begin().await;
        assert_eq!(rig.round().await, 1);
        errors.push(last_error(&rig, webhook).await);
    }
    let delivered: Vec<bool> = errors.iter().map(String::is_empty).collect();
    assert_eq!(delivered, [true, false, false, false, true], "{errors:?}");
    for refused in &errors[1..3] {
        let (name, why, setting) = (NAME.to_owned(), "private", SETTING);
        assert_eq!(*refused, Refused::Name { name, address: PRIVATE, why, setting }.to_string());
        assert!(!refused.contains("10.0.0.1"), "the address of a name is not shown: {refused}");
    }
    assert!(answers.lock().is_empty());
    let requests = receiver.received();
    assert_eq!(requests.len(), 2);
    let host = format!("{NAME}:{}", receiver.address.port());
    assert!(requests.iter().all(|request| request.headers["host"] == host));
}

#[tokio::test]
async fn a_certificate_of_a_stranger_or_for_another_name_is_refused() {
    let ((roots, tls), (strangers, _)) = (authority(), authority());
    let receiver = Receiver::at("127.0.0.1", OK, Some(tls)).await;
    for (roots, name) in [(strangers, NAME), (roots, "other.example.com")] {
        let answers = Answers::default();
        answers.lock().push_back(vec![HERE]);
        let rig = Rig::with_sender(sender(&answers, roots)).await;
        let url = format!("https://{name}:{}/in", receiver.address.port());
        let webhook = rig.webhook(&url, &[EventType::StreamStarted], None).await;
        rig.begin().await;
        rig.round().await;
        let error = last_error(&rig, webhook).await;
        assert!(error.starts_with("TLS failed") && error.contains("certificate"), "{error}");
    }
    assert!(receiver.received().is_empty());
}
