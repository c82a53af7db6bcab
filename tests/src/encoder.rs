//! ffmpeg as an encoder that publishes.

use std::fmt::Display;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use tempfile::TempDir;

use crate::flv;
use crate::process::{Process, guarded};
use crate::record::Record;
use crate::source::Source;

/// Bits of the clock in each frame of [`Publish::clock`]; `page.js` reads them.
const CLOCK_BITS: u32 = 12;
/// Frames per second of that source.
const CLOCK_RATE: u32 = 5;
/// Exit code of ffmpeg when a signal ended it after it had sent everything.
const ENDED_BY_SIGNAL: i32 = 255;
/// Option of ffmpeg: number of packets between two reads from the server.
const READ_ALWAYS: &str = "rtmp_flush_interval";
/// File name of the copy of the sent media, in the encoder's folder.
const SENT: &str = "sent.flv";

/// The settings of an encoder that is not running yet.
#[derive(Debug)]
pub struct Publish {
    before: Vec<String>,
    input: Vec<String>,
    after: Vec<String>,
    copied: bool,
}

impl Publish {
    /// The source in real time, repeated until [`Encoder::end`], which returns the sent packets. For tests that stream only as long as
    /// they need.
    #[must_use]
    pub fn until_end(source: &Source) -> Self {
        Self { copied: true, ..Self::of(source).endless() }
    }

    /// Media that ffmpeg encodes from `arguments` (inputs and codecs), in real time.
    #[must_use]
    pub fn encoded(arguments: &str) -> Self {
        let input = arguments.split_whitespace().map(str::to_owned).collect();
        Self { before: vec!["-re".into()], input, after: Vec::new(), copied: false }
    }

    /// The source in real time, once, unchanged.
    #[must_use]
    pub fn of(source: &Source) -> Self {
        let path = source.path().to_string_lossy().into_owned();
        Self {
            before: vec!["-re".into()],
            input: vec!["-i".into(), path],
            after: vec!["-c".into(), "copy".into()],
            copied: false,
        }
    }

    /// `seconds` of media, encoded while they are sent, as fast as possible. Each frame shows its second: twelve bars, the lowest bit on
    /// the left, white for 1. Keyframes are exactly four seconds apart.
    #[must_use]
    pub fn clock(seconds: u64) -> Self {
        let mut video_filter = format!("color=c=0x202020:size=320x180:rate={CLOCK_RATE}");
        for bit in 0..CLOCK_BITS {
            let (left, step) = (10 + 25 * bit, 1_u32 << bit);
            video_filter.push_str(&format!(
                ",drawbox=x={left}:y=20:w=25:h=140:color=white:t=fill:enable='mod(floor(t/{step})\\,2)'"
            ));
        }
        // Silence: to encode a tone costs five times as much as everything else.
        let audio = "anullsrc=channel_layout=mono:sample_rate=48000".to_owned();
        let encoding = format!(
            "-t {seconds} -threads 1 -c:v libx264 -preset ultrafast -tune zerolatency -pix_fmt yuv420p -g {} -sc_threshold 0 \
             -c:a aac -b:a 64k -progress pipe:1 -stats_period 0.1",
            4 * CLOCK_RATE
        );
        let lavfi = |graph| ["-f".to_owned(), "lavfi".into(), "-i".into(), graph];
        Self {
            before: Vec::new(),
            input: [lavfi(video_filter), lavfi(audio)].concat(),
            after: encoding.split_whitespace().map(str::to_owned).collect(),
            copied: false,
        }
    }

    /// Only the first `seconds` of it.
    #[must_use]
    pub fn seconds(mut self, seconds: impl Display) -> Self {
        self.after.extend(["-t".into(), seconds.to_string()]);
        self
    }

    /// Repeats the source until the encoder is stopped.
    #[must_use]
    pub fn endless(mut self) -> Self {
        self.before.extend(["-stream_loop".into(), "-1".into()]);
        self
    }

    /// `times` as fast as real time.
    #[must_use]
    pub fn faster(mut self, times: u32) -> Self {
        self.before = vec!["-readrate".into(), times.to_string()];
        self
    }

    /// In real time.
    #[must_use]
    pub fn real_time(mut self) -> Self {
        self.before = vec!["-re".into()];
        self
    }

