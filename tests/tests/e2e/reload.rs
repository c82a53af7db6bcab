//! Changes without an interruption: a configuration that is read again (SIGHUP), and a restart on sockets that stay open.

use std::fs::OpenOptions;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use satcast_tests::api::Api;
use satcast_tests::encoder::Publish;
use satcast_tests::record::assert_complete;
use satcast_tests::said;
use satcast_tests::service::{Service, Setup, binary};
use satcast_tests::sink::Sink;
use satcast_tests::source::Source;
use satcast_tests::tls::Authority;
use satcast_tests::wait;
use serde_json::{Value, json};

use crate::changes::{change, hang_up, operator, state};

const HERE: &[&str] = &["127.0.0.1"];
/// Media that flows on after each reload: two seconds.
const MORE_PACKETS: usize = 154;
/// Viewers and encoders that wait while no service runs.
const WAITING_CONNECTIONS: usize = 20;

#[test]
fn a_reload_during_a_stream_changes_settings_and_loses_no_packet() {
    let (source, sink) = (Source::shared(), Sink::recording());
    let (authority, successor) = (Authority::new("first"), Authority::new("second"));
    let pair = authority.pair("server", HERE);
    let mut service = Setup::default()
        .set("SATCAST_INGEST__RECONNECT_WINDOW_SECS", "2")
        .set("SATCAST_PRICING__FREE_PLATFORMS", "0")
        .rtmps(&pair)
        .start();
    let (api, operator) = (service.api(), operator(&service));
    let stream = api.create_stream("reload");
    let id = api.add_destination(&stream, &sink.url(), "copy");
    let mut encoder = Publish::until_end(&source).to(&service.secure_ingest_url(&stream.key));
    api.wait_for_destination(&stream, id, "live");
    let goes_on = || {
        let before = sink.wait_for_media(0);
        sink.wait_for_media(before + MORE_PACKETS);
    };
    assert_eq!((price(&api), rate(&api)), (json!(2), json!(2)));

    // Price, level, drivers, caps and the certificate in one reload.
    let drivers = |enabled: &str| format!("[drivers]\nenabled = {enabled}\n");
    let more = "[pricing]\ncost_per_platform = 7\n[limits]\nstreams_per_account = 1\n[log]\nlevel = \"debug\"\n\
                [http]\ntrusted_proxies = [\"10.9.8.0/24\"]\n";
    write(&service, &(drivers("[\"rtmp\", \"platform\"]") + more));
    successor.renew(&pair, HERE);
    reload(&service);
    assert!(successor.vouches_for(service.rtmps_address()), "new connections get the new certificate");
    assert_eq!((price(&api), rate(&api)), (json!(7), json!(2)), "a session keeps the price of its start");
    assert_eq!([state(&operator, "hls"), state(&operator, "rtmp")], ["disabled", "loaded"]);
    api.post("/api/streams", &json!({ "label": "one too many" })).assert_error(409, None);
    service.wait_for_log("a line of level debug", |line| line.contains("DEBUG"));
    let waits = service.wait_for_log("the keys that wait", |line| line.contains(said::WAITS));
    assert!(waits.contains("http.trusted_proxies") && !waits.contains("pricing"), "{waits}");
    goes_on();

    // A file with a fault changes nothing, its good half neither.
    write(&service, "[pricing]\ncost_per_platform = 9\n[log]\nlevel = \"loud\"\n");
    refused_reload(&service);
    assert_eq!((price(&api), state(&operator, "hls")), (json!(7), "disabled".into()));
    goes_on();

    // So does a certificate without its key.
    write(&service, "[pricing]\ncost_per_platform = 9\n");
    let key = std::fs::read(&pair.key).expect("a key");
    std::fs::write(&pair.key, "no key").expect("another file");
    refused_reload(&service);
    assert_eq!(price(&api), 7);
    std::fs::write(&pair.key, key).expect("the key");

    write(&service, &drivers("[\"rtmp\", \"platform\", \"hls\", \"archive\"]"));
    reload(&service);
    assert_eq!((price(&api), state(&operator, "hls")), (json!(2), "loaded".into()));
    let _ = change(&operator, "platform", "replace").ok();
    goes_on();

    let sent = encoder.end();
    sink.wait_until_left();
    assert_complete("the sink", &sent, &sink.records());
    assert_eq!(sink.publishes(), 1, "the destination had to reconnect");
    service.assert_running();
}

