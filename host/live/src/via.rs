//! Loop detection: the streams that media has passed through.
//!
//! A destination may lead back to its own stream, directly or through other streams. When the encoder leaves, such a destination would
//! take its place, and the stream would feed itself for ever. So a driver gets the marks of the streams that its media has passed
//! through (`via` of [`satcast_plugin_api::recording::About`]) and sends them in the `flashVer` of its `connect`, or by SRT in a note
//! in the transport stream. A publisher that sends the mark of the stream itself is refused.

use sha2::{Digest as _, Sha256};

use super::codes;
use satcast_core::ids::StreamId;

/// Most streams that media may pass through.
pub const VIA_MAX: usize = 8;
/// Text before the marks.
const BEFORE: &str = "; Satcast; via ";
const MARK_HEX_CHARS: usize = 16;

/// Marks of streams, in the order in which the media passed through them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Via(Vec<String>);

impl Via {
    /// Reads the marks in a `flashVer`, which is not trusted; at most [`VIA_MAX`] + 1.
    pub fn read(flash_ver: &str) -> Self {
        let marks = flash_ver.split_once(BEFORE).map_or("", |(_, marks)| marks);
        let marks = marks.split(')').next().unwrap_or_default().split(' ').filter(|mark| is_mark(mark));
        Self(marks.take(VIA_MAX + 1).map(str::to_owned).collect())
    }

    /// Reads the marks in the note of a transport stream, eight bytes each, which is not trusted; at most [`VIA_MAX`] + 1.
    pub fn of_note(note: &[u8]) -> Self {
        let marks = note.as_chunks::<{ MARK_HEX_CHARS / 2 }>().0.iter();
        Self(marks.take(VIA_MAX + 1).map(|mark| format!("{:016x}", u64::from_be_bytes(*mark))).collect())
    }

    /// The media passed through the stream with this mark.
    fn has(&self, mark: &str) -> bool {
        self.0.iter().any(|known| known == mark)
    }

    /// The media passed through more than [`VIA_MAX`] streams.
    fn is_too_long(&self) -> bool {
        self.0.len() > VIA_MAX
    }

    /// The same with one more stream.
    pub(super) fn and(&self, mark: String) -> Vec<String> {
        self.0.iter().cloned().chain([mark]).collect()
    }
}

fn is_mark(text: &str) -> bool {
    text.len() == MARK_HEX_CHARS && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Makes the marks of this process. The salt hides the id of the stream.
#[derive(Debug)]
pub(super) struct Marks {
    salt: [u8; 16],
}

impl Marks {
    pub(super) fn new() -> Self {
        let salt = u128::from(satcast_core::secret::random_u64()) << 64
            | u128::from(satcast_core::secret::random_u64());
        Self { salt: salt.to_le_bytes() }
    }

    /// Why media that has passed through `via` may not come to `stream`: it comes from the stream itself, or through too many.
    pub(super) fn refusal(&self, stream: StreamId, via: &Via) -> Option<&'static str> {
        let is_loop = via.has(&self.of(stream));
        if is_loop { Some(codes::LOOP) } else { via.is_too_long().then_some(codes::CHAIN) }
    }

    pub(super) fn of(&self, stream: StreamId) -> String {
        let digest = Sha256::new().chain_update(self.salt).chain_update(stream.0.to_le_bytes()).finalize();
        digest.iter().take(MARK_HEX_CHARS / 2).map(|byte| format!("{byte:02x}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_well_formed_marks_are_read() {
        let marks = Marks::new();
        let (one, other) = (marks.of(StreamId(1)), marks.of(StreamId(2)));
        assert_ne!(one, other);
        assert_ne!(one, Marks::new().of(StreamId(1)), "marks differ between processes");
        let flash_ver = |marks: &[String]| format!("FMLE/3.0 (compatible; Satcast; via {})", marks.join(" "));
        let first = Via::read(&flash_ver(&Via::default().and(one.clone())));
        assert!(first.has(&one) && !first.has(&other));
        let both = Via::read(&flash_ver(&first.and(other.clone())));
        assert!(both.has(&one) && both.has(&other) && !both.is_too_long());
        for odd in [
            "",
            "FMLE/3.0 (compatible; Satcast)",
            "x; Satcast; via ) y",
            "x; Satcast; via 0123 zzzzzzzzzzzzzzzz",
        ] {
            assert_eq!(Via::read(odd), Via::default(), "{odd}");
        }
        let note = [&one, &other].map(|mark| u64::from_str_radix(mark, 16).unwrap().to_be_bytes()).concat();
        assert_eq!(Via::of_note(&note), both);
        assert_eq!(Via::of_note(&note[..15]), first);
        assert!(Via::of_note(&[7; 255]).is_too_long());
        let many: Vec<String> = (0..VIA_MAX as i64).map(|id| marks.of(StreamId(id))).collect();
        assert!(!Via::read(&flash_ver(&many)).is_too_long());
        assert!(Via::read(&flash_ver(&[many.clone(), many].concat())).is_too_long());
    }
}
