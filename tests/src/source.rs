//! The stream that the tests publish: made once, kept below the build output.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::flv;
use crate::record::Record;

/// Length of the source.
pub const SOURCE_SECONDS: u64 = 30;
/// Time from one keyframe of the source to the next.
pub const KEYFRAME_SECONDS: u64 = 2;

/// Noise makes the picture cost what a real one costs; without it the rate would be a tenth.
const ENCODING: &str = "-f lavfi -i testsrc2=size=1280x720:rate=30,noise=alls=12:allf=t \
    -f lavfi -i sine=frequency=440:sample_rate=48000 -t 30 \
    -c:v libx264 -preset ultrafast -bf 2 -pix_fmt yuv420p -b:v 3M -maxrate 3M -bufsize 3M -g 60 -sc_threshold 0 \
    -c:a aac -b:a 128k";

/// H.264 720p30 of about 3 Mbit/s with B-frames and AAC, and what ffmpeg's FLV writer makes of it.
#[derive(Debug)]
pub struct Source {
    path: PathBuf,
    records: Vec<Record>,
}

impl Source {
    /// The source, made by the first test that asks for it.
    ///
    /// # Panics
    /// When ffmpeg fails.
    #[must_use]
    pub fn shared() -> Self {
        let folder = scratch();
        let path = folder.join("source-v1.flv");
        let copied = folder.join("source-v1-copied.flv");
        // Tests run in several processes: one makes the files, the others wait for it.
        let lock = File::create(folder.join("source.lock")).expect("a lock for the source");
        lock.lock().expect("the source can be locked");
        if !path.exists() {
            make(&path, &ENCODING.split_whitespace().collect::<Vec<_>>());
        }
        if !copied.exists() {
            // What a publisher with `-c copy` sends: it writes with the same muxer.
            let input = path.to_str().expect("a path in UTF-8");
            make(&copied, &["-i", input, "-c", "copy"]);
        }
        let records = flv::read(&copied);
        assert!(records.len() > 2000, "the source has only {} packets", records.len());
        Self { path, records }
    }

    /// The file to publish.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Every packet that a publisher of this file sends.
    #[must_use]
    pub fn records(&self) -> &[Record] {
        &self.records
    }
}

/// A folder for files that outlive one test: below cargo's output, so that `cargo clean` removes it.
pub(crate) fn scratch() -> PathBuf {
    let folder = target_dir().join("e2e");
    std::fs::create_dir_all(&folder)
        .unwrap_or_else(|error| panic!("cannot make {}: {error}", folder.display()));
    folder
}

/// Cargo's output folder.
pub(crate) fn target_dir() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let target = root.join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()));
    std::fs::create_dir_all(&target).expect("cargo's output folder");
    target.canonicalize().expect("cargo's output folder has a path")
}

fn make(path: &Path, arguments: &[&str]) {
    let temporary = path.with_extension("part");
    let mut ffmpeg = Command::new("ffmpeg");
    ffmpeg.args(["-nostdin", "-hide_banner", "-loglevel", "error", "-y"]).args(arguments).args(["-f", "flv"]);
    let output =
        ffmpeg.arg(&temporary).output().expect("ffmpeg can be started (cargo xtask setup installs it)");
    assert!(
        output.status.success(),
        "ffmpeg could not make the source: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    std::fs::rename(&temporary, path).expect("the source gets its name");
}