    /// With timestamps that begin `seconds` later than those of the source.
    #[must_use]
    pub fn shifted(mut self, seconds: f64) -> Self {
        self.after.extend(["-output_ts_offset".into(), seconds.to_string()]);
        self
    }

    /// Starts publishing to `url`.
    ///
    /// # Panics
    /// When ffmpeg cannot be started.
    #[must_use]
    pub fn to(self, url: &str) -> Encoder {
        let folder = tempfile::tempdir().expect("a folder for the encoder's log");
        let mut command = guarded(Path::new("ffmpeg"));
        command.args(["-nostdin", "-hide_banner", "-loglevel", "warning"]);
        command.args(self.before).args(self.input).args(self.after);
        // ffmpeg closes its socket after the last packet. Unread acknowledgements of the server would then reset the connection and destroy
        // packets on their way, so it reads after each packet, not after each tenth.
        let is_srt = url.starts_with("srt:");
        if self.copied {
            // Two muxers, which get the same packets.
            let copy = folder.path().join(SENT);
            let muxer = if is_srt { "mpegts".to_owned() } else { format!("flv:{READ_ALWAYS}=1") };
            command
                .args(["-map", "0", "-f", "tee"])
                .arg(format!("[f={muxer}]{url}|[f=flv]{}", copy.display()));
        } else if is_srt {
            command.args(["-f", "mpegts", url]);
        } else {
            command.args([&format!("-{READ_ALWAYS}"), "1", "-f", "flv", url]);
        }
        let process = Process::start("ffmpeg", command, &folder.path().join("ffmpeg.log"));
        Encoder { process, folder }
    }
}

/// A publishing ffmpeg; dropped, it is killed.
#[derive(Debug)]
pub struct Encoder {
    process: Process,
    folder: TempDir,
}

impl Encoder {
    /// Waits until it has sent everything and ended.
    ///
    /// # Panics
    /// When it has not after `limit`.
    #[track_caller]
    pub fn wait(&mut self, limit: Duration) -> ExitStatus {
        self.process.wait(limit)
    }

    /// Waits, and expects that it could send everything.
    ///
    /// # Panics
    /// When it has not ended after `limit`, or failed.
    #[track_caller]
    pub fn finish(&mut self, limit: Duration) {
        let status = self.wait(limit);
        assert!(status.success(), "the encoder ended with {status}: {}", self.process.log());
    }

    /// Kills the encoder: the kernel resets the connection.
    pub fn cut(&mut self) {
        self.process.kill();
    }

    /// Seconds of media that one of [`Publish::clock`] had given to its connection a moment ago.
    #[must_use]
    pub fn sent_seconds(&self) -> f64 {
        let log = self.log();
        let micros =
            log.lines().rev().find_map(|line| line.strip_prefix("out_time_us=")?.parse::<f64>().ok());
        micros.unwrap_or(0.0) / 1e6
    }

    /// Suspends the encoder, with the connection open, until [`Self::thaw`].
    #[track_caller]
    pub fn freeze(&self) {
        self.process.freeze();
    }

    /// Resumes the encoder, which sends the missed media at once.
    #[track_caller]
    pub fn thaw(&self) {
        self.process.thaw();
    }

    /// Stops the encoder as its user would: it closes the stream and ends.
    ///
    /// # Panics
    /// When it does not end.
    #[track_caller]
    pub fn stop(&mut self) -> ExitStatus {
        self.process.terminate(Duration::from_secs(60))
    }

    /// Ends a stream of [`Publish::until_end`]; gives every packet of it.
    ///
    /// # Panics
    /// When it had ended before, or could not send everything.
    #[track_caller]
    pub fn end(&mut self) -> Vec<Record> {
        let status = self.stop();
        assert_eq!(status.code(), Some(ENDED_BY_SIGNAL), "the encoder ended by itself: {}", self.log());
        flv::read(&self.folder.path().join(SENT))
    }

    /// Whether it still runs.
    pub fn running(&mut self) -> bool {
        self.process.ended().is_none()
    }

    /// The printed output.
    #[must_use]
    pub fn log(&self) -> String {
        self.process.log()
    }
}