#[test]
fn a_reload_exchanges_the_certificate_of_https() {
    let (authority, successor) = (Authority::new("first"), Authority::new("second"));
    let pair = authority.pair("server", HERE);
    let mut service = Setup::default().stopped();
    service.use_https(&pair);
    service.start();
    let address = http_address(&service);
    assert!(authority.vouches_for(address));
    successor.renew(&pair, HERE);
    reload(&service);
    assert!(successor.vouches_for(address) && !authority.vouches_for(address));
    std::fs::remove_file(&pair.cert).expect("a certificate");
    refused_reload(&service);
    assert!(successor.vouches_for(address), "the certificate in use is kept");
}

#[test]
fn a_restart_on_handed_sockets_refuses_no_connection() {
    let (source, sink) = (Source::shared(), Sink::recording());
    let mut service = Setup::default().set("SATCAST_INGEST__RECONNECT_WINDOW_SECS", "2").start();
    let api = service.api();
    let stream = api.create_stream("handed");
    api.add_destination(&stream, &sink.url(), "copy");
    assert!(service.stop().success());

    // What a service manager does: it opens the ports, and gives them to each process that it starts.
    let (http, rtmp) = (http_address(&service), service.rtmp_address());
    let sockets = [http, rtmp].map(|address| TcpListener::bind(address).expect("a port of this test"));
    let manager = UnixDatagram::bind(service.folder().join("notify")).expect("a socket for the states");
    manager.set_read_timeout(Some(Duration::from_secs(30))).expect("a limit");
    let first = Handed::start(&service, &sockets);
    assert_eq!(told(&manager), "READY=1");
    hang_up_process(&first);
    let reloading = told(&manager);
    assert!(reloading.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{reloading}");
    assert_eq!(told(&manager), "READY=1");

    let (over, opened) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        // Connects all the time: each connection must be taken, by a service or by the queue of the socket.
        let connecting = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                for address in [http, rtmp] {
                    TcpStream::connect(address).expect("no connection is refused");
                }
                opened.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        first.terminate();
        assert_eq!(told(&manager), "STOPPING=1");
        let mut waiting: Vec<TcpStream> = (0..WAITING_CONNECTIONS).map(|_| ask(http)).collect();
        let mut encoder = Publish::until_end(&source).to(&service.ingest_url(&stream.key));
        let seen = opened.load(Ordering::Relaxed);
        wait::until("connections while no service runs", || match opened.load(Ordering::Relaxed) {
            now if now >= seen + WAITING_CONNECTIONS => Ok(()),
            now => Err(format!("{now}")),
        });
        let second = Handed::start(&service, &sockets);
        assert_eq!(told(&manager), "READY=1");
        for socket in &mut waiting {
            let mut answer = String::new();
            socket.read_to_string(&mut answer).expect("an answer");
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        }
        api.wait_for_stream(&stream, "live");
        sink.wait_for_media(2 * MORE_PACKETS);
        let sent = encoder.end();
        sink.wait_until_left();
        assert_complete("the sink", &sent, &sink.records());
        second.terminate();
        over.store(true, Ordering::Relaxed);
        connecting.join().expect("no connection is refused");
    });
}

