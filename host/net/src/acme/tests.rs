//! Orders at the small authority of the tests, which validates at a real port of https.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use poem::endpoint::make_sync;
use satcast_core::clock::Clock;
use satcast_core::config::{Config, Flags};
use satcast_core::ids::UnixMillis;
use tempfile::TempDir;

use super::authority::ANSWER_BYTES_MAX;
use super::testing::TestAuthority;
use super::*;
use crate::http::{Server, ServerLimits};

const NAMES: &str = "[\"live.example\", \"www.live.example\"]";
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A service with a port of https, and its authority.
struct Rig {
    authority: Arc<TestAuthority>,
    config: Config,
    clock: Clock,
    acme: Arc<Acme>,
    folder: TempDir,
}

impl Rig {
    async fn new() -> Self {
        let authority = TestAuthority::start();
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("root.pem"), authority.root()).unwrap();
        let config = config(&folder, &authority);
        let clock = Clock::manual(Clock::system().now());
        let acme = Acme::prepare(&config, &clock).unwrap().unwrap();
        let server = Server::bind(&config.http, ServerLimits::default()).await.unwrap();
        Ports::of(server.certificates(), None, Some(acme.clone()));
        authority.validate_at(server.local_addr());
        tokio::spawn(server.serve(make_sync(|_| "here"), std::future::pending()));
        Self { authority, config, clock, acme, folder }
    }

    /// The service after a restart.
    fn again(&self) -> Arc<Acme> {
        Acme::prepare(&self.config, &self.clock).unwrap().unwrap()
    }

    fn standing(&self) -> Standing {
        Acme::standing(&self.config)
    }

    /// The last failure, which must be about a first certificate.
    fn first_failed(&self) -> Failed {
        match self.standing() {
            Standing::Waiting(Some(failed)) => failed,
            other => panic!("{other:?}"),
        }
    }

    fn file(&self) -> Vec<u8> {
        fs::read(self.config.acme_file()).unwrap()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.config.acme_folder().join(name)
    }

    /// Moves the clocks of the service and of the authority.
    fn advance(&self, by: Duration) {
        self.clock.advance(by);
        self.authority.rule(|rules| rules.ahead += by.as_secs());
    }

    async fn orders(&self) {
        assert_eq!(self.acme.step().await, Duration::ZERO);
    }
}

