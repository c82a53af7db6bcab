//! The service under test: the built binary with a data folder, a configuration and ports of its own.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output};
use std::time::Duration;

use tempfile::TempDir;

use crate::api::Api;
use crate::driver_copies;
use crate::network::Host;
use crate::ports::Port;
use crate::process::{Process, guarded, read_lossy};
use crate::source::target_dir;
use crate::tls::Pair;
use crate::wait;

/// Longest time of a stop.
const STOP_LIMIT: Duration = Duration::from_secs(60);
/// Lines of the service's log that a failing test prints.
const LOG_TAIL_LINES: usize = 80;
/// Name of the account that [`Setup::start`] creates.
pub const ACCOUNT: &str = "tester";

/// The binary to test: `SATCAST_BIN`, or the debug build.
///
/// # Panics
/// When it has not been built.
#[must_use]
pub fn binary() -> PathBuf {
    let path =
        std::env::var_os("SATCAST_BIN").map_or_else(|| target_dir().join("debug/satcast"), PathBuf::from);
    assert!(path.is_file(), "{} is not there; `cargo xtask build` makes it", path.display());
    path
}

/// A service that is not running yet.
#[derive(Debug)]
pub struct Setup {
    settings: Vec<(String, String)>,
    with_tls: bool,
    with_srt: bool,
    with_whip: bool,
    https: bool,
    host: Option<Host>,
}

impl Default for Setup {
    fn default() -> Self {
        // All peers run on this machine, which the outbound guard refuses unless it is listed.
        Self {
            settings: Vec::new(),
            with_tls: false,
            with_srt: false,
            with_whip: false,
            https: false,
            host: None,
        }
        .set("SATCAST_OUTBOUND__ALLOW", "[\"127.0.0.0/8\"]")
    }
}

impl Setup {
    /// Sets an environment variable of the service, for instance `SATCAST_INGEST__RECONNECT_WINDOW_SECS`.
    #[must_use]
    pub fn set(mut self, variable: &str, value: &str) -> Self {
        self.settings.retain(|(known, _)| known != variable);
        self.settings.push((variable.to_owned(), value.to_owned()));
        self
    }

    /// Accepts encoders over TLS too, with the certificate and key in these files.
    #[must_use]
    pub fn rtmps(self, pair: &Pair) -> Self {
        let (cert, key) = (pair.cert.to_string_lossy(), pair.key.to_string_lossy());
        let setup = self.set("SATCAST_INGEST__TLS_CERT", &cert).set("SATCAST_INGEST__TLS_KEY", &key);
        Self { with_tls: true, ..setup }
    }

    /// Accepts encoders by SRT too.
    #[must_use]
    pub fn srt(self) -> Self {
        Self { with_srt: true, ..self }
    }

    /// Accepts encoders by WHIP too.
    #[must_use]
    pub fn whip(self) -> Self {
        Self { with_whip: true, ..self }
    }

    /// Uses https and accepts encoders over TLS, with a certificate for `name` that it orders at `directory`; `root` has
    /// the authority's own. Tests cannot use the API then.
    #[must_use]
    pub fn acme(self, directory: &str, root: &Path, name: &str) -> Self {
        let setup = self
            .set("SATCAST_ACME__DOMAINS", &format!("[{name:?}]"))
            .set("SATCAST_ACME__DIRECTORY", directory)
            .set("SATCAST_ACME__CA_FILE", &root.to_string_lossy());
        Self { with_tls: true, https: true, ..setup }
    }

    /// Makes it the node `name` of those that share a database.
    #[must_use]
    pub fn node(self, name: &str, database: &str) -> Self {
        self.set("SATCAST_DATABASE__URL", database)
            .set("SATCAST_SECRET_KEY", &"0a".repeat(32))
            .set("SATCAST_CLUSTER__NODE", name)
            .set("SATCAST_CLUSTER__SECRET", &"0b".repeat(32))
    }

