//! A viewer with a screen: Chromium, with hls.js or by itself, driven by the scripts in `tests/player`.

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::process::{Process, guarded};
use crate::source::scratch;
use crate::wait;

/// Longest time of a step (the first one includes the browser's start), in addition to the seconds that it watches.
const STEP_LIMIT: Duration = Duration::from_secs(90);
/// A frame shown longer than this counts as a stall. Pauses of a busy machine are shorter; the benchmarks report them.
const STALL_LIMIT: Duration = Duration::from_secs(5);
const CLOSE_LIMIT: Duration = Duration::from_secs(60);

/// The player that is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// hls.js on media source extensions.
    HlsJs,
    /// Chromium's own HLS player.
    Native,
}

/// A running player.
#[derive(Debug)]
pub struct Player {
    process: Process,
    commands: Option<ChildStdin>,
    answers: usize,
    _folder: TempDir,
}

impl Player {
    /// Starts a browser for `engine` without waiting for it, so that the stream can get ready meanwhile.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn launch(engine: Engine) -> Self {
        match engine {
            Engine::HlsJs => Self::run("play.mjs", &[]),
            Engine::Native => Self::run("play.mjs", &["--native"]),
        }
    }

    /// Starts a browser for player pages in the same way.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn launch_for_pages() -> Self {
        Self::run("watch.mjs", &[])
    }

    /// Starts a browser for the dashboard of the service at `base`; [`crate::dashboard::Dashboard`] has its steps.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn launch_for_dashboard(base: &str) -> Self {
        Self::run("dashboard.mjs", &[base])
    }

    /// Starts a browser that publishes by WHIP, with the steps of `publish.mjs`.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn launch_for_publishing() -> Self {
        Self::run("publish.mjs", &[])
    }

    /// Starts a browser and plays `url` in it; gives when the first frame was shown.
    ///
    /// # Panics
    /// When no frame is shown, with everything the player saw.
    #[track_caller]
    #[must_use]
    pub fn start(engine: Engine, url: &str) -> (Self, Value) {
        let mut player = Self::launch(engine);
        let started = player.open(url);
        (player, started)
    }

    /// Opens `url` in a new page, waits for the first frame and returns its time; for a player page, returns the shown state.
    ///
    /// # Panics
    /// When no frame is shown, with everything the player saw.
    #[track_caller]
    pub fn open(&mut self, url: &str) -> Value {
        self.step(&format!("open {url}"))
    }

    fn run(script: &str, arguments: &[&str]) -> Self {
        let scripts = scripts();
        assert!(scripts.join("node_modules").is_dir(), "`cargo xtask test` installs the players first");
        let folder = tempfile::tempdir().expect("a folder for the player's log");
        let mut command = guarded(Path::new("node"));
        command.arg(scripts.join(script)).args(arguments);
        command.stdin(Stdio::piped()).env("TMPDIR", folder.path());
        let mut process = Process::start("the player", command, &folder.path().join("player.log"));
        let commands = process.take_input();
        Self { process, commands, answers: 0, _folder: folder }
    }

    /// Does a step of the script and gives its answer.
    ///
    /// # Panics
    /// When it fails.
    #[track_caller]
    pub fn step(&mut self, step: &str) -> Value {
        let input = self.commands.as_mut().expect("a player that was not closed");
        writeln!(input, "{step}").unwrap_or_else(|error| panic!("{error}: {}", self.process.log()));
        let watched = step.strip_prefix("wait ").and_then(|seconds| seconds.parse().ok()).unwrap_or(0);
        self.answer(STEP_LIMIT + Duration::from_secs(watched))
    }

    /// Writes a screenshot of the player below cargo's output and gives its path.
    ///
    /// # Panics
    /// When no frame is shown.
    #[track_caller]
    pub fn shot(&mut self, name: &str) -> PathBuf {
        let path = shots().join(format!("{name}.png"));
        self.step(&format!("shot {}", path.display()));
        println!("screenshot: {}", path.display());
        path
    }

    /// Ends it, and expects that it met no fatal error.
    ///
    /// # Panics
    /// When it did.
    #[track_caller]
    pub fn finish(mut self) {
        drop(self.commands.take());
        let status = self.process.wait(CLOSE_LIMIT);
        assert!(status.success(), "the player ended with {status}:\n{}", self.process.log());
    }

    #[track_caller]
    fn answer(&mut self, limit: Duration) -> Value {
        let at = self.answers;
        let answer = wait::within("the player", limit, || {
            let log = self.process.log();
            let lines = log
                .split_inclusive('\n')
                .filter(|line| line.starts_with("{\"step\"") && line.ends_with('\n'));
            match lines.clone().nth(at).and_then(|line| serde_json::from_str::<Value>(line).ok()) {
                Some(answer) => Ok(answer),
                None if self.process.ended().is_some() => panic!("the player ended: {log}"),
                None => Err(log.clone()),
            }
        });
        self.answers += 1;
        assert_eq!(answer["ok"], true, "the player failed: {answer}\n{}", self.process.log());
        answer
    }
}