#[test]
fn sockets_that_the_service_does_not_know_stop_the_start() {
    let service = Setup::default().stopped();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    for (names, socket) in [
        ("telnet", OwnedFd::from(listener.try_clone().expect("a socket"))),
        ("rtmps", OwnedFd::from(listener.try_clone().expect("a socket"))),
        ("http", OwnedFd::from(OpenOptions::new().read(true).open("/dev/null").expect("a file"))),
    ] {
        let line = format!(
            "exec 3<&0 0</dev/null; export LISTEN_FDS=1 LISTEN_PID=$$ LISTEN_FDNAMES={names}; exec '{}' run",
            binary().display()
        );
        let output = service.shell(&line).stdin(Stdio::from(socket)).output().expect("a shell");
        assert_eq!(output.status.code(), Some(2), "{names}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

/// A service on sockets of the test.
struct Handed(Child);

impl Handed {
    /// The shell puts the sockets where the service expects them: `std` can only give a child its standard streams.
    fn start(service: &Service, [http, rtmp]: &[TcpListener; 2]) -> Self {
        let line = format!(
            "exec 3<&0 4<&1 0</dev/null 1>&2; export LISTEN_FDS=2 LISTEN_PID=$$ LISTEN_FDNAMES=http:rtmp; exec '{}' run",
            binary().display()
        );
        let handed = |socket: &TcpListener| Stdio::from(OwnedFd::from(socket.try_clone().expect("a socket")));
        let log = OpenOptions::new().create(true).append(true).open(service.folder().join("satcast.log"));
        let mut command = service.shell(&line);
        command.env("NOTIFY_SOCKET", service.folder().join("notify")).env("WATCHDOG_USEC", "2000000");
        let child = command.stdin(handed(http)).stdout(handed(rtmp)).stderr(log.expect("the log")).spawn();
        Self(child.expect("a shell"))
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.0.id().cast_signed())
    }

    fn terminate(mut self) {
        kill(self.pid(), Signal::SIGTERM).expect("a signal to the service");
        assert!(self.0.wait().expect("its end").success());
    }
}

fn hang_up_process(service: &Handed) {
    kill(service.pid(), Signal::SIGHUP).expect("a signal to the service");
}

/// The next state that the service tells its manager; signs of life come all the time.
fn told(manager: &UnixDatagram) -> String {
    let mut bytes = [0; 256];
    loop {
        let length = manager.recv(&mut bytes).expect("a state in time");
        let text = String::from_utf8_lossy(&bytes[..length]);
        if text != "WATCHDOG=1" {
            return text.into_owned();
        }
    }
}

/// A request whose answer is read later.
fn ask(address: SocketAddr) -> TcpStream {
    let mut socket = TcpStream::connect(address).expect("no connection is refused");
    socket.set_read_timeout(Some(Duration::from_secs(30))).expect("a limit");
    socket
        .write_all(b"GET /healthz HTTP/1.1\r\nHost: satcast\r\nConnection: close\r\n\r\n")
        .expect("the queue takes it");
    socket
}

fn http_address(service: &Service) -> SocketAddr {
    let base = service.base();
    base.rsplit('/').next().and_then(|address| address.parse().ok()).expect("an address")
}

fn write(service: &Service, toml: &str) {
    std::fs::write(service.folder().join("satcast.toml"), toml).expect("a configuration");
}

/// Waits until the whole reload is done.
#[track_caller]
fn reload(service: &Service) {
    hang_up_until(service, said::RELOADED);
}

#[track_caller]
fn refused_reload(service: &Service) {
    hang_up_until(service, said::RELOAD_REFUSED);
}

#[track_caller]
fn hang_up_until(service: &Service, text: &str) {
    let count = || service.log().matches(text).count();
    let before = count();
    hang_up(service);
    wait::until(text, || if count() > before { Ok(()) } else { Err("not yet".into()) });
}

/// The price of a minute that new sessions get.
fn price(api: &Api) -> Value {
    api.get("/api/public/config").ok()["pricing"]["COST_PER_PLATFORM"].clone()
}

/// The price of a minute of the session that runs.
fn rate(api: &Api) -> Value {
    let costs = api.get("/api/public/streams/active/cost").ok();
    costs["streams"][0]["ratePerMinute"].clone()
}
