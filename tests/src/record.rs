//! One media packet as it was sent or received, and the comparison of two runs of them.

use sha2::{Digest, Sha256};

/// Largest change of a packet's time by a container with another clock, in milliseconds: both sides round once.
pub const CARRIED_MILLIS: i64 = 2;

/// Kind of a track.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Track {
    /// H.264
    Video,
    /// AAC
    Audio,
}

/// Summary of a packet.
#[derive(Clone, PartialEq, Eq)]
pub struct Record {
    /// The track it belongs to.
    pub track: Track,
    /// A codec configuration record instead of media.
    pub config: bool,
    /// Decodes without the frames before it.
    pub keyframe: bool,
    /// Decoding time, milliseconds.
    pub dts_ms: i64,
    /// Presentation time, milliseconds.
    pub pts_ms: i64,
    /// SHA-256 of the payload without its FLV header.
    pub digest: [u8; 32],
    /// Payload length, bytes.
    pub size: usize,
}

impl Record {
    /// A record of `payload`.
    #[must_use]
    pub fn new(
        track: Track,
        config: bool,
        keyframe: bool,
        (dts_ms, pts_ms): (i64, i64),
        payload: &[u8],
    ) -> Self {
        Self {
            track,
            config,
            keyframe,
            dts_ms,
            pts_ms,
            digest: Sha256::digest(payload).into(),
            size: payload.len(),
        }
    }

    fn starts_stream(&self) -> bool {
        self.track == Track::Video && self.keyframe && !self.config
    }
}

impl std::fmt::Debug for Record {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = if self.config { " config" } else { "" };
        let key = if self.keyframe { " key" } else { "" };
        let [first, second, third, ..] = self.digest;
        write!(
            formatter,
            "{:?}{kind}{key} dts {} pts {} {} bytes #{first:02x}{second:02x}{third:02x}",
            self.track, self.dts_ms, self.pts_ms, self.size
        )
    }
}

/// The media packets (no configuration) from the first keyframe on.
#[must_use]
pub fn media(records: &[Record]) -> Vec<Record> {
    records
        .iter()
        .filter(|record| !record.config)
        .skip_while(|record| !record.starts_stream())
        .cloned()
        .collect()
}

/// Expects that `got` is the whole of `sent` from its first keyframe on.
///
/// # Panics
/// With the first difference.
#[track_caller]
pub fn assert_complete(receiver: &str, sent: &[Record], got: &[Record]) {
    let sent = media(sent);
    assert_configured(receiver, got);
    assert_run(receiver, &sent, &without_config(got));
    assert_eq!(sent.len(), without_config(got).len(), "{receiver} did not get every packet");
}

/// Expects that `got` is a gapless run of `sent` that begins at one of its keyframes; gives the place of that
/// keyframe among the media packets of `sent` (counted from its first keyframe).
///
/// # Panics
/// With the first difference.
#[track_caller]
pub fn assert_run_from_keyframe(receiver: &str, sent: &[Record], got: &[Record]) -> usize {
    assert_configured(receiver, got);
    assert_media_run(receiver, sent, got)
}

/// The same for a later part of the received media, whose configuration may have come before.
///
/// # Panics
/// With the first difference.
#[track_caller]
pub fn assert_media_run(receiver: &str, sent: &[Record], got: &[Record]) -> usize {
    let sent = media(sent);
    let got_media = without_config(got);
    let first = got_media.first().unwrap_or_else(|| panic!("{receiver} got no media"));
    assert!(first.starts_stream(), "the first packet of {receiver} is not a keyframe: {first:?}");
    let at = sent.iter().position(|record| record.digest == first.digest);
    let at = at.unwrap_or_else(|| panic!("{receiver} got a first packet that was never sent: {first:?}"));
    assert_run(receiver, &sent[at..], &got_media);
    at
}

/// Expects that each track of `got` is a gapless run of that track in `sent`, and that all times have one offset, to within `millis`
/// (at least [`CARRIED_MILLIS`]). A container with a finer clock and another order of packets keeps this. Returns the time in `sent`
/// of the first received packet, in milliseconds.
///
/// # Panics
/// With the first difference.
#[track_caller]
pub fn assert_carried(receiver: &str, sent: &[Record], got: &[Record], millis: i64) -> i64 {
    let (mut offset, mut began) = (None, i64::MAX);
    for track in [Track::Video, Track::Audio] {
        let of_track = |records: &[Record]| -> Vec<Record> {
            records.iter().filter(|record| record.track == track && !record.config).cloned().collect()
        };
        let (sent, got) = (of_track(sent), of_track(got));
        let digests = |records: &[Record]| records.iter().map(|record| record.digest).collect::<Vec<_>>();
        let (all, here) = (digests(&sent), digests(&got));
        assert!(all.is_empty() || !here.is_empty(), "{receiver} got nothing of {track:?}");
        let Some(first) = got.first() else { continue };
        let at = all.windows(here.len()).position(|window| window == here);
        let at = at.unwrap_or_else(|| {
            panic!("{receiver} got {} packets of {track:?} that differ from the sent ones", here.len())
        });
        let offset = *offset.get_or_insert(first.dts_ms - sent[at].dts_ms);
        began = began.min(sent[at].dts_ms);
        for (sent, got) in sent[at..].iter().zip(&got) {
            let shift = |before: i64, after: i64| (after - before - offset).abs() > millis;
            let wrong = shift(sent.dts_ms, got.dts_ms) || shift(sent.pts_ms, got.pts_ms);
            assert!(
                !wrong && sent.keyframe == got.keyframe,
                "{receiver}: {sent:?} came as {got:?}, offset {offset} ms"
            );
        }
    }
    began
}

