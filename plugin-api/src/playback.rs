//! Playback: what a driver publishes for viewers, in the words of both sides.

use serde::{Deserialize, Serialize};

use crate::abi;

/// Media type of a playlist (RFC 8216, section 4). The host compresses such pieces and keeps them out of byte ranges.
pub const PLAYLIST_TYPE: &str = "application/vnd.apple.mpegurl";
/// Longest name of a piece in bytes.
pub const ASSET_NAME_BYTES_MAX: usize = 128;
/// Most pieces that one piece may be made of.
pub const ASSET_PARTS_MAX: usize = 64;

/// Who may fetch a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Audience {
    /// Viewers with a key, whose bytes are metered.
    Hosted,
    /// Viewers of the preview.
    Preview,
    /// Either.
    Both,
}

impl Audience {
    #[cfg(feature = "runtime")]
    pub(crate) fn to_abi(self) -> u32 {
        match self {
            Audience::Hosted => abi::AUDIENCE_HOSTED,
            Audience::Preview => abi::AUDIENCE_PREVIEW,
            Audience::Both => abi::AUDIENCE_HOSTED | abi::AUDIENCE_PREVIEW,
        }
    }

    /// `None` when nobody this version knows may fetch it.
    #[cfg(feature = "host")]
    pub(crate) fn from_abi(bits: u32) -> Option<Self> {
        match (bits & abi::AUDIENCE_HOSTED != 0, bits & abi::AUDIENCE_PREVIEW != 0) {
            (true, true) => Some(Audience::Both),
            (true, false) => Some(Audience::Hosted),
            (false, true) => Some(Audience::Preview),
            (false, false) => None,
        }
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
