//! Servers that stop reading while their systems go on taking bytes, and servers that only look like it.

use super::*;

const KILO: u64 = 1000;
/// A stream of sound, in bytes a second.
const THIN: u64 = 6 * KILO;
const NEVER: u64 = u64::MAX;

/// After how many bytes a server acknowledges that was asked to do it after so many.
type Spacing = fn(u64) -> u64;

/// A stream whose server's system takes every byte at once.
struct Stream {
    watch: Watch,
    start: Instant,
    tenths: u64,
    /// Bytes each second.
    rate: u64,
    sent: u64,
    said: u64,
    asked: u32,
    /// What was due, with the second.
    told: Vec<(u64, Due)>,
}

impl Stream {
    fn new(rate: u64, sent: u64, taken: u64) -> Self {
        let start = Instant::now();
        let watch = Watch::new(Timing::default(), start, taken);
        Stream { watch, start, tenths: 0, rate, sent, said: sent, asked: 8192, told: Vec::new() }
    }

    /// For so many seconds the server acknowledges when as many bytes came as `spacing` makes of those that it was asked for.
    fn run(&mut self, seconds: u64, spacing: impl Fn(u64) -> u64) {
        for _ in 0..seconds * 10 {
            self.step(self.rate / 10, &spacing);
        }
    }

    fn step(&mut self, bytes: u64, spacing: impl Fn(u64) -> u64) {
        self.tenths += 1;
        let now = self.now();
        self.sent += bytes;
        if bytes > 0 {
            self.watch.media(now);
            self.watch.queued_media(now, self.sent);
            self.watch.waiting(now);
        }
        self.watch.acknowledged(now, self.sent, true);
        let due = self.watch.due(now);
        if due != Due::Nothing {
            self.told.push((self.tenths / 10, due));
        }
        self.asked = self.watch.window(now, self.asked, self.sent).unwrap_or(self.asked);
        // It is heard after the look.
        if self.sent - self.said >= spacing(u64::from(self.asked)) {
            self.said = self.sent;
            self.watch.read(now, self.said);
        }
    }

    fn now(&self) -> Instant {
        self.start + Duration::from_millis(self.tenths * 100)
    }

    fn is_live(&self) -> bool {
        self.watch.live.is_some()
    }

    fn told(&self) -> Vec<Due> {
        self.told.iter().map(|(_, due)| *due).collect()
    }
}

#[test]
fn a_server_that_stops_reading_stalls_although_its_system_goes_on_taking() {
    // By the window, by half of it, or by a distance of its own.
    let servers: [(u64, Spacing); 5] = [
        (THIN, |asked| asked),
        (THIN, |_| 8 * KILO),
        (125 * KILO, |asked| asked),
        (125 * KILO, |asked| asked / 2),
        (5_000 * KILO, |_| 250 * KILO),
    ];
    for (rate, spacing) in servers {
        let mut stream = Stream::new(rate, 4 * KILO, 0);
        stream.run(15, spacing);
        assert!(stream.is_live() && stream.told.is_empty(), "{rate}: {:?}", stream.told);
        stream.run(12, |_| NEVER);
        let [(second, Due::Stalled)] = stream.told[..] else { panic!("{rate}: {:?}", stream.told) };
        assert!((18..=20).contains(&second) && !stream.is_live(), "{rate}: {second}");
        stream.run(4, |_| NEVER);
        let (second, due) = stream.told[1];
        assert!((28..=30).contains(&second) && due == Due::DoesNotRead, "{rate}: {:?}", stream.told);
    }
}

#[test]
fn a_server_that_leaves_off_acknowledging_soon_is_not_live_and_not_broken_off() {
    let mut stream = Stream::new(THIN, 4 * KILO, 0);
    stream.run(8, |_| 8 * KILO);
    assert!(stream.is_live());
    stream.run(200, |_| NEVER);
    assert_eq!(
        stream.told(),
        [Due::Stalled],
        "its system takes bytes, and few acknowledgements prove little"
    );
}

#[test]
fn a_server_that_acknowledges_seldom_is_given_the_time_for_it() {
    for spacing in [60 * KILO, 250 * KILO, 2_500 * KILO] {
        let mut stream = Stream::new(THIN, 4 * KILO, 0);
        stream.run(2000, |_| spacing);
        assert!(stream.is_live() && stream.told.is_empty(), "{spacing}: {:?}", stream.told);
        stream.run(1000, |_| NEVER);
        assert_eq!(
            stream.told.first().map(|told| told.1),
            Some(Due::Stalled),
            "{spacing}: no more than that"
        );
    }
    let mut stream = Stream::new(1_000 * KILO, 4 * KILO, 0);
    stream.run(100, |_| acks::SPACING_BYTES_MAX + 1);
    stream.run(100, |_| NEVER);
    assert_eq!(stream.told, [], "too seldom to tell anything");
}

