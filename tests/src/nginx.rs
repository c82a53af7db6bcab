//! nginx with its RTMP module: a third-party server to push to, and the peer of benchmarks.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::author::root;
use crate::flv;
use crate::ports::Port;
use crate::process::{Process, guarded, read_lossy};
use crate::record::Record;
use crate::wait;

const BINARY: &str = "/usr/sbin/nginx";
const MODULE: &str = "/usr/lib/nginx/modules/ngx_rtmp_module.so";

/// A configuration that the packages have, for [`Nginx::before`]: it listens at `LISTEN` instead of port 443, keeps cache and logs in
/// `FOLDER`, and has `origin` (host and port) behind it.
///
/// # Panics
/// When no configuration has this name.
#[must_use]
pub fn shipped(name: &str, origin: &str) -> String {
    let path = root().join("packaging/nginx").join(name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let places = [
        ("listen 443 ", "listen LISTEN "),
        ("127.0.0.1:8080", origin),
        ("origin.example.com:443", origin),
        ("/var/cache/nginx", "FOLDER"),
        ("/var/log/nginx", "FOLDER"),
    ];
    places.iter().fold(text, |text, (from, to)| text.replace(from, to))
}

/// A running nginx: with one RTMP application, `live`, or with files to serve.
#[derive(Debug)]
pub struct Nginx {
    process: Process,
    folder: TempDir,
    own: Option<TempDir>,
    port: Port,
}

impl Nginx {
    /// Records everything that is published to it.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn recording() -> Self {
        Self::start("record all; record_path records; record_unique on;")
    }

    /// Relays everything that is published to it to `targets` (RTMP URLs).
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn relaying(targets: &[String]) -> Self {
        let pushes = targets.iter().fold(String::new(), |mut text, target| {
            let _ = write!(text, "push {target}; ");
            text
        });
        Self::start(&pushes)
    }

    /// Packages everything that is published to it as HLS with segments of two seconds and a window of an hour.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn packaging() -> Self {
        Self::start("hls on; hls_path records; hls_fragment 2s; hls_playlist_length 1h;")
    }

    /// Serves the files of `root` by HTTP, as fast as it can (sendfile).
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn serving(root: &Path) -> Self {
        let root = root.canonicalize().expect("the folder to serve");
        Self::run(|port| {
            format!(
                "http {{ access_log off; sendfile on; tcp_nopush on; tcp_nodelay on; keepalive_requests 1000000; \
                 types {{ application/vnd.apple.mpegurl m3u8; video/mp4 mp4 m4s; }} \
                 server {{ listen {port}; root {}; add_header Access-Control-Allow-Origin *; }} }}",
                root.display()
            )
        })
    }

    /// A proxy in front of a server. `config` is the content of the `http` block; `LISTEN` in it stands for the address of nginx, and
    /// `FOLDER` for a folder of its own.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn before(config: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder for nginx");
        let path = folder.path().to_string_lossy().into_owned();
        let mut nginx = Self::run(|port| {
            format!("http {{ {} }}", config.replace("LISTEN", port).replace("FOLDER", &path))
        });
        nginx.own = Some(folder);
        nginx
    }

    /// A file in the folder of [`Nginx::before`].
    ///
    /// # Panics
    /// When it has no such folder.
    #[must_use]
    pub fn written(&self, name: &str) -> String {
        read_lossy(&self.own.as_ref().expect("a folder of its own").path().join(name))
    }

    fn start(directives: &str) -> Self {
        Self::run(|port| {
            format!("rtmp {{ server {{ listen {port}; application live {{ live on; {directives} }} }} }}")
        })
    }

    fn run(block: impl FnOnce(&str) -> String) -> Self {
        let folder = tempfile::tempdir().expect("a folder for nginx");
        std::fs::create_dir(folder.path().join("records")).expect("a folder for recordings");
        let port = Port::lease();
        // One process, because workers would outlive a killed master.
        let config = format!(
            "load_module {MODULE};\ndaemon off;\nmaster_process off;\npid nginx.pid;\nerror_log stderr info;\n\
             events {{ worker_connections 1024; }}\n{}\n",
            block(&port.address().to_string())
        );
        let path = folder.path().join("nginx.conf");
        std::fs::write(&path, config).expect("nginx's configuration");
        let mut command = guarded(Path::new(BINARY));
        command.arg("-p").arg(folder.path()).arg("-c").arg(&path).current_dir(folder.path());
        let mut process = Process::start("nginx", command, &folder.path().join("nginx.log"));
        wait::until("nginx to listen", || {
            assert!(process.ended().is_none(), "nginx ended: {}", process.log());
            std::net::TcpStream::connect(port.address()).map_err(|error| error.to_string())
        });
        Self { process, folder, own: None, port }
    }

    /// A file that it packaged.
    #[must_use]
    pub fn packaged(&self, name: &str) -> PathBuf {
        self.folder.path().join("records").join(name)
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// The URL of its application, without a stream name.
    #[must_use]
    pub fn url(&self) -> String {
        format!("rtmp://{}/live", self.port.address())
    }

    /// The process, to measure it.
    #[must_use]
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// What it logged.
    #[must_use]
    pub fn log(&self) -> String {
        read_lossy(&self.folder.path().join("nginx.log"))
    }

    /// The recordings of stream `name` as soon as the last one has `count` media packets, or as they are at the limit of
    /// [`wait::until`]: the comparison that follows reports missing packets best.
    ///
    /// # Panics
    /// When a recording cannot be read.
    #[must_use]
    pub fn wait_for_recording(&self, name: &str, count: usize) -> Vec<Vec<Record>> {
        let (started, limit) = (Instant::now(), wait::LIMIT);
        loop {
            let recordings = self.recordings(name);
            let have =
                recordings.last().map_or(0, |last| last.iter().filter(|record| !record.config).count());
            if have >= count || started.elapsed() > limit {
                return recordings;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The recordings of stream `name`, one for each time it was published, oldest first.
    ///
    /// # Panics
    /// When a recording cannot be read.
    #[must_use]
    pub fn recordings(&self, name: &str) -> Vec<Vec<Record>> {
        // A new file has no header yet.
        self.recorded(name)
            .iter()
            .map(|path| flv::parse(&std::fs::read(path).expect("a recording")).unwrap_or_default())
            .collect()
    }

    /// Bytes of all recordings of stream `name` so far.
    #[must_use]
    pub fn recorded_bytes(&self, name: &str) -> u64 {
        let files = self.recorded(name);
        files.iter().filter_map(|path| std::fs::metadata(path).ok()).map(|file| file.len()).sum()
    }

    fn recorded(&self, name: &str) -> Vec<PathBuf> {
        let entries =
            std::fs::read_dir(self.folder.path().join("records")).expect("the folder of recordings");
        let mut files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        let prefix = format!("{name}-");
        files.retain(|path| path.file_name().is_some_and(|file| file.to_string_lossy().starts_with(&prefix)));
        files.sort();
        files
    }
}
