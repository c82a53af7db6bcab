//! The driver with short time limits, media, and receivers in both roles.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use satcast_driver_srt::{Srt, Timing};
use satcast_media::fuzz::RECORDS;
use satcast_media::srt::{Connection, Cookies, Delivery, Keys, Over, Reason, Request, calling, destination};
use satcast_media::ts::Demuxer;
use satcast_media::{Codec, Packet};
use satcast_plugin_api::driver::{Config, Driver, DriverInfo, DynDestination, Host, SettingsSchema};
use satcast_plugin_api::testkit::{self, TestDestination};
use satcast_plugin_api::{DestType, Error};

/// Longest time that a receiver goes on.
const WAIT_MAX: Duration = Duration::from_secs(20);
/// Number of a receiver's socket.
const OWN: u32 = 77;

/// The srt driver with time limits that are short enough for tests.
pub(crate) struct Quick(Srt);

const QUICK: Timing = Timing {
    setup: Duration::from_millis(1_500),
    stalled: Duration::from_millis(700),
    media_silent: Duration::from_millis(500),
    flush: Duration::from_millis(1_000),
};

impl Driver for Quick {
    const INFO: DriverInfo = DriverInfo { id: "srt", version: "0.0.0", title: "quick" };

    fn types() -> Vec<DestType> {
        Srt::types()
    }

    fn settings() -> Option<SettingsSchema> {
        Srt::settings()
    }

    fn load(host: &Host) -> Result<Self, Error> {
        Srt::with_timing(host, QUICK).map(Self)
    }

    fn validate(&self, config: Config<'_>) -> Result<(), Error> {
        self.0.validate(config)
    }

    fn open(&self, config: Config<'_>) -> Result<Arc<dyn DynDestination>, Error> {
        self.0.open(config)
    }
}

/// Starts a driver of this test's own, with these settings: each use has its own slot.
macro_rules! kit {
    ($settings:expr) => {{
        satcast_plugin_api::driver_entry!(entry, $crate::kit::Quick);
        satcast_plugin_api::testkit::keep_own_logs();
        let options = satcast_plugin_api::testkit::Options { settings: $settings, ..Default::default() };
        satcast_plugin_api::testkit::Testkit::start_with(entry, options).unwrap()
    }};
}

/// A UDP port that nobody has.
pub(crate) fn free_port() -> u16 {
    UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Codec configurations, and media of 40 ms a frame with a keyframe each half second, and audio.
pub(crate) fn stream(frames: u64) -> Vec<Packet> {
    let record = |codec| RECORDS.iter().find(|(known, _)| *known == codec).unwrap().1;
    let mut packets = vec![
        testkit::config(Codec::H264, record(Codec::H264)),
        testkit::config(Codec::Aac, record(Codec::Aac)),
    ];
    packets.extend((0..frames).flat_map(|number| {
        let (keyframe, at) = (number % 12 == 0, number as i64 * 40);
        let nal = if keyframe { 0x65 } else { 0x41 };
        let length: usize = if keyframe { 9_000 } else { 900 };
        let mut unit = (length as u32 + 3).to_be_bytes().to_vec();
        unit.extend([nal, number as u8, 7]);
        unit.resize(length + 7, 0x55);
        let video = testkit::media(Codec::H264, 2 * number, at, keyframe, unit.into());
        let audio = Bytes::from(vec![0x21, number as u8, 3, 4, 5]);
        [video, testkit::media(Codec::Aac, 2 * number + 1, at, false, audio)]
    }));
    packets
}

/// Hands over packets at the pace of their times.
pub(crate) fn push_in_time(dest: &TestDestination, packets: &[Packet]) {
    let begun = Instant::now();
    for packet in packets {
        let at = Duration::from_nanos(packet.dts_ns.max(0) as u64);
        std::thread::sleep(at.saturating_sub(begun.elapsed()));
        dest.push(packet.clone());
    }
}

/// Payloads of the media of one codec.
pub(crate) fn payloads(packets: &[Packet], codec: Codec) -> Vec<Bytes> {
    let of_codec = |packet: &&Packet| packet.codec == codec && !packet.is_config();
    packets.iter().filter(of_codec).map(|packet| packet.payload.clone()).collect()
}

/// What a receiver saw.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) stream_id: String,
    pub(crate) packets: Vec<Packet>,
    pub(crate) gaps: u64,
    pub(crate) dropped: u64,
    pub(crate) latency: Duration,
    /// How the connection ended; `None`: it was still open.
    pub(crate) over: Option<Over>,
    /// The reason of a refusal that a calling receiver got.
    pub(crate) refused: Option<u32>,
}