#[test]
fn a_server_that_never_acknowledged_or_once_or_wrongly_is_judged_by_its_system() {
    let mut stream = Stream::new(THIN, 4 * KILO, 0);
    stream.run(300, |_| NEVER);
    assert!(stream.is_live() && stream.told.is_empty());
    stream.watch.read(stream.now(), stream.sent);
    stream.run(300, |_| NEVER);
    // The same position, or an earlier one.
    for position in [stream.sent - 300 * THIN, 8192, 0] {
        stream.watch.read(stream.now(), position);
        stream.run(300, |_| NEVER);
    }
    assert!(stream.is_live() && stream.told.is_empty(), "{:?}", stream.told);
    // What it read before there was media.
    let mut stream = Stream::new(THIN, 4 * KILO, 0);
    for position in [KILO, 2 * KILO, 3 * KILO] {
        stream.watch.read(stream.now(), position);
    }
    stream.run(300, |_| NEVER);
    assert_eq!(stream.told, []);
    let mut stream = Stream::new(THIN, 4 * KILO, 0);
    stream.run(15, |asked| asked);
    stream.watch.distrust();
    stream.run(300, |_| NEVER);
    assert!(stream.is_live() && stream.told.is_empty(), "{:?}", stream.told);
}

#[test]
fn a_server_that_proves_untrue_while_it_is_stalled_is_live_again_by_its_system() {
    let mut stream = Stream::new(THIN, 4 * KILO, 0);
    stream.run(15, |asked| asked);
    stream.run(8, |_| NEVER);
    assert!(!stream.is_live());
    stream.watch.distrust();
    stream.run(3, |_| NEVER);
    assert!(stream.is_live());
}

#[test]
fn acknowledgements_beyond_32_bits_are_no_silence() {
    let mut stream = Stream::new(THIN, u64::from(u32::MAX) - 10 * THIN, 0);
    stream.run(60, |asked| asked);
    assert!(stream.is_live() && stream.told.is_empty() && stream.sent > u64::from(u32::MAX));
    stream.run(8, |_| NEVER);
    assert_eq!(stream.told(), [Due::Stalled]);
}

#[test]
fn what_is_asked_for_follows_the_stream_and_a_server_that_follows_it_is_not_silent() {
    let mut stream = Stream::new(THIN, 4 * KILO, 0);
    let rates = [
        (THIN, 8192),
        (600 * KILO, 600_000),
        (900 * KILO, 600_000),
        (5_000 * KILO, 2_500_000),
        (20 * KILO, 20_000),
        (THIN, 8192),
    ];
    for (rate, asked) in rates {
        stream.rate = rate;
        stream.run(20, |asked| asked);
        assert!((asked * 9 / 10..=asked).contains(&u64::from(stream.asked)), "{rate}: {}", stream.asked);
        assert!(stream.is_live() && stream.told.is_empty(), "{rate}: {:?}", stream.told);
    }
}

#[test]
fn a_server_that_changes_its_distance_is_learned_anew() {
    let mut stream = Stream::new(125 * KILO, 4 * KILO, 0);
    stream.run(20, |_| 50 * KILO);
    stream.run(60, |_| 240 * KILO);
    stream.run(60, |_| 450 * KILO);
    assert!(stream.is_live() && stream.told.is_empty(), "{:?}", stream.told);
    stream.run(20, |_| 50 * KILO);
    let since = stream.tenths / 10;
    stream.run(8, |_| NEVER);
    let [(second, Due::Stalled)] = stream.told[..] else { panic!("{:?}", stream.told) };
    assert!(second <= since + 5, "the long ones are long ago: {:?}", stream.told);
}

#[test]
fn a_slow_server_whose_system_keeps_much_for_it_is_not_silent() {
    const KEPT: u64 = 600 * KILO;
    let start = Instant::now();
    let mut watch = Watch::new(Timing::default(), start, 0);
    let (mut taken, mut read, mut said, mut asked) = (4 * KILO, 4 * KILO, 4 * KILO, 8192);
    // What it was asked for, with the position where it reads that.
    let (mut windows, mut lives) = (vec![(0, asked)], 0);
    watch.queued_media(start, 5 * KILO);
    for tenths in 1..3000 {
        let now = start + Duration::from_millis(tenths * 100);
        read = taken.min(read + 1250);
        let window = windows.iter().rev().find(|(at, _)| *at <= read).unwrap().1;
        if read - said >= u64::from(window) {
            said = read;
            watch.read(now, said);
        }
        // There is always more of the stream than its system takes, which it does in lumps.
        taken = if read + KEPT > taken + 60 * KILO || tenths < 2 { read + KEPT } else { taken };
        watch.media(now);
        watch.queued_media(now, taken + 1);
        watch.waiting(now);
        lives += u64::from(watch.acknowledged(now, taken, false));
        assert_eq!(watch.due(now), Due::Nothing, "{tenths}");
        if let Some(bytes) = watch.window(now, asked, taken) {
            asked = bytes;
            windows.push((taken, asked));
        }
    }
    assert_eq!((lives, windows.len()), (1, 3), "{windows:?}");
}