    /// Runs it on a host of the test's network.
    #[must_use]
    pub fn at(self, host: &Host) -> Self {
        Self { host: Some(host.clone()), ..self }
    }

    /// Gives it a folder and ports, without starting it.
    ///
    /// # Panics
    /// When no folder can be made.
    #[must_use]
    pub fn stopped(self) -> Service {
        let folder =
            tempfile::Builder::new().prefix("satcast-e2e-").tempdir().expect("a folder for the service");
        let place = self.host.as_ref().map_or(Ipv4Addr::LOCALHOST, Host::address);
        let lease = || Port::lease().at(place);
        let (http, rtmp) = (lease(), lease());
        let Self { mut settings, with_tls, with_srt, with_whip, https, host } =
            self.default("SATCAST_HTTP__LISTEN", &http.address().to_string());
        settings.push(("SATCAST_INGEST__RTMP_LISTEN".into(), rtmp.address().to_string()));
        let rtmps = with_tls.then(lease);
        if let Some(rtmps) = &rtmps {
            settings.push(("SATCAST_INGEST__RTMPS_LISTEN".into(), rtmps.address().to_string()));
        }
        let srt = with_srt.then(lease);
        if let Some(srt) = &srt {
            settings.push(("SATCAST_INGEST__SRT_LISTEN".into(), srt.address().to_string()));
        }
        let whip = with_whip.then(lease);
        if let Some(whip) = &whip {
            settings.push(("SATCAST_INGEST__WEBRTC_LISTEN".into(), whip.address().to_string()));
        }
        let scheme = if https { "https" } else { "http" };
        settings.push(("SATCAST_PUBLIC_URL".into(), format!("{scheme}://{}", http.address())));
        if settings.iter().any(|(known, _)| known == "SATCAST_CLUSTER__NODE") {
            settings.push(("SATCAST_CLUSTER__ADVERTISE".into(), format!("{scheme}://{}", http.address())));
        }
        settings.push(("SATCAST_DATA_DIR".into(), folder.path().join("data").to_string_lossy().into_owned()));
        Service { process: None, folder, host, http, rtmp, rtmps, srt, whip, https, settings, key: None }
    }

    /// Starts it, waits until it is ready, and makes an account with a permanent key.
    ///
    /// # Panics
    /// When it does not get ready.
    #[must_use]
    #[track_caller]
    pub fn start(self) -> Service {
        let mut service = self.stopped();
        service.start();
        service.make_account();
        service
    }

    fn default(self, variable: &str, value: &str) -> Self {
        if self.settings.iter().any(|(known, _)| known == variable) {
            self
        } else {
            self.set(variable, value)
        }
    }
}

/// The service with its folder; running or not.
#[derive(Debug)]
pub struct Service {
    process: Option<Process>,
    folder: TempDir,
    host: Option<Host>,
    http: Port,
    rtmp: Port,
    rtmps: Option<Port>,
    srt: Option<Port>,
    whip: Option<Port>,
    https: bool,
    settings: Vec<(String, String)>,
    key: Option<String>,
}

impl Service {
    /// Starts it and waits until both ports answer.
    ///
    /// # Panics
    /// When it ends or does not get ready.
    #[track_caller]
    pub fn start(&mut self) {
        let data = self.folder.path().join("data");
        driver_copies::lend(&data);
        let mut command = self.program(&binary());
        command.arg("run");
        self.environment(&mut command);
        let mut process = Process::start("satcast", command, &self.log_path());
        wait::until("the service to be ready", || {
            if let Some(status) = process.ended() {
                panic!("the service ended with {status}:\n{}", process.log());
            }
            self.ready().map_err(|state| format!("{state}; its log:\n{}", process.log()))
        });
        driver_copies::keep(&data);
        self.process = Some(process);
    }

    /// Sets an environment variable of the service from the next start on.
    pub fn set(&mut self, variable: &str, value: &str) {
        self.settings.retain(|(known, _)| known != variable);
        self.settings.push((variable.to_owned(), value.to_owned()));
    }

