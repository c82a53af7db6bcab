//! Whether anything of what an encoder sends can be used: with codecs that nobody here takes alone, nobody would ever see the stream.

use std::time::Duration;

use satcast_media::Kind;
use satcast_media::flv::ForeignCodec;
use satcast_media::rtmp::Metadata;
use tokio::time::Instant;

use crate::Issue;

/// How long a track that can be used may come later than one that cannot.
pub(super) const USABLE_WAIT: Duration = Duration::from_secs(5);

/// What has come of one encoder.
#[derive(Debug, Default)]
pub(super) struct Usable {
    has_usable: bool,
    foreign: Vec<ForeignCodec>,
    /// When the first track came that cannot be used.
    since: Option<Instant>,
    metadata: Option<Metadata>,
}

impl Usable {
    /// A packet came that can be used.
    pub(super) fn packet(&mut self) {
        self.has_usable = true;
    }

    /// A track came that cannot be used; told once for each kind.
    pub(super) fn foreign(&mut self, codec: ForeignCodec, now: Instant) {
        self.foreign.push(codec);
        self.since.get_or_insert(now);
    }

    /// What the encoder says that it will send.
    pub(super) fn announced(&mut self, metadata: Metadata) {
        self.metadata = Some(metadata);
    }

    /// When [`Usable::is_hopeless`] becomes true if nothing else comes.
    pub(super) fn decided_at(&self) -> Option<Instant> {
        self.since.filter(|_| !self.has_usable).map(|since| since + USABLE_WAIT)
    }

    /// Nothing can be used, and nothing will come that can.
    pub(super) fn is_hopeless(&self, now: Instant) -> bool {
        let kinds = [Kind::Video, Kind::Audio];
        let no_hope = || kinds.into_iter().all(|kind| self.will_not_come(kind));
        self.decided_at().is_some_and(|at| now >= at || (self.all_are_named() && no_hope()))
    }

    /// Every track that the encoder says it sends and nobody takes has come, so that one refusal names them all.
    fn all_are_named(&self) -> bool {
        let named = |kind| self.foreign.iter().any(|codec| codec.kind == kind);
        self.metadata.is_none_or(|metadata| {
            (!metadata.foreign_video || named(Kind::Video)) && (!metadata.foreign_audio || named(Kind::Audio))
        })
    }

    /// What is said of it: which codecs came, and what to set instead.
    pub(super) fn text(&self) -> String {
        let mut foreign = self.foreign.clone();
        foreign.sort_by_key(|codec| codec.kind == Kind::Audio);
        let texts: Vec<_> = foreign.into_iter().map(|codec| Issue::unsupported(codec).text).collect();
        texts.join("; ")
    }

    /// No track of this kind that can be used is to be expected: this one cannot, or the encoder names the codecs of all its tracks, and
    /// none of ours for this kind.
    fn will_not_come(&self, kind: Kind) -> bool {
        let announced = self.metadata.filter(|metadata| {
            let codecs = metadata.video_codec.is_some() || metadata.audio_codec.is_some();
            codecs || metadata.foreign_video || metadata.foreign_audio
        });
        let ours = announced.map(|metadata| match kind {
            Kind::Video => metadata.video_codec,
            Kind::Audio => metadata.audio_codec,
        });
        self.foreign.iter().any(|codec| codec.kind == kind) || ours == Some(None)
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
    fn nothing_that_can_be_used_is_known_at_once_when_the_encoder_says_so() {
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
            assert!(!usable.is_hopeless(now), "nothing has come");
            usable.foreign(sorenson(), now);
            usable.is_hopeless(now)
        };
        let video = Metadata { foreign_video: true, ..Metadata::default() };
        assert!(hopeless(video), "no audio is announced");
        assert!(!hopeless(Metadata { foreign_audio: true, ..video }), "the audio is named too");
        assert!(!hopeless(Metadata { audio_codec: Some(Codec::Aac), ..video }));
        assert!(!hopeless(Metadata { width: Some(640), ..Metadata::default() }), "it names no codec");
    }

    #[test]
    fn without_a_word_of_the_encoder_it_is_known_after_some_time() {
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