#[test]
fn a_smaller_distance_counts_when_the_server_has_read_that_it_is_asked_for() {
    let (mut acks, now) = (Acks::default(), Instant::now());
    let lags = |acks: &Acks, bytes| !acks.keeps_up(acks.read() + bytes);
    acks.asked(500_000, 1_000);
    acks.heard(now, 1_000_000, 1_000_000, Some(0), true);
    acks.asked(10_000, 1_200_000);
    acks.asked(10_000, 1_300_000);
    assert!(!lags(&acks, 1_000_000) && lags(&acks, 1_000_001));
    acks.heard(now, 1_199_999, u64::MAX, Some(0), false);
    assert!(!lags(&acks, 1_000_000), "on its way");
    acks.heard(now, 1_200_000, u64::MAX, Some(0), false);
    assert!(!lags(&acks, 20_000) && lags(&acks, 20_001));
    acks.asked(30_000, 2_000_000);
    assert!(!lags(&acks, 60_000) && lags(&acks, 60_001), "a larger one counts at once");
}

#[test]
fn a_server_that_acknowledges_by_the_clock_is_learned_when_the_stream_grows() {
    for seconds in [6, 8, 14] {
        let mut stream = Stream::new(THIN, 4 * KILO, 0);
        stream.run(60, |_| THIN * seconds);
        assert!(stream.is_live() && stream.told.is_empty(), "{seconds}: {:?}", stream.told);
        stream.rate = 375 * KILO;
        stream.run(300, |_| 375 * KILO * seconds);
        assert!(stream.is_live(), "{seconds}");
        assert!(stream.told.len() <= 2, "{seconds}: {:?}", stream.told);
    }
}

#[test]
fn media_in_bursts_makes_no_silence() {
    let mut stream = Stream::new(THIN, 4 * KILO, 0);
    stream.run(10, |asked| asked);
    for _ in 0..20 {
        (0..45).for_each(|_| stream.step(0, |_| NEVER));
        stream.step(45 * THIN, |_| NEVER);
        // It answers two seconds later.
        (0..19).for_each(|_| stream.step(0, |_| NEVER));
        stream.step(THIN, |asked| asked);
    }
    assert!(stream.is_live() && stream.told.is_empty(), "{:?}", stream.told);
}

#[test]
fn a_silent_server_is_live_again_when_it_has_read_up_and_not_by_one_lump() {
    let mut stream = Stream::new(THIN, 4 * KILO, 0);
    stream.run(15, |asked| asked);
    stream.run(12, |_| NEVER);
    assert!(!stream.is_live());
    let lump = stream.sent - 40 * KILO;
    stream.watch.read(stream.now(), lump);
    stream.run(4, |_| NEVER);
    assert!(!stream.is_live(), "one lump");
    stream.run(3, |asked| asked);
    assert!(stream.is_live(), "two seconds on the stream's heels");
    assert_eq!(stream.told(), [Due::Stalled, Due::Slow]);
    // It reads, but far behind what its system holds.
    stream.run(12, |_| NEVER);
    for tenths in 0..120 {
        let behind = stream.sent - 40 * KILO;
        stream.watch.read(stream.now(), behind);
        stream.step(THIN / 10, |_| NEVER);
        assert!(!stream.is_live(), "{tenths}");
    }
}

#[test]
fn no_media_is_no_silence_and_hides_none() {
    let mut stream = Stream::new(THIN, 4 * KILO, 0);
    stream.run(15, |asked| asked);
    (0..300).for_each(|_| stream.step(0, |_| NEVER));
    assert_eq!(stream.told(), [Due::NoMedia]);
    stream.run(5, |asked| asked);
    assert!(stream.is_live() && stream.told.len() == 1, "{:?}", stream.told);
    stream.run(8, |_| NEVER);
    (0..100).for_each(|_| stream.step(0, |_| NEVER));
    stream.step(THIN, |_| NEVER);
    assert_eq!(stream.told()[1..], [Due::Stalled, Due::NoMedia, Due::DoesNotRead]);
    assert!(!stream.is_live());
}

#[test]
fn a_server_that_was_given_up_before_is_not_broken_off_again_for_silence_alone() {
    let mut stream = Stream::new(125 * KILO, 4 * KILO, 50 * KILO);
    stream.run(5, |asked| asked);
    assert!(stream.is_live());
    stream.run(300, |_| NEVER);
    assert!(!stream.is_live() && stream.told() == [Due::Stalled], "{:?}", stream.told);
}
