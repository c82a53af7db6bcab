//! Requests of viewers that a driver answers itself; [`super::routes`] passes them on.
//!
//! A request waits here and not in the driver: a request that is answered late, twice or never costs the viewer an
//! error and nothing else.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rustix::fs::{FileType, OFlags};
use satcast_plugin_api::{Asset, AssetBody, Audience, HttpResponse};
use tokio::sync::oneshot;

use crate::published::{Answer, Published, placed};

/// Requests of one driver that wait for their answers.
#[derive(Default)]
pub(crate) struct PendingRequests {
    by_token: Mutex<HashMap<u64, PendingRequest>>,
    next_token: AtomicU64,
}

struct PendingRequest {
    dest: u64,
    answer: oneshot::Sender<Option<HttpResponse>>,
}

impl PendingRequests {
    pub(super) fn begin(&self, dest: u64) -> (u64, oneshot::Receiver<Option<HttpResponse>>) {
        let token = self.next_token.fetch_add(1, Ordering::Relaxed) + 1;
        let (answer, answered) = oneshot::channel();
        self.by_token.lock().insert(token, PendingRequest { dest, answer });
        (token, answered)
    }

    pub(super) fn is_waiting(&self, token: u64) -> bool {
        self.by_token.lock().contains_key(&token)
    }

    pub(super) fn forget(&self, token: u64) {
        self.by_token.lock().remove(&token);
    }

    /// Passes an answer on, `None` for an invalid one; false when no viewer waits for it.
    pub(crate) fn answer(&self, token: u64, response: Option<HttpResponse>) -> bool {
        let Some(waits) = self.by_token.lock().remove(&token) else { return false };
        // Dropped outside the lock when the viewer has gone: that runs driver code.
        waits.answer.send(response).is_ok()
    }

    /// The opening has ended: all its waiting requests fail.
    pub(crate) fn end(&self, dest: u64) {
        self.by_token.lock().retain(|_, waits| waits.dest != dest);
    }
}

/// A checked answer, with files below `folder`.
pub(crate) fn accepted(response: HttpResponse, folder: &Path) -> Result<Answer, String> {
    response.check().map_err(|error| error.message)?;
    let HttpResponse { status, content_type, max_age_secs, headers, body } = response;
    if let AssetBody::Open { file, offset, len } = &body {
        let file = file.as_ref().ok_or_else(|| "its file is missing".to_owned())?;
        check_readable(file, offset.saturating_add(*len))?;
    }
    let asset = Asset::new("", content_type, Audience::Both, placed(body, folder)).max_age(max_age_secs);
    Ok(Answer { status, headers, asset: Arc::new(Published::uncounted(asset)) })
}

const NOT_READABLE: &str = "its file is not open for reading";

/// Whether the file can be read without blocking, and has these bytes.
fn check_readable(file: &File, end: u64) -> Result<(), String> {
    let stat = rustix::fs::fstat(file).map_err(|error| format!("its file cannot be looked at: {error}"))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err("its descriptor is no regular file".into());
    }
    let flags = rustix::fs::fcntl_getfl(file.as_fd()).map_err(|error| error.to_string())?;
    if flags.intersects(OFlags::PATH) || flags & OFlags::RWMODE == OFlags::WRONLY {
        return Err(NOT_READABLE.into());
    }
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    if size < end {
        return Err(format!("its file has {size} bytes, and it wants to send up to {end}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;

    use super::*;

    fn response(file: impl Into<std::os::fd::OwnedFd>, offset: u64, len: u64) -> HttpResponse {
        HttpResponse {
            status: 200,
            content_type: "text/plain".into(),
            max_age_secs: 0,
            headers: Vec::new(),
            body: AssetBody::Open { file: Some(Arc::new(file.into().into())), offset, len },
        }
    }

    fn refused(response: HttpResponse) -> String {
        accepted(response, Path::new("/data")).unwrap_err()
    }

    #[test]
    fn only_regular_files_with_enough_bytes_are_sent() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        std::fs::write(&path, "0123456789").unwrap();
        let file = || File::open(&path).unwrap();
        assert!(accepted(response(file(), 3, 7), Path::new("/data")).is_ok());
        assert!(refused(response(file(), 3, 8)).contains("has 10 bytes"));
        let endless = || response(file(), u64::MAX, 1);
        assert_eq!(refused(endless()), endless().check().unwrap_err().message);
        assert!(refused(response(File::open(folder.path()).unwrap(), 0, 0)).contains("regular"));
        assert!(refused(response(File::open("/dev/zero").unwrap(), 0, 1)).contains("regular"));
        assert!(refused(response(std::io::pipe().unwrap().0, 0, 1)).contains("regular"));
        let write_only = OpenOptions::new().write(true).open(&path).unwrap();
        assert_eq!(refused(response(write_only, 0, 1)), NOT_READABLE);
    }

    #[test]
    fn a_file_that_cannot_be_read_text() {
        assert_eq!(NOT_READABLE, "its file is not open for reading");
    }

    #[test]
    fn an_answer_is_accepted_once_and_only_for_a_waiting_viewer() {
        let waiting = PendingRequests::default();
        let (first, mut answered) = waiting.begin(7);
        let (second, mut other) = waiting.begin(8);
        assert!(!waiting.answer(second + 1, None), "an unknown token");
        let file = tempfile::tempfile().unwrap();
        assert!(waiting.answer(first, Some(response(file, 0, 0))));
        assert!(!waiting.answer(first, None), "twice");
        assert!(answered.try_recv().unwrap().is_some());
        waiting.end(8);
        assert!(!waiting.answer(second, None), "after the end");
        assert!(other.try_recv().is_err());
        let (third, gone) = waiting.begin(9);
        drop(gone);
        assert!(!waiting.answer(third, None), "the viewer has gone");
        assert!(waiting.by_token.lock().is_empty());
    }
}
