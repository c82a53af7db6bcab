//! The slate of a stream, which plays while no encoder sends: its state in a session, what it must have in common with the
//! encoder's media ([`matching`]), and its media in a loop ([`looped`]).
//!
//! Pure: times are arguments. What begins and ends it is in `session::slate`.

mod looped;
mod matching;

use std::time::Duration;

use satcast_media::NANOS_PER_MILLI;
use satcast_media::fmp4::TrackDetails;
use satcast_media::mp4::Movie;
use tokio::task::AbortHandle;

use crate::health::{Figures, Issue, IssueCode, Verdict};
pub(crate) use looped::Looped;
pub(crate) use matching::{Difference, differences, texts};
use satcast_core::ids::UnixMillis;
use satcast_store::{SlateAudio, SlateRecord};

/// Media of slates that play at one node, in bytes: 21 of the largest. A slate that does not fit waits.
pub(crate) const SLATE_MEMORY_BYTES: u64 = 512 * 1024 * 1024;
/// The share of one account in that.
pub(crate) const SLATE_SHARE_BYTES: u64 = SLATE_MEMORY_BYTES / 4;

/// The slate of a session.
#[derive(Debug, Default)]
pub(crate) struct Slate {
    /// What the database has.
    pub(crate) record: Option<SlateRecord>,
    /// The media of the encoder that sent last, with its highest frame rate: encoders drop frames when their network fails.
    encoder: Option<(u64, Figures)>,
    pub(crate) on_air: Option<OnAir>,
    /// It was shown as long as it may be, or was withheld, at this time; it begins again after an encoder has sent media.
    pub(crate) done_at: Option<Duration>,
    /// There was no memory for it; said once.
    pub(crate) waits: bool,
}

/// A slate that plays; its task ends with it.
#[derive(Debug)]
pub(crate) struct OnAir {
    pub(crate) number: u64,
    /// Monotonic time at which it ends.
    pub(crate) until: Duration,
    pub(crate) uploaded_at: UnixMillis,
    pub(crate) task: AbortHandle,
}

impl Drop for OnAir {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Slate {
    /// End of the slate that is on air.
    pub(crate) fn until(&self) -> Option<Duration> {
        self.on_air.as_ref().map(|on_air| on_air.until)
    }

    pub(crate) fn is_on_air(&self) -> bool {
        self.on_air.is_some()
    }

    /// The verdict about the slate, beside those about the encoder's media.
    pub(crate) fn verdict(&self) -> (IssueCode, Verdict) {
        let verdict = match &self.record {
            Some(_) if self.encoder.is_none() => Verdict::Unknown,
            Some(record) => self.issue_of(record).map_or(Verdict::Good, Verdict::Bad),
            None => Verdict::Good,
        };
        (IssueCode::SlateMismatch, verdict)
    }

    /// The issue of a slate that differs from the last media of the encoder.
    pub(crate) fn issue_of(&self, record: &SlateRecord) -> Option<Issue> {
        self.encoder.as_ref().and_then(|(_, figures)| issue(record, figures))
    }

    /// Takes the measurements of the active encoder with this number; nothing before its media arrives.
    pub(crate) fn measured(&mut self, encoder: u64, figures: &Figures) {
        let is_empty = figures.video.is_none() && figures.audio.is_none();
        if self.record.is_none() || figures.is_silent || is_empty {
            return;
        }
        let rate = |figures: &Figures| figures.video.as_ref().and_then(|video| video.frame_rate);
        let known = self.encoder.take().filter(|(number, _)| *number == encoder);
        let mut figures = figures.clone();
        if let Some((_, known)) = known {
            let highest = [rate(&known), rate(&figures)].into_iter().flatten().reduce(f64::max);
            // A track that a failing network leaves out is still one of the encoder.
            figures.video = figures.video.or(known.video);
            figures.audio = figures.audio.or(known.audio);
            if let Some(video) = &mut figures.video {
                video.frame_rate = highest;
            }
        }
        self.encoder = Some((encoder, figures));
    }
}

/// What is known of a slate; the store adds its size and the time of the upload.
pub fn slate_record(movie: &Movie, max_seconds: u32) -> SlateRecord {
    let mut record = SlateRecord {
        max_seconds,
        length_ms: movie.length_ns / NANOS_PER_MILLI,
        bytes: 0,
        video_codec: String::new(),
        size: (0, 0),
        frame_rate_milli: (movie.frame_rate * 1_000.0).round() as u32,
        audio: None,
        uploaded_at: UnixMillis(0),
    };
    for track in &movie.tracks {
        let codec = track.codec().name().to_owned();
        match track.details() {
            TrackDetails::Video { size, .. } => {
                (record.video_codec, record.size) = (codec, (size.width, size.height));
            }
            TrackDetails::Audio { sample_rate, channels, .. } => {
                record.audio = Some(SlateAudio { codec, sample_rate, channels });
            }
        }
    }
    record
}

/// The issue of a slate that does not match.
fn issue(record: &SlateRecord, figures: &Figures) -> Option<Issue> {
    let differ = differences(record, figures);
    (!differ.is_empty()).then(|| {
        let text = format!(
            "the slate is not shown, because it differs from the encoder's media: {}; make it again with these settings",
            texts(&differ)
        );
        Issue { code: IssueCode::SlateMismatch, text, platforms: Vec::new() }
    })
}