/// Expects that times within each track never go back.
///
/// # Panics
/// With the first pair that does.
#[track_caller]
pub fn assert_times_never_go_back(receiver: &str, got: &[Record]) {
    for track in [Track::Video, Track::Audio] {
        let times: Vec<&Record> =
            got.iter().filter(|record| record.track == track && !record.config).collect();
        for pair in times.windows(2) {
            assert!(
                pair[0].dts_ms <= pair[1].dts_ms,
                "{receiver}: time goes back from {:?} to {:?}",
                pair[0],
                pair[1]
            );
        }
    }
}

fn without_config(records: &[Record]) -> Vec<Record> {
    records.iter().filter(|record| !record.config).cloned().collect()
}

/// Each track's configuration comes before its first media packet.
///
/// # Panics
/// When a track is missing or starts with media.
#[track_caller]
pub fn assert_configured(receiver: &str, got: &[Record]) {
    for track in [Track::Video, Track::Audio] {
        let first = got.iter().find(|record| record.track == track);
        let first =
            first.unwrap_or_else(|| panic!("{receiver} got no packet of {track:?} among {}", got.len()));
        assert!(first.config, "{receiver} got media of {track:?} before its configuration: {first:?}");
    }
}

/// `got` equals the beginning of `sent`, in order, with one offset for all times.
#[track_caller]
fn assert_run(receiver: &str, sent: &[Record], got: &[Record]) {
    let (Some(first_sent), Some(first_got)) = (sent.first(), got.first()) else {
        panic!("{receiver} got {} media packets of {}", got.len(), sent.len());
    };
    let offset = first_got.dts_ms - first_sent.dts_ms;
    for (index, (sent, got)) in sent.iter().zip(got).enumerate() {
        let expected = Record { dts_ms: sent.dts_ms + offset, pts_ms: sent.pts_ms + offset, ..sent.clone() };
        assert_eq!(
            expected, *got,
            "{receiver}: media packet {index} differs (times with offset {offset} ms)"
        );
    }
    assert!(
        got.len() <= sent.len(),
        "{receiver} got {} media packets, only {} were sent",
        got.len(),
        sent.len()
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Configuration of both tracks, then three GOPs of four frames, with audio between them.
    fn stream() -> Vec<Record> {
        let mut records = vec![
            Record::new(Track::Video, true, false, (0, 0), b"avcC"),
            Record::new(Track::Audio, true, false, (0, 0), b"asc"),
        ];
        for index in 0..12_i64 {
            let time = index * 40;
            let (video, audio) = (format!("frame {index}"), format!("audio {index}"));
            records.push(Record::new(
                Track::Video,
                false,
                index % 4 == 0,
                (time, time + 40),
                video.as_bytes(),
            ));
            records.push(Record::new(Track::Audio, false, false, (time + 5, time + 5), audio.as_bytes()));
        }
        records
    }

    fn shifted(by: i64) -> Vec<Record> {
        let shift =
            |record: Record| Record { dts_ms: record.dts_ms + by, pts_ms: record.pts_ms + by, ..record };
        stream().into_iter().map(shift).collect()
    }

    fn fails(got: &[Record]) -> bool {
        std::panic::catch_unwind(|| assert_complete("test", &stream(), got)).is_err()
    }

    #[test]
    fn a_whole_copy_with_one_offset_passes() {
        assert!(!fails(&stream()));
        assert!(!fails(&shifted(-1234)));
    }

    #[test]
    fn every_kind_of_difference_is_found() {
        let change = |at: usize, change: fn(&mut Record)| {
            let mut records = stream();
            change(&mut records[at]);
            records
        };
        assert!(fails(&stream()[..stream().len() - 1]), "the end is missing");
        assert!(fails(&[&stream()[..7], &stream()[8..]].concat()), "one is missing");
        assert!(fails(&[&stream()[..8], &stream()[7..]].concat()), "one came twice");
        assert!(fails(&stream()[1..]), "a configuration is missing");
        assert!(fails(&change(5, |record| record.digest[31] ^= 1)), "a payload differs");
        assert!(fails(&change(5, |record| record.dts_ms += 1)), "a time differs");
        assert!(fails(&change(6, |record| record.pts_ms += 1)), "a presentation time differs");
        assert!(fails(&change(10, |record| record.keyframe = !record.keyframe)), "a keyframe mark differs");
        assert!(fails(&[]), "nothing came");
    }

    #[test]
    fn a_run_begins_at_a_keyframe() {
        let (sent, config) = (stream(), &stream()[..2]);
        let from = |at: usize| [config, &stream()[at..]].concat();
        assert_eq!(assert_run_from_keyframe("test", &sent, &from(10)), 8);
        assert!(std::panic::catch_unwind(|| assert_run_from_keyframe("test", &sent, &from(12))).is_err());
    }

    #[test]
    fn a_copy_in_another_order_is_carried_and_a_hole_is_found() {
        let sent = stream();
        let mut got: Vec<Record> = shifted(7)[10..].to_vec();
        got.sort_by_key(|record| record.track == Track::Audio);
        assert_carried("test", &sent, &got, CARRIED_MILLIS);
        let mut late = got.clone();
        late[3].dts_ms += CARRIED_MILLIS + 1;
        assert!(
            std::panic::catch_unwind(|| assert_carried("test", &stream(), &late, CARRIED_MILLIS)).is_err()
        );
        got.remove(3);
        assert!(
            std::panic::catch_unwind(|| assert_carried("test", &stream(), &got, CARRIED_MILLIS)).is_err()
        );
    }

    #[test]
    fn time_that_goes_back_is_found() {
        assert_times_never_go_back("test", &stream());
        let twice = [stream(), stream()].concat();
        assert!(std::panic::catch_unwind(|| assert_times_never_go_back("test", &twice)).is_err());
    }
}