/// How a receiver behaves.
#[derive(Debug, Clone, Default)]
pub(crate) struct Behaviour {
    pub(crate) passphrase: Option<String>,
    /// Refuses every call.
    pub(crate) refuse: Option<Reason>,
    /// Of a hundred datagrams, this many are lost when they come.
    pub(crate) loss_percent: u64,
    /// Accepts, and acknowledges nothing; it hears the end alone.
    pub(crate) is_deaf: bool,
    /// Sends garbage beside its answers.
    pub(crate) is_hostile: bool,
}

/// A receiver that the driver calls; dropped or finished, it ends.
pub(crate) struct Receiver {
    address: SocketAddr,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<Seen>>,
}

impl Receiver {
    pub(crate) fn start(behaviour: Behaviour) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (address, over) = (socket.local_addr().unwrap(), Arc::new(AtomicBool::new(false)));
        let told = Arc::clone(&over);
        let thread = std::thread::spawn(move || Listening::new(socket, behaviour).run(&told));
        Self { address, over, thread: Some(thread) }
    }

    pub(crate) fn url(&self) -> String {
        format!("srt://{}", self.address)
    }

    /// Waits until the connection is over.
    pub(crate) fn wait(mut self) -> Seen {
        self.thread.take().unwrap().join().unwrap()
    }

    /// Ends it now.
    pub(crate) fn finish(self) -> Seen {
        self.over.store(true, Ordering::Relaxed);
        self.wait()
    }
}

struct Listening {
    socket: UdpSocket,
    behaviour: Behaviour,
    begun: Instant,
    cookies: Cookies,
    /// The driver's address and socket, the answer, and the connection.
    accepted: Option<(SocketAddr, u32, Vec<u8>, Connection)>,
    seen: Seen,
    demuxer: Demuxer,
    state: u64,
}

impl Listening {
    fn new(socket: UdpSocket, behaviour: Behaviour) -> Self {
        socket.set_read_timeout(Some(Duration::from_millis(2))).unwrap();
        let (accepted, seen, demuxer) = (None, Seen::default(), Demuxer::default());
        let (begun, cookies) = (Instant::now(), Cookies::new(&[7; 16]));
        Self { socket, behaviour, begun, cookies, accepted, seen, demuxer, state: 7 }
    }

    fn run(mut self, told: &AtomicBool) -> Seen {
        let mut block = [0; 2_048];
        while self.begun.elapsed() < WAIT_MAX && !told.load(Ordering::Relaxed) {
            let got = self.socket.recv_from(&mut block);
            let now = self.begun.elapsed();
            if let Ok((bytes, from)) = got {
                self.take(&block[..bytes], from, now);
            }
            if self.look(now) {
                break;
            }
        }
        self.demuxer.finish(&mut self.seen.packets).unwrap();
        self.seen.gaps = self.demuxer.stats().gaps;
        self.seen
    }

    fn take(&mut self, datagram: &[u8], from: SocketAddr, now: Duration) {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        if (self.state >> 33) % 100 < self.behaviour.loss_percent {
            return;
        }
        if destination(datagram) != Some(0) {
            let is_end = datagram.starts_with(&[0x80, 5]);
            if let Some((.., connection)) = &mut self.accepted
                && (!self.behaviour.is_deaf || is_end)
            {
                connection.input(BytesMut::from(datagram), now);
            }
            return;
        }
        match Request::parse(datagram) {
            Some(Request::Induction(hello)) => {
                let answer = hello.answer(self.cookies.make(from, now), from.ip());
                self.socket.send_to(&answer, from).unwrap();
            }
            Some(Request::Conclusion(asked)) => {
                assert!(self.cookies.is_valid(asked.cookie, from, now));
                if let Some(reason) = self.behaviour.refuse {
                    self.socket.send_to(&asked.refuse(reason, from.ip()), from).unwrap();
                    return;
                }
                if self.accepted.is_none() {
                    self.seen.stream_id = asked.stream_id().to_owned();
                    let secret = self.behaviour.passphrase.as_deref();
                    let keys = asked.key_material().zip(secret);
                    let keys = keys.map(|(material, secret)| Keys::unwrap(secret, material).unwrap());
                    assert_eq!(keys.is_some(), secret.is_some());
                    let accepted = Connection::accept(&asked, OWN, from.ip(), keys, now, now);
                    self.accepted = Some((from, asked.caller, accepted.answer, accepted.connection));
                }
                let answer = &self.accepted.as_ref().unwrap().2;
                self.socket.send_to(answer, from).unwrap();
            }
            None => {}
        }
    }

