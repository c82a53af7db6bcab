//! What a piece consists of, and the bytes of it that are to be sent.

use std::io;
use std::sync::Arc;

use satcast_plugin_api::AssetBody;

use super::body::Slice;
use satcast_drivers::published::{Opening, Published};

/// Pieces with bytes of their own, one after the other.
pub(super) struct Chain {
    parts: Vec<(Arc<Published>, u64)>,
    /// All bytes.
    pub(super) size: u64,
}

impl Chain {
    /// What a piece consists of: itself, or the parts it names; `None` when one of them is not there.
    pub(super) fn of(opening: &Opening, piece: &Arc<Published>) -> Option<Self> {
        let parts: Vec<(Arc<Published>, u64)> = match &piece.body {
            AssetBody::Parts(names) => {
                let part = |name: &String| sized(opening.assets().get(name)?);
                names.iter().map(part).collect::<Option<_>>()?
            }
            AssetBody::Memory(_) | AssetBody::File { .. } | AssetBody::Open { .. } => {
                vec![sized(piece.clone())?]
            }
        };
        let size = parts.iter().map(|(_, size)| size).sum();
        Some(Self { parts, size })
    }

    /// `len` bytes from `first`, which are there.
    ///
    /// # Errors
    /// The first file is gone, shorter than it was, or cannot be read.
    pub(super) async fn cut(&self, mut first: u64, mut len: u64) -> io::Result<Vec<Slice>> {
        let mut slices = Vec::with_capacity(self.parts.len());
        for (part, size) in &self.parts {
            let from = first.min(*size);
            let here = len.min(size - from);
            first -= from;
            len -= here;
            if here > 0 {
                slices.extend(Slice::of(part, from, here));
            }
        }
        if let Some(first) = slices.first_mut() {
            first.open().await?;
        }
        Ok(slices)
    }
}

/// A piece with the number of its own bytes; `None` for one that consists of others.
fn sized(piece: Arc<Published>) -> Option<(Arc<Published>, u64)> {
    let size = match &piece.body {
        AssetBody::Memory(bytes) => bytes.len() as u64,
        AssetBody::File { len, .. } | AssetBody::Open { len, .. } => *len,
        AssetBody::Parts(_) => return None,
    };
    Some((piece, size))
}
