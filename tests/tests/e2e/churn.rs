//! Thousands of short sessions, one after the other in several lanes, and a session with a day of media: memory, descriptors, threads
//! and disk stay as they are.

use std::path::Path;
use std::time::{Duration, Instant};

use satcast_media::{NANOS_PER_MILLI, Packet};
use satcast_tests::api::Stream;
use satcast_tests::caller::{Call, Outcome};
use satcast_tests::hosted::Hosted;
use satcast_tests::load::frames::{Frame, Rhythm, configuration};
use satcast_tests::said;
use satcast_tests::service::{ACCOUNT, Service, Setup};
use satcast_tests::sink::{Behaviour, Sink};
use satcast_tests::soak;
use satcast_tests::usage::Usage;
use satcast_tests::wait::{seconds, until};
use serde_json::json;

/// Sessions at the same time, each of a stream of its own.
const LANES: usize = 4;
/// Streams of a lane, which take turns: a session has ended when its stream is due again.
const TURNS: usize = 5;
/// Rounds of a normal run; `cargo xtask soak` has 200.
const ROUNDS: u64 = 4;
/// Sessions of a round, in all lanes.
const OF_A_ROUND: usize = 52;
/// Rounds before the first measurement, in which pools and caches fill.
const FIRST: u64 = 1;
/// Media of a session.
const MEDIA: Duration = seconds(1);
/// Bytes that a sink must get of it: about a tenth.
const BYTES_MIN: u64 = 40_000;

/// What is measured, and how much of it may come over a whole run: a leak of one for each session would be 200 at least. The database
/// may grow, because it keeps the history.
const LIMITS: [(&str, f64); 5] = [
    ("descriptors", 12.0),
    ("threads", 12.0),
    ("KiB of memory", 24.0 * 1024.0),
    ("KiB of files", 1024.0),
    ("KiB of the database", f64::INFINITY),
];

/// Hours of media after the first: two in a normal run, a day with `cargo xtask soak`.
fn hours() -> i64 {
    i64::try_from(soak::rounds(16) / 8).map_or(23, |hours| hours.min(23))
}

/// What the service holds, in the order of [`LIMITS`].
fn held(service: &Service) -> [f64; LIMITS.len()] {
    let usage = Usage::of(i32::try_from(service.process().id()).expect("a process id"));
    let (files, database) = sizes(&service.folder().join("data"));
    let kib = |bytes: u64| bytes as f64 / 1024.0;
    [usage.files as f64, usage.threads as f64, usage.kib as f64, kib(files), kib(database)]
}

/// Bytes of all files below a folder, those of the database apart; files that are removed meanwhile are not counted.
fn sizes(folder: &Path) -> (u64, u64) {
    let (mut files, mut database) = (0, 0);
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.metadata() {
            Ok(data) if data.is_dir() => files += sizes(&entry.path()).0,
            Ok(data) if entry.file_name().to_string_lossy().starts_with("satcast.db") => {
                database += data.len()
            }
            Ok(data) => files += data.len(),
            Err(_) => {}
        }
    }
    (files, database)
}

/// What was held after each step of a run.
#[derive(Default)]
struct Course(Vec<[f64; LIMITS.len()]>);

impl Course {
    /// Expects that the line of the least squares through each measurement grows by no more than its limit over the run; `per` names a
    /// step.
    fn assert_flat(&self, per: &str) {
        for (place, (name, limit)) in LIMITS.iter().enumerate() {
            let values: Vec<f64> = self.0.iter().map(|held| held[place]).collect();
            let slope = slope(&values);
            let grown = slope * values.len() as f64;
            println!(
                "{name}: {:.0} first, {grown:+.1} in all, {slope:+.2} for each {per}, limit {limit}",
                values[0]
            );
            assert!(grown <= *limit, "{name} grew by {grown:.1}: {values:?}");
        }
    }
}

/// Growth for each step: the slope of the line with the least squares.
fn slope(values: &[f64]) -> f64 {
    let count = values.len() as f64;
    let (x, y) = ((count - 1.0) / 2.0, values.iter().sum::<f64>() / count);
    let from_mean = |step: usize| step as f64 - x;
    let above: f64 = values.iter().enumerate().map(|(step, value)| from_mean(step) * (value - y)).sum();
    let below: f64 = (0..values.len()).map(|step| from_mean(step).powi(2)).sum();
    if below > 0.0 { above / below } else { 0.0 }
}

struct Lane {
    streams: Vec<Stream>,
    sink: Sink,
}

impl Lane {
    fn new(service: &Service, number: usize) -> Self {
        let sink = Sink::start(Behaviour::Discard);
        let api = service.api_of(ACCOUNT);
        let stream = |turn| {
            let stream = Hosted::with(service, &format!("lane {number}, turn {turn}"), &json!({})).stream;
            let _ = api.add_destination(&stream, &sink.url(), "copy");
            stream
        };
        Self { streams: (0..TURNS).map(stream).collect(), sink }
    }

