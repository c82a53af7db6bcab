//! Servers of all kinds, on a simulated clock.

use super::*;

const KILO: u64 = 1000;
/// An audio-only stream and a usual one, in bytes per second.
const THIN: u64 = 6 * KILO;
const USUAL: u64 = 300 * KILO;
const BEFORE: u64 = 4 * KILO;
/// Acknowledgement interval of a server for a requested interval.
type Spacing = fn(u64) -> u64;
const NEVER: Spacing = |_| u64::MAX;
const ASKED: Spacing = |asked| asked;

/// A stream and its server. Both advance by tenths of a second.
struct Scene {
    watch: Watch,
    start: Instant,
    tenths: u64,
    /// Bytes per second of the stream, and most bytes per second that the server reads.
    rate: u64,
    reads: u64,
    /// Most bytes that its system buffers unread.
    keeps: u64,
    sent: u64,
    taken: u64,
    read: u64,
    acknowledged: Option<u64>,
    /// Requested acknowledgement intervals, with the output positions of the requests.
    asked: Vec<(u64, u32)>,
    /// Reported results, with the second.
    reported: Vec<(u64, Due)>,
}

impl Scene {
    /// Its server reads everything at once.
    fn new(rate: u64) -> Self {
        let start = Instant::now();
        Scene {
            watch: Watch::new(Timing::default(), start, false),
            start,
            tenths: 0,
            rate,
            reads: u64::MAX / 2,
            keeps: 100 * KILO,
            sent: BEFORE,
            taken: BEFORE,
            read: BEFORE,
            acknowledged: Some(BEFORE),
            asked: vec![(0, WINDOW_BYTES_MIN)],
            reported: Vec::new(),
        }
    }

    /// An earlier attempt with its server ended because it did not read.
    fn doubted(rate: u64) -> Self {
        let mut scene = Self::new(rate);
        scene.watch.is_doubted = true;
        scene
    }

    /// A server that reads nothing.
    fn deaf(self) -> Self {
        Self { reads: 0, ..self }
    }

    fn run(&mut self, seconds: u64, spacing: impl Fn(u64) -> u64) {
        (0..seconds * 10).for_each(|_| self.step(self.rate / 10, &spacing));
    }

    fn step(&mut self, bytes: u64, spacing: impl Fn(u64) -> u64) {
        self.tenths += 1;
        let now = self.now();
        // Data that the server does not take stays with the host.
        if bytes > 0 && self.sent - self.taken < 64 * KILO {
            self.sent += bytes;
            self.watch.queued_media(now, self.sent);
        }
        let most = self.read + self.reads / 10;
        self.taken = self.taken.max(self.sent.min(most + self.keeps));
        self.read = self.taken.min(most);
        let asked = self.asked.iter().rev().find(|(from, _)| *from <= self.read).unwrap().1;
        if let Some(acknowledged) = &mut self.acknowledged
            && self.read - *acknowledged >= spacing(u64::from(asked))
        {
            *acknowledged = self.read;
        }
        if self.watch.is_check_due(now) {
            self.check();
        }
    }

    fn check(&mut self) {
        let (now, asked) = (self.now(), self.asked.last().unwrap().1);
        let all = self.taken == self.sent;
        let (taken, read, end) = (self.taken, self.acknowledged, self.sent);
        let due = self.watch.check(now, Seen { taken, all, read, asked, end });
        if due != Due::Nothing {
            self.reported.push((self.tenths / 10, due));
        }
        if let Some(bytes) = self.watch.window(now, asked) {
            self.asked.push((self.sent, bytes));
        }
    }

    fn now(&self) -> Instant {
        self.start + Duration::from_millis(self.tenths * 100)
    }

    fn is_live(&self) -> bool {
        self.watch.is_live()
    }

    /// Results since the last call.
    fn reported(&mut self) -> Vec<Due> {
        std::mem::take(&mut self.reported).into_iter().map(|(_, due)| due).collect()
    }

