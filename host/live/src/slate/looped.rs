//! The media of a slate in a loop: each packet at its time, and never earlier.

use std::time::Duration;

use satcast_media::Packet;
use satcast_media::mp4::Movie;

/// A slate that is later than this goes on from there, instead of sending faster than it plays.
const LATE_MAX: Duration = Duration::from_millis(500);

/// Media in a loop, with times that rise from round to round. Pure.
#[derive(Debug)]
pub(crate) struct Looped {
    packets: Vec<Packet>,
    length_ns: i64,
    /// Decode time of the first packet.
    first_ns: i64,
    /// Monotonic time of the first packet, later by all delays.
    began: Duration,
    round: i64,
    next: usize,
}

impl Looped {
    /// `movie` has packets, as all that were read do.
    pub(crate) fn new(movie: Movie, began: Duration) -> Self {
        let first_ns = movie.packets.first().map_or(0, |packet| packet.dts_ns);
        Self { packets: movie.packets, length_ns: movie.length_ns, first_ns, began, round: 0, next: 0 }
    }

    /// Nanoseconds that this round adds to the times of the packets.
    fn offset_ns(&self) -> i64 {
        self.round.saturating_mul(self.length_ns)
    }

    /// Monotonic time of the next packet.
    pub(crate) fn next_at(&self) -> Duration {
        let Some(packet) = self.packets.get(self.next) else { return Duration::MAX };
        let after_ns = self.offset_ns().saturating_add(packet.dts_ns).saturating_sub(self.first_ns);
        self.began.saturating_add(Duration::from_nanos(u64::try_from(after_ns).unwrap_or(0)))
    }

    /// Adds the packets that are due at `now`.
    pub(crate) fn due(&mut self, now: Duration, due: &mut Vec<Packet>) {
        let late = now.saturating_sub(self.next_at());
        if late > LATE_MAX {
            self.began = self.began.saturating_add(late);
        }
        while self.next_at() <= now {
            let offset_ns = self.offset_ns();
            let packet = &self.packets[self.next];
            due.push(Packet {
                dts_ns: packet.dts_ns.saturating_add(offset_ns),
                pts_ns: packet.pts_ns.saturating_add(offset_ns),
                ..packet.clone()
            });
            self.next += 1;
            if self.next == self.packets.len() {
                (self.round, self.next) = (self.round.saturating_add(1), 0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use satcast_media::mp4::made::File;
    use satcast_media::{Kind, NANOS_PER_MILLI};

    const MS: Duration = Duration::from_millis(1);

    fn looped() -> (Looped, usize) {
        let movie = Movie::read(&File::default().bytes().into()).unwrap();
        let packets = movie.packets.len();
        (Looped::new(movie, MS * 1_000), packets)
    }

    #[test]
    fn packets_come_at_their_times_and_never_earlier_and_the_clip_begins_again() {
        let (mut looped, packets) = looped();
        let mut sent: Vec<Packet> = Vec::new();
        looped.due(MS * 999, &mut sent);
        assert_eq!(sent.len(), 0, "nothing before its begin");
        // 2,005.3 ms are one round.
        for step in 0..100 {
            let now = MS * 1_000 + MS * 50 * step;
            looped.due(now, &mut sent);
            let newest = sent.iter().map(|packet| packet.dts_ns).max().unwrap();
            assert!(newest / NANOS_PER_MILLI <= i64::from(step) * 50, "{step}");
        }
        assert!((2 * packets..3 * packets).contains(&sent.len()), "{}", sent.len());
        for kind in [Kind::Video, Kind::Audio] {
            let of_kind: Vec<_> = sent.iter().filter(|packet| packet.kind() == kind).collect();
            assert!(of_kind.windows(2).all(|two| two[0].dts_ns < two[1].dts_ns), "{kind:?}");
            let round = if kind == Kind::Video { 50 } else { 94 };
            assert_eq!(of_kind[0].payload, of_kind[round].payload);
            assert_eq!(of_kind[round].dts_ns - of_kind[0].dts_ns, looped.length_ns);
            assert_eq!(of_kind[round].keyframe, kind == Kind::Video);
        }
    }

    #[test]
    fn a_late_slate_goes_on_from_there_instead_of_faster() {
        let (mut looped, _) = looped();
        let mut sent = Vec::new();
        looped.due(MS * 1_100, &mut sent);
        let before = sent.len();
        // Within the limit nothing is skipped in time.
        looped.due(MS * 1_600, &mut sent);
        let begun = looped.began;
        assert_eq!(begun, MS * 1_000);
        let next = looped.next_at();
        looped.due(next + LATE_MAX + MS * 7_000, &mut sent);
        assert_eq!(looped.began, begun + LATE_MAX + MS * 7_000);
        let late = sent.split_off(before);
        let span = late.last().unwrap().dts_ns - late[0].dts_ns;
        assert!(span <= 520 * NANOS_PER_MILLI, "{span}");
        assert!(
            late.windows(2).all(|two| two[0].dts_ns <= two[1].dts_ns),
            "none is left out, none comes again"
        );
    }
}
