//! The newest refusals of each stream's encoders, for owners who do not see the log of the encoder.

use std::collections::{HashMap, VecDeque};

use parking_lot::Mutex;

use satcast_core::ids::{StreamId, UnixMillis};

/// Most refusals of one stream; the oldest is removed for a new one.
pub const REFUSALS_PER_STREAM_MAX: usize = 5;
/// Most streams with refusals; the one that was refused the longest time ago is removed for a new one.
const STREAMS_MAX: usize = 10_000;

/// The refusal of an encoder that sent the key of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncoderRefusal {
    pub at: UnixMillis,
    /// RTMP status code.
    pub code: &'static str,
    /// The sentence that the encoder got, without secrets.
    pub reason: String,
}

/// The refusals since the service started, newest first.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    newest: Mutex<HashMap<StreamId, VecDeque<EncoderRefusal>>>,
}

impl Refusals {
    pub(super) fn note(&self, stream: StreamId, refusal: EncoderRefusal) {
        let mut newest = self.newest.lock();
        if newest.len() >= STREAMS_MAX && !newest.contains_key(&stream) {
            let last_at = |kept: &VecDeque<EncoderRefusal>| kept.front().map(|refusal| refusal.at);
            let oldest = newest.iter().min_by_key(|(_, kept)| last_at(kept)).map(|(stream, _)| *stream);
            oldest.and_then(|oldest| newest.remove(&oldest));
        }
        let kept = newest.entry(stream).or_default();
        kept.push_front(refusal);
        kept.truncate(REFUSALS_PER_STREAM_MAX);
    }

    pub(super) fn of(&self, stream: StreamId) -> Vec<EncoderRefusal> {
        self.newest.lock().get(&stream).into_iter().flatten().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(refusals: &Refusals, stream: i64, at: i64) {
        let refusal = EncoderRefusal { at: UnixMillis(at), code: "code", reason: "reason".to_owned() };
        refusals.note(StreamId(stream), refusal);
    }

    fn times(refusals: &Refusals, stream: i64) -> Vec<i64> {
        refusals.of(StreamId(stream)).iter().map(|refusal| refusal.at.0).collect()
    }

    #[test]
    fn the_newest_refusals_of_a_stream_are_kept() {
        let refusals = Refusals::default();
        assert!(times(&refusals, 1).is_empty());
        for at in 1..=6 {
            note(&refusals, 1, at);
        }
        note(&refusals, 2, 7);
        assert_eq!(times(&refusals, 1), [6, 5, 4, 3, 2]);
        assert_eq!(times(&refusals, 2), [7]);
    }

    #[test]
    fn the_stream_without_a_refusal_for_the_longest_time_is_forgotten() {
        let refusals = Refusals::default();
        let count = STREAMS_MAX as i64;
        for stream in 0..count {
            note(&refusals, stream, stream);
        }
        note(&refusals, 0, count);
        assert_eq!(times(&refusals, 1), [1], "a known stream takes no place");
        note(&refusals, count, count + 1);
        assert_eq!(times(&refusals, 0), [count, 0]);
        assert!(times(&refusals, 1).is_empty());
        assert_eq!(times(&refusals, 2), [2]);
        assert_eq!(times(&refusals, count), [count + 1]);
    }
}