/// Stalls that are longer than [`STALL_LIMIT`], in milliseconds.
fn stalls(state: &Value) -> Vec<u64> {
    let all = state["stalls"].as_array().into_iter().flatten();
    let all = all.map(|stall| stall["ms"].as_u64().unwrap_or(u64::MAX));
    all.filter(|ms| u128::from(*ms) > STALL_LIMIT.as_millis()).collect()
}

/// Expects a moving video with more than one colour.
///
/// # Panics
/// When it is or does not.
#[track_caller]
pub fn assert_moves(state: &Value) {
    /// Grey levels; a test pattern has 40, a black frame 0.
    const SPREAD_MIN: f64 = 5.0;
    /// Mean change of a pixel in grey levels; a still video has 0.
    const MOVED_MIN: f64 = 0.2;
    let pixels = &state["pixels"];
    assert!(pixels["spread"].as_f64() > Some(SPREAD_MIN), "the video has one colour: {pixels}");
    assert!(pixels["moved"].as_f64() > Some(MOVED_MIN), "the video does not move: {pixels}");
}

/// Expects a moving video without a stall, error or warning, and that the key was sent for the index only.
///
/// # Panics
/// When it is otherwise.
#[track_caller]
pub fn assert_smooth(state: &Value) {
    assert_moves(state);
    assert!(stalls(state).is_empty(), "{state}");
    assert_eq!(state["fatal"], json!([]), "{state}");
    assert_eq!(state["complaints"], json!([]), "{state}");
    let statuses = state["requests"]["byStatus"].as_object().expect("requests by status");
    assert!(statuses.keys().all(|status| matches!(status.as_str(), "200" | "206")), "{statuses:?}");
    let with_key = state["requests"]["withKey"].as_array().expect("requests with the key");
    assert!(
        with_key.iter().all(|path| path.as_str().is_some_and(|path| path.ends_with("/index.m3u8"))),
        "{with_key:?}"
    );
}

/// Expects that hls-parser (npm) accepts the playlists in its strict mode; returns its result for each.
///
/// # Panics
/// When it refuses one.
#[track_caller]
pub fn assert_valid_playlists(texts: &[&str]) -> Vec<Value> {
    let folder = tempfile::tempdir().expect("a folder for playlists");
    let mut command = guarded(Path::new("node"));
    command.arg(scripts().join("validate.mjs"));
    for (at, text) in texts.iter().enumerate() {
        let path = folder.path().join(format!("{at}.m3u8"));
        std::fs::write(&path, text).expect("a file for a playlist");
        command.arg(path);
    }
    let output = command.output().expect("node");
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "hls-parser: {said}{errors}\n{}", texts.join("\n"));
    said.lines().map(|line| serde_json::from_str(line).expect("JSON of validate.mjs")).collect()
}

/// The result of a viewer over https for `url` that trusts the authority in `ca`; see `secure.mjs` for the values of `what`.
///
/// # Errors
/// The viewer's error text, when an answer was not a 200 or did not arrive.
pub fn secure_viewer(ca: &Path, url: &str, what: &str) -> Result<Value, String> {
    seen_by("secure.mjs", &[ca.as_os_str(), url.as_ref(), what.as_ref()])
}

/// Reads the API reference at `page` in Chromium and lists the streams there with `key`; see `reference.mjs` for the answer.
///
/// # Errors
/// The output of the script if a step of the reader failed.
pub fn reader_of_reference(page: &str, key: &str) -> Result<Value, String> {
    let shots = shots().join("reference");
    seen_by("reference.mjs", &[page.as_ref(), key.as_ref(), shots.as_os_str()])
}

/// The one line of JSON that a script prints.
fn seen_by(script: &str, arguments: &[&OsStr]) -> Result<Value, String> {
    let mut command = guarded(Path::new("node"));
    command.arg(scripts().join(script)).args(arguments);
    let output = command.output().map_err(|error| format!("node: {error}"))?;
    let said = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        return Err(format!("{said}{}", String::from_utf8_lossy(&output.stderr)));
    }
    serde_json::from_str(&said).map_err(|error| format!("{error}: {said}"))
}

/// Folder of screenshots, below cargo's output.
pub(crate) fn shots() -> PathBuf {
    let folder = scratch().join("shots");
    std::fs::create_dir_all(&folder).expect("a folder for screenshots");
    folder
}

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("player")
}
