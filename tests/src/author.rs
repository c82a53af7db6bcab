//! The steps of a driver author: build a driver outside the workspace, put it into a folder, and stream through it.

use std::fs::Permissions;
use std::io::{ErrorKind, copy};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::api::{Api, Stream};
use crate::probe::hashes_of_file;
use crate::record::Track;
use crate::service::{Service, Setup};
use crate::source::{Source, target_dir};

/// Pause between two looks at a port.
const POLL: Duration = Duration::from_millis(20);
/// Fewest frames that count as a stream.
const FRAMES_MIN: usize = 60;
/// Output folder of builds outside the workspace, below the target folder: one for all, so that each dependency is
/// compiled once.
const BUILDS: &str = "authors";

/// The root of the repository.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the root of the repository")
}

/// A program in a folder, without the environment of the test's own build.
#[must_use]
pub fn clean(program: &str, folder: &Path) -> Command {
    let mut command = Command::new(program);
    without_build(command.current_dir(folder));
    command
}

/// The same for a command that was made elsewhere.
pub fn without_build(command: &mut Command) -> &mut Command {
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        let removed = ["CARGO", "RUST", "MAKE", "MFLAGS", "NEXTEST"];
        let needed = ["CARGO_HOME", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN"];
        if removed.iter().any(|prefix| name.starts_with(prefix)) && !needed.contains(&name.as_str()) {
            command.env_remove(name);
        }
    }
    command.env("CARGO_BUILD_BUILD_DIR", target_dir().join(BUILDS).join("build"))
}

/// Runs a command that must succeed.
///
/// # Panics
/// When it does not.
#[track_caller]
pub fn run(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().expect("a program that starts");
    let (said, wrong) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{command:?} ended with {status}:\n{said}\n{wrong}");
    said.into_owned()
}

/// The recorder of the examples, built by cargo with `compiler` (the default one without).
///
/// # Panics
/// When it cannot be built.
#[must_use]
#[track_caller]
pub fn recorder(compiler: Option<&Path>) -> PathBuf {
    let builds = target_dir().join(BUILDS);
    let mut cargo = clean("cargo", &root().join("plugins/examples/recorder"));
    let out = match compiler {
        Some(compiler) => {
            cargo.env("RUSTC", compiler).env("CARGO_BUILD_BUILD_DIR", builds.join("other"));
            builds.join("out-other")
        }
        None => builds.join("out"),
    };
    run(cargo.args(["build", "--lib", "--locked"]).env("CARGO_TARGET_DIR", &out));
    out.join("debug/libsatcast_example_recorder.so")
}

/// A C driver's folder, built and tested by make with `compiler`.
///
/// # Panics
/// When it does not build or its test fails.
#[track_caller]
pub fn make(folder: &Path, compiler: &str) {
    let said = run(clean("make", folder).args(["check", &format!("CC={compiler}")]));
    assert!(said.ends_with("ok\n"), "{said}");
}

/// The installed C compilers.
#[must_use]
pub fn c_compilers() -> Vec<&'static str> {
    let there = |name: &&str| {
        let there = Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success());
        if !there {
            println!("skipped: {name} is not there");
        }
        there
    };
    ["gcc", "clang"].into_iter().filter(there).collect()
}

/// A service with these drivers (id, library, isolation) and no others.
///
/// # Panics
/// When it does not start with all of them.
#[must_use]
#[track_caller]
pub fn service(drivers: &[(&str, &Path, &str)], setup: Setup) -> (TempDir, Service) {
    let folder = tempfile::tempdir().expect("a folder for drivers");
    let mut setup = setup.set("SATCAST_DRIVERS__DIR", folder.path().to_str().expect("a path in UTF-8"));
    let mut enabled = Vec::new();
    for (id, library, isolation) in drivers {
        lay(library, &folder.path().join(format!("{id}.so")));
        setup = setup.set(&format!("SATCAST_DRIVER__{}__ISOLATION", id.to_uppercase()), isolation);
        enabled.push(format!("\"{id}\""));
    }
    let service = setup.set("SATCAST_DRIVERS__ENABLED", &format!("[{}]", enabled.join(","))).start();
    let listed = service.run(&["drivers"]);
    for (id, ..) in drivers {
        let line = listed.lines().find(|line| line.contains(id)).unwrap_or_default();
        assert!(line.contains("loaded"), "{id}: {listed}\n{}", service.log());
    }
    (folder, service)
}

/// Copies a library, or the manifest, into a drivers folder. Only its owner can write to it, independent of the umask of its build:
/// the service refuses it otherwise.
///
/// # Panics
/// When it is not there, or cannot be written.
#[track_caller]
pub fn lay(from: &Path, to: &Path) {
    let copied =
        std::fs::copy(from, to).and_then(|_| std::fs::set_permissions(to, Permissions::from_mode(0o644)));
    copied.unwrap_or_else(|error| panic!("{} cannot be copied to {}: {error}", from.display(), to.display()));
}

/// Adds a destination to a stream; gives its id.
///
/// # Panics
/// When it is refused.
#[track_caller]
pub fn add(api: &Api, stream: &Stream, kind: &str, config: &Value) -> i64 {
    let path = format!("/api/streams/{}/destinations", stream.id);
    let body = api.post(&path, &json!({ "type": kind, "config": config })).ok();
    body["id"].as_i64().expect("the id of the destination")
}

/// A TCP server that stores the bytes of one client.
#[derive(Debug)]
pub struct Receiver {
    /// Where it listens on this machine.
    pub port: u16,
    thread: JoinHandle<PathBuf>,
}

impl Receiver {
    /// Listens, and writes to `file` until the client has closed or no client connected within `limit`.
    ///
    /// # Panics
    /// When there is no port.
    #[must_use]
    pub fn start(file: PathBuf, limit: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("a listener that does not wait");
        let port = listener.local_addr().expect("its address").port();
        let thread = std::thread::spawn(move || {
            let end = Instant::now() + limit;
            let mut client = loop {
                match listener.accept() {
                    Ok((client, _)) => break client,
                    Err(error) if error.kind() == ErrorKind::WouldBlock && Instant::now() < end => {
                        std::thread::sleep(POLL);
                    }
                    Err(error) => panic!("nobody connected: {error}"),
                }
            };
            client.set_nonblocking(false).expect("a socket that waits");
            client.set_read_timeout(Some(limit)).expect("a limit");
            copy(&mut client, &mut std::fs::File::create(&file).expect("a file")).expect("all it sends");
            file
        });
        Self { port, thread }
    }

    /// The file, when the client has closed.
    ///
    /// # Panics
    /// When no client connected.
    #[must_use]
    pub fn file(self) -> PathBuf {
        self.thread.join().expect("the received file")
    }
}

/// Expects that `file` holds the beginning of the source, packet for packet.
///
/// # Panics
/// When it does not, or holds too little.
#[track_caller]
pub fn assert_beginning_of(source: &Source, file: &Path) {
    assert_beginning(source.path(), file);
}

/// The same for a stream of the file `sent`.
///
/// # Panics
/// As above.
#[track_caller]
pub fn assert_beginning(sent: &Path, file: &Path) {
    for track in [Track::Video, Track::Audio] {
        let (sent, got) = (hashes_of_file(sent, track), hashes_of_file(file, track));
        assert!(got.len() >= FRAMES_MIN, "{} packets of {track:?} in {}", got.len(), file.display());
        let first = sent.iter().zip(&got).position(|(sent, got)| sent != got);
        assert!(sent.len() >= got.len() && first.is_none(), "{track:?}: packet {first:?} is another one");
    }
}
