//! Destinations with more than one server.

use std::net::TcpListener;
use std::sync::Arc;

use satcast_driver_rtmp::attempts::{Attempts, TRIES_A_SERVER};
use satcast_driver_rtmp::push::Push;
use satcast_driver_rtmp::refusal::BACKUP_TOO;
use satcast_driver_rtmp::target::Target;
use satcast_plugin_api::driver::{Config, Driver, DriverInfo, DynDestination, Host, State};
use satcast_plugin_api::recording::About;
use satcast_plugin_api::{Class, DestType, Error};
use serde_json::json;

use crate::refusals::{KEY, failure};
use crate::server::{QUICK, Server, assert_same, push_all, stream};

/// A driver whose destinations have a backup.
struct Twofold(Attempts);

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Two {
    url: String,
    backup: String,
}

impl Driver for Twofold {
    const INFO: DriverInfo = DriverInfo { id: "twofold", version: "0.0.0", title: "two targets" };

    fn types() -> Vec<DestType> {
        vec![DestType::of::<Two>("rtmp")]
    }

    fn load(_: &Host) -> Result<Self, Error> {
        Ok(Twofold(Attempts::default()))
    }

    fn open(&self, config: Config<'_>) -> Result<Arc<dyn DynDestination>, Error> {
        let two = config.parse::<Two>()?;
        let [first, backup] = [two.url, two.backup].map(|url| Target::parse(&url, Some(KEY)).unwrap());
        let push = Push::new(first, QUICK, crate::tls::trust()).with_backups(vec![backup]);
        Ok(Arc::new(push.with_attempts(&self.0)))
    }
}

#[test]
fn a_backup_is_used_when_the_first_server_cannot_be_reached_and_not_when_it_refuses() {
    let kit = kit!(Twofold);
    let unreachable = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let unreachable = format!("rtmp://{unreachable}/live");
    let closing = Server::start(|_| {});
    for first in [unreachable.clone(), closing.url("/live")] {
        let backup = Server::healthy();
        let dest = kit.open("rtmp", &json!({ "url": first, "backup": backup.url("/live") })).unwrap();
        let sent = stream(0, 100);
        push_all(&dest, &sent);
        assert!(dest.wait_for_state(State::Live));
        dest.stop();
        dest.wait_for_end().unwrap();
        assert_same(&backup.finish(), &sent);
    }
    closing.finish();
    let dest = kit.open("rtmp", &json!({ "url": unreachable, "backup": unreachable })).unwrap();
    let error = failure(&dest);
    assert_eq!(error.class, Class::Network, "{error}");
    assert!(error.message.ends_with(BACKUP_TOO), "{error}");

    let refusing = refusing();
    // Nothing connects to it: its thread ends with the test.
    let untouched = TcpListener::bind("127.0.0.1:0").unwrap();
    untouched.set_nonblocking(true).unwrap();
    let backup = format!("rtmp://{}/live", untouched.local_addr().unwrap());
    let dest = kit.open("rtmp", &json!({ "url": refusing.url("/live"), "backup": backup })).unwrap();
    assert_eq!(failure(&dest).class, Class::Auth);
    assert!(untouched.accept().is_err(), "no connection to the backup");
    refusing.finish();
}

fn refusing() -> Server {
    Server::start(|conn| {
        let id = conn.requested();
        conn.session.reject_publish(id, "NetStream.Publish.Denied", "no");
        conn.flush();
        conn.read_out();
    })
}

#[test]
fn a_server_that_refuses_repeatedly_is_replaced_by_the_backup() {
    let kit = kit!(Twofold);
    let about = About { destination_id: 7, session_id: "one".into(), ..About::default() };
    // Nothing connects to it: see above.
    let untouched = TcpListener::bind("127.0.0.1:0").unwrap();
    untouched.set_nonblocking(true).unwrap();
    let unreachable = format!("rtmp://{}/live", untouched.local_addr().unwrap());
    for _ in 0..TRIES_A_SERVER {
        let first = refusing();
        let dest = kit
            .open_for(&about, "rtmp", &json!({ "url": first.url("/live"), "backup": unreachable }))
            .unwrap();
        assert_eq!(failure(&dest).class, Class::Auth);
        first.finish();
    }
    let backup = Server::healthy();
    let dest =
        kit.open_for(&about, "rtmp", &json!({ "url": unreachable, "backup": backup.url("/live") })).unwrap();
    let sent = stream(0, 100);
    push_all(&dest, &sent);
    assert!(dest.wait_for_state(State::Live));
    let server = format!("127.0.0.1:{}", backup.port);
    dest.report(|report| {
        let published: Vec<_> = report.events.iter().filter(|(name, _)| name == "publishing").collect();
        assert_eq!(
            published,
            [&("publishing".to_owned(), json!({ "server": server }).to_string())],
            "{report:?}"
        );
    });
    dest.stop();
    dest.wait_for_end().unwrap();
    assert_same(&backup.finish(), &sent);
    assert!(untouched.accept().is_err(), "no connection to the other server");
}
