use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use hickory_resolver::proto::op::{Message, ResponseCode};
use hickory_resolver::proto::rr::{RData, Record};
use tempfile::TempDir;
use tokio::net::UdpSocket;
use tokio::task::JoinHandle;

use super::*;

/// Answer of a name server for one name.
#[derive(Clone, Copy)]
enum Says {
    Address(u8),
    /// The name exists, but without an address.
    Nothing,
    Failure,
    /// No answer.
    Silence,
}

/// A name server that knows these names; others do not exist.
struct NameServer {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl NameServer {
    async fn new<const N: usize>(at: [u8; 4], port: u16, names: [(&'static str, Says); N]) -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::from(at), port)).await.unwrap();
        let (address, names) = (socket.local_addr().unwrap(), BTreeMap::from(names));
        let task = tokio::spawn(async move {
            let mut buffer = [0; 1_500];
            loop {
                let (length, from) = socket.recv_from(&mut buffer).await.unwrap();
                let asked = Message::from_vec(&buffer[..length]).unwrap();
                let query = asked.queries[0].clone();
                let mut answer = Message::response(asked.metadata.id, asked.metadata.op_code);
                answer.add_query(query.clone());
                match names.get(query.name().to_string().trim_end_matches('.')) {
                    Some(Says::Silence) => continue,
                    Some(Says::Failure) => answer.metadata.response_code = ResponseCode::ServFail,
                    Some(Says::Address(last)) if query.query_type() == RecordType::A => {
                        let address = RData::from(IpAddr::from([8, 8, 8, *last]));
                        answer.add_answer(Record::from_rdata(query.name().clone(), 60, address));
                    }
                    Some(Says::Nothing | Says::Address(_)) => {}
                    None => answer.metadata.response_code = ResponseCode::NXDomain,
                }
                socket.send_to(&answer.to_vec().unwrap(), from).await.unwrap();
            }
        });
        Self { address, task }
    }
}

fn write(folder: &TempDir, name: &str, text: impl AsRef<[u8]>) {
    // Replaced by a new file under the same name, as editors do.
    let new = folder.path().join("new");
    fs::write(&new, text).unwrap();
    fs::rename(new, folder.path().join(name)).unwrap();
}

fn system(folder: &Path, port: u16) -> System {
    let (hosts, resolv_conf) = (folder.join("hosts"), folder.join("resolv.conf"));
    System { hosts, resolv_conf, port, ..System::default() }
}

fn ip(last: u8) -> IpAddr {
    IpAddr::from([8, 8, 8, last])
}

#[tokio::test]
async fn the_hosts_file_comes_first_and_both_files_are_read_again() {
    let server = NameServer::new([127, 0, 0, 1], 0, [("a.example", Says::Address(1))]).await;
    let folder = tempfile::tempdir().unwrap();
    let system = system(folder.path(), server.address.port());
    assert_eq!(
        system.look_up("a.example").await.unwrap(),
        [ip(1)],
        "without files: the name server of this machine"
    );
    write(&folder, "hosts", "# mine\n10.0.0.1 A.example nas # more\nfd00::1 nas\n10.0.0.2 nas\n");
    assert_eq!(system.look_up("a.example").await.unwrap(), [IpAddr::from([10, 0, 0, 1])]);
    let nas: Vec<IpAddr> = ["fd00::1", "10.0.0.1", "10.0.0.2"].map(|text| text.parse().unwrap()).into();
    assert_eq!(system.look_up("nas").await.unwrap(), nas);
    write(&folder, "hosts", "");
    assert_eq!(system.look_up("a.example").await.unwrap(), [ip(1)]);
    write(&folder, "resolv.conf", "nameserver 127.0.0.1\nsearch example\n");
    assert_eq!(system.look_up("a").await.unwrap(), [ip(1)]);
}

#[tokio::test]
async fn search_domains_and_ndots_hold() {
    let names = [
        ("nas.first.lan", Says::Address(1)),
        ("nas.second.lan", Says::Address(2)),
        ("tv.second.lan", Says::Address(3)),
        ("a.b", Says::Address(4)),
        ("a.b.first.lan", Says::Address(5)),
    ];
    let server = NameServer::new([127, 0, 0, 1], 0, names).await;
    let folder = tempfile::tempdir().unwrap();
    let system = system(folder.path(), server.address.port());
    for (options, expected) in [("", 4), ("options ndots:2\n", 5)] {
        let text = format!("nameserver 127.0.0.1\nsearch first.lan second.lan\n{options}");
        write(&folder, "resolv.conf", text);
        for (name, last) in [("nas", 1), ("tv", 3), ("a.b", expected)] {
            assert_eq!(system.look_up(name).await.unwrap(), [ip(last)], "{name} with {options:?}");
        }
    }
    write(&folder, "resolv.conf", "domain second.lan\nnameserver 127.0.0.1\n");
    assert_eq!(system.look_up("nas").await.unwrap(), [ip(2)]);
}

#[tokio::test]
async fn lines_and_domains_that_cannot_be_read_are_left_out() {
    let server = NameServer::new([127, 0, 0, 1], 0, [("nas.lan", Says::Address(1))]).await;
    let folder = tempfile::tempdir().unwrap();
    let system = system(folder.path(), server.address.port());
    write(&folder, "hosts", b"# f\xfcr tv\n10.0.0.1 k\xfcche tv\n10.0.0.2\xfc radio\n10.0.0.3 radio\n");
    for domains in [
        "search bad..dom lan",
        "search\t-bad-.example lan # a..b",
        "search ~corp.example . lan",
        "domain a..b",
    ] {
        write(&folder, "resolv.conf", format!("nameserver 127.0.0.1\nnameserver no\n{domains}\n"));
        assert_eq!(system.look_up("tv").await.unwrap(), [IpAddr::from([10, 0, 0, 1])], "{domains}");
        assert_eq!(system.look_up("radio").await.unwrap(), [IpAddr::from([10, 0, 0, 3])], "{domains}");
        let name = if domains.contains("lan") { "nas" } else { "nas.lan" };
        assert_eq!(system.look_up(name).await.unwrap(), [ip(1)], "{domains}");
    }
    write(&folder, "resolv.conf", b"# f\xfcr\nsearch b\xfccher lan # \xfc\nnameserver 127.0.0.1\n");
    assert_eq!(system.look_up("nas").await.unwrap(), [ip(1)]);
}

#[tokio::test]
async fn missing_names_give_plain_errors() {
    let names = [("empty.example", Says::Nothing), ("broken.example", Says::Failure)];
    let server = NameServer::new([127, 0, 0, 1], 0, names).await;
    let folder = tempfile::tempdir().unwrap();
    let system = system(folder.path(), server.address.port());
    assert!(system.look_up("empty.example").await.unwrap().is_empty());
    for (name, words) in [
        ("no.example", "no such name"),
        ("no-such-host.invalid", "no such name"),
        ("broken.example", "the name server failed"),
    ] {
        assert_eq!(system.look_up(name).await.unwrap_err().to_string(), words, "{name}");
    }
    for name in ["localhost", "a.localhost"] {
        assert!(system.look_up(name).await.unwrap().iter().all(IpAddr::is_loopback), "{name}");
    }
    let port = server.address.port();
    drop(server);
    let gone = super::tests::system(folder.path(), port).look_up("no.example").await.unwrap_err();
    assert!(!gone.to_string().contains("127.0.0.1"), "{gone}");
}

#[tokio::test]
async fn the_next_name_server_is_asked_after_a_failed_or_silent_one() {
    let first = [("broken.example", Says::Failure), ("silent.example", Says::Silence)];
    let second = [
        ("broken.example", Says::Address(1)),
        ("silent.example", Says::Address(2)),
        ("no.example", Says::Address(3)),
    ];
    let first = NameServer::new([127, 0, 0, 1], 0, first).await;
    let port = first.address.port();
    let _second = NameServer::new([127, 0, 0, 2], port, second).await;
    let folder = tempfile::tempdir().unwrap();
    let system = system(folder.path(), port);
    write(&folder, "resolv.conf", "nameserver 127.0.0.1\nnameserver 127.0.0.2\n");
    assert_eq!(system.look_up("broken.example").await.unwrap(), [ip(1)]);
    assert_eq!(system.look_up("silent.example").await.unwrap(), [ip(2)]);
    assert_eq!(
        system.look_up("no.example").await.unwrap_err().to_string(),
        "no such name",
        "the second name server was asked"
    );
}

#[tokio::test]
async fn a_silent_name_delays_no_other() {
    let names = [("silent.example", Says::Silence), ("good.example", Says::Address(1))];
    let server = NameServer::new([127, 0, 0, 1], 0, names).await;
    let folder = tempfile::tempdir().unwrap();
    let system = Arc::new(system(folder.path(), server.address.port()));
    let mut silent = tokio::task::JoinSet::new();
    for _ in 0..super::super::LOOKUPS_OF_ASKER_MAX {
        let system = Arc::clone(&system);
        silent.spawn(async move { system.look_up("silent.example").await });
    }
    tokio::task::yield_now().await;
    assert_eq!(system.look_up("good.example").await.unwrap(), [ip(1)]);
    assert_eq!(silent.join_next().await.unwrap().unwrap().unwrap_err().kind(), io::ErrorKind::TimedOut);
}
