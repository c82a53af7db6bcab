//! Many streams with four destinations each through one driver, on threads of the host and in a process of its own.
//!
//! `cargo xtask bench boundary [--repeats N] [--seconds S]`. It measures the host from the publisher on: the session's fan-out, the
//! queues, the pump thread, the C table, and for an isolated driver the socket. RTMP is left
//! out: the sources hand packets of 40 kB by reference to [`Live`], 150 a second each, which are 6 MB/s. The driver counts bytes and
//! gives packets back at once. Sessions, store and driver are the real ones; CPU is that of this process (the sources' loop included)
//! and of the driver's process. A delivery is one packet to one destination.
//!
//! The study that led to this design measured a driver in the process of a prototype host, on another machine with two cores: for 30
//! sources 9 to 11 us of CPU a delivery, for 100 sources 3.8 us, for 300 sources 1.5 to 1.7 us. It is an order of magnitude, not an exact
//! target. The study has no figures of a complete isolated host, only of one ring: 3.3 us of the host for each copied packet.

use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use satcast_core::clock::Clock;
use satcast_core::config::{Config, Durability};
use satcast_core::ids::{DestinationId, StreamId};
use satcast_core::secret::{Vault, new_stream_key};
use satcast_drivers::{Drivers, HostParts, LoadOptions, RecordingParts};
use satcast_live::{DestinationSnapshot, Live, Publisher, Settings};
use satcast_media::{Codec, NANOS_PER_MILLI, Packet};
use satcast_net::outbound::Guard;
use satcast_store::{Actor, Caps, NewAccount, NewDestination, NewStream, OpenOptions, Origin};
use satcast_tests::figures::Options;
use satcast_tests::figures::results::{OURS, Results};
use satcast_tests::scene::{HOSTILE, built, configuration};
use satcast_tests::service::binary;

const REPEATS: usize = 2;
const WINDOW_SECONDS: u64 = 8;
/// Destinations of each source.
const DESTINATIONS: usize = 4;
const SOURCES: [usize; 3] = [30, 100, 300];
const PACKETS_PER_SECOND: u64 = 150;
const PACKET_BYTES: usize = 40_000;
/// A keyframe every two seconds.
const GROUP_PACKETS: u64 = 300;
/// From the first packet to the beginning of the window.
const WARM_UP: Duration = Duration::from_secs(4);
/// Longest wait until every destination receives.
const OPEN_LIMIT: Duration = Duration::from_secs(60);
const CAPS: Caps = Caps { destinations_per_stream: 50, streams_per_account: 1000, keys_per_account: 100 };

fn main() {
    let options = Options::from_arguments(REPEATS, WINDOW_SECONDS);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    println!(
        "{} packets/s of {PACKET_BYTES} bytes from each source, {DESTINATIONS} destinations each; {} repeats of {} s",
        PACKETS_PER_SECOND,
        options.repeats,
        options.window.as_secs()
    );
    let mut results = Results::new();
    for isolation in ["thread", "process"] {
        for sources in SOURCES {
            let row = format!("boundary {sources}, {isolation}");
            for repeat in 0..options.repeats {
                println!("{row}, repeat {}", repeat + 1);
                let measured = measure(&runtime, isolation, sources, options.window);
                for (figure, value) in measured.named() {
                    results.note(&row, figure, OURS, repeat, value);
                }
            }
        }
    }
    results.print();
}

struct Measured {
    per_second: f64,
    cores: f64,
    child_cores: f64,
    lost: u64,
}