    /// The only result since the last call, with the second.
    #[track_caller]
    fn reported_once(&mut self) -> (u64, Due) {
        let reported = std::mem::take(&mut self.reported);
        assert_eq!(reported.len(), 1, "{reported:?}");
        reported[0]
    }
}

const STALLED: Due = Due::Stalled { is_silent: false };
const SILENT: Due = Due::Stalled { is_silent: true };

fn seen(taken: u64, read: u64) -> Seen {
    Seen { taken, all: false, read: Some(read), asked: WINDOW_BYTES_MIN, end: taken }
}

#[test]
fn live_after_acknowledged_media_or_more_bytes_than_a_system_buffers() {
    let start = Instant::now();
    for (media, taken, read, is_live) in [
        (None, 5000, 5000, false),
        (Some(5000), 5000, 4999, false),
        (Some(5000), 5000, 5000, true),
        (Some(5000), 4999 + UNREAD_BYTES_MAX, 0, false),
        (Some(5000), 5000 + UNREAD_BYTES_MAX, 0, true),
    ] {
        for is_doubted in [false, true] {
            let mut watch = Watch::new(Timing::default(), start, is_doubted);
            if let Some(end) = media {
                watch.queued_media(start, end);
                watch.queued_media(start, end + 1_000_000);
            }
            let due = watch.check(start, seen(taken, read));
            assert_eq!(due, if is_live { Due::Live } else { Due::Nothing }, "{media:?} {taken} {read}");
            assert_eq!(watch.check(start, seen(taken, read)), Due::Nothing, "reported once");
        }
    }
}

#[test]
fn an_unacknowledged_thin_stream_is_live_after_the_stall_time_unless_doubted() {
    let mut scene = Scene::new(THIN);
    scene.run(300, NEVER);
    let (second, due) = scene.reported_once();
    assert_eq!(due, Due::Live);
    assert!((5..=6).contains(&second), "{second}");
    let mut scene = Scene::doubted(THIN);
    scene.run(30, NEVER);
    assert_eq!(scene.reported(), []);
    scene.run(30, NEVER);
    assert_eq!(scene.reported(), [Due::Live], "more than a system buffers");
}

#[test]
fn time_without_checks_proves_nothing() {
    let start = Instant::now();
    let at = |seconds| start + Duration::from_secs(seconds);
    let mut watch = Watch::new(Timing::default(), start, false);
    watch.queued_media(start, 10);
    assert_eq!(watch.check(at(0), seen(10, 0)), Due::Nothing);
    assert_eq!(watch.check(at(60), seen(1000, 0)), Due::Nothing, "one check proves nothing");
}

#[test]
fn a_server_that_never_reads_stalls_and_is_given_up() {
    let mut scene = Scene::new(USUAL).deaf();
    scene.run(18, NEVER);
    let reported = std::mem::take(&mut scene.reported);
    assert_eq!(reported[0].1, STALLED);
    assert!((5..=7).contains(&reported[0].0), "{reported:?}");
    assert_eq!(reported[1].1, Due::DoesNotRead { is_silent: false });
    assert!((15..=17).contains(&reported[1].0), "{reported:?}");
    // With a thin stream it is live while its system has space, in one attempt of a session.
    let mut scene = Scene::new(THIN).deaf();
    scene.run(24, NEVER);
    assert_eq!(scene.reported(), [Due::Live, STALLED]);
    let mut scene = Scene::doubted(THIN).deaf();
    scene.run(24, NEVER);
    assert_eq!(scene.reported(), [STALLED]);
}

#[test]
fn a_stalled_server_is_live_again_after_a_time_that_grows_with_each_stall() {
    let mut scene = Scene::new(USUAL);
    scene.run(5, NEVER);
    assert_eq!(scene.reported(), [Due::Live]);
    let lived = scene.watch.lived();
    // It recovers, or reads too little permanently.
    for (reads, waits) in [(u64::MAX / 2, 5..=6), (100 * KILO, 10..=11), (20 * KILO, 15..=16)] {
        scene.reads = 0;
        scene.run(9, NEVER);
        assert_eq!(scene.reported(), [STALLED]);
        scene.reads = reads;
        let since = scene.tenths / 10;
        scene.run(20, NEVER);
        let (second, due) = scene.reported_once();
        assert!(due == Due::Live && waits.contains(&(second - since)), "{reads}: {} s", second - since);
    }
    assert!(scene.watch.lived() > lived + Duration::from_secs(15));
}

