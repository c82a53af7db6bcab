use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};

use super::*;

const SHORT: Duration = Duration::from_millis(300);
const LONG: Duration = Duration::from_secs(5);

fn guard(allow: &[&str]) -> Guard {
    let allow: Vec<_> = allow.iter().map(|entry| (*entry).to_owned()).collect();
    Guard::new(&allow).unwrap()
}

fn answer(guard: &Guard, name: &str, addresses: &[&str]) -> Result<(), Refused> {
    let addresses: Vec<IpAddr> = addresses.iter().map(|text| text.parse().unwrap()).collect();
    guard.check_answer(name, &addresses)
}

#[test]
fn literal_addresses_are_refused_in_every_spelling() {
    let guard = guard(&[]);
    for host in [
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f.1",
        "0x7f000001",
        "0177.0.0.1",
        "017700000001",
        "127.0.0.1.",
        "%31%32%37.0.0.1",
        "[::1]",
        "::1",
        "[::ffff:127.0.0.1]",
        "::ffff:127.0.0.1",
        "[::ffff:7f00:1]",
        "0",
        "169.254.169.254",
        "0xa9fea9fe",
        "[fd00:ec2::254]",
        "100.100.100.200",
        "[64:ff9b::a9fe:a9fe]",
        "[64:ff9b::8.8.8.8]",
        "[2002:7f00:1::]",
        "localhost",
        "LOCALHOST",
        "a.localhost.",
        "10.0.0.5",
    ] {
        assert!(guard.check_literal(host).is_err(), "{host}");
    }
    for host in ["8.8.8.8", "0x08080808", "[2606:4700::1111]", "live.example.com", "::ffff:8.8.8.8"] {
        assert_eq!(guard.check_literal(host), Ok(()), "{host}");
    }
}

#[test]
fn refusals_name_the_fix_and_show_no_secrets_in_their_texts() {
    let open = guard(&[]);
    assert_eq!(
        open.check_literal("10.5").unwrap_err().to_string(),
        "the address 10.0.0.5 is private; ask the operator to add it to [outbound] allow"
    );
    let pasted_url = "rtmp://a.example/live/secret-key";
    assert!(!open.check_literal(pasted_url).unwrap_err().to_string().contains("secret"));
    let internal = answer(&open, "db.corp.example", &["10.9.8.7"]).unwrap_err();
    assert_eq!(
        internal.to_string(),
        "the host db.corp.example leads to an address that is private; ask the operator to add the name to [outbound] allow"
    );
    let hooks = Guard::with_setting(&[], "[webhooks] allow_targets").unwrap();
    assert!(
        hooks.check_literal("10.0.0.1").unwrap_err().to_string().ends_with("to [webhooks] allow_targets")
    );
}

#[test]
fn one_forbidden_address_condemns_the_answer() {
    let open = guard(&[]);
    assert_eq!(answer(&open, "a.example", &["8.8.8.8", "2606:4700::1111"]), Ok(()));
    for bad in ["127.0.0.1", "::1", "::ffff:10.0.0.1", "64:ff9b::8.8.8.8", "fe80::1"] {
        assert!(answer(&open, "a.example", &["8.8.8.8", bad]).is_err(), "{bad}");
        assert!(answer(&open, "a.example", &[bad, "8.8.8.8"]).is_err(), "{bad}");
    }
    let many: Vec<&str> = std::iter::repeat_n("8.8.8.8", ADDRESSES_TRIED_MAX).chain(["10.0.0.1"]).collect();
    assert!(answer(&open, "a.example", &many).is_err(), "addresses past the tried ones are checked, too");
}

#[test]
fn allow_list_opens_only_its_entries() {
    let lan = guard(&["10.1.2.0/24", "nas.example", "localhost"]);
    for host in ["10.1.2.3", "[::ffff:10.1.2.3]", "0x0a010203", "localhost"] {
        assert_eq!(lan.check_literal(host), Ok(()), "{host}");
    }
    for host in ["10.1.3.3", "127.0.0.1", "a.localhost"] {
        assert!(lan.check_literal(host).is_err(), "{host}");
    }
    assert_eq!(answer(&lan, "a.example", &["10.1.2.3", "8.8.8.8"]), Ok(()));
    assert!(answer(&lan, "a.example", &["10.1.2.3", "10.1.3.3"]).is_err());
    assert_eq!(answer(&lan, "nas.example", &["192.168.1.1", "::1"]), Ok(()));
    assert!(answer(&lan, "x.nas.example", &["192.168.1.1"]).is_err());
    for (host, listed) in [("10.1.2.3", true), ("NAS.example.", true), ("8.8.8.8", false), ("a b", false)] {
        assert_eq!(lan.is_listed(host), listed, "{host}");
    }
    assert!(Guard::new(&["10.0.0.0/99".to_owned()]).is_err());
}

