//! Shared memory: written by the host, read by one child. All `unsafe` of it is here.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

/// The host's side.
pub(super) struct SharedMemory {
    base: NonNull<u8>,
    len: usize,
    descriptor: OwnedFd,
}

// SAFETY: the mapping belongs to this value; writing takes `&mut self`.
unsafe impl Send for SharedMemory {}

impl SharedMemory {
    /// New memory of `len` bytes, all zero. Nobody else can map it for writing, write to it or resize it.
    pub(super) fn new(len: usize) -> Result<Self, Errno> {
        let descriptor =
            rustix::fs::memfd_create("satcast-media", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&descriptor, len as u64)?;
        let base = map(&descriptor, len, ProtFlags::READ | ProtFlags::WRITE)?;
        let memory = Self { base, len, descriptor };
        // After our own mapping, which stays writable. Without resizing, no access can end in a fatal signal.
        let seals = SealFlags::FUTURE_WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&memory.descriptor, seals)?;
        Ok(memory)
    }

    /// What the child maps.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// Copies `bytes` to `offset`; `false` when they do not lie inside.
    pub(super) fn write(&mut self, offset: usize, bytes: &[u8]) -> bool {
        if offset.checked_add(bytes.len()).is_none_or(|end| end > self.len) {
            return false;
        }
        // SAFETY: the range was checked; nobody holds a reference into our mapping.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.base.as_ptr().add(offset), bytes.len()) };
        true
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        unmap(self.base, self.len);
    }
}

/// The child's side. What is read changes only after the host was told that it is no longer needed.
pub(super) struct SharedView {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: read-only memory.
unsafe impl Send for SharedView {}
// SAFETY: as above.
unsafe impl Sync for SharedView {}

impl SharedView {
    /// Maps the host's memory.
    pub(super) fn open(descriptor: &OwnedFd) -> Result<Self, Errno> {
        let size = rustix::fs::fstat(descriptor)?.st_size;
        let len = usize::try_from(size).map_err(|_| Errno::INVAL)?;
        Ok(Self { base: map(descriptor, len, ProtFlags::READ)?, len })
    }

    /// The bytes at `offset`, or `None` when they do not lie inside.
    pub(super) fn slice(&self, offset: usize, len: usize) -> Option<&[u8]> {
        if offset.checked_add(len).is_none_or(|end| end > self.len) {
            return None;
        }
        // SAFETY: the range was checked, and the mapping lives as long as `self`; the host leaves it alone meanwhile.
        Some(unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(offset), len) })
    }
}

impl Drop for SharedView {
    fn drop(&mut self) {
        unmap(self.base, self.len);
    }
}

fn map(descriptor: &OwnedFd, len: usize, access: ProtFlags) -> Result<NonNull<u8>, Errno> {
    // SAFETY: a new mapping at an address of the kernel's choice touches no other memory.
    let base =
        unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, access, MapFlags::SHARED, descriptor, 0) }?;
    NonNull::new(base.cast()).ok_or(Errno::NOMEM)
}

fn unmap(base: NonNull<u8>, len: usize) {
    // SAFETY: the mapping of this value, whose last use this is. Failing would leave it mapped, which harms nobody.
    let _ = unsafe { rustix::mm::munmap(base.as_ptr().cast(), len) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_host_writes_is_read_and_nothing_outside() {
        let mut memory = SharedMemory::new(8192).unwrap();
        let view = SharedView::open(&memory.descriptor).unwrap();
        assert!(memory.write(8190, b"ab"));
        assert_eq!(view.slice(8190, 2).unwrap(), b"ab");
        assert!(memory.write(10, b"xyz"));
        assert_eq!(view.slice(9, 5).unwrap(), b"\0xyz\0");
        for (offset, len) in [(8191, 2), (8193, 0), (usize::MAX, 2)] {
            assert!(view.slice(offset, len).is_none());
            assert!(!memory.write(offset, &[1, 2][..len]));
        }
    }

    #[test]
    fn nobody_else_can_write_or_resize_it() {
        let memory = SharedMemory::new(4096).unwrap();
        let copy = memory.descriptor.try_clone().unwrap();
        assert!(map(&copy, 4096, ProtFlags::READ | ProtFlags::WRITE).is_err());
        assert!(rustix::io::write(&copy, b"x").is_err());
        assert!(rustix::fs::ftruncate(&copy, 0).is_err());
        assert!(rustix::fs::ftruncate(&copy, 8192).is_err());
    }
}
