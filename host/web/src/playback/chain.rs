//! The assets that an asset consists of, and the bytes to send.

use std::io;
use std::sync::Arc;

use satcast_plugin_api::AssetBody;

use super::body::Slice;
use satcast_drivers::published::{Opening, Published};

/// Assets with bytes of their own, in order.
pub(super) struct Chain {
    parts: Vec<(Arc<Published>, u64)>,
    /// Total number of bytes.
    pub(super) size: u64,
}

impl Chain {
    /// The chain of an asset: itself, or the parts that it names; `None` if one of them is missing.
    pub(super) fn of(opening: &Opening, asset: &Arc<Published>) -> Option<Self> {
        let parts: Vec<(Arc<Published>, u64)> = match &asset.body {
            AssetBody::Parts(names) => {
                let part = |name: &String| sized(opening.assets().get(name)?);
                names.iter().map(part).collect::<Option<_>>()?
            }
            AssetBody::Memory(_) | AssetBody::File { .. } | AssetBody::Open { .. } => {
                vec![sized(asset.clone())?]
            }
        };
        let size = parts.iter().map(|(_, size)| size).sum();
        Some(Self { parts, size })
    }

    /// `len` bytes from `first`; the range must be within the chain.
    ///
    /// # Errors
    /// The first file is gone, too short, or cannot be read.
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

/// An asset with its size; `None` if it consists of other assets.
fn sized(asset: Arc<Published>) -> Option<(Arc<Published>, u64)> {
    let size = match &asset.body {
        AssetBody::Memory(bytes) => bytes.len() as u64,
        AssetBody::File { len, .. } | AssetBody::Open { len, .. } => *len,
        AssetBody::Parts(_) => return None,
    };
    Some((asset, size))
}
