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

/// A source: its name among the files, and how ffmpeg makes it.
#[derive(Clone, Copy, Debug)]
pub struct Recipe {
    name: &'static str,
    encoding: &'static str,
}

impl Recipe {
    /// H.264 720p30 of about 3 Mbit/s with B-frames and AAC. Noise makes it as expensive as a real video;
    /// without it the rate would be a tenth.
    pub const SHARED: Self = Self {
        name: "source-v1",
        encoding: "-f lavfi -i testsrc2=size=1280x720:rate=30,noise=alls=12:allf=t \
            -f lavfi -i sine=frequency=440:sample_rate=48000 -t 30 \
            -c:v libx264 -preset ultrafast -bf 2 -pix_fmt yuv420p -b:v 3M -maxrate 3M -bufsize 3M -g 60 -sc_threshold 0 \
            -c:a aac -b:a 128k",
    };
    /// Four seconds that match [`Self::SHARED`] and show something else.
    pub const SLATE: Self = Self {
        name: "slate-v1",
        encoding: "-f lavfi -i smptebars=size=1280x720:rate=30,noise=alls=12:allf=t \
            -f lavfi -i sine=frequency=220:sample_rate=48000 -t 4 \
            -c:v libx264 -preset ultrafast -bf 2 -pix_fmt yuv420p -b:v 1M -g 30 -sc_threshold 0 -c:a aac -b:a 64k",
    };
    /// 270p30 with B-frames, which a browser decodes cheaply without a graphics processor. No other source has this width.
    pub const SCREEN: Self = Self {
        name: "screen-v1",
        encoding: "-f lavfi -i testsrc2=size=480x270:rate=30 -f lavfi -i sine=frequency=440:sample_rate=48000 -t 30 \
            -c:v libx264 -preset veryfast -bf 2 -pix_fmt yuv420p -b:v 800k -g 60 -sc_threshold 0 -c:a aac -b:a 96k",
    };
    /// 360p25 and a low rate, for an encoder that returns with other settings.
    pub const SMALL: Self = Self {
        name: "small-v1",
        encoding: "-f lavfi -i testsrc2=size=640x360:rate=25 -f lavfi -i sine=frequency=660:sample_rate=48000 -t 30 \
            -c:v libx264 -preset ultrafast -pix_fmt yuv420p -b:v 800k -g 50 -sc_threshold 0 -c:a aac -b:a 96k",
    };
    /// 360p with one frame per second and a keyframe every four seconds, like a surveillance camera.
    pub const SLOW: Self = Self {
        name: "slow-v1",
        encoding: "-f lavfi -i testsrc2=size=640x360:rate=1 -f lavfi -i sine=frequency=880:sample_rate=48000 -t 32 \
            -c:v libx264 -preset ultrafast -tune zerolatency -pix_fmt yuv420p -b:v 400k -g 4 -sc_threshold 0 \
            -c:a aac -b:a 96k",
    };
    /// 30000/1001 frames a second with B-frames, and audio of 44.1 kHz in one channel.
    pub const NTSC: Self = Self {
        name: "ntsc-v1",
        encoding: "-f lavfi -i testsrc2=size=640x360:rate=30000/1001 -f lavfi -i sine=frequency=440:sample_rate=44100 \
            -t 30 -c:v libx264 -preset veryfast -bf 3 -pix_fmt yuv420p -b:v 800k -g 60 -sc_threshold 0 \
            -c:a aac -ac 1 -b:a 64k",
    };
    /// A keyframe every five seconds.
    pub const LONG_GROUPS: Self = Self {
        name: "long-groups-v1",
        encoding: "-f lavfi -i testsrc2=size=640x360:rate=30 -f lavfi -i sine=frequency=440:sample_rate=48000 -t 30 \
            -c:v libx264 -preset ultrafast -bf 2 -pix_fmt yuv420p -b:v 800k -g 150 -sc_threshold 0 -c:a aac -b:a 96k",
    };
    /// Two of five frames are left out at random: gaps of 1/30 s to several times that.
    pub const VARIABLE_RATE: Self = Self {
        name: "variable-rate-v1",
        encoding: "-f lavfi -i testsrc2=size=640x360:rate=30,select=gt(random(7)\\,0.4) \
            -f lavfi -i sine=frequency=440:sample_rate=48000 -t 30 -vsync vfr \
            -c:v libx264 -preset ultrafast -pix_fmt yuv420p -b:v 800k -force_key_frames expr:gte(t,n_forced*2) -g 600 \
            -sc_threshold 0 -c:a aac -b:a 96k",
    };
    /// Segments of 3 MB, more than any buffer between server and viewer holds.
    pub const HEAVY: Self = Self {
        name: "heavy-v1",
        encoding: "-f lavfi -i testsrc2=size=1280x720:rate=30,noise=alls=40:allf=t \
            -f lavfi -i sine=frequency=440:sample_rate=48000 -t 30 \
            -c:v libx264 -preset ultrafast -pix_fmt yuv420p -b:v 12M -minrate 12M -maxrate 12M -bufsize 12M -g 60 -sc_threshold 0 \
            -c:a aac -b:a 128k",
    };
    /// No video.
    pub const AUDIO_ONLY: Self = Self {
        name: "audio-only-v1",
        encoding: "-f lavfi -i sine=frequency=440:sample_rate=48000 -t 30 -c:a aac -b:a 128k",
    };
    /// No audio.
    pub const VIDEO_ONLY: Self = Self {
        name: "video-only-v1",
        encoding: "-f lavfi -i testsrc2=size=640x360:rate=25 -t 30 \
            -c:v libx264 -preset ultrafast -pix_fmt yuv420p -b:v 800k -g 50 -sc_threshold 0",
    };
}

