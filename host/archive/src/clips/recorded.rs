//! The media of a clip in a recording: the index of its driver says where it is, and it is copied to the disk of the service
//! before it is cut, from the local copy or the store.

use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use satcast_media::fmp4::{CLIP_BYTES_MAX, INIT_BYTES_MAX};
use satcast_plugin_api::recording::{Fragment, INDEX_FRAGMENTS_MAX, READ_RANGE_BYTES_MAX, RecordingIndex};
use satcast_plugin_api::{Class, Error};
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use super::file::{Media, Source, not_written, unnamed};
use satcast_drivers::{Drivers, RecordingsError};

/// Longest time for a copy, that of the longest clip: a store that is slower than the stream makes no clip.
const COPY_LIMIT: Duration = Duration::from_secs(600);
/// Tries to read a range or a page of the index after faults of the service or refused keys. After faults of the network and of
/// the store, and where the driver is not loaded or gives no answer, there are tries while the copy may take.
const READ_TRIES_MAX: u32 = 4;
/// Wait before the second try, which doubles from try to try, and the longest one.
const READ_PAUSE_MIN: Duration = Duration::from_millis(500);
const READ_PAUSE_MAX: Duration = Duration::from_secs(30);
/// How far before the range a keyframe is searched, in microseconds.
const BEFORE_US: u64 = 60_000_000;
/// Media around the wanted one that is copied too, in microseconds: audio and video of a moment are in different fragments.
const AROUND_US: u64 = 2_000_000;
/// Most fragments of the media of a clip.
const FRAGMENTS_MAX: usize = 100_000;
/// Most pages of an index that are read for one clip.
const PAGES_MAX: usize = 200;
const US_PER_MILLI: i64 = 1_000;

/// A recording that a clip is cut from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RecordedMedia {
    pub(super) driver: String,
    pub(super) file_name: String,
    /// Time of its first media, in milliseconds since 1970.
    pub(super) started_ms: i64,
}

/// Where the media of a range is in a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    init_bytes: u32,
    offset: u64,
    bytes: u64,
}

impl RecordedMedia {
    /// Copies the media of a range, in milliseconds since 1970, and some before it for a keyframe. `path` is free.
    ///
    /// # Errors
    /// `Config` if the recording is gone or has no media there; `Internal` for the disk; those of the driver.
    pub(super) async fn copy(
        &self,
        drivers: &Drivers,
        range: (i64, i64),
        path: PathBuf,
    ) -> Result<Source, Error> {
        let drivers = Reads { drivers, until: Instant::now() + COPY_LIMIT };
        let copied = tokio::time::timeout(COPY_LIMIT, self.copy_now(&drivers, range, path)).await;
        copied.unwrap_or_else(|_| {
            Err(Error::network(format!(
                "the recording was not read within {} s; its store may be slow",
                COPY_LIMIT.as_secs()
            )))
        })
    }

    async fn copy_now(
        &self,
        drivers: &Reads<'_>,
        (from_ms, to_ms): (i64, i64),
        path: PathBuf,
    ) -> Result<Source, Error> {
        let Place { init_bytes, offset, bytes } =
            self.find(drivers, self.micros(from_ms), self.micros(to_ms)).await?;
        let mut init = BytesMut::new();
        while init.len() < init_bytes as usize {
            let left = init_bytes - init.len() as u32;
            init.extend(self.read(drivers, init.len() as u64, left.min(READ_RANGE_BYTES_MAX)).await?);
        }
        let mut file = blocking(move || unnamed(&path, bytes)).await?;
        let mut at = 0;
        while at < bytes {
            let len = u32::try_from(bytes - at).unwrap_or(u32::MAX).min(READ_RANGE_BYTES_MAX);
            let block = self.read(drivers, offset.saturating_add(at), len).await?;
            file = blocking(move || file.write_all_at(&block, at).map(|()| file)).await?;
            at += u64::from(len);
        }
        Ok(Source {
            init: Media::Memory(init.freeze()),
            segments: vec![Media::File { file, offset: 0, len: bytes }],
            // Decode times of a recording begin at 0.
            at_ms: self.started_ms,
            at_ns: Some(0),
        })
    }

    /// A time in microseconds from the start of the recording.
    fn micros(&self, at_ms: i64) -> u64 {
        let from_start = at_ms.saturating_sub(self.started_ms).saturating_mul(US_PER_MILLI);
        u64::try_from(from_start).unwrap_or(0)
    }

