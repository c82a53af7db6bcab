//! Pieces that drivers publish for viewers, kept in memory by destination and name.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use satcast_plugin_api::Error;
use satcast_plugin_api::host::Asset;

/// Most pieces of one destination.
pub(super) const ASSETS_MAX: usize = 4096;
/// Most bytes of one destination's pieces.
pub(super) const ASSET_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Longest name.
pub(super) const ASSET_NAME_BYTES_MAX: usize = 128;

/// One published piece.
#[derive(Clone, Debug)]
pub struct Published {
    /// Media type.
    pub content_type: String,
    /// Seconds a cache may keep it.
    pub max_age_secs: u32,
    /// The bytes, shared with the driver.
    pub body: Bytes,
}

/// The pieces of one destination.
#[derive(Default)]
pub struct Assets {
    pieces: Mutex<Pieces>,
}

#[derive(Default)]
struct Pieces {
    by_name: HashMap<String, Arc<Published>>,
    bytes: u64,
}

impl Assets {
    /// Puts a piece under its name, in place of an earlier one.
    ///
    /// # Errors
    /// A bad name, a body that is not in memory, or a limit reached; the earlier piece stays.
    pub fn publish(&self, asset: Asset) -> Result<(), Error> {
        if !is_asset_name(&asset.name) {
            return Err(Error::internal("the asset's name has characters other than a-z A-Z 0-9 . _ -"));
        }
        if asset.body.memory().is_none() {
            return Err(Error::internal("this host takes assets in memory only"));
        }
        let size = asset.body.len();
        let mut pieces = self.pieces.lock().unwrap_or_else(PoisonError::into_inner);
        let replaced_bytes = pieces.by_name.get(&asset.name).map_or(0, |piece| piece.body.len() as u64);
        let is_new = !pieces.by_name.contains_key(&asset.name);
        if is_new && pieces.by_name.len() >= ASSETS_MAX {
            return Err(Error::internal(format!("more than {ASSETS_MAX} assets; retract old ones")));
        }
        if pieces.bytes - replaced_bytes + size > ASSET_BYTES_MAX {
            return Err(Error::internal(format!(
                "more than {ASSET_BYTES_MAX} bytes of assets; retract old ones"
            )));
        }
        pieces.bytes = pieces.bytes - replaced_bytes + size;
        let piece = Published {
            content_type: asset.content_type,
            max_age_secs: asset.max_age_secs,
            body: Bytes::from_owner(asset.body),
        };
        let replaced = pieces.by_name.insert(asset.name, Arc::new(piece));
        drop(pieces);
        // Foreign code runs when the bytes go: not under the lock.
        drop(replaced);
        Ok(())
    }

    /// Takes a piece away.
    pub fn retract(&self, name: &str) {
        let mut pieces = self.pieces.lock().unwrap_or_else(PoisonError::into_inner);
        let removed = pieces.by_name.remove(name);
        if let Some(piece) = &removed {
            pieces.bytes -= piece.body.len() as u64;
        }
        drop(pieces);
        // Foreign code runs when the bytes go: not under the lock.
        drop(removed);
    }

    /// The piece of that name.
    pub fn get(&self, name: &str) -> Option<Arc<Published>> {
        self.pieces.lock().unwrap_or_else(PoisonError::into_inner).by_name.get(name).cloned()
    }
}

fn is_asset_name(name: &str) -> bool {
    (1..=ASSET_NAME_BYTES_MAX).contains(&name.len())
        && !name.starts_with('.')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asset(name: &str, body: &'static [u8]) -> Asset {
        let body = Bytes::from_static(body).into();
        Asset { name: name.into(), content_type: "video/mp4".into(), max_age_secs: 5, body }
    }

    #[test]
    fn pieces_are_replaced_and_retracted() {
        let assets = Assets::default();
        assets.publish(asset("a.m4s", b"one")).unwrap();
        assets.publish(asset("a.m4s", b"two2")).unwrap();
        assert_eq!(&assets.get("a.m4s").unwrap().body[..], b"two2");
        assert_eq!(assets.pieces.lock().unwrap().bytes, 4);
        assets.retract("a.m4s");
        assets.retract("a.m4s");
        assert!(assets.get("a.m4s").is_none());
        assert_eq!(assets.pieces.lock().unwrap().bytes, 0);
    }

    /// Bytes of a driver whose release calls back.
    struct CallsBack(Arc<Assets>);

    impl AsRef<[u8]> for CallsBack {
        fn as_ref(&self) -> &[u8] {
            b"bytes"
        }
    }

    impl Drop for CallsBack {
        fn drop(&mut self) {
            self.0.retract("other");
        }
    }

    #[test]
    fn releasing_a_piece_may_call_back() {
        let assets = Arc::new(Assets::default());
        let piece = || Asset { body: Bytes::from_owner(CallsBack(assets.clone())).into(), ..asset("a", b"") };
        assets.publish(piece()).unwrap();
        assets.publish(piece()).unwrap();
        assets.retract("a");
        assert!(assets.get("a").is_none());
    }

    #[test]
    fn every_limit_refuses_and_keeps_what_is_there() {
        let assets = Assets::default();
        for bad in ["", "../x", "a/b", ".hidden", &"n".repeat(ASSET_NAME_BYTES_MAX + 1)] {
            assert!(assets.publish(asset(bad, b"x")).is_err(), "{bad:?}");
        }
        static LARGE: [u8; 1024 * 1024] = [0; 1024 * 1024];
        for n in 0..64 {
            assets.publish(asset(&format!("l{n}"), &LARGE)).unwrap();
        }
        assert!(assets.publish(asset("one-too-many", b"x")).unwrap_err().message.contains("bytes"));
        assets.publish(asset("l0", b"smaller")).unwrap();
        for n in 64..ASSETS_MAX {
            assets.publish(asset(&format!("s{n}"), b"x")).unwrap();
        }
        assert!(assets.publish(asset("s", b"x")).unwrap_err().message.contains("assets"));
    }
}
