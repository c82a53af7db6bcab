mod silent;

use super::*;

fn watch() -> (Watch, impl Fn(u64) -> Instant) {
    let start = Instant::now();
    (Watch::new(Timing::default(), start, 0), move |seconds| start + Duration::from_secs(seconds))
}

/// What is sent with the first media, and what shows that it is read.
const FAR: u64 = 10 + UNREAD_BYTES_MAX;

#[test]
fn live_only_when_media_was_read() {
    let (mut watch, at) = watch();
    watch.waiting(at(0));
    assert!(!watch.acknowledged(at(0), 3000, false), "the handshake is no media");
    watch.queued_media(at(0), 5000);
    watch.queued_media(at(0), 9000);
    assert!(!watch.acknowledged(at(1), 5000, false), "its system took it, which says nothing of the server");
    assert!(watch.read(at(1), 4999));
    assert!(!watch.acknowledged(at(1), 5000, false));
    assert!(watch.read(at(1), 5000));
    assert!(watch.acknowledged(at(1), 5000, false));
    assert!(!watch.acknowledged(at(1), 9000, true) && !watch.read(at(1), 9000), "told once");
    assert_eq!((watch.lived(at(3)), watch.media_taken()), (Duration::from_secs(2), 0));
}

#[test]
fn more_than_a_system_keeps_was_read() {
    let (mut watch, at) = watch();
    watch.queued_media(at(0), 10);
    watch.waiting(at(0));
    assert!(!watch.acknowledged(at(1), FAR - 1, false));
    assert!(watch.acknowledged(at(1), FAR, false));
}

#[test]
fn a_thin_stream_is_live_when_all_of_it_was_taken_for_some_time() {
    let (mut watch, at) = watch();
    watch.queued_media(at(0), 10);
    watch.waiting(at(0));
    assert!(!watch.acknowledged(at(2), 10, true), "early");
    watch.queued_media(at(2), 10_000);
    assert!(!watch.acknowledged(at(3), 9_000, false), "some has been on its way for a while");
    assert!(watch.acknowledged(at(3), 10_000, true));
}

#[test]
fn a_thin_stream_to_a_server_far_away_is_live_although_some_of_it_is_always_on_its_way() {
    let (mut watch, at) = watch();
    let look = |tenths: u64| at(0) + Duration::from_millis(100 * tenths);
    let live = (0..).find(|tenths| {
        watch.queued_media(look(*tenths), 10 + tenths * 10);
        watch.waiting(look(*tenths));
        // Five tenths of a second there and back.
        watch.acknowledged(look(*tenths), tenths.saturating_sub(5) * 10, false)
    });
    assert_eq!(live, Some(30));
}

#[test]
fn what_stalled_before_has_to_get_further_than_then() {
    let start = Instant::now();
    let at = |seconds| start + Duration::from_secs(seconds);
    let again = |taken| {
        let mut watch = Watch::new(Timing::default(), start, taken);
        watch.queued_media(at(0), 10);
        watch.waiting(at(0));
        watch
    };
    let mut watch = again(70_000);
    assert!(!watch.acknowledged(at(4), 50_000, true), "thin, but it was so the last time");
    assert!(watch.read(at(1), 70_009));
    assert!(!watch.acknowledged(at(4), 70_009, true));
    assert!(watch.read(at(1), 70_010));
    assert!(watch.acknowledged(at(4), 70_010, true));
    let mut watch = again(200_000);
    assert!(!watch.acknowledged(at(4), FAR + 199_999, false));
    assert!(watch.acknowledged(at(4), FAR + 200_000, false));
    let mut watch = again(1);
    assert!(!watch.acknowledged(at(4), FAR, true));
    assert!(watch.acknowledged(at(4), FAR + 1, true));
    // A server that says it has read more than there was has said nothing.
    let mut watch = again(70_000);
    assert!(watch.read(at(1), 100_000_000));
    assert!(!watch.acknowledged(at(4), 60_000, false));
}

#[test]
fn a_server_that_acknowledges_nothing_is_stalled_then_given_up() {
    let (mut watch, at) = watch();
    watch.queued_media(at(0), 10);
    watch.waiting(at(0));
    assert!(watch.acknowledged(at(1), FAR, false));
    assert!(!watch.acknowledged(at(5), FAR, false), "our system took more, the server's did not");
    assert_eq!(watch.due(at(5)), Due::Nothing);
    assert_eq!(watch.due(at(6)), Due::Stalled);
    assert_eq!(watch.due(at(7)), Due::Nothing, "told once");
    assert_eq!(watch.due(at(15)), Due::Nothing);
    assert_eq!(watch.due(at(16)), Due::DoesNotRead);
    assert_eq!(watch.lived(at(16)), Duration::from_secs(5));
}