    /// Does what is due; true at the end of the connection.
    fn look(&mut self, now: Duration) -> bool {
        let Some((peer, caller, _, connection)) = &mut self.accepted else { return false };
        if self.behaviour.is_deaf {
            // Signs of life, and nothing else.
            let alive = [0x8001_0000u32, 0, 0, *caller, 0].map(u32::to_be_bytes).concat();
            self.socket.send_to(&alive, *peer).unwrap();
            self.seen.over = connection.over();
            return self.seen.over.is_some();
        }
        connection.poll(now);
        for datagram in connection.take_output() {
            if self.behaviour.is_hostile {
                for first in [0u8, 0x80, 0xff] {
                    let garbage = [&[first; 12][..], &caller.to_be_bytes(), &[first; 40]].concat();
                    self.socket.send_to(&garbage, *peer).unwrap();
                    self.socket.send_to(&[first; 9], *peer).unwrap();
                }
                // Everything is lost, and a packet that was never sent has arrived.
                let head = [0x8003_0000u32, 0, 0, *caller].map(u32::to_be_bytes).concat();
                let all = [0x8000_0000u32, 0x7fff_fffe].map(u32::to_be_bytes).concat();
                self.socket.send_to(&[head, all].concat(), *peer).unwrap();
            }
            // The driver may have gone.
            let _gone = self.socket.send_to(&datagram, *peer);
        }
        let over = connection.over();
        let until = if over.is_some() { Duration::MAX } else { now };
        while let Some(delivery) = connection.give(until) {
            match delivery {
                Delivery::Payload(bytes) => {
                    assert!(bytes.len().is_multiple_of(188) && bytes.len() <= 1_316);
                    self.demuxer.push(&bytes, &mut self.seen.packets).unwrap();
                }
                Delivery::Lost => self.demuxer.lost(),
            }
        }
        let stats = connection.stats();
        (self.seen.over, self.seen.dropped, self.seen.latency) = (over, stats.dropped, stats.latency);
        over.is_some()
    }
}

/// A receiver that calls a port of the driver, and goes on until it has `frames` frames of video, or the end.
pub(crate) fn call(port: u16, stream_id: &str, more: &[u32], frames: usize) -> Seen {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(("127.0.0.1", port)).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
    let (begun, caller) = (Instant::now(), 9);
    let mut seen = Seen::default();
    let (mut cookie, mut accepted): (Option<u32>, Option<Connection>) = (None, None);
    let (mut demuxer, mut block, mut sent_at) = (Demuxer::default(), [0; 2_048], Duration::ZERO);
    while begun.elapsed() < WAIT_MAX {
        let now = begun.elapsed();
        if accepted.is_none() && now >= sent_at {
            sent_at = now + Duration::from_millis(100);
            let datagram = match cookie {
                None => calling::induction(caller),
                Some(cookie) => {
                    let more = [calling::stream_id(stream_id), more.to_vec()].concat();
                    calling::conclusion(caller, cookie, 500, 200, &more)
                }
            };
            // The port may not be open yet.
            let _refused = socket.send(&datagram);
        }
        if let Ok(bytes) = socket.recv(&mut block) {
            let datagram = &block[..bytes];
            match calling::kind_and_socket(datagram).filter(|_| accepted.is_none()) {
                Some((1, _)) => cookie = calling::cookie(datagram),
                Some((u32::MAX, own)) => {
                    // Only the numbers and the clock matter: the sender's packets count from 0 when it answers.
                    let as_caller = calling::conclusion(own, 0, 500, 200, &[]);
                    let Some(Request::Conclusion(asked)) = Request::parse(&as_caller) else { panic!() };
                    let address = socket.peer_addr().unwrap().ip();
                    accepted = Some(Connection::accept(&asked, caller, address, None, now, now).connection);
                }
                Some((kind @ 1_000..0x7fff_ffff, _)) => {
                    seen.refused = Some(kind - 1_000);
                    return seen;
                }
                _ => {
                    if let Some(connection) = &mut accepted {
                        connection.input(BytesMut::from(datagram), now);
                    }
                }
            }
        }
        let Some(connection) = &mut accepted else { continue };
        connection.poll(now);
        connection.take_output().iter().for_each(|datagram| drop(socket.send(datagram)));
        seen.over = connection.over();
        let until = if seen.over.is_some() { Duration::MAX } else { now };
        while let Some(delivery) = connection.give(until) {
            match delivery {
                Delivery::Payload(bytes) => demuxer.push(&bytes, &mut seen.packets).unwrap(),
                Delivery::Lost => demuxer.lost(),
            }
        }
        seen.latency = connection.stats().latency;
        if seen.over.is_some() || payloads(&seen.packets, Codec::H264).len() >= frames {
            break;
        }
    }
    demuxer.finish(&mut seen.packets).unwrap();
    seen
}
