//! A stream with an rtmp destination that must lose nothing, and failing or hostile drivers beside it.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::api::{Api, Stream};
use crate::author::{lay, root, run};
use crate::encoder::{Encoder, Publish};
use crate::record::assert_complete;
use crate::service::{Service, Setup, binary};
use crate::sink::Sink;
use crate::source::Source;
use crate::wait;

/// Id of the driver that fails on request, and its destination type.
pub const HOSTILE: &str = "panic";
/// Media packets that the healthy destination must still get at the end: two seconds and a keyframe.
const PACKETS_AFTER: usize = 200;
/// A secret that the destinations must not reveal.
pub const TOKEN: &str = "very-secret-token";

/// The service, the stream, and its receiver.
#[derive(Debug)]
pub struct Scene {
    /// The service.
    pub service: Service,
    /// The API of the owner.
    pub api: Api,
    /// The published source.
    pub source: Source,
    /// The server of the healthy destination.
    pub sink: Sink,
    /// The stream of all destinations.
    pub stream: Stream,
    /// The drivers folder.
    pub drivers: TempDir,
}

impl Scene {
    /// A scene with the driver that fails on request; `isolation` is `thread` or `process`.
    ///
    /// # Panics
    /// When anything does not start.
    #[must_use]
    #[track_caller]
    pub fn hostile(isolation: &str, setup: Setup) -> Self {
        let folder = tempfile::tempdir().expect("a folder for drivers");
        let library = built().join("libsatcast_test_driver.so");
        lay(&library, &folder.path().join(format!("{HOSTILE}.so")));
        Self::with(folder, &[HOSTILE], isolation, setup)
    }

    /// The drivers `names` of `folder`, beside rtmp.
    ///
    /// # Panics
    /// When anything does not start.
    #[must_use]
    #[track_caller]
    pub fn with(folder: TempDir, names: &[&str], isolation: &str, setup: Setup) -> Self {
        for file in ["rtmp.so", "manifest.json"] {
            lay(&built().join("drivers").join(file), &folder.path().join(file));
        }
        let enabled: Vec<&str> = names.iter().copied().chain(["rtmp"]).collect();
        let isolate = |setup: Setup, name: &&str| {
            setup.set(&format!("SATCAST_DRIVER__{}__ISOLATION", name.to_uppercase()), isolation)
        };
        let service = names
            .iter()
            .fold(setup, isolate)
            .set("SATCAST_DRIVERS__DIR", folder.path().to_str().expect("a path in UTF-8"))
            .set("SATCAST_DRIVERS__ENABLED", &json!(enabled).to_string())
            .set("SATCAST_INGEST__RECONNECT_WINDOW_SECS", "2")
            .start();
        let (api, source, sink) = (service.api(), Source::shared(), Sink::recording());
        let stream = api.create_stream("scene");
        api.add_destination(&stream, &sink.url(), "copy");
        Self { service, api, source, sink, stream, drivers: folder }
    }

    /// Adds a destination of the driver that fails on request; gives its id.
    ///
    /// # Panics
    /// When it is refused.
    #[track_caller]
    pub fn add(&self, place: &str) -> i64 {
        self.add_of(HOSTILE, &configuration(place))
    }

    /// Adds a destination; gives its id.
    ///
    /// # Panics
    /// When it is refused.
    #[track_caller]
    pub fn add_of(&self, kind: &str, config: &Value) -> i64 {
        crate::author::add(&self.api, &self.stream, kind, config)
    }

    /// Publishes the source until [`Self::finish`]; returns when media arrives at the healthy destination.
    ///
    /// # Panics
    /// When it does not arrive.
    #[must_use]
    #[track_caller]
    pub fn publish(&self) -> Encoder {
        let encoder = Publish::until_end(&self.source).to(&self.service.ingest_url(&self.stream.key));
        self.sink.wait_for_media(1);
        encoder
    }

    /// Ends the stream after some more media, and expects that the healthy destination got everything.
    ///
    /// # Panics
    /// When it did not, when the service ended, or when the service revealed the token.
    #[track_caller]
    pub fn finish(&mut self, encoder: &mut Encoder) {
        self.continues(PACKETS_AFTER);
        let sent = encoder.end();
        self.sink.wait_until_left();
        assert_complete("the healthy sink", &sent, &self.sink.records());
        assert_eq!(self.sink.publishes(), 1);
        self.service.assert_running();
        self.service.assert_not_logged(&[("the driver's token", TOKEN)]);
    }

    /// Waits until the healthy destination has got `packets` more.
    ///
    /// # Panics
    /// When they do not come.
    #[track_caller]
    pub fn continues(&self, packets: usize) {
        let before = self.sink.wait_for_media(0);
        self.sink.wait_for_media(before + packets);
    }
}

/// A configuration of the driver that fails on request.
#[must_use]
pub fn configuration(place: &str) -> Value {
    json!({ "place": place, "token": TOKEN })
}

/// The folder of the built binary.
#[must_use]
pub fn built() -> PathBuf {
    binary().parent().expect("the folder of the binary").to_owned()
}

/// Compiles C or C++ `sources` to a library, with the published header and `flags`.
///
/// # Panics
/// When it does not compile.
#[track_caller]
pub fn compile(sources: &[&Path], library: &Path, flags: &[&str]) {
    let include = root().join("plugin-api/include");
    // A test needs undefined symbols.
    let plain = ["-O1", "-shared", "-fPIC", "-pthread", "-fexceptions", "-Wall", "-Wextra", "-Werror"];
    run(Command::new("cc")
        .args(plain)
        .arg("-I")
        .arg(include)
        .arg("-o")
        .arg(library)
        .args(sources)
        .args(flags));
    // Independent of the umask: the service refuses files that other users can write to.
    std::fs::set_permissions(library, Permissions::from_mode(0o755)).expect("a library of ours");
}

/// The driver processes of a service.
///
/// # Panics
/// When the list of processes cannot be read.
#[must_use]
pub fn children(service: &Service) -> Vec<i32> {
    let parent = service.process().id().to_string();
    let mut found: Vec<i32> = std::fs::read_dir("/proc")
        .expect("the list of processes")
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid| {
            let read =
                |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
            let stat = read("stat");
            let of_parent = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1));
            of_parent == Some(parent.as_str()) && read("cmdline").contains("driver-runner")
        })
        .collect();
    found.sort_unstable();
    found
}

/// Waits until all of these processes have ended.
///
/// # Panics
/// When one stays.
#[track_caller]
pub fn wait_until_gone(pids: &[i32]) {
    wait::until("the children to go", || {
        let left: Vec<_> =
            pids.iter().filter(|pid| kill(Pid::from_raw(**pid), None::<Signal>).is_ok()).collect();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    });
}