    fn run(&self, service: &Service, sessions: usize) {
        for stream in self.streams.iter().cycle().take(sessions) {
            let before = self.sink.bytes();
            let (mut call, outcome) = Call::publish(service.rtmp_address(), "live", &stream.key);
            assert_eq!(outcome, Outcome::Publishing);
            configuration(0).iter().for_each(|packet| call.send(packet));
            let mut rhythm = Rhythm::default();
            while rhythm.next().due() < MEDIA {
                call.send(&rhythm.take().packet(0, 0, Duration::ZERO));
            }
            until("media at the sink", || match self.sink.bytes() - before {
                bytes if bytes >= BYTES_MIN => Ok(()),
                bytes => Err(format!("{bytes} bytes")),
            });
            drop(call);
            self.sink.wait_until_left();
        }
    }
}

fn wait_for_ends(service: &Service, sessions: usize) {
    until("the ends of the sessions", || {
        let ended = service.log().lines().filter(|line| line.contains(said::SESSION_ENDED)).count();
        if ended >= sessions { Ok(()) } else { Err(format!("{ended} of {sessions}")) }
    });
}

#[test]
fn soak_thousands_of_short_sessions_leave_nothing() {
    let service = Setup::default()
        .set("SATCAST_INGEST__RECONNECT_WINDOW_SECS", "0")
        .set("SATCAST_BILLING__INITIAL_CREDIT_SATS", "1000000")
        .start();
    let lanes: Vec<Lane> = (0..LANES).map(|number| Lane::new(&service, number)).collect();
    let round = || {
        std::thread::scope(|scope| {
            for lane in &lanes {
                let service = &service;
                scope.spawn(move || lane.run(service, OF_A_ROUND / LANES));
            }
        });
    };
    (0..FIRST).for_each(|_| round());
    let (mut course, rounds) = (Course::default(), usize::try_from(soak::rounds(ROUNDS)).expect("a count"));
    let began = Instant::now();
    for number in 1..=rounds {
        round();
        wait_for_ends(&service, (number + 1) * OF_A_ROUND);
        course.0.push(held(&service));
    }
    println!("{} sessions in {:.0} s", rounds * OF_A_ROUND, began.elapsed().as_secs_f64());
    course.assert_flat(&format!("{OF_A_ROUND} sessions"));
    let _ = service.run(&["ledger", "check"]);
}

/// Media time between two frames: less than the service takes for a restart of the encoder's clock.
const STEP_MS: i64 = 2_400;
const FRAMES_PER_HOUR: i64 = 3_600_000 / STEP_MS;
const FRAME_BYTES: usize = 64;

/// A keyframe that differs from all others.
fn small_frame(number: i64) -> Packet {
    let dts_ns = number * STEP_MS * NANOS_PER_MILLI;
    let mut packet = Frame::Video(0).packet(0, 0, Duration::ZERO);
    packet.payload.truncate(FRAME_BYTES);
    Packet { dts_ns, pts_ns: dts_ns, ..packet }
}

/// Sent as fast as the server accepts it, with the clocks of the system. So there is no DVR window: its files have their time.
#[test]
fn soak_a_day_of_media_holds_no_more_than_its_first_hour() {
    let setup = Setup::default().set("SATCAST_INGEST__RECONNECT_WINDOW_SECS", "0");
    let service = setup.set("SATCAST_INGEST__READ_BATCH_MS", "0").start();
    let (api, sink) = (service.api(), Sink::start(Behaviour::Discard));
    let stream = api.create_stream("a day");
    let _ = api.add_destination(&stream, &sink.url(), "copy");
    let (mut call, outcome) = Call::publish(service.rtmp_address(), "live", &stream.key);
    assert_eq!(outcome, Outcome::Publishing);
    configuration(0).iter().take(1).for_each(|packet| call.send(packet));
    let mut course = Course::default();
    for hour in 0..=hours() {
        for number in hour * FRAMES_PER_HOUR..(hour + 1) * FRAMES_PER_HOUR {
            let before = sink.bytes();
            call.send(&small_frame(number));
            let began = Instant::now();
            while sink.bytes() < before + FRAME_BYTES as u64 {
                assert!(began.elapsed() < seconds(20), "frame {number} did not come");
                std::thread::sleep(Duration::from_micros(200));
            }
        }
        if hour > 0 {
            course.0.push(held(&service));
        }
    }
    course.assert_flat("hour");
    drop(call);
    sink.wait_until_left();
    let _ = service.run(&["ledger", "check"]);
}
