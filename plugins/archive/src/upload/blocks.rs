//! Memory in which parts are read and sent, used again and again.
//!
//! The system clears every page that it hands out. For fresh memory with each part this would cost as much as reading
//! the file.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

/// Size of a block: one read of the file, and at most one write to the socket. A slow connection must take one within
/// the time after which it counts as dead.
pub(crate) const BLOCK_BYTES: usize = 256 * 1024;
/// Free blocks that are kept: those of two small parts, which one upload needs.
const FREE_MAX: usize = 64;

/// The free blocks.
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    free: Mutex<Free>,
}

#[derive(Debug, Default)]
struct Free {
    blocks: Vec<Vec<u8>>,
    /// One was taken since the last [`Blocks::trim`].
    is_used: bool,
}

impl Blocks {
    /// A block with `bytes` bytes, at most [`BLOCK_BYTES`]. Its content is old.
    pub(crate) fn take(self: &Arc<Self>, bytes: usize) -> Block {
        let kept = {
            let mut free = self.free.lock();
            free.is_used = true;
            free.blocks.pop()
        };
        Block {
            memory: kept.unwrap_or_else(|| vec![0; BLOCK_BYTES]),
            bytes: bytes.min(BLOCK_BYTES),
            home: self.clone(),
        }
    }

    /// Frees the kept blocks if none was taken since the last call.
    pub(crate) fn trim(&self) {
        let mut free = self.free.lock();
        if !std::mem::take(&mut free.is_used) {
            free.blocks = Vec::new();
        }
    }

    fn put(&self, memory: Vec<u8>) {
        let mut free = self.free.lock();
        if free.blocks.len() < FREE_MAX {
            free.blocks.push(memory);
        }
    }
}

/// A block in use; it goes back on drop.
#[derive(Debug)]
pub(crate) struct Block {
    memory: Vec<u8>,
    bytes: usize,
    home: Arc<Blocks>,
}

impl Block {
    /// The block as a chunk of a request.
    pub(crate) fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Block {
    fn as_ref(&self) -> &[u8] {
        &self.memory[..self.bytes]
    }
}

impl AsMut<[u8]> for Block {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.memory[..self.bytes]
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        self.home.put(std::mem::take(&mut self.memory));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_used_again_bounded_and_freed_when_unused() {
        let blocks = Arc::new(Blocks::default());
        let free = || blocks.free.lock().blocks.len();
        let mut first = blocks.take(3);
        first.as_mut().copy_from_slice(b"abc");
        let (chunk, clone) = {
            let chunk = first.freeze();
            (chunk.clone(), chunk)
        };
        drop(chunk);
        assert_eq!((free(), clone.as_ref()), (0, &b"abc"[..]), "a part is sent from it");
        drop(clone);
        assert_eq!(free(), 1);
        let all: Vec<Block> = (0..FREE_MAX + 3).map(|_| blocks.take(BLOCK_BYTES + 1)).collect();
        assert!(all.iter().all(|block| block.as_ref().len() == BLOCK_BYTES));
        assert_eq!(free(), 0);
        drop(all);
        assert_eq!(free(), FREE_MAX);
        blocks.trim();
        assert_eq!(free(), FREE_MAX, "some were used a moment ago");
        blocks.trim();
        assert_eq!(free(), 0);
    }
}