#[test]
fn a_server_that_reads_in_rare_bursts_is_slow_and_not_live() {
    let mut scene = Scene::new(USUAL);
    scene.run(5, NEVER);
    scene.reads = 0;
    scene.run(7, NEVER);
    assert_eq!(scene.reported(), [Due::Live, STALLED]);
    for second in 0..600 {
        // Some pauses are shorter than a stall.
        scene.reads = if matches!(second % 11, 0 | 6 | 7) { 30 * KILO } else { 0 };
        scene.run(1, NEVER);
        assert!(!scene.is_live(), "{second}");
    }
    assert_eq!(scene.reported(), [Due::Slow], "one state, one reason");
}

#[test]
fn a_server_that_stops_reading_stalls_although_its_system_takes_data() {
    // At the requested interval, at half of it as many do, or at a shorter interval of its own.
    let servers: [(u64, Spacing); 5] = [
        (THIN, ASKED),
        (THIN, |asked| asked / 2),
        (USUAL, ASKED),
        (USUAL, |asked| asked / 2),
        (5_000 * KILO, |_| 250 * KILO),
    ];
    for (rate, spacing) in servers {
        let mut scene = Scene::new(rate);
        scene.run(30, spacing);
        assert!(scene.is_live() && scene.reported().len() == 1, "{rate}");
        scene.run(12, NEVER);
        let (stalled, due) = scene.reported_once();
        assert!(due == SILENT && (36..=40).contains(&stalled), "{rate}: {stalled}");
        scene.run(10, NEVER);
        let (second, due) = scene.reported[0];
        assert_eq!((due, second - stalled), (Due::DoesNotRead { is_silent: true }, 10), "{rate}");
    }
}

#[test]
fn a_doubted_server_is_not_disconnected_for_silence_alone() {
    let mut scene = Scene::doubted(THIN);
    scene.run(30, ASKED);
    scene.run(300, NEVER);
    assert_eq!(scene.reported(), [Due::Live, SILENT]);
}

#[test]
fn a_silent_server_that_acknowledges_again_is_live_again() {
    let mut scene = Scene::doubted(THIN);
    scene.run(30, ASKED);
    scene.run(12, NEVER);
    assert_eq!(scene.reported(), [Due::Live, SILENT]);
    scene.run(4, ASKED);
    assert_eq!(scene.reported(), []);
    scene.run(3, ASKED);
    assert_eq!(scene.reported(), [Due::Live]);
}

#[test]
fn a_server_with_rare_or_wrong_acknowledgements_is_judged_by_its_system() {
    for spacing in [60 * KILO, 250 * KILO, 2_500 * KILO, u64::MAX] {
        let mut scene = Scene::new(THIN);
        scene.run(1000, |_| spacing);
        scene.run(1000, NEVER);
        assert_eq!(scene.reported(), [Due::Live], "{spacing}");
    }
    // Few acknowledgements prove little.
    let mut scene = Scene::new(THIN);
    scene.run(6, ASKED);
    scene.run(200, NEVER);
    assert_eq!(scene.reported(), [Due::Live]);
    // It acknowledges by the clock, also when the stream grows.
    let mut scene = Scene::new(THIN);
    for rate in [THIN, USUAL, THIN] {
        scene.rate = rate;
        scene.run(60, |_| rate * 8);
    }
    assert_eq!(scene.reported(), [Due::Live]);
    let mut scene = Scene::new(THIN);
    scene.run(30, ASKED);
    scene.acknowledged = None;
    scene.run(300, NEVER);
    assert_eq!(scene.reported(), [Due::Live]);
    // The silence turns out to be wrong during the stall.
    let mut scene = Scene::new(THIN);
    scene.run(30, ASKED);
    scene.run(11, NEVER);
    scene.acknowledged = None;
    scene.run(7, NEVER);
    assert_eq!(scene.reported(), [Due::Live, SILENT, Due::Live]);
}

