//! Which streams an encoder's media has come through, so that a stream is not sent back to itself.
//!
//! A destination that leads to this service again, to its own stream or over another one, would take the place of the encoder when
//! that goes, and the stream would feed itself for ever. So a driver is told marks of the streams that its media has come
//! through (`via` of [`satcast_plugin_api::recording::About`]), says them to the server in the `flashVer` of its `connect`, and whoever
//! publishes with the mark of the stream itself is refused.

use sha2::{Digest as _, Sha256};

use satcast_core::ids::StreamId;

/// Most streams that media may come through.
pub const VIA_MAX: usize = 8;
/// What stands before the marks.
const BEFORE: &str = "; Satcast; via ";
const MARK_HEX_CHARS: usize = 16;

/// Marks of streams, the first one first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Via(Vec<String>);

impl Via {
    /// Reads what the other side says it is (`flashVer`), which anybody may say; at most one more than [`VIA_MAX`].
    pub fn read(flash_ver: &str) -> Self {
        let marks = flash_ver.split_once(BEFORE).map_or("", |(_, marks)| marks);
        let marks = marks.split(')').next().unwrap_or_default().split(' ').filter(|mark| is_mark(mark));
        Self(marks.take(VIA_MAX + 1).map(str::to_owned).collect())
    }

    /// Came through the stream with this mark.
    pub(super) fn has(&self, mark: &str) -> bool {
        self.0.iter().any(|known| known == mark)
    }

    /// Came through more streams than any chain that is meant.
    pub(super) fn is_too_long(&self) -> bool {
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

/// What marks the streams of this process: nobody else can tell which stream it is.
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

    pub(super) fn of(&self, stream: StreamId) -> String {
        let digest = Sha256::new().chain_update(self.salt).chain_update(stream.0.to_le_bytes()).finalize();
        digest.iter().take(MARK_HEX_CHARS / 2).map(|byte| format!("{byte:02x}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_nothing_else() {
        let marks = Marks::new();
        let (one, other) = (marks.of(StreamId(1)), marks.of(StreamId(2)));
        assert_ne!(one, other);
        assert_ne!(one, Marks::new().of(StreamId(1)), "of this process alone");
        let said = |marks: &[String]| format!("FMLE/3.0 (compatible; Satcast; via {})", marks.join(" "));
        let first = Via::read(&said(&Via::default().and(one.clone())));
        assert!(first.has(&one) && !first.has(&other));
        let both = Via::read(&said(&first.and(other.clone())));
        assert!(both.has(&one) && both.has(&other) && !both.is_too_long());
        for odd in [
            "",
            "FMLE/3.0 (compatible; Satcast)",
            "x; Satcast; via ) y",
            "x; Satcast; via 0123 zzzzzzzzzzzzzzzz",
        ] {
            assert_eq!(Via::read(odd), Via::default(), "{odd}");
        }
        let many: Vec<String> = (0..VIA_MAX as i64).map(|id| marks.of(StreamId(id))).collect();
        assert!(!Via::read(&said(&many)).is_too_long());
        assert!(Via::read(&said(&[many.clone(), many].concat())).is_too_long());
    }
}
