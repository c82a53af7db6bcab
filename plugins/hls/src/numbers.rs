//! Media sequence numbers that never fall for one address, over sessions and restarts: a falling number freezes
//! players.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// File that holds the highest number used, as decimal text.
pub(crate) const LAST_FILE: &str = "last-sequence";
/// Largest number: players store it as a double.
pub(crate) const SEQUENCE_MAX: u64 = (1 << 53) - 1;
/// Longest text of a number in bytes; a longer file was not written by this driver.
const NUMBER_BYTES_MAX: usize = 32;

/// Numbers of one driver.
#[derive(Debug)]
pub(crate) struct Numbers {
    last: AtomicU64,
    folder: PathBuf,
    saving: Mutex<()>,
}

impl Numbers {
    /// Numbers above `floor`; `folder` stores the last one.
    pub(crate) fn new(floor: u64, folder: PathBuf) -> Self {
        Numbers { last: AtomicU64::new(floor), folder, saving: Mutex::new(()) }
    }

    /// First number of an opening at the Unix time `now_secs`. It is higher than every number used, and no other
    /// opening gets it.
    pub(crate) fn first(&self, now_secs: u64) -> u64 {
        let next = |last: u64| now_secs.max(last.saturating_add(1));
        let before = self.last.fetch_update(Ordering::AcqRel, Ordering::Acquire, |last| Some(next(last)));
        next(before.unwrap_or_else(|last| last))
    }

    /// Marks a number as used by a segment.
    pub(crate) fn used(&self, sequence: u64) {
        self.last.fetch_max(sequence, Ordering::AcqRel);
    }

    /// Writes the highest number to its file. Blocks.
    pub(crate) fn save(&self) -> std::io::Result<()> {
        let _one = self.saving.lock();
        crate::folder::make(&self.folder)?;
        let temporary = self.folder.join(format!("{LAST_FILE}.tmp"));
        std::fs::write(&temporary, self.last.load(Ordering::Acquire).to_string())?;
        std::fs::rename(&temporary, self.folder.join(LAST_FILE))
    }
}

/// Parses a number; `None` if it could not have been used.
pub(crate) fn parse(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok().filter(|text| text.len() <= NUMBER_BYTES_MAX)?;
    text.trim_ascii().parse().ok().filter(|number| *number < SEQUENCE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_above_the_clock_the_floor_and_all_others() {
        let numbers = Numbers::new(50, PathBuf::new());
        assert_eq!(numbers.first(100), 100);
        assert_eq!(numbers.first(100), 101, "two openings in one second");
        numbers.used(180);
        numbers.used(120);
        assert_eq!(numbers.first(102), 181);
        assert_eq!(numbers.first(500), 500);
        assert_eq!(Numbers::new(900, PathBuf::new()).first(100), 901, "the clock was set back");
    }

    #[test]
    fn the_last_number_is_saved_whole() {
        let folder = tempfile::tempdir().unwrap();
        let numbers = Numbers::new(7, folder.path().join("dvr"));
        numbers.used(1_760_000_123);
        numbers.save().unwrap();
        let text = std::fs::read(folder.path().join("dvr").join(LAST_FILE)).unwrap();
        assert_eq!(parse(&text), Some(1_760_000_123));
        assert_eq!(std::fs::read_dir(folder.path().join("dvr")).unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    fn invalid_numbers_are_rejected() {
        for bad in ["", "x", "-1", "18446744073709551615", "9007199254740991", "1 2", &"0".repeat(33)] {
            assert_eq!(parse(bad.as_bytes()), None, "{bad}");
        }
        assert_eq!(parse(b"\xff"), None);
        assert_eq!(parse(b"12\n"), Some(12));
    }
}