/// One that was live and has stalled for the first time, at 5 s.
fn stalled() -> (Watch, impl Fn(u64) -> Instant) {
    let (mut watch, at) = watch();
    watch.queued_media(at(0), 10);
    watch.waiting(at(0));
    assert!(watch.acknowledged(at(0), FAR, false));
    watch.queued_media(at(0), 2 * FAR);
    assert_eq!(watch.due(at(5)), Due::Stalled);
    (watch, at)
}

#[test]
fn a_stalled_server_is_live_again_when_it_keeps_up() {
    let (mut watch, at) = stalled();
    assert!(!watch.acknowledged(at(14), FAR + 1, false), "one byte is little");
    watch.queued_media(at(15), 2 * FAR + 10);
    assert!(!watch.acknowledged(at(15), 2 * FAR, false));
    watch.queued_media(at(16), 2 * FAR + 20);
    assert!(!watch.acknowledged(at(16), 2 * FAR + 10, false));
    assert_eq!(watch.due(at(16)), Due::Nothing);
    watch.queued_media(at(17), 2 * FAR + 30);
    assert!(watch.acknowledged(at(17), 2 * FAR + 20, false), "two seconds on the stream's heels");
    assert_eq!(watch.due(at(21)), Due::Nothing);
    assert_eq!(watch.due(at(22)), Due::Stalled, "told again for a new silence");
}

#[test]
fn a_server_that_takes_a_lump_now_and_then_is_slow_and_not_live_again() {
    let (mut watch, at) = stalled();
    let (mut told, mut taken) = (Vec::new(), FAR);
    for second in 6..=600 {
        // What is queued next, as it always is when a lump made room for it. Some come sooner than after a stall.
        let is_lump = matches!(second % 11, 0 | 6 | 7);
        taken += if is_lump { 30_000 } else { 0 };
        if is_lump {
            watch.queued_media(at(second), taken + 40_000);
        }
        assert!(!watch.acknowledged(at(second), taken, false), "{second}");
        told.push(watch.due(at(second)));
    }
    told.retain(|due| *due != Due::Nothing);
    assert_eq!(told, [Due::Slow], "one steady state with one reason");
    assert_eq!(watch.lived(at(600)), Duration::from_secs(5));
}

#[test]
fn a_server_that_takes_too_little_all_the_time_is_live_again_later_each_time() {
    let (mut watch, at) = stalled();
    let mut second = 5;
    for waits in [15, 30, 45] {
        let live = (second + 1..).find(|second| watch.acknowledged(at(*second), FAR + second, false));
        assert_eq!(live, Some(second + 1 + waits), "it is behind for ever, and reads");
        second += 1 + waits + 5;
        assert_eq!(watch.due(at(second)), Due::Stalled);
    }
}

#[test]
fn no_media_is_told_once_and_media_brings_live_back() {
    let (mut watch, at) = watch();
    watch.queued_media(at(0), 10);
    watch.waiting(at(0));
    assert!(watch.acknowledged(at(0), FAR, true));
    assert_eq!(watch.due(at(4)), Due::Nothing);
    assert_eq!(watch.due(at(5)), Due::NoMedia);
    assert_eq!(watch.due(at(60)), Due::Nothing);
    watch.media(at(61));
    watch.queued_media(at(61), FAR + 30);
    watch.waiting(at(61));
    assert!(!watch.acknowledged(at(61), FAR + 29, true));
    assert!(watch.acknowledged(at(61), FAR + 30, true), "it has shown before that it reads");
    assert_eq!(watch.due(at(66)), Due::NoMedia);
}

#[test]
fn looks_come_soon_before_it_is_live_and_rest_while_media_flows() {
    let (mut watch, at) = watch();
    watch.waiting(at(0));
    watch.queued_media(at(0), 10);
    assert_eq!(watch.due(at(0)), Due::Nothing);
    assert!(!watch.is_look_due(at(0)) && watch.is_look_due(at(0) + LOOK_SOON));
    assert!(watch.acknowledged(at(1), FAR, false));
    assert_eq!(watch.due(at(1)), Due::Nothing);
    let look = Timing::default().stalled / LOOKS;
    assert!(watch.is_look_due(at(1) + look));
    assert_eq!(watch.next(at(1)), at(1) + look * 2, "a write comes before the timer");
    assert!(!watch.acknowledged(at(2), FAR, false));
    assert_eq!(watch.next(at(2)), at(2) + look, "nothing came back: the timer looks");
}

#[test]
fn the_end_has_a_deadline() {
    let (mut watch, at) = watch();
    assert_eq!((watch.stop(at(2)), watch.stop(at(9))), (at(3), at(3)));
    assert_eq!(watch.due(at(2)), Due::Nothing);
    assert!(watch.next(at(2)) <= at(3));
    assert_eq!(watch.due(at(3)), Due::StopOverdue);
}