#[test]
fn a_listed_translator_does_not_open_the_network_behind_it() {
    let nat64 = guard(&["64:ff9b::/96"]);
    assert_eq!(nat64.check_literal("[64:ff9b::8.8.8.8]"), Ok(()));
    let refused = nat64.check_literal("[64:ff9b::10.0.0.5]").unwrap_err();
    let address: IpAddr = "10.0.0.5".parse().unwrap();
    assert_eq!(refused, Refused::Address { address, why: "private", setting: OUTBOUND_SETTING });
    let both = guard(&["64:ff9b::/96", "10.0.0.5"]);
    assert_eq!(both.check_literal("[64:ff9b::10.0.0.5]"), Ok(()));
}

#[tokio::test]
async fn resolve_gives_checked_addresses_with_their_port() {
    let local = guard(&["localhost", "127.0.0.0/8"]);
    assert_eq!(
        local.resolve("0x7f.2", 1935, LONG).await.unwrap(),
        [SocketAddr::from(([127, 0, 0, 2], 1935))]
    );
    let found = local.resolve("localhost", 1935, LONG).await.unwrap();
    assert!(found.len() <= ADDRESSES_TRIED_MAX);
    assert!(found.iter().all(|address| address.ip().is_loopback() && address.port() == 1935), "{found:?}");
    let refused = guard(&[]).resolve("localhost", 1935, LONG).await.unwrap_err();
    assert!(matches!(refused, GuardError::Refused(Refused::Name { why: "loopback", .. })), "{refused}");
    let malformed = guard(&[]).resolve("user@host", 1935, LONG).await.unwrap_err();
    assert!(matches!(malformed, GuardError::Refused(Refused::Malformed)), "{malformed}");
}

#[test]
fn resolver_answers_become_addresses_or_errors() {
    let open = guard(&[]);
    let judge = |found| open.judge("a.example".to_owned(), 1935, LONG, found);
    let many = (0..=255).map(|last| IpAddr::from([8, 8, 8, last])).collect();
    assert_eq!(judge(Ok(many)).unwrap().len(), ADDRESSES_TRIED_MAX);
    let mapped = "::ffff:8.8.8.8".parse().unwrap();
    assert_eq!(judge(Ok(vec![mapped])).unwrap(), [SocketAddr::from(([8, 8, 8, 8], 1935))]);
    assert!(matches!(judge(Ok(vec![])), Err(GuardError::Dns { .. })));
    for (unknown, words) in [
        (
            Unknown::Failed("no such name".to_owned()),
            "cannot resolve the host name a.example: no such name; check the name",
        ),
        (
            Unknown::Silent(LONG),
            "the name server did not answer for a.example within 5000 ms; check the name",
        ),
        (
            Unknown::NoPermit(Crowd::All),
            "the name a.example was not looked up within 5000 ms because too many other look-ups are waiting for answers; it is tried again",
        ),
        (
            Unknown::NoPermit(Crowd::Own),
            "the name a.example was not looked up within 5000 ms because too many other names of the same owner got no answer (check those names); it is tried again",
        ),
    ] {
        assert_eq!(judge(Err(unknown)).unwrap_err().to_string(), words);
    }
}

/// A resolver that answers each name with this address after a signal.
fn waiting_resolver(address: [u8; 4]) -> (Resolver, tokio::sync::watch::Sender<bool>) {
    let (tell, told) = tokio::sync::watch::channel(false);
    let resolver = move |_| -> futures_util::future::BoxFuture<'static, _> {
        let mut told = told.clone();
        Box::pin(async move {
            let _told = told.wait_for(|told| *told).await;
            Ok(vec![IpAddr::from(address)])
        })
    };
    (Arc::new(resolver), tell)
}

