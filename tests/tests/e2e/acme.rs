//! A certificate that the service orders by itself, at a small authority that validates at the service's port.

use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use satcast_net::acme::testing::TestAuthority;
use satcast_tests::service::{Service, Setup};
use satcast_tests::tls::Visitor;
use satcast_tests::wait;
use tempfile::TempDir;

const NAME: &str = "live.example";
/// Seconds that a certificate is valid where it is to be renewed: after 30 s.
const LIFETIME_SECS: u64 = 45;
const LASTING_SECS: u64 = 90 * 24 * 3_600;

/// An authority whose own certificate is in a file.
struct Authority {
    acme: Arc<TestAuthority>,
    folder: TempDir,
}

impl Authority {
    fn start() -> Self {
        let authority = Self { acme: TestAuthority::start(), folder: tempfile::tempdir().expect("a folder") };
        std::fs::write(authority.root(), authority.acme.root()).expect("a file");
        authority
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("root.pem")
    }

    /// A service that orders its certificate here, not started yet.
    fn service(&self) -> Service {
        let service = Setup::default().acme(&self.acme.directory(), &self.root(), NAME).stopped();
        self.acme.validate_at(service.http_address());
        service
    }

    fn visit(&self, service: &Service) -> Result<Visitor, String> {
        Visitor::connect(&self.root(), service.http_address(), NAME).map_err(|error| error.to_string())
    }

    /// Waits for a certificate of this authority.
    fn wait_for(&self, service: &Service) -> Visitor {
        let mut visitor = wait::until("a certificate", || self.visit(service));
        assert_eq!(visitor.get("/healthz").expect("an answer"), 200);
        visitor
    }
}

#[test]
fn a_certificate_is_ordered_and_renewed_and_no_connection_ends() {
    let authority = Authority::start();
    authority.acme.rule(|rules| rules.lifetime = LIFETIME_SECS);
    let mut service = authority.service();
    service.start();
    let mut old = authority.wait_for(&service);
    // The next one lasts, so that there is no third.
    authority.acme.rule(|rules| rules.lifetime = LASTING_SECS);
    wait::until("the same certificate for encoders", || {
        let visitor = Visitor::connect(&authority.root(), service.rtmps_address(), NAME);
        let shown = visitor.map_err(|error| error.to_string())?.certificate();
        if shown == old.certificate() { Ok(()) } else { Err("another one".to_owned()) }
    });
    wait::until("a renewed certificate", || {
        assert_eq!(old.get("/healthz").expect("the connection of before"), 200);
        let new = authority.visit(&service)?;
        if new.certificate() == old.certificate() { Err("the first one".to_owned()) } else { Ok(()) }
    });
    assert_eq!(old.get("/healthz").expect("the connection of before"), 200);
    assert_eq!((authority.acme.issued(), authority.acme.counts()), (2, (2, 1)));
    assert!(service.stop().success());
    service.start();
    authority.wait_for(&service);
    assert_eq!((authority.acme.issued(), authority.acme.counts()), (2, (2, 1)), "after a restart");
}

#[test]
fn a_service_that_is_killed_during_an_order_orders_again() {
    let authority = Authority::start();
    authority.acme.rule(|rules| rules.delay = Duration::from_millis(500));
    let mut service = authority.service();
    service.start();
    wait::until("an order", || match authority.acme.counts().0 {
        0 => Err("none".to_owned()),
        _ => Ok(()),
    });
    service.kill();
    assert_eq!(authority.acme.issued(), 0);
    authority.acme.rule(|rules| rules.delay = Duration::ZERO);
    service.start();
    authority.wait_for(&service);
    // The account was kept.
    assert_eq!((authority.acme.issued(), authority.acme.counts().1), (1, 1));
}

#[test]
fn encoders_do_not_wait_for_an_authority_that_refuses() {
    let authority = Authority::start();
    authority.acme.rule(|rules| rules.limited = u32::MAX);
    let mut service = authority.service();
    // Both ports are open then.
    service.start();
    let failed = service.folder().join("data/acme/failed.json");
    wait::until("the failed order", || failed.is_file().then_some(()).ok_or_else(String::new));
    TcpStream::connect(service.rtmp_address()).expect("the port for encoders");
    authority.visit(&service).err().expect("no certificate that clients trust");
    assert_eq!(service.command(&["doctor"]).status.code(), Some(1));
    assert!(service.command(&["check-config"]).status.success());
    assert!(service.stop().success());
}