impl Measured {
    fn named(&self) -> [(&'static str, f64); 5] {
        [
            ("per_s", self.per_second),
            ("cores", self.cores),
            ("child_cores", self.child_cores),
            ("cpu_us", self.cores * 1e6 / self.per_second),
            ("lost", self.lost as f64),
        ]
    }
}

fn measure(runtime: &tokio::runtime::Runtime, isolation: &str, sources: usize, window: Duration) -> Measured {
    let folder = tempfile::tempdir().expect("a folder");
    let rig = runtime.block_on(Rig::new(folder.path(), isolation, sources, runtime.handle().clone()));
    let mut publishers = runtime.block_on(rig.publish());
    let (payload, began) = (Bytes::from(vec![7; PACKET_BYTES]), Instant::now());
    let mut sent = 0;
    push(&mut publishers, &mut sent, WARM_UP, began, &payload);
    // A machine that is too slow for the row shows it in the lost packets.
    while !rig.all_receive() && began.elapsed() < OPEN_LIMIT {
        push(&mut publishers, &mut sent, began.elapsed() + WARM_UP, began, &payload);
    }
    let (before, cpu, child, from) = (rig.figures(), cpu_of(Pid::this()), rig.child_cpu(), Instant::now());
    push(&mut publishers, &mut sent, began.elapsed() + window, began, &payload);
    let (took, cpu, child) =
        (from.elapsed().as_secs_f64(), cpu_of(Pid::this()) - cpu, rig.child_cpu() - child);
    let after = rig.figures();
    drop(publishers);
    runtime.block_on(rig.live.shut_down());
    let (cpu, child) = (cpu.as_secs_f64(), child.as_secs_f64());
    Measured {
        per_second: (after.0 - before.0) as f64 / PACKET_BYTES as f64 / took,
        cores: (cpu + child) / took,
        child_cores: child / took,
        lost: after.1 - before.1,
    }
}

/// Publishes until `end` after `began`: each source its packets, one after the other, at even times.
fn push(publishers: &mut [Publisher], sent: &mut u64, end: Duration, began: Instant, payload: &Bytes) {
    while began.elapsed() < end {
        let due = Duration::from_micros(*sent * 1_000_000 / PACKETS_PER_SECOND);
        std::thread::sleep(due.saturating_sub(began.elapsed()));
        let dts_ns = i64::try_from(*sent * 1_000 / PACKETS_PER_SECOND).expect("a time") * NANOS_PER_MILLI;
        let packet =
            Packet::media(Codec::H264, sent.is_multiple_of(GROUP_PACKETS), dts_ns, dts_ns, payload.clone());
        for publisher in publishers.iter_mut() {
            let mut packets = vec![packet.clone()];
            if *sent == 0 {
                let record = Bytes::from_static(&[1, 0x64, 0, 0x1f, 0xff, 0xe0, 0]);
                packets.insert(0, Packet::configuration(Codec::H264, record));
            }
            publisher.push(&mut packets);
        }
        *sent += 1;
    }
}

struct Rig {
    live: Live,
    store: satcast_store::Store,
    streams: Vec<(StreamId, Vec<DestinationId>)>,
}

impl Rig {
    async fn new(folder: &Path, isolation: &str, sources: usize, runtime: tokio::runtime::Handle) -> Self {
        let drivers = folder.join("libraries");
        std::fs::create_dir(&drivers).expect("a folder");
        let library = built().join("libsatcast_test_driver.so");
        std::fs::copy(library, drivers.join(format!("{HOSTILE}.so"))).expect("the test driver");
        let clock = Clock::system();
        let parts = HostParts {
            guard: Guard::new(&[]).expect("a guard"),
            runtime,
            clock: clock.clone(),
            data_dir: folder.join("drivers"),
            recordings: RecordingParts::default(),
        };
        let environment = [
            ("SATCAST_DRIVERS__DIR", drivers.to_str().expect("a path in UTF-8")),
            ("SATCAST_DRIVERS__ENABLED", "[\"panic\"]"),
            ("SATCAST_DRIVER__PANIC__ISOLATION", isolation),
        ];
        let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let config = Config::load(None, environment, &Default::default()).expect("a configuration").config;
        let images = folder.join("images");
        let drivers = tokio::task::spawn_blocking(move || {
            Drivers::load(&LoadOptions { config: &config, exe: binary(), images }, &parts)
        });
        let drivers = drivers.await.expect("drivers");
        assert!(drivers.known_types().iter().any(|kind| kind == HOSTILE), "{:?}", drivers.summaries());
        let url =
            satcast_core::secret::Redacted::new(format!("sqlite:{}", folder.join("bench.db").display()));
        let vault = Vault::new(&[7; 32]);
        let low_balance = satcast_core::ids::Msat(0);
        let options = OpenOptions { url, durability: Durability::Normal, vault, low_balance };
        let store = satcast_store::open(options).await.expect("a store");
        let streams = Self::streams(&store, &clock, sources).await;
        let settings =
            Settings { reconnect_window: Duration::ZERO, cooldown: Duration::ZERO, ..Settings::default() };
        let live = Live::new(store.clone(), drivers, clock, settings);
        Self { live, store, streams }
    }