#[tokio::test(start_paused = true)]
async fn results_of_a_shared_look_up_are_checked_for_every_asker() {
    let (resolver, tell) = waiting_resolver([10, 0, 0, 1]);
    let guard = guard(&[]).resolving(resolver);
    let asking = [1, 2].map(|account| {
        let guard = guard.asked_by(Asker::Account(account));
        tokio::spawn(async move { guard.connect("a.example", 1935, LONG).await })
    });
    tokio::task::yield_now().await;
    tell.send_replace(true);
    for asked in asking {
        let refused = asked.await.unwrap().unwrap_err();
        assert!(matches!(refused, GuardError::Refused(Refused::Name { why: "private", .. })), "{refused}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_name_server_is_not_reported_as_a_silent_destination() {
    let (resolver, _tell) = waiting_resolver([8, 8, 8, 8]);
    let guard = guard(&[]).resolving(resolver);
    for (limit, waited) in [(SHORT, 300), (LONG * 2, LOOKUP_TIMEOUT_MS)] {
        let began = Instant::now();
        let name = format!("{waited}.example");
        let error = guard.connect(&name, 1935, limit).await.unwrap_err();
        assert!(matches!(error, GuardError::NameServer { after_ms, .. } if after_ms == waited), "{error}");
        assert_eq!(whole_ms(began.elapsed()), waited);
    }
}

#[tokio::test]
async fn connects_to_an_allowed_address_with_nodelay_and_without_blocking() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut stream = guard(&["127.0.0.1"]).connect("127.1", port, LONG).await.unwrap();
    assert!(stream.nodelay().unwrap());
    assert_eq!(stream.read(&mut [0; 1]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    stream.write_all(b"x").unwrap();
    let (mut peer, _) = listener.accept().unwrap();
    let mut byte = [0; 1];
    peer.read_exact(&mut byte).unwrap();
    assert_eq!(&byte, b"x");
}

#[tokio::test]
async fn a_forbidden_address_sees_no_connection() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    for host in ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]"] {
        let error = guard(&["10.0.0.0/8"]).connect(host, port, LONG).await.unwrap_err();
        assert!(matches!(error, GuardError::Refused(_)), "{host}: {error}");
    }
    listener.set_nonblocking(true).unwrap();
    assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
}

#[tokio::test]
async fn a_udp_socket_sends_to_a_checked_address_alone() {
    let [listener, other] = [(); 2].map(|()| std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
    let port = listener.local_addr().unwrap().port();
    for host in ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]"] {
        let error = guard(&["10.0.0.0/8"]).connect_udp(host, port, LONG).await.unwrap_err();
        assert!(matches!(error, GuardError::Refused(_)), "{host}: {error}");
    }
    let answers = Answers::new(parking_lot::Mutex::new([vec![IpAddr::from([127, 0, 0, 1])], vec![]].into()));
    let guard = guard(&["127.0.0.0/8"]).answering(answers);
    let socket = guard.connect_udp("a.example", port, LONG).await.unwrap();
    assert_eq!(socket.peer_addr().unwrap(), listener.local_addr().unwrap());
    other.send_to(b"y", socket.local_addr().unwrap()).unwrap();
    assert_eq!(socket.recv(&mut [0; 1]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    socket.send(b"x").unwrap();
    let mut byte = [0; 1];
    assert_eq!(listener.recv_from(&mut byte).unwrap(), (1, socket.local_addr().unwrap()));
    let gone = guard.connect_udp("a.example", port, LONG).await.unwrap_err();
    assert!(matches!(gone, GuardError::Dns { .. }), "{gone}");
}

#[tokio::test]
async fn a_udp_socket_sends_to_ipv4_before_ipv6() {
    let both = vec!["::1".parse().unwrap(), IpAddr::from([127, 0, 0, 2]), IpAddr::from([127, 0, 0, 1])];
    let answers = Answers::new(parking_lot::Mutex::new([both].into()));
    let guard = guard(&["127.0.0.0/8", "::1"]).answering(answers);
    let socket = guard.connect_udp("a.example", 9, LONG).await.unwrap();
    assert_eq!(socket.peer_addr().unwrap(), SocketAddr::from(([127, 0, 0, 2], 9)));
}

#[tokio::test]
async fn a_closed_port_is_a_connect_error() {
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
    let error = guard(&["127.0.0.1"]).connect("127.0.0.1", port, LONG).await.unwrap_err();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    assert!(matches!(error, GuardError::Connect { .. }), "{error}");
    assert_eq!(error.to_string(), GuardError::connection_refused(address).to_string());
}

#[tokio::test]
async fn a_name_is_resolved_at_every_connect_and_all_its_addresses_are_tried() {
    let open = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = open.local_addr().unwrap().port();
    let [first, second] = [[127, 0, 0, 2], [127, 0, 0, 1]].map(IpAddr::from);
    let answers = Answers::new(parking_lot::Mutex::new([vec![first], vec![first, second], vec![]].into()));
    let guard = guard(&["127.0.0.0/8"]).answering(answers);
    let failed = guard.connect("moves.example", port, LONG).await.unwrap_err();
    assert!(matches!(failed, GuardError::Connect { .. }), "{failed}");
    let stream = guard.connect("moves.example", port, LONG).await.unwrap();
    assert_eq!(stream.peer_addr().unwrap().ip(), second);
    let gone = guard.connect("moves.example", port, LONG).await.unwrap_err();
    assert!(matches!(gone, GuardError::Dns { .. }), "{gone}");
}

#[tokio::test]
async fn an_ipv6_address_is_connected_to_with_and_without_brackets() {
    // A machine without IPv6 has nothing to connect to.
    let Ok(listener) = TcpListener::bind((std::net::Ipv6Addr::LOCALHOST, 0)) else { return };
    let port = listener.local_addr().unwrap().port();
    for host in ["::1", "[::1]"] {
        let stream = guard(&["::1"]).connect(host, port, LONG).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), listener.local_addr().unwrap());
    }
}