#[test]
fn the_interval_follows_the_bit_rate_and_a_server_that_keeps_it_is_not_silent() {
    let mut scene = Scene::new(THIN);
    let rates = [
        (THIN, 8192),
        (600 * KILO, 600_000),
        (900 * KILO, 600_000),
        (5_000 * KILO, 2_500_000),
        (20 * KILO, 20_000),
        (THIN, 8192),
    ];
    for (rate, asked) in rates {
        scene.rate = rate;
        scene.run(20, ASKED);
        let now = u64::from(scene.asked.last().unwrap().1);
        assert!((asked * 9 / 10..=asked).contains(&now), "{rate}: {now}");
    }
    assert_eq!(scene.reported(), [Due::Live]);
}

#[test]
fn a_server_that_changes_its_interval_is_not_silent() {
    let mut scene = Scene::new(USUAL);
    scene.run(30, |_| 50 * KILO);
    scene.run(60, |_| 700 * KILO);
    scene.run(60, |_| 2_500 * KILO);
    scene.run(60, |_| 50 * KILO);
    assert_eq!(scene.reported(), [Due::Live]);
}

#[test]
fn a_slow_server_with_a_large_system_buffer_is_not_silent() {
    for keeps in [600 * KILO, 4_000 * KILO] {
        let mut scene = Scene { keeps, reads: 12 * KILO, ..Scene::new(USUAL) };
        scene.run(600, ASKED);
        assert_eq!(scene.reported(), [Due::Live], "{keeps}");
        assert!(scene.asked.len() > 2, "{:?}", scene.asked);
    }
}

#[test]
fn media_in_bursts_is_not_silence() {
    let mut scene = Scene::new(THIN);
    scene.run(30, ASKED);
    for _ in 0..20 {
        (0..45).for_each(|_| scene.step(0, NEVER));
        scene.step(45 * THIN, NEVER);
        // The acknowledgement comes two seconds later.
        (0..19).for_each(|_| scene.step(0, NEVER));
        scene.step(THIN, ASKED);
    }
    assert_eq!(scene.reported(), [Due::Live]);
}

#[test]
fn no_media_is_reported_once_and_media_restores_live_at_once() {
    let mut scene = Scene::new(THIN);
    scene.run(30, ASKED);
    (0..300).for_each(|_| scene.step(0, ASKED));
    assert_eq!(scene.reported(), [Due::Live, Due::NoMedia]);
    scene.run(2, NEVER);
    assert_eq!(scene.reported(), [Due::Live], "it has proven before that it reads");
    let mut without = Scene::new(0);
    without.run(60, ASKED);
    assert_eq!(without.reported(), [Due::NoMedia]);
    // Missing media does not hide silence.
    scene.run(2, ASKED);
    scene.run(12, NEVER);
    (0..100).for_each(|_| scene.step(0, NEVER));
    assert_eq!(scene.reported(), [SILENT, Due::NoMedia]);
    scene.run(1, NEVER);
    assert_eq!(scene.reported()[0], Due::DoesNotRead { is_silent: true });
}

#[test]
fn writes_come_before_the_timer_and_the_stop_has_a_deadline() {
    let start = Instant::now();
    let at = |millis| start + Duration::from_millis(millis);
    let mut watch = Watch::new(Timing::default(), start, false);
    assert!(!watch.is_check_due(at(499)) && watch.is_check_due(at(500)));
    assert_eq!(watch.next(), at(1000));
    watch.check(at(700), seen(0, 0));
    assert!(!watch.is_check_due(at(1199)) && watch.is_check_due(at(1200)));
    assert_eq!((watch.stop(at(700)), watch.stop(at(900))), (at(1700), at(1700)));
    assert_eq!(watch.check(at(1699), seen(0, 0)), Due::Nothing);
    assert_eq!(watch.next(), at(1700));
    assert_eq!(watch.check(at(1700), seen(0, 0)), Due::StopOverdue);
}
