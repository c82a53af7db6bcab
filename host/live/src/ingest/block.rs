//! The read buffer: one block for all connections of a thread, because the bytes are parsed before the next connection is read, and
//! most payloads are assembled or copied out of it. The block stays in the processor's cache, and a stream needs no buffer of its own.

use std::cell::Cell;
use std::mem;

use bytes::{Bytes, BytesMut};

/// Size of the block. A packet that fills a large part of it keeps the block, and the thread allocates a new one.
pub(super) const BLOCK_BYTES: usize = 128 * 1024;

thread_local! {
    static SPARE: Cell<BytesMut> = Cell::new(BytesMut::new());
}

/// The thread's block; returned to the thread on drop.
pub(super) struct Block {
    /// All of it is initialised.
    bytes: BytesMut,
}

impl Block {
    pub(super) fn of_thread() -> Self {
        Self { bytes: SPARE.take() }
    }

    /// A buffer of [`BLOCK_BYTES`].
    pub(super) fn bytes(&mut self) -> &mut [u8] {
        if self.bytes.is_empty() {
            self.bytes = BytesMut::zeroed(BLOCK_BYTES);
        }
        &mut self.bytes
    }

    /// Gives the first `count` bytes to `parse`, which may keep slices of them.
    pub(super) fn lend<T>(&mut self, count: usize, parse: impl FnOnce(Bytes) -> T) -> T {
        let whole = mem::take(&mut self.bytes).freeze();
        let parsed = parse(whole.slice(..count.min(whole.len())));
        self.bytes = whole.try_into_mut().unwrap_or_default();
        parsed
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        SPARE.set(mem::take(&mut self.bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_reused_unless_a_part_of_it_is_kept() {
        let at = Block::of_thread().bytes().as_ptr();
        let mut block = Block::of_thread();
        assert_eq!((block.bytes().as_ptr(), block.bytes().len()), (at, BLOCK_BYTES));
        block.bytes()[..3].copy_from_slice(b"abc");
        assert_eq!(block.lend(2, |bytes| bytes.to_vec()), b"ab");
        assert_eq!((block.bytes().as_ptr(), block.bytes().len()), (at, BLOCK_BYTES), "nobody kept any of it");
        let kept = block.lend(2, |bytes| bytes);
        assert_ne!(block.bytes().as_ptr(), at);
        block.bytes()[..2].copy_from_slice(b"xy");
        drop(block);
        assert_eq!(kept, &b"ab"[..]);
        assert_eq!(Block::of_thread().bytes().len(), BLOCK_BYTES);
    }
}
