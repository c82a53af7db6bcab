//! Checks that an encoder sends at least one track with a supported codec. Without one, the stream would have no media.

use std::time::Duration;

use satcast_media::Kind;
use satcast_media::flv::ForeignCodec;
use satcast_media::rtmp::Metadata;
use tokio::time::Instant;

use crate::Issue;

/// How long the service waits for a supported track after the first unsupported one.
pub(super) const USABLE_WAIT: Duration = Duration::from_secs(5);

/// The tracks of one encoder.
#[derive(Debug, Default)]
pub(super) struct Usable {
    has_usable: bool,
    foreign: Vec<ForeignCodec>,
    /// Time of the first unsupported track.
    since: Option<Instant>,
    metadata: Option<Metadata>,
}

impl Usable {
    /// A packet of a supported track arrived.
    pub(super) fn packet(&mut self) {
        self.has_usable = true;
    }

    /// An unsupported track arrived; called once for each kind.
    pub(super) fn foreign(&mut self, codec: ForeignCodec, now: Instant) {
        self.foreign.push(codec);
        self.since.get_or_insert(now);
    }

    /// The encoder's metadata names its tracks.
    pub(super) fn announced(&mut self, metadata: Metadata) {
        self.metadata = Some(metadata);
    }

    /// When [`Usable::is_hopeless`] becomes true if no supported track arrives.
    pub(super) fn decided_at(&self) -> Option<Instant> {
        self.since.filter(|_| !self.has_usable).map(|since| since + USABLE_WAIT)
    }

    /// No track is supported, and none will follow.
    pub(super) fn is_hopeless(&self, now: Instant) -> bool {
        let kinds = [Kind::Video, Kind::Audio];
        let no_hope = || kinds.into_iter().all(|kind| self.will_not_come(kind));
        self.decided_at().is_some_and(|at| now >= at || (self.all_are_named() && no_hope()))
    }

    /// All unsupported tracks in the metadata have arrived, so that one refusal names them all.
    fn all_are_named(&self) -> bool {
        let named = |kind| self.foreign.iter().any(|codec| codec.kind == kind);
        self.metadata.is_none_or(|metadata| {
            (!metadata.foreign_video || named(Kind::Video)) && (!metadata.foreign_audio || named(Kind::Audio))
        })
    }

    /// Text of the refusal: the codecs and their replacements.
    pub(super) fn text(&self) -> String {
        let mut foreign = self.foreign.clone();
        foreign.sort_by_key(|codec| codec.kind == Kind::Audio);
        let texts: Vec<_> = foreign.into_iter().map(|codec| Issue::unsupported(codec).text).collect();
        texts.join("; ")
    }

    /// No supported track of this kind is expected: it arrived with an unsupported codec, or the metadata names the codecs of all tracks
    /// and no supported one for this kind.
    fn will_not_come(&self, kind: Kind) -> bool {
        let announced = self.metadata.filter(|metadata| {
            let codecs = metadata.video_codec.is_some() || metadata.audio_codec.is_some();
            codecs || metadata.foreign_video || metadata.foreign_audio
        });
        let supported = announced.map(|metadata| match kind {
            Kind::Video => metadata.video_codec,
            Kind::Audio => metadata.audio_codec,
        });
        self.foreign.iter().any(|codec| codec.kind == kind) || supported == Some(None)
    }
}

#[cfg(test)]
mod tests {
    use satcast_media::Codec;

    use super::*;

    fn sorenson() -> ForeignCodec {
        ForeignCodec::of(Kind::Video, b"\x12abc").unwrap()
    }

    fn mp3() -> ForeignCodec {
        ForeignCodec::of(Kind::Audio, b"\x2fabc").unwrap()
    }

    #[test]
    fn an_encoder_with_announced_unsupported_tracks_is_refused_at_once() {
        let now = Instant::now();
        let mut both = Usable::default();
        both.foreign(sorenson(), now);
        assert!(!both.is_hopeless(now), "audio may come");
        both.foreign(mp3(), now);
        assert!(both.is_hopeless(now));
        let mut announced = Usable {
            metadata: Some(Metadata { foreign_video: true, foreign_audio: true, ..Metadata::default() }),
            ..Usable::default()
        };
        announced.foreign(mp3(), now);
        assert!(!announced.is_hopeless(now));
        announced.foreign(sorenson(), now);
        assert!(announced.is_hopeless(now));
        assert!(announced.text().find("H.263") < announced.text().find("MP3"), "{}", announced.text());
        let hopeless = |metadata| {
            let mut usable = Usable { metadata: Some(metadata), ..Usable::default() };
            assert!(!usable.is_hopeless(now), "no track arrived");
            usable.foreign(sorenson(), now);
            usable.is_hopeless(now)
        };
        let video = Metadata { foreign_video: true, ..Metadata::default() };
        assert!(hopeless(video), "no audio is announced");
        assert!(!hopeless(Metadata { foreign_audio: true, ..video }), "the announced audio has not arrived");
        assert!(!hopeless(Metadata { audio_codec: Some(Codec::Aac), ..video }));
        assert!(
            !hopeless(Metadata { width: Some(640), ..Metadata::default() }),
            "the metadata names no codec"
        );
    }

    #[test]
    fn without_metadata_the_decision_waits() {
        let now = Instant::now();
        let mut usable = Usable::default();
        assert_eq!(usable.decided_at(), None);
        usable.foreign(sorenson(), now);
        let at = usable.decided_at().unwrap();
        assert_eq!(at, now + USABLE_WAIT);
        assert!(!usable.is_hopeless(at - Duration::from_millis(1)) && usable.is_hopeless(at));
        usable.packet();
        usable.foreign(mp3(), at);
        assert!(!usable.is_hopeless(at) && usable.decided_at().is_none());
    }
}