    /// Finds the fragments of a range in microseconds from the start of the recording.
    async fn find(&self, drivers: &Reads<'_>, from_us: u64, to_us: u64) -> Result<Place, Error> {
        let until_us = to_us.saturating_add(AROUND_US);
        let mut page = self.page_before(drivers, from_us.saturating_sub(BEFORE_US)).await?;
        let mut found: Vec<Fragment> = Vec::new();
        for _ in 0..PAGES_MAX {
            let next = page.first.saturating_add(page.fragments.len() as u64);
            found.extend(page.fragments.iter().filter(|fragment| fragment.start_us < until_us));
            if found.len() > FRAGMENTS_MAX {
                return Err(Error::config("the recording has too many fragments; choose a shorter range"));
            }
            let is_over = page.fragments.last().is_none_or(|last| last.end_us() >= until_us);
            if is_over || next >= page.count {
                return place(page.init_bytes, &found, from_us, to_us);
            }
            page = self.index(drivers, next).await?;
        }
        Err(Error::internal("the index of the recording does not end"))
    }

    /// The last page of the index that begins at or before a time, in microseconds from the start of the recording.
    async fn page_before(&self, drivers: &Reads<'_>, at_us: u64) -> Result<RecordingIndex, Error> {
        let fragments_max = u64::from(INDEX_FRAGMENTS_MAX);
        let mut page = self.index(drivers, 0).await?;
        let (mut low, mut high) = (0, page.count.div_ceil(fragments_max));
        while low + 1 < high {
            let middle = low + (high - low) / 2;
            let next = self.index(drivers, middle.saturating_mul(fragments_max)).await?;
            if next.fragments.first().is_some_and(|first| first.start_us <= at_us) {
                (low, page) = (middle, next);
            } else {
                high = middle;
            }
        }
        Ok(page)
    }

    async fn index(&self, drivers: &Reads<'_>, first: u64) -> Result<RecordingIndex, Error> {
        let mut tries = Tries::until(drivers.until);
        loop {
            match drivers.drivers.index_recording(&self.driver, &self.file_name, first).await {
                Ok(page) => return Ok(page),
                Err(error) => tries.wait(error).await?,
            }
        }
    }

    async fn read(&self, drivers: &Reads<'_>, offset: u64, len: u32) -> Result<Bytes, Error> {
        let mut tries = Tries::until(drivers.until);
        loop {
            match drivers.drivers.read_recording(&self.driver, &self.file_name, offset, len).await {
                Ok(bytes) => return Ok(bytes),
                Err(error) => tries.wait(error).await?,
            }
        }
    }
}

/// The fragments from the last keyframe at or before `from_us` on, or from the first one after it, with those around them.
fn place(init_bytes: u64, found: &[Fragment], from_us: u64, to_us: u64) -> Result<Place, Error> {
    let nothing = || Error::config("the recording has no media of this range; choose another range");
    let early = found.iter().rfind(|fragment| fragment.is_keyframe && fragment.start_us <= from_us);
    let start = early.or_else(|| found.iter().find(|fragment| fragment.is_keyframe)).ok_or_else(nothing)?;
    let last = found.last().ok_or_else(nothing)?;
    if start.start_us >= to_us || last.end_us() <= from_us {
        return Err(nothing());
    }
    let begin_us = start.start_us.saturating_sub(AROUND_US);
    let first = found.iter().find(|fragment| fragment.end_us() > begin_us).ok_or_else(nothing)?;
    let bytes = last.end().saturating_sub(first.offset);
    if bytes > CLIP_BYTES_MAX {
        return Err(Error::config("the clip is over the limit of bytes; choose a shorter range"));
    }
    let init_bytes = u32::try_from(init_bytes).ok().filter(|bytes| *bytes as usize <= INIT_BYTES_MAX);
    let init_bytes = init_bytes.ok_or_else(|| Error::internal("the start of the recording is too long"))?;
    Ok(Place { init_bytes, offset: first.offset, bytes })
}

/// Reads for one copy, and when it must be over.
struct Reads<'a> {
    drivers: &'a Drivers,
    until: Instant,
}

/// Failed tries of one request to a driver.
struct Tries {
    failed: u32,
    pause: Duration,
    until: Instant,
}

impl Tries {
    fn until(until: Instant) -> Self {
        Self { failed: 0, pause: READ_PAUSE_MIN, until }
    }