    /// Uses https from the next start on, with the certificate and key in these files. Tests cannot use the API then.
    pub fn use_https(&mut self, pair: &Pair) {
        self.https = true;
        for (name, path) in [("CERT", &pair.cert), ("KEY", &pair.key)] {
            self.settings.push((format!("SATCAST_HTTP__TLS_{name}"), path.to_string_lossy().into_owned()));
        }
        self.set("SATCAST_PUBLIC_URL", &self.base());
    }

    fn ready(&self) -> Result<(), String> {
        if self.https {
            // The API client of the tests has no TLS.
            TcpStream::connect(self.http.address()).map_err(|error| format!("https: {error}"))?;
        } else {
            let answer = Api::new(&self.base(), None).try_get("/api/public/config")?;
            if answer.status != 200 {
                return Err(format!("/api/public/config answers {}", answer.status));
            }
        }
        TcpStream::connect(self.rtmp.address()).map(|_| ()).map_err(|error| format!("RTMP: {error}"))
    }

    /// Makes an account with a permanent key, as [`Setup::start`] does.
    ///
    /// # Panics
    /// When there is one already.
    pub fn make_account(&mut self) {
        self.run(&["account", "create", ACCOUNT]);
        let key = self.run(&["key", "create", "--account", ACCOUNT, "--type", "permanent"]);
        self.key = Some(key.trim().to_owned());
    }

    /// Ends it as `kill -9` does.
    ///
    /// # Panics
    /// When it was not running.
    pub fn kill(&mut self) {
        self.process.take().expect("a running service").kill();
    }

    /// Ends it as Ctrl-C and `systemctl stop` do.
    ///
    /// # Panics
    /// When it was not running or does not end.
    #[track_caller]
    pub fn stop(&mut self) -> ExitStatus {
        self.process.take().expect("a running service").terminate(STOP_LIMIT)
    }

    /// The running process, to look at its CPU time and memory.
    ///
    /// # Panics
    /// When it is not running.
    #[must_use]
    pub fn process(&self) -> &Process {
        self.process.as_ref().expect("a running service")
    }

    /// Expects that it has not ended.
    ///
    /// # Panics
    /// When it has.
    #[track_caller]
    pub fn assert_running(&mut self) {
        let ended = self.process.as_mut().expect("a started service").ended();
        assert!(ended.is_none(), "the service ended with {ended:?}");
    }