/// A file to publish, and its packets as ffmpeg's FLV writer produces them.
#[derive(Debug)]
pub struct Source {
    path: PathBuf,
    records: Vec<Record>,
}

impl Source {
    /// The source that most tests publish: [`Recipe::SHARED`].
    ///
    /// # Panics
    /// When ffmpeg fails.
    #[must_use]
    pub fn shared() -> Self {
        let source = Self::of(Recipe::SHARED);
        assert!(source.records.len() > 2000, "the source has only {} packets", source.records.len());
        source
    }

    /// Another source, created by the first test that needs it.
    ///
    /// # Panics
    /// When ffmpeg fails.
    #[must_use]
    pub fn of(recipe: Recipe) -> Self {
        Self::kept(recipe.name, |path| {
            make(path, &recipe.encoding.split_whitespace().collect::<Vec<_>>());
        })
    }

    /// Two sources in one stream: the codec configuration changes between them, `seconds` after the beginning.
    ///
    /// # Panics
    /// When ffmpeg fails.
    #[must_use]
    pub fn joined(first: Recipe, seconds: u32, second: Recipe) -> Self {
        let name = format!("{}-{seconds}-{}", first.name, second.name);
        let (before, after) = (Self::of(first), Self::of(second));
        Self::kept(&name, |path| {
            let read = |source: &Self| std::fs::read(source.path()).expect("a source");
            let joined = flv::join(&read(&before), seconds * 1000, &read(&after));
            std::fs::write(path, joined.expect("two FLV files")).expect("a source can be written");
        })
    }

    /// The file `name`, created if it is missing, and its packets.
    fn kept(name: &str, make_it: impl FnOnce(&Path)) -> Self {
        let folder = scratch();
        let path = folder.join(format!("{name}.flv"));
        let copied = folder.join(format!("{name}-copied.flv"));
        // Tests run in several processes: one makes the files, the others wait for it.
        let lock = File::create(folder.join(format!("{name}.lock"))).expect("a lock for the source");
        lock.lock().expect("the source can be locked");
        let whole = |path: &Path, make_it: &mut dyn FnMut(&Path)| {
            if !path.exists() {
                let temporary = path.with_extension("part");
                make_it(&temporary);
                std::fs::rename(&temporary, path).expect("the source gets its name");
            }
        };
        let mut make_it = Some(make_it);
        whole(&path, &mut |path| make_it.take().expect("called once")(path));
        // The packets of a publisher with `-c copy`, which uses the same muxer.
        let input = path.to_str().expect("a path in UTF-8");
        whole(&copied, &mut |path| make(path, &["-i", input, "-c", "copy"]));
        Self { records: flv::read(&copied), path }
    }

    /// The file to publish.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The same media as an MP4; `options` are those of ffmpeg.
    ///
    /// # Panics
    /// When ffmpeg fails.
    #[must_use]
    pub fn mp4(&self, options: &str) -> Vec<u8> {
        let folder = tempfile::tempdir().expect("a folder for the file");
        let path = folder.path().join("clip.mp4");
        let mut ffmpeg = Command::new("ffmpeg");
        ffmpeg.args(["-nostdin", "-hide_banner", "-loglevel", "error", "-y", "-i"]).arg(&self.path);
        ffmpeg.args(["-c", "copy"]).args(options.split_whitespace()).arg(&path);
        let output = ffmpeg.output().expect("ffmpeg can be started");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        std::fs::read(&path).expect("the file")
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
    let mut ffmpeg = Command::new("ffmpeg");
    ffmpeg.args(["-nostdin", "-hide_banner", "-loglevel", "error", "-y"]).args(arguments).args(["-f", "flv"]);
    let output = ffmpeg.arg(path).output().expect("ffmpeg can be started (cargo xtask setup installs it)");
    assert!(
        output.status.success(),
        "ffmpeg could not make the source: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}