    /// Waits before the next try.
    ///
    /// # Errors
    /// The error of the request, after the last try and for a recording that is gone.
    async fn wait(&mut self, error: RecordingsError) -> Result<(), Error> {
        let error = match error {
            RecordingsError::Refused(error) => error,
            // A driver that is reloaded, or that a slow machine or store holds up, answers again.
            RecordingsError::Unavailable(why) => Error::network(why),
        };
        self.failed += 1;
        let goes_on = match error.class {
            Class::Config => false,
            Class::Network | Class::Remote => true,
            Class::Auth | Class::Panic | Class::Internal => self.failed < READ_TRIES_MAX,
        };
        if !goes_on || Instant::now() + self.pause >= self.until {
            return Err(error);
        }
        tokio::time::sleep(self.pause).await;
        self.pause = (2 * self.pause).min(READ_PAUSE_MAX);
        Ok(())
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> Result<T, Error> {
    let done = spawn_blocking(work).await;
    let done = done.map_err(|_| Error::internal("the copy of a recording was interrupted"))?;
    done.map_err(|error| not_written(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fragments of a second and of ten bytes, after an initialization segment of 700.
    fn fragments(keyframes: &str) -> Vec<Fragment> {
        let fragment = |(number, mark): (usize, char)| Fragment {
            offset: 700 + 10 * number as u64,
            bytes: 10,
            start_us: 1_000_000 * number as u64,
            duration_us: 1_000_000,
            is_keyframe: mark == 'k',
        };
        keyframes.chars().enumerate().map(fragment).collect()
    }

    #[test]
    fn a_range_has_its_fragments_from_the_keyframe_before_it_and_some_around() {
        let table = [
            ("kkkkkkkk", (4_500_000, 6_000_000), Some((2, 8))),
            ("k---k---", (6_500_000, 7_000_000), Some((2, 8))),
            ("k---k---", (3_999_999, 4_500_000), Some((0, 8))),
            ("--k-----", (0, 4_000_000), Some((0, 8))),
            ("kkkkkkkk", (0, 1), Some((0, 8))),
            // No keyframe before its end, nothing at all, behind the end.
            ("-----k--", (0, 4_000_000), None),
            ("--------", (0, 4_000_000), None),
            ("", (0, 4_000_000), None),
            ("kkkk", (4_000_000, 5_000_000), None),
        ];
        for (keyframes, (from, to), expected) in table {
            let found = fragments(keyframes);
            let place = place(700, &found, from, to).ok();
            let expected = expected.map(|(first, end): (u64, u64)| Place {
                init_bytes: 700,
                offset: 700 + 10 * first,
                bytes: 10 * (end - first),
            });
            assert_eq!(place, expected, "{keyframes} {from} to {to}");
        }
    }

    #[test]
    fn a_range_is_limited_in_bytes() {
        let mut large = fragments("kk");
        large[1].bytes = u32::MAX;
        assert_eq!(place(700, &large, 0, 5).unwrap_err().class, Class::Config);
        let small = fragments("kk");
        let init = INIT_BYTES_MAX as u64;
        assert!(place(init, &small, 0, 5).is_ok());
        assert_eq!(place(init + 1, &small, 0, 5).unwrap_err().class, Class::Internal);
    }

    /// Tries of a request that always fails in this way, and the seconds until it was given up.
    async fn tries(error: RecordingsError) -> (u32, u64) {
        let begin = Instant::now();
        let mut tries = Tries::until(begin + COPY_LIMIT);
        while tries.wait(error.clone()).await.is_ok() {}
        (tries.failed, begin.elapsed().as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn faults_of_the_store_are_tried_again_while_the_copy_may_take() {
        for error in [
            RecordingsError::Refused(Error::network("no route")),
            RecordingsError::Refused(Error::remote("503")),
            RecordingsError::Unavailable("not loaded".into()),
        ] {
            let (failed, secs) = tries(error).await;
            assert!((20..30).contains(&failed), "{failed}");
            assert!(
                (COPY_LIMIT - READ_PAUSE_MAX..=COPY_LIMIT).contains(&Duration::from_secs(secs)),
                "{secs}"
            );
        }
        for (error, expected) in [
            (RecordingsError::Refused(Error::config("gone")), 1),
            (RecordingsError::Refused(Error::new(Class::Auth, "403")), READ_TRIES_MAX),
        ] {
            assert_eq!(tries(error).await.0, expected);
        }
    }
}
