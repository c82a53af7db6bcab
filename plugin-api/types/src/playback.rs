//! Playback: what a driver publishes for viewers, in the words of both sides.

use serde::{Deserialize, Serialize};

/// Media type of a playlist (RFC 8216, section 4). The host compresses such pieces and keeps them out of byte ranges.
pub const PLAYLIST_TYPE: &str = "application/vnd.apple.mpegurl";
/// Longest name of a piece in bytes.
pub const ASSET_NAME_BYTES_MAX: usize = 128;
/// Most pieces that one piece may be made of.
pub const ASSET_PARTS_MAX: usize = 64;

/// Who may fetch a piece. The numbers are flags of the C table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Audience {
    /// Viewers with a key, whose bytes are metered.
    Hosted = 1,
    /// Viewers of the preview.
    Preview = 2,
    /// Either.
    Both = 3,
}

impl Audience {
    /// The audience of flags of the C table; `None` when nobody this version knows may fetch it.
    pub fn from_number(flags: u32) -> Option<Self> {
        let all = [Audience::Hosted, Audience::Preview, Audience::Both];
        all.into_iter().find(|audience| *audience as u32 == flags & Audience::Both as u32)
    }

    /// Viewers with a key may fetch it.
    pub fn is_hosted(self) -> bool {
        self != Audience::Preview
    }

    /// Viewers of the preview may fetch it.
    pub fn is_preview(self) -> bool {
        self != Audience::Hosted
    }
}

/// True for the name of a piece: 1 to [`ASSET_NAME_BYTES_MAX`] of `a-z A-Z 0-9 . _ -`, not beginning with a dot.
pub fn is_asset_name(name: &str) -> bool {
    (1..=ASSET_NAME_BYTES_MAX).contains(&name.len())
        && !name.starts_with('.')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_that_are_not_known_change_no_audience() {
        for audience in [Audience::Hosted, Audience::Preview, Audience::Both] {
            assert_eq!(Audience::from_number(audience as u32 | 0x8000_0000), Some(audience));
        }
        assert_eq!([0, 4, 8].map(Audience::from_number), [None; 3]);
    }
}