    async fn streams(
        store: &satcast_store::Store,
        clock: &Clock,
        sources: usize,
    ) -> Vec<(StreamId, Vec<DestinationId>)> {
        let now = clock.now();
        let new = NewAccount {
            name: "bench".into(),
            password_hash: None,
            operator: false,
            initial_credit: 0.into(),
        };
        let account = store.create_account(&Origin::command(now), new).await.expect("an account");
        let destination = NewDestination {
            kind: HOSTILE.into(),
            platform: HOSTILE.into(),
            config: configuration("nowhere"),
            has_playback: false,
            delays: Default::default(),
        };
        let mut streams = Vec::new();
        for number in 0..sources {
            let new = NewStream {
                srt_passphrase: None,
                label: format!("source {number}"),
                stream_key: new_stream_key(),
                destinations: vec![destination.clone(); DESTINATIONS],
                allowed: Default::default(),
                caps: CAPS,
            };
            streams.push(store.create_stream(&Actor::command(account, now), new).await.expect("a stream"));
        }
        streams
    }

    async fn publish(&self) -> Vec<Publisher> {
        let mut publishers = Vec::new();
        for (stream, _) in &self.streams {
            let record = self.store.stream(*stream).await.expect("a stream").expect("it is there");
            publishers.push(self.live.publish(record).await.expect("a publisher"));
        }
        publishers
    }

    fn shown(&self) -> impl Iterator<Item = Option<DestinationSnapshot>> {
        let all = self.streams.iter().flat_map(|(stream, ids)| ids.iter().map(move |id| (*stream, *id)));
        all.map(|(stream, id)| self.live.destination(stream, id))
    }

    fn all_receive(&self) -> bool {
        self.shown().all(|shown| shown.is_some_and(|shown| shown.bytes_sent > 0))
    }

    /// Bytes that all destinations have sent, and packets they lost.
    fn figures(&self) -> (u64, u64) {
        self.shown()
            .flatten()
            .fold((0, 0), |sums, shown| (sums.0 + shown.bytes_sent, sums.1 + shown.dropped_packets))
    }

    /// CPU time of the driver's process, zero where it has none.
    fn child_cpu(&self) -> Duration {
        let own = std::process::id();
        // Children belong to the thread that started them.
        let tasks = std::fs::read_dir(format!("/proc/{own}/task")).expect("the threads of this process");
        let children =
            tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("children")).ok());
        let pids: Vec<Pid> = children
            .flat_map(|line| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
            .filter_map(|pid| Some(Pid::from_raw(pid.parse().ok()?)))
            .collect();
        pids.into_iter().map(cpu_of).sum()
    }
}

fn cpu_of(pid: Pid) -> Duration {
    let clock = ClockId::pid_cpu_clock_id(pid).expect("a process of ours");
    let time = clock_gettime(clock).expect("its time");
    Duration::new(time.tv_sec().try_into().expect("a time"), time.tv_nsec().try_into().expect("a time"))
}
