//! Images of libraries whose drivers run on threads of this process.
//!
//! A library keeps the state of its driver in its image, so an image runs one driver at a time. Where the same
//! library is needed a second time, as with changed settings while destinations are open, it is opened from another
//! private copy: another file is another image. Images are never unloaded; an image whose driver has ended is used
//! again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::error::{IMAGES_OF_ONE_MAX, LoadError};
use super::loader;

/// The images by the hash of their library, and whether each is in use.
#[derive(Default)]
pub(crate) struct Images {
    mapped: Mutex<BTreeMap<String, Vec<Arc<AtomicBool>>>>,
}

/// The use of one image. Drop it after the driver's last call.
pub(crate) struct Lease {
    path: PathBuf,
    at_work: Arc<AtomicBool>,
}

impl Images {
    /// An image without a running driver. `first` is the private copy of the library in `folder`; `bytes` and `hash`
    /// are the library's.
    pub(crate) fn lease(
        &self,
        folder: &Path,
        first: &Path,
        bytes: &[u8],
        hash: &str,
    ) -> Result<Lease, LoadError> {
        let mut mapped = self.mapped.lock();
        let images = mapped.entry(hash.to_owned()).or_default();
        let free = images.iter().position(|at_work| !at_work.load(Ordering::Acquire));
        let number = free.unwrap_or(images.len());
        if number >= IMAGES_OF_ONE_MAX {
            return Err(LoadError::Images);
        }
        let path = match number {
            0 => first.to_path_buf(),
            _ => loader::private_copy(folder, bytes, &format!("{hash}-{number}"))?,
        };
        if free.is_none() {
            images.push(Arc::default());
        }
        let at_work = images[number].clone();
        at_work.store(true, Ordering::Release);
        Ok(Lease { path, at_work })
    }

    /// Number of images, in use or not.
    pub(crate) fn count(&self) -> usize {
        self.mapped.lock().values().map(Vec::len).sum()
    }
}

impl Lease {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // A driver whose thread panicked was not shut down: its image is not used again.
        if !std::thread::panicking() {
            self.at_work.store(false, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn an_image_in_use_is_not_opened_again_and_an_ended_one_is() {
        let folder = tempfile::tempdir().unwrap();
        let first = loader::private_copy(folder.path(), b"library", "00").unwrap();
        let images = Images::default();
        let lease = || images.lease(folder.path(), &first, b"library", "00");
        let mut leases: Vec<Lease> = (0..IMAGES_OF_ONE_MAX).map(|_| lease().unwrap()).collect();
        assert_eq!(leases[0].path(), first);
        let paths: BTreeSet<PathBuf> = leases.iter().map(|lease| lease.path().to_path_buf()).collect();
        assert_eq!((paths.len(), images.count()), (IMAGES_OF_ONE_MAX, IMAGES_OF_ONE_MAX));
        assert!(paths.iter().all(|path| std::fs::read(path).unwrap() == b"library"));
        assert!(matches!(lease(), Err(LoadError::Images)));
        let ended = leases.swap_remove(3).path().to_path_buf();
        assert_eq!(lease().unwrap().path(), ended);
        assert_eq!(images.count(), IMAGES_OF_ONE_MAX);
        // Another library has its own images, and the next start removes all but the first.
        let other = loader::private_copy(folder.path(), b"other", "11").unwrap();
        assert_eq!(images.lease(folder.path(), &other, b"other", "11").unwrap().path(), other);
        loader::remove_old_copies(folder.path(), &BTreeSet::from(["00".to_owned()]));
        let left: Vec<_> =
            std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().path()).collect();
        assert_eq!(left.iter().map(|path| path.file_name().unwrap()).collect::<Vec<_>>(), ["00.so"]);
    }

    #[test]
    fn an_image_whose_driver_was_not_shut_down_stays_in_use() {
        let folder = tempfile::tempdir().unwrap();
        let first = loader::private_copy(folder.path(), b"library", "00").unwrap();
        let images = Images::default();
        let lease = images.lease(folder.path(), &first, b"library", "00").unwrap();
        let thread = std::thread::spawn(move || {
            let _at_work = lease;
            panic!("in a call");
        });
        assert!(thread.join().is_err());
        assert_ne!(images.lease(folder.path(), &first, b"library", "00").unwrap().path(), first);
    }

    #[test]
    fn load_errors_texts() {
        let path = PathBuf::from("/drivers/a.so");
        assert_eq!(
            LoadError::Owner { path: path.clone(), owner: 1001, user: 1000 }.to_string(),
            "/drivers/a.so belongs to user 1001 and not to root or the user of this service (1000), so user 1001 could put \
             code into the service; run: chown root /drivers/a.so"
        );
        let writable = LoadError::WritableByOthers { path, mode: 0o646 }.to_string();
        assert!(writable.contains("(mode 646)") && writable.contains("chmod go-w"), "{writable}");
        assert_eq!(LoadError::Open("no ELF".into()).to_string(), "cannot be opened: no ELF");
        assert_eq!(
            LoadError::Images.to_string(),
            "runs 8 times already, with earlier settings, for destinations that are open; wait until some of them have \
             ended, or restart the service when no stream is live"
        );
    }
}
