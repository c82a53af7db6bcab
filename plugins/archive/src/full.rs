//! Why recording stops: the local disk, the quota, the journal, or an encoder that begins too many files.

use std::io;
use std::path::Path;
use std::time::Duration;

use satcast_plugin_api::Error;

use crate::disk::free_bytes;
use crate::limits::FULL_RETRY;

/// Local copies use the whole quota: see [`stopped`].
pub(crate) const SPOOL_FULL: &str = "recordings that wait for upload use all of their disk quota (spoolQuotaBytes), of which \
     one account may use three quarters at most";
/// The journal is full: see [`stopped`].
pub(crate) const TOO_MANY: &str =
    "there are too many recordings; delete some that have failed or are not needed";

/// Fails when the disk of a folder cannot hold `more` bytes and `free_min`, the reserve (0 = none).
///
/// # Errors
/// `StorageFull`, or the system cannot tell.
pub(crate) fn check_disk(folder: &Path, free_min: u64, more: u64) -> io::Result<()> {
    // Without a reserve the write itself fails on a full disk; some systems report no free bytes at all.
    if free_min > 0 && free_bytes(folder)? < free_min.saturating_add(more) {
        return Err(too_little_free());
    }
    Ok(())
}

pub(crate) fn too_little_free() -> io::Error {
    io::Error::new(io::ErrorKind::StorageFull, "the disk has less free space than freeBytesMin requires")
}

/// The encoder began `most` files within a minute; the next one may begin in `left`.
pub(crate) fn too_often(most: usize, left: Duration) -> Error {
    Error::remote(format!(
        "recording stopped: the encoder changed its configuration so often that {most} files began within a minute; check it. \
         What was recorded will be uploaded, and recording starts again in {} s",
        left.as_secs()
    ))
    .retry_after(left)
}

/// Recording stops because of `why`, and starts again later.
pub(crate) fn stopped(why: &str) -> Error {
    let text = format!(
        "recording stopped: {why}. What was recorded will be uploaded; recording starts again when there is space"
    );
    Error::internal(text).retry_after(FULL_RETRY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stops_texts() {
        let spool = "recordings that wait for upload use all of their disk quota (spoolQuotaBytes), of which one \
                     account may use three quarters at most";
        let many = "there are too many recordings; delete some that have failed or are not needed";
        let free = too_little_free().to_string();
        let free = (free.as_str(), "the disk has less free space than freeBytesMin requires");
        for (why, text) in [(SPOOL_FULL, spool), (TOO_MANY, many), free] {
            let text = format!(
                "recording stopped: {text}. What was recorded will be uploaded; recording starts again when there is space"
            );
            assert_eq!(stopped(why), Error::internal(text).retry_after(FULL_RETRY));
        }
        let text = "recording stopped: the encoder changed its configuration so often that 3 files began within a \
                    minute; check it. What was recorded will be uploaded, and recording starts again in 9 s";
        let left = Duration::from_millis(9400);
        assert_eq!(too_often(3, left), Error::remote(text).retry_after(left));
    }
}
