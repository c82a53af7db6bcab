//! Removes files on its own thread at a bounded rate: the end of an hour-long window must not block the disk for
//! others.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

/// Files removed in one go.
const BURST_FILES: u32 = 64;
/// Pause after each burst: at most about 1000 files a second.
const BURST_PAUSE: Duration = Duration::from_millis(64);
/// Depth of the folders that an opening or a boot makes.
const DEPTH_MAX: u32 = 4;

/// Accepts orders from any thread and never blocks. At most one order is queued for every file that exists.
#[derive(Debug, Clone)]
pub(crate) struct Janitor {
    orders: Sender<Order>,
    /// Bytes of files that are queued for removal.
    going: Arc<AtomicU64>,
}

#[derive(Debug)]
enum Order {
    File(PathBuf, u64),
    Folder(PathBuf),
}

impl Janitor {
    /// Starts the thread, which ends when the last handle is dropped.
    pub(crate) fn start() -> io::Result<Self> {
        let (orders, queue) = mpsc::channel();
        let going = Arc::new(AtomicU64::new(0));
        let counted = going.clone();
        std::thread::Builder::new().name("hls-janitor".to_owned()).spawn(move || work(&queue, &counted))?;
        Ok(Janitor { orders, going })
    }

    /// Queues a file of `bytes` bytes for removal.
    pub(crate) fn remove_file(&self, path: PathBuf, bytes: u64) {
        self.going.fetch_add(bytes, Ordering::AcqRel);
        // Without the thread the file stays until the next start removes it.
        if self.orders.send(Order::File(path, bytes)).is_err() {
            self.going.fetch_sub(bytes, Ordering::AcqRel);
        }
    }

    /// Bytes of files that are queued and still exist.
    pub(crate) fn going_bytes(&self) -> u64 {
        self.going.load(Ordering::Acquire)
    }

    /// Queues a folder and its content for removal.
    pub(crate) fn remove_folder(&self, path: PathBuf) {
        let _ = self.orders.send(Order::Folder(path));
    }
}

fn work(queue: &Receiver<Order>, going: &AtomicU64) {
    let mut pace = Pace::default();
    for order in queue {
        let (path, removed) = match &order {
            Order::File(path, bytes) => {
                pace.step();
                let removed = std::fs::remove_file(path);
                going.fetch_sub(*bytes, Ordering::AcqRel);
                (path, removed)
            }
            Order::Folder(path) => (path, remove_tree(path, &mut pace)),
        };
        log_failure(path, removed);
    }
}

fn log_failure(path: &Path, removed: io::Result<()>) {
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(%error, path = %path.display(), "cannot remove a file or folder; the next start tries again");
        }
        _ => {}
    }
}

/// Deletes folders in the background.
pub(crate) fn sweep(trash: Vec<PathBuf>) -> io::Result<()> {
    if trash.is_empty() {
        return Ok(());
    }
    let work = move || {
        let mut pace = Pace::default();
        for path in trash {
            log_failure(&path, remove_tree(&path, &mut pace));
        }
    };
    std::thread::Builder::new().name("hls-sweep".to_owned()).spawn(work).map(drop)
}

/// Removes a folder within `wait`; the rest stays.
pub(crate) fn remove_within(path: &Path, wait: Duration) -> io::Result<()> {
    remove_tree(path, &mut Pace { until: Some(Instant::now() + wait), ..Pace::default() })
}

fn remove_tree(path: &Path, pace: &mut Pace) -> io::Result<()> {
    remove_below(path, DEPTH_MAX, pace)
}

/// Removes a folder and its content. Links are removed, not followed. An entry that disappears meanwhile is no error.
fn remove_below(path: &Path, depth: u32, pace: &mut Pace) -> io::Result<()> {
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        if !entry.file_type()?.is_dir() {
            if !pace.step() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            unless_gone(std::fs::remove_file(entry.path()))?;
        } else if depth > 0 {
            unless_gone(remove_below(&entry.path(), depth - 1, pace))?;
        } else {
            return Err(io::Error::other("the folder is nested deeper than this driver makes folders"));
        }
    }
    std::fs::remove_dir(path)
}