fn config(folder: &TempDir, authority: &TestAuthority) -> Config {
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let text = format!(
        "data_dir = {:?}\n[http]\nlisten = \"127.0.0.1:0\"\n[acme]\ndomains = {NAMES}\ncontact = \"ops@live.example\"\n\
         directory = {:?}\nca_file = {:?}\n",
        path("data"),
        authority.directory(),
        path("root.pem")
    );
    fs::write(path("satcast.toml"), text).unwrap();
    let file = PathBuf::from(path("satcast.toml"));
    Config::load(Some(&file), [], &Flags::default()).unwrap().config
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_is_ordered_once_and_is_private() {
    let rig = Rig::new().await;
    assert_eq!(rig.standing(), Standing::Waiting(None));
    rig.orders().await;
    assert_eq!(rig.standing(), Standing::Held(None));
    assert_eq!((rig.authority.issued(), rig.authority.counts()), (1, (1, 1)));
    for (path, mode) in [("", 0o700), ("certificate.pem", 0o600), ("account.json", 0o600)] {
        let found = fs::metadata(rig.path(path)).unwrap().permissions().mode();
        assert_eq!(found & 0o777, mode, "{path}");
    }
    assert!(rig.acme.step().await > Duration::ZERO);
    rig.advance(Duration::from_secs(3_600));
    assert!(rig.again().step().await > Duration::ZERO, "after a restart");
    assert_eq!((rig.authority.issued(), rig.acme.failures()), (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_is_renewed_after_two_thirds_of_its_time() {
    let rig = Rig::new().await;
    rig.orders().await;
    let first = rig.file();
    rig.advance(DAY * 59);
    assert!(rig.acme.step().await > Duration::ZERO);
    assert_eq!(rig.file(), first);
    rig.advance(DAY * 2);
    rig.orders().await;
    assert_ne!(rig.file(), first);
    // The second order uses the account of the first.
    assert_eq!((rig.authority.issued(), rig.authority.counts()), (2, (2, 1)));
}

#[tokio::test(flavor = "multi_thread")]
async fn lifetimes_of_seconds_do_not_lead_to_an_order_after_the_other() {
    let rig = Rig::new().await;
    rig.authority.rule(|rules| rules.lifetime = 3);
    rig.orders().await;
    rig.advance(ORDER_PAUSE / 2);
    let wait = rig.acme.step().await;
    assert!(wait > Duration::ZERO && wait <= ORDER_PAUSE, "{wait:?}");
    assert_eq!(rig.authority.issued(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_clock_does_not_lead_to_an_order_after_the_other() {
    let rig = Rig::new().await;
    rig.clock.advance(DAY * 365);
    rig.orders().await;
    assert!(matches!(rig.standing(), Standing::Held(Some(Failed { failures: 1, .. }))));
    assert!(rig.acme.step().await > Duration::ZERO);
    // What was noted a year ahead does not count when the clock is right again.
    rig.clock.set_forward(-i64::try_from((DAY * 365).as_millis()).unwrap());
    assert!(rig.acme.step().await > Duration::ZERO, "the certificate is new");
    assert_eq!(rig.acme.due(None), UnixMillis(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_ordered_that_cannot_be_stored() {
    let rig = Rig::new().await;
    // Root may write everywhere, so a folder is in the way.
    fs::create_dir(rig.path("probe")).unwrap();
    rig.orders().await;
    assert_eq!((rig.first_failed().failures, rig.authority.counts()), (1, (0, 0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nonce_that_is_refused_is_replaced() {
    let rig = Rig::new().await;
    rig.authority.rule(|rules| rules.bad_nonces = 2);
    rig.orders().await;
    assert_eq!((rig.authority.issued(), rig.acme.failures()), (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_authority_says_when_it_may_be_asked_again() {
    let rig = Rig::new().await;
    let asked = DAY / 2;
    rig.authority.rule(|rules| (rules.limited, rules.retry_after) = (1, asked.as_secs()));
    rig.orders().await;
    let failed = rig.first_failed();
    assert_eq!((failed.failures, rig.acme.failures()), (1, 1));
    assert_eq!(failed.next_at, later(rig.clock.now(), asked));
    rig.advance(asked - Duration::from_secs(1));
    assert!(rig.acme.step().await > Duration::ZERO);
    assert!(rig.again().step().await > Duration::ZERO, "after a restart");
    assert_eq!(rig.authority.issued(), 0);
    rig.advance(Duration::from_secs(1));
    rig.orders().await;
    assert_eq!((rig.standing(), rig.authority.issued()), (Standing::Held(None), 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_leads_elsewhere_is_not_validated() {
    let rig = Rig::new().await;
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let placeholder = rig.file();
    rig.authority.validate_at(closed);
    rig.orders().await;
    assert_eq!((rig.first_failed().failures, rig.authority.issued()), (1, 0));
    assert_eq!(rig.file(), placeholder);
    rig.advance(RETRY_FIRST * 2);
    rig.orders().await;
    assert_eq!((rig.first_failed().failures, rig.authority.counts()), (2, (2, 1)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_renewal_keeps_the_certificate() {
    let rig = Rig::new().await;
    rig.orders().await;
    let first = rig.file();
    rig.advance(DAY * 61);
    rig.authority.rule(|rules| rules.limited = 1);
    rig.orders().await;
    assert!(matches!(rig.standing(), Standing::Held(Some(Failed { failures: 1, .. }))));
    assert_eq!(rig.file(), first);
    rig.advance(RETRY_FIRST * 2);
    rig.orders().await;
    assert_eq!((rig.standing(), rig.authority.issued()), (Standing::Held(None), 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_that_the_authority_forgot_is_made_again() {
    let rig = Rig::new().await;
    rig.orders().await;
    rig.advance(DAY * 61);
    rig.authority.rule(|rules| rules.forgets = true);
    rig.orders().await;
    assert_eq!(rig.acme.failures(), 1);
    rig.advance(RETRY_FIRST * 2);
    rig.orders().await;
    assert_eq!((rig.authority.issued(), rig.authority.counts().1), (2, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_answer_is_not_read_to_its_end() {
    let rig = Rig::new().await;
    rig.authority.rule(|rules| rules.padding = ANSWER_BYTES_MAX + 1);
    rig.orders().await;
    assert_eq!((rig.first_failed().failures, rig.authority.counts()), (1, (0, 0)));
    // Padded to just below the limit, every answer is accepted.
    rig.authority.rule(|rules| rules.padding = ANSWER_BYTES_MAX - 8 * 1024);
    rig.advance(RETRY_FIRST * 2);
    rig.orders().await;
    assert_eq!(rig.authority.issued(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_the_library_cannot_take_fails_the_order_alone() {
    let rig = Rig::new().await;
    rig.authority.rule(|rules| rules.broken = true);
    rig.orders().await;
    assert_eq!((rig.first_failed().failures, rig.authority.counts()), (1, (0, 0)));
    rig.authority.rule(|rules| (rules.broken, rules.poll_after) = (false, Some(u64::MAX)));
    rig.advance(RETRY_FIRST * 2);
    rig.orders().await;
    assert_eq!((rig.standing(), rig.authority.issued()), (Standing::Held(None), 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_authorities_without_one_is_named_text() {
    let rig = Rig::new().await;
    fs::write(rig.folder.path().join("root.pem"), "").unwrap();
    rig.orders().await;
    assert!(rig.first_failed().reason.starts_with("cannot read [acme] ca_file"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_authority_that_nobody_trusts_gets_no_request() {
    let rig = Rig::new().await;
    fs::write(rig.folder.path().join("root.pem"), TestAuthority::start().root()).unwrap();
    rig.orders().await;
    assert_eq!(rig.first_failed().failures, 1);
    assert_eq!(rig.authority.counts(), (0, 0));
}

#[test]
fn broken_files_are_replaced_or_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let authority = TestAuthority::start();
    let config = config(&folder, &authority);
    let clock = Clock::manual(Clock::system().now());
    Acme::prepare(&config, &clock).unwrap();
    let whole = fs::read(config.acme_file()).unwrap();
    for broken in [&b""[..], b"\xff\xfe", &whole[..whole.len() / 2]] {
        fs::write(config.acme_file(), broken).unwrap();
        fs::write(config.acme_folder().join("failed.json"), broken).unwrap();
        assert_eq!(Acme::standing(&config), Standing::Waiting(None));
        Acme::prepare(&config, &clock).unwrap();
        crate::certificates::Certificates::load(
            crate::certificates::Section::Http,
            &config.acme_file(),
            &config.acme_file(),
        )
        .unwrap();
    }
}

#[test]
fn a_failure_for_other_names_does_not_count() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(&folder, &TestAuthority::start());
    let clock = Clock::manual(Clock::system().now());
    Acme::prepare(&config, &clock).unwrap();
    let failed = Failed { failures: 3, next_at: later(clock.now(), DAY), reason: "no".to_owned() };
    Folder::of(&config).note(&failed).unwrap();
    assert_eq!(Acme::standing(&config), Standing::Waiting(Some(failed)));
    config.acme.domains.pop();
    assert_eq!(Acme::standing(&config), Standing::Waiting(None));
}

#[test]
fn waits_grow_to_their_limit_and_never_below_what_was_asked_for() {
    let middle = u64::MAX / 2;
    let waits: Vec<_> = (1..=4).map(|failures| wait(failures, None, middle).as_secs()).collect();
    assert!(waits.windows(2).all(|pair| pair[1].abs_diff(pair[0] * 2) <= 1), "{waits:?}");
    let [low, high] = [0, u64::MAX].map(|random| wait(u32::MAX, None, random));
    assert_eq!((low, high), (RETRY_MAX.mul_f64(1.0 - JITTER), RETRY_MAX.mul_f64(1.0 + JITTER)));
    assert_eq!(wait(1, Some(DAY / 2), middle), DAY / 2);
    assert_eq!(wait(1, Some(Duration::MAX), middle), RETRY_AFTER_MAX);
    assert_eq!(wait(40, Some(Duration::ZERO), 0), low);
    assert_eq!(later(UnixMillis(i64::MAX), DAY), UnixMillis(i64::MAX));
}

#[test]
fn failed_orders_text() {
    let failed = Failed { failures: 2, next_at: UnixMillis(121_000), reason: "no answer".to_owned() };
    assert_eq!(
        failed.text(UnixMillis(0)),
        "the order of a certificate failed 2 times, the last time with: no answer; the service tries again in 2 minutes; \
         check that each of [acme] domains leads to this service at port 443"
    );
}
