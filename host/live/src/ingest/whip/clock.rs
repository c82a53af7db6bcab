//! One timeline for the tracks of a sender, whose RTP clocks begin anywhere. Audio is the master: it keeps the time at which it
//! began to arrive. Video follows it, by the reports of the sender about the same wall clock (RFC 3550, 6.4.1). Pure.

use satcast_media::rtmp::limits::TIME_MS_MAX;
use satcast_media::{Kind, NANOS_PER_MILLI};

/// Video is moved towards audio by this much with each frame, so that no frame is shown long before or after its neighbours.
const STEP_NS: i64 = 2 * NANOS_PER_MILLI;
/// Reports that put the tracks further apart are not believed.
const APART_NS_MAX: i64 = 10_000 * NANOS_PER_MILLI;

/// A report of the sender: this RTP time is that wall clock, both in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Report {
    pub(super) rtp_ns: i64,
    pub(super) wall_ns: i64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Track {
    /// From RTP time to the timeline.
    offset: Option<i64>,
    /// From RTP time to the wall clock.
    wall: Option<i64>,
}

/// The clocks of both tracks.
#[derive(Debug, Default)]
pub(super) struct Clocks {
    audio: Track,
    video: Track,
}

impl Clocks {
    /// The time on the timeline of media with this RTP time, which came at `arrived_ns`; `None` beyond [`TIME_MS_MAX`].
    pub(super) fn place(
        &mut self,
        kind: Kind,
        rtp_ns: i64,
        arrived_ns: i64,
        report: Option<Report>,
    ) -> Option<i64> {
        let track = if kind == Kind::Audio { &mut self.audio } else { &mut self.video };
        if let Some(report) = report {
            track.wall = report.wall_ns.checked_sub(report.rtp_ns);
        }
        let mut offset = match track.offset {
            Some(offset) => offset,
            None => arrived_ns.checked_sub(rtp_ns)?,
        };
        track.offset = Some(offset);
        if kind == Kind::Video {
            offset += self.correction(offset).clamp(-STEP_NS, STEP_NS);
            self.video.offset = Some(offset);
        }
        let time = rtp_ns.checked_add(offset)?;
        (time.unsigned_abs() <= (TIME_MS_MAX * NANOS_PER_MILLI).unsigned_abs()).then_some(time)
    }

    /// How far video is to be moved.
    fn correction(&self, offset: i64) -> i64 {
        let target = || {
            let audio_to_wall = self.audio.wall?.checked_sub(self.audio.offset?)?;
            self.video.wall?.checked_sub(audio_to_wall)
        };
        let apart = target().and_then(|target| target.checked_sub(offset)).unwrap_or(0);
        if apart.abs() <= APART_NS_MAX { apart } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: i64 = NANOS_PER_MILLI;
    const WALL: i64 = 1_700_000_000_000 * MILLI;

    fn report(rtp_ms: i64, wall_ms: i64) -> Option<Report> {
        Some(Report { rtp_ns: rtp_ms * MILLI, wall_ns: WALL + wall_ms * MILLI })
    }

    #[test]
    fn tracks_begin_when_they_arrive() {
        let mut clocks = Clocks::default();
        assert_eq!(clocks.place(Kind::Audio, 5_000 * MILLI, 10 * MILLI, None), Some(10 * MILLI));
        assert_eq!(clocks.place(Kind::Video, 77_000 * MILLI, 30 * MILLI, None), Some(30 * MILLI));
        assert_eq!(clocks.place(Kind::Audio, 5_020 * MILLI, 900 * MILLI, None), Some(30 * MILLI));
        assert_eq!(clocks.place(Kind::Video, 77_033 * MILLI, 900 * MILLI, None), Some(63 * MILLI));
    }

    #[test]
    fn video_follows_audio_by_the_reports_of_the_sender() {
        let mut clocks = Clocks::default();
        // Audio of wall clock 0 came at 100 ms, video of wall clock 0 at 180 ms.
        clocks.place(Kind::Audio, 0, 100 * MILLI, report(0, 0)).unwrap();
        clocks.place(Kind::Video, 0, 180 * MILLI, None).unwrap();
        let mut last = 180 * MILLI;
        for frame in 1..100 {
            let at = clocks.place(Kind::Video, frame * 33 * MILLI, 0, report(0, 0)).unwrap();
            assert!(at > last && at - last >= 31 * MILLI, "{at} after {last}");
            last = at;
        }
        assert_eq!(last, (100 + 99 * 33) * MILLI);
        // A clock that runs slower.
        let audio = clocks.place(Kind::Audio, 60_000 * MILLI, 0, report(60_000, 60_010)).unwrap();
        assert_eq!(audio, 60_100 * MILLI);
        for frame in 0..10 {
            last = clocks.place(Kind::Video, (60_000 + frame) * MILLI, 0, report(60_000, 60_000)).unwrap();
        }
        assert_eq!(last, (60_100 - 10 + 9) * MILLI);
    }

    #[test]
    fn reports_and_times_that_cannot_be_are_left_out() {
        let mut clocks = Clocks::default();
        clocks.place(Kind::Audio, 0, 0, report(0, 0)).unwrap();
        clocks.place(Kind::Video, 0, 0, report(0, 20_000)).unwrap();
        assert_eq!(clocks.place(Kind::Video, 33 * MILLI, 0, None), Some(33 * MILLI));
        let wild = Some(Report { rtp_ns: i64::MIN, wall_ns: i64::MAX });
        assert_eq!(clocks.place(Kind::Video, 66 * MILLI, 0, wild), Some(66 * MILLI));
        let beyond = (TIME_MS_MAX + 1) * MILLI;
        assert_eq!(clocks.place(Kind::Audio, beyond, 0, None), None);
        assert_eq!(Clocks::default().place(Kind::Audio, i64::MIN, 5, None), None);
    }
}