    /// Runs `satcast ARGUMENTS` with the same configuration, beside the running service or alone.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn command(&self, arguments: &[&str]) -> Output {
        let mut command = self.program(&binary());
        command.args(arguments);
        self.environment(&mut command);
        command.output().expect("the binary can be started")
    }

    /// A shell command line with the same configuration, to be started by the test.
    #[must_use]
    pub fn shell(&self, line: &str) -> Command {
        let mut command = self.program(Path::new("/bin/sh"));
        command.args(["-ec", line]);
        self.environment(&mut command);
        command
    }

    /// Runs a command that must succeed; returns its standard output.
    ///
    /// # Panics
    /// When it fails.
    #[track_caller]
    pub fn run(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "satcast {arguments:?} ended with {}: {errors}", output.status);
        String::from_utf8(output.stdout).expect("standard output in UTF-8")
    }

    /// The API with the permanent key of the account.
    ///
    /// # Panics
    /// When the service was never started with an account.
    #[must_use]
    pub fn api(&self) -> Api {
        Api::new(&self.base(), Some(self.key()))
    }

    /// The API with another key of `account`, because each key has its own rate limit.
    ///
    /// # Panics
    /// When there is no such account.
    #[must_use]
    #[track_caller]
    pub fn api_of(&self, account: &str) -> Api {
        let key = self.run(&["key", "create", "--account", account, "--type", "permanent"]);
        Api::new(&self.base(), Some(key.trim()))
    }

    /// The permanent key of the account.
    ///
    /// # Panics
    /// When the service was never started with an account.
    #[must_use]
    pub fn key(&self) -> &str {
        self.key.as_deref().expect("a service that was started with an account")
    }

    /// `http://host:port`, or `https://`
    #[must_use]
    pub fn base(&self) -> String {
        format!("http{}://{}", if self.https { "s" } else { "" }, self.http.address())
    }

    /// The address for the API and viewers.
    #[must_use]
    pub fn http_address(&self) -> SocketAddr {
        self.http.address()
    }

    /// The address for encoders.
    #[must_use]
    pub fn rtmp_address(&self) -> SocketAddr {
        self.rtmp.address()
    }

    /// The URL that an encoder publishes to, stream key included.
    #[must_use]
    pub fn ingest_url(&self, stream_key: &str) -> String {
        format!("rtmp://{}/live/{stream_key}", self.rtmp.address())
    }

    /// The UDP port for encoders by SRT.
    ///
    /// # Panics
    /// When it was set up without.
    #[must_use]
    pub fn srt_address(&self) -> SocketAddr {
        self.srt.as_ref().expect("a service with SRT").address()
    }

    /// Where encoders by WHIP send their offers.
    #[must_use]
    pub fn whip_url(&self) -> String {
        format!("{}/whip", self.base())
    }

    /// The UDP port for the media of encoders by WHIP.
    ///
    /// # Panics
    /// When it was set up without.
    #[must_use]
    pub fn whip_address(&self) -> SocketAddr {
        self.whip.as_ref().expect("a service with WHIP").address()
    }

    /// The address for encoders with TLS.
    ///
    /// # Panics
    /// When it was set up without.
    #[must_use]
    pub fn rtmps_address(&self) -> SocketAddr {
        self.rtmps.as_ref().expect("a service with rtmps").address()
    }

    /// The URL that an encoder publishes to over TLS, stream key included.
    ///
    /// # Panics
    /// When it was set up without.
    #[must_use]
    pub fn secure_ingest_url(&self, stream_key: &str) -> String {
        format!("rtmps://{}/live/{stream_key}", self.rtmps_address())
    }

    /// The working folder; the data folder is `data` in it.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The output of all starts.
    #[must_use]
    pub fn log(&self) -> String {
        read_lossy(&self.log_path())
    }

    /// Waits until a line of the log satisfies `wanted`, and gives it.
    ///
    /// # Panics
    /// When no line did in time.
    #[track_caller]
    pub fn wait_for_log(&self, what: &str, wanted: impl Fn(&str) -> bool) -> String {
        wait::until(&format!("{what} in the log"), || {
            let log = self.log();
            log.lines().find(|line| wanted(line)).map(str::to_owned).ok_or(log)
        })
    }

    /// Expects that none of `secrets` was ever logged.
    ///
    /// # Panics
    /// When one was (it is not repeated in the message).
    #[track_caller]
    pub fn assert_not_logged(&self, secrets: &[(&str, &str)]) {
        let log = self.log();
        for (what, secret) in secrets {
            let line = log.lines().position(|line| line.contains(secret));
            assert!(line.is_none(), "{what} is in line {} of the log", line.unwrap_or_default() + 1);
        }
    }

    fn log_path(&self) -> PathBuf {
        self.folder.path().join("satcast.log")
    }

    fn program(&self, program: &Path) -> Command {
        self.host.as_ref().map_or_else(|| guarded(program), |host| host.guarded(program))
    }

    fn environment(&self, command: &mut Command) {
        // Variables of the tests (SATCAST_BIN and others) would be unknown settings of the service.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("SATCAST_") {
                command.env_remove(name);
            }
        }
        command.envs(self.settings.iter().map(|(name, value)| (name, value))).current_dir(self.folder.path());
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            let tail = lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n");
            eprintln!("---- the end of the service's log ----\n{tail}\n----");
        }
    }
}
