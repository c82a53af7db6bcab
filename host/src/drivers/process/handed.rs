//! Bytes that are too many for a message: handed over as sealed memory beside it, in both directions.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;

use bytes::Bytes;
use rustix::fs::{MemfdFlags, SealFlags};
use satcast_plugin_api::Error;

/// Memory with `bytes` in it that nobody can change any more.
pub(super) fn sealed_memory(bytes: &[u8]) -> Result<OwnedFd, Error> {
    let make = || -> std::io::Result<OwnedFd> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let mut file = File::from(rustix::fs::memfd_create("satcast-bytes", flags)?);
        file.write_all(bytes)?;
        let seals = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&file, seals)?;
        Ok(file.into())
    };
    make().map_err(|error| Error::internal(format!("bytes cannot be handed over: {error}")))
}

/// The bytes in the one descriptor, which must be memory that nobody can change any more: no pipe to wait for, no file, no
/// folder, no device.
pub(super) fn sealed(descriptors: Vec<OwnedFd>, bytes_max: u64) -> Result<Bytes, Error> {
    let wanted = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW;
    let descriptor = descriptors.into_iter().next().ok_or_else(|| refused(NOTHING))?;
    match rustix::fs::fcntl_get_seals(&descriptor) {
        Ok(seals) if seals.contains(wanted) => {}
        _ => return Err(refused(NOT_SEALED)),
    }
    let file = File::from(descriptor);
    let len = file.metadata().map_err(|_| refused("unreadable memory"))?.len();
    if len > bytes_max {
        return Err(too_many(bytes_max));
    }
    let mut bytes = Vec::with_capacity(len as usize);
    // From the beginning, wherever its own position is.
    let mut reader = At { file: &file, offset: 0 };
    reader.read_to_end(&mut bytes).map_err(|_| refused("unreadable memory"))?;
    Ok(bytes.into())
}

/// What was handed over in place of sealed memory.
pub(super) const NOTHING: &str = "no memory";
pub(super) const NOT_SEALED: &str = "something that is no sealed memory";

pub(super) fn refused(what: &str) -> Error {
    Error::internal(format!("the driver handed over {what}"))
}

fn too_many(bytes_max: u64) -> Error {
    refused(&format!("more than {bytes_max} bytes"))
}

struct At<'a> {
    file: &'a File,
    offset: u64,
}

impl std::io::Read for At<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = std::os::unix::fs::FileExt::read_at(self.file, buffer, self.offset)?;
        self.offset += count as u64;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(bytes: &[u8], seals: SealFlags) -> OwnedFd {
        let descriptor = rustix::fs::memfd_create("t", MemfdFlags::ALLOW_SEALING).unwrap();
        let mut file = File::from(descriptor);
        file.write_all(bytes).unwrap();
        rustix::fs::fcntl_add_seals(&file, seals).unwrap();
        file.into()
    }

    #[test]
    fn only_sealed_memory_within_the_limit_is_read() {
        let all = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW;
        assert_eq!(sealed(vec![memory(b"bytes", all)], 5).unwrap(), "bytes");
        assert_eq!(sealed(vec![memory(b"", all)], 5).unwrap(), "");
        assert_eq!(sealed(vec![memory(b"bytes!", all)], 5).unwrap_err().message, too_many(5).message);
        assert!(sealed(Vec::new(), 5).is_err());
        for lacking in [SealFlags::WRITE, SealFlags::SHRINK, SealFlags::GROW] {
            assert!(sealed(vec![memory(b"x", all.difference(lacking))], 5).is_err());
        }
        let folder = File::open("/").unwrap();
        let (pipe, _writer) = std::io::pipe().unwrap();
        let file = tempfile::tempfile().unwrap();
        for other in [folder.into(), pipe.into(), file.into()] {
            assert_eq!(sealed(vec![other], 5).unwrap_err().message, refused(NOT_SEALED).message);
        }
    }

    #[test]
    fn what_one_side_seals_the_other_reads() {
        let handed = sealed_memory(b"bytes").unwrap();
        assert_eq!(sealed(vec![handed], 5).unwrap(), "bytes");
        assert_eq!(sealed(vec![sealed_memory(b"").unwrap()], 0).unwrap(), "");
    }

    #[test]
    fn refused_memory_texts() {
        assert_eq!(too_many(5).message, "the driver handed over more than 5 bytes");
        assert_eq!(refused(NOTHING).message, "the driver handed over no memory");
        assert_eq!(refused(NOT_SEALED).message, "the driver handed over something that is no sealed memory");
    }
}