/// A listener whose queue is full, so that further connections get no answer; with the sockets that fill it.
async fn silent_listener() -> (tokio::net::TcpListener, Vec<TcpStream>, SocketAddr) {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let mut queued = Vec::new();
    while let Ok(Ok(stream)) = timeout(Duration::from_millis(100), TcpStream::connect(address)).await {
        queued.push(stream);
        assert!(queued.len() < 16, "the queue has no end");
    }
    (listener, queued, address)
}

#[tokio::test]
async fn a_silent_destination_is_a_timeout() {
    let (_listener, _queued, address) = silent_listener().await;
    let error = guard(&["127.0.0.1"]).connect("127.0.0.1", address.port(), SHORT).await.unwrap_err();
    // The time of the look-up is not added to the limit.
    assert!(matches!(error, GuardError::Timeout { after_ms: 100..=300, .. }), "{error}");
}

#[tokio::test]
async fn a_silent_address_leaves_time_for_the_next() {
    let (_full, _queued, silent) = silent_listener().await;
    let open = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let addresses = [silent, open.local_addr().unwrap()];
    let stream = connect_first(&addresses, Instant::now() + SHORT).await.unwrap();
    assert_eq!(stream.peer_addr().unwrap(), addresses[1]);
}

#[tokio::test(start_paused = true)]
async fn the_callers_limit_is_cut() {
    let (_listener, _queued, address) = {
        tokio::time::resume();
        let silent = silent_listener().await;
        tokio::time::pause();
        silent
    };
    let asked = Duration::from_secs(86_400);
    let error = guard(&["127.0.0.1"]).connect("127.0.0.1", address.port(), asked).await.unwrap_err();
    assert!(matches!(error, GuardError::Timeout { after_ms: CONNECT_TIMEOUT_MAX_MS, .. }), "{error}");
}

#[test]
fn a_failed_connect_text() {
    let error = GuardError::connection_refused(SocketAddr::from((Ipv4Addr::LOCALHOST, 9)));
    assert_eq!(
        error.to_string(),
        "cannot connect to 127.0.0.1 port 9: Connection refused (os error 111); check that the server runs and takes connections there"
    );
}

#[test]
fn crowds_texts() {
    assert_eq!(
        Crowd::Own.to_string(),
        "too many other names of the same owner got no answer (check those names)"
    );
    assert_eq!(Crowd::All.to_string(), "too many other look-ups are waiting for answers");
}