fn unless_gone(removed: io::Result<()>) -> io::Result<()> {
    removed.or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
}

/// Counts removals and pauses between bursts; with an end it does not pause.
#[derive(Debug, Default)]
struct Pace {
    done: u32,
    until: Option<Instant>,
}

impl Pace {
    /// Called before a removal; false when time is up.
    fn step(&mut self) -> bool {
        if let Some(until) = self.until {
            return Instant::now() < until;
        }
        self.done += 1;
        if self.done == BURST_FILES {
            self.done = 0;
            std::thread::sleep(BURST_PAUSE);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(folder: &Path, files: u32) {
        crate::folder::make(folder).unwrap();
        for number in 0..files {
            std::fs::write(folder.join(format!("{number}.m4s")), b"x").unwrap();
        }
    }

    fn wait_until_gone(path: &Path) {
        let end = Instant::now() + Duration::from_secs(20);
        while path.exists() {
            assert!(Instant::now() < end, "{} is still there", path.display());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn files_are_removed_and_then_their_folder() {
        let folder = tempfile::tempdir().unwrap();
        let opening = folder.path().join("100");
        fill(&opening, 3);
        let janitor = Janitor::start().unwrap();
        janitor.remove_file(opening.join("1.m4s"), 1);
        wait_until_gone(&opening.join("1.m4s"));
        assert!(opening.join("0.m4s").exists());
        janitor.remove_file(opening.join("missing"), 7);
        janitor.remove_folder(opening.clone());
        wait_until_gone(&opening);
        assert_eq!(janitor.going_bytes(), 0);
    }

    #[test]
    fn queued_bytes_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        fill(folder.path(), 1);
        let (orders, queue) = mpsc::channel();
        let going = Arc::new(AtomicU64::new(0));
        let janitor = Janitor { orders, going: going.clone() };
        janitor.remove_file(folder.path().join("0.m4s"), 1000);
        janitor.remove_file(folder.path().join("missing"), 7);
        assert_eq!(janitor.going_bytes(), 1007);
        drop(janitor);
        work(&queue, &going);
        assert_eq!(going.load(Ordering::Acquire), 0);
        assert!(!folder.path().join("0.m4s").exists());
        let (orders, _) = mpsc::channel();
        let alone = Janitor { orders, going };
        alone.remove_file(folder.path().join("1.m4s"), 1000);
        assert_eq!(alone.going_bytes(), 0, "without a thread nothing is on its way");
    }

    #[test]
    fn removals_are_paced() {
        let folder = tempfile::tempdir().unwrap();
        let boot = folder.path().join("trash-1");
        fill(&boot.join("100"), BURST_FILES * 3);
        let start = Instant::now();
        sweep(vec![boot.clone()]).unwrap();
        wait_until_gone(&boot);
        assert!(start.elapsed() >= BURST_PAUSE * 3, "{:?}", start.elapsed());
    }

    #[test]
    fn links_are_not_followed_and_depth_is_bounded() {
        let folder = tempfile::tempdir().unwrap();
        fill(&folder.path().join("outside"), 1);
        let boot = folder.path().join("boot");
        fill(&boot, 1);
        std::os::unix::fs::symlink(folder.path().join("outside"), boot.join("link")).unwrap();
        remove_within(&boot, Duration::from_secs(10)).unwrap();
        assert!(!boot.exists() && folder.path().join("outside/0.m4s").exists());
        fill(&boot.join("1/2/3/4/5"), 1);
        assert!(remove_within(&boot, Duration::from_secs(10)).is_err());
        fill(&boot.join("late"), 1);
        let late = remove_within(&boot.join("late"), Duration::ZERO).unwrap_err();
        assert_eq!(late.kind(), io::ErrorKind::TimedOut);
    }
}
