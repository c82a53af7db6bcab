//! Why recording stops: the local disk, the quota, the journal, or an encoder that begins too many files.

use std::io;
use std::path::Path;
use std::time::Duration;

use satcast_plugin_api::Error;

use crate::disk::free_bytes;
use crate::limits::FULL_RETRY;

/// Local copies take all the room they may: see [`stopped`].
pub(crate) const SPOOL_FULL: &str = "recordings that wait for their store take all the room they may (spoolQuotaBytes), of which one account has three \
     quarters at most";
/// The journal has no place for another recording: see [`stopped`].
pub(crate) const TOO_MANY: &str =
    "there are too many recordings; delete some that have failed or are not needed";

/// Fails when the disk of a folder has not `more` bytes and `free_min`, which must stay free, if anything must.
///
/// # Errors
/// `StorageFull`, or the system cannot tell.
pub(crate) fn check_disk(folder: &Path, free_min: u64, more: u64) -> io::Result<()> {
    // Where nothing must stay free, the disk itself says when it is full; some tell of no free bytes at all.
    if free_min > 0 && free_bytes(folder)? < free_min.saturating_add(more) {
        return Err(too_little_free());
    }
    Ok(())
}

/// The disk has not what must stay free.
pub(crate) fn too_little_free() -> io::Error {
    io::Error::new(io::ErrorKind::StorageFull, "less is free than must stay free (freeBytesMin)")
}

/// The encoder began `most` files within a minute; it may begin another one in `left`.
pub(crate) fn too_often(most: usize, left: Duration) -> Error {
    Error::remote(format!(
        "recording stopped: the encoder changed its configuration so often that {most} files began within a minute; check it. \
         What was recorded will be uploaded, and recording begins anew in {} s",
        left.as_secs()
    ))
    .retry_after(left)
}

/// Recording stops because of `why`, and begins anew later.
pub(crate) fn stopped(why: &str) -> Error {
    let text = format!(
        "recording stopped: {why}. What was recorded will be uploaded; recording begins anew when there is room"
    );
    Error::internal(text).retry_after(FULL_RETRY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stops_texts() {
        let spool = "recordings that wait for their store take all the room they may (spoolQuotaBytes), of which one \
                     account has three quarters at most";
        let many = "there are too many recordings; delete some that have failed or are not needed";
        let free = too_little_free().to_string();
        let free = (free.as_str(), "less is free than must stay free (freeBytesMin)");
        for (why, text) in [(SPOOL_FULL, spool), (TOO_MANY, many), free] {
            let text = format!(
                "recording stopped: {text}. What was recorded will be uploaded; recording begins anew when there is room"
            );
            assert_eq!(stopped(why), Error::internal(text).retry_after(FULL_RETRY));
        }
        let text = "recording stopped: the encoder changed its configuration so often that 3 files began within a \
                    minute; check it. What was recorded will be uploaded, and recording begins anew in 9 s";
        let left = Duration::from_millis(9400);
        assert_eq!(too_often(3, left), Error::remote(text).retry_after(left));
    }
}
