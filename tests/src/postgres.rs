//! A PostgreSQL server for tests: in a new folder, at its own port, with a password and TLS, and mostly without protection against
//! power loss. It always ends with the thread that started it.

use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tempfile::TempDir;

use crate::network::{Host, NETWORK};
use crate::ports::Port;
use crate::process::{Process, read_lossy};
use crate::wait::{seconds, until};

/// Folder of Debian's packages, with a folder for each version.
const PACKAGES: &str = "/usr/lib/postgresql";
/// The server refuses to run as root. This account exists on every system and owns no files.
const ACCOUNT: &str = "nobody";
/// The only role, with all rights.
const ROLE: &str = "satcast";
/// Must never appear in output.
pub const PASSWORD: &str = "correct-horse-battery";

/// A file system in memory: making and dropping a database, a thousand files, costs half there.
const MEMORY: &str = "/dev/shm";
/// Free bytes of it that are needed: databases of tests that run at the same time, and the log of writes.
const MEMORY_BYTES_MIN: u64 = 2 * 1024 * 1024 * 1024;

/// A running server, or one that was stopped and can start again on the same data.
#[derive(Debug)]
pub struct Postgres {
    process: Option<Process>,
    folder: TempDir,
    port: Port,
    durable: bool,
    /// Nobody needs a password without TLS.
    trusting: bool,
    /// Where it runs, if not here.
    host: Option<Host>,
}

impl Postgres {
    /// Makes a new server and starts it.
    ///
    /// # Panics
    /// When PostgreSQL is not installed (`cargo xtask setup` says how) or does not start.
    #[must_use]
    pub fn start() -> Self {
        Self::new(false, false, None)
    }

    /// The same, without a password for connections without TLS. For many short connections: each handshake and login costs as much as a
    /// small test.
    ///
    /// # Panics
    /// As [`Postgres::start`].
    #[must_use]
    pub fn trusting() -> Self {
        Self::new(false, true, None)
    }

    /// The same as [`Postgres::start`], with commits that survive power loss.
    ///
    /// # Panics
    /// As [`Postgres::start`].
    #[must_use]
    pub fn durable() -> Self {
        Self::new(true, false, None)
    }

    /// The same as [`Postgres::start`], on a host of the test's network.
    ///
    /// # Panics
    /// As [`Postgres::start`].
    #[must_use]
    pub fn start_at(host: &Host) -> Self {
        Self::new(false, false, Some(host.clone()))
    }

    fn new(durable: bool, trusting: bool, host: Option<Host>) -> Self {
        let mut builder = tempfile::Builder::new();
        let builder = builder.prefix("satcast-postgres-");
        let made = if durable || !has_room(MEMORY) { builder.tempdir() } else { builder.tempdir_in(MEMORY) };
        let folder = made.expect("a folder for PostgreSQL");
        // The server's own user must have access to its files.
        mode(folder.path(), 0o755);
        let mut server = Self { process: None, folder, port: Port::lease(), durable, trusting, host };
        server.make();
        server.start_again();
        server
    }

    /// The address of a database: TLS, with the server's certificate checked.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        let ca = self.file("ca.pem");
        format!("{}/{database}?sslmode=verify-full&sslrootcert={}", self.server(), ca.display())
    }

    /// The address up to the name of a database, without TLS.
    #[must_use]
    pub fn server(&self) -> String {
        let host =
            self.host.as_ref().map_or_else(|| "localhost".to_owned(), |host| host.address().to_string());
        format!("postgres://{ROLE}:{PASSWORD}@{host}:{}", self.port.address().port())
    }

    /// The certificate that signed the server's.
    #[must_use]
    pub fn authority(&self) -> PathBuf {
        self.file("ca.pem")
    }

    /// Makes an empty database.
    ///
    /// # Panics
    /// When that fails.
    pub fn make_database(&self, name: &str) {
        let _ = self.ask("postgres", &format!("CREATE DATABASE {name}"));
    }

    /// Runs a query; returns the output of psql.
    ///
    /// # Panics
    /// When that fails.
    #[must_use]
    pub fn ask(&self, database: &str, sql: &str) -> String {
        let mut command = Command::new(programs().join("psql"));
        command.args(["--no-psqlrc", "--tuples-only", "--no-align", "--command", sql]);
        command.arg(format!("{}/{database}", self.server()));
        let output = command.output().expect("psql starts");
        assert!(output.status.success(), "{sql}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// CPU time that the server has used so far.
    ///
    /// # Panics
    /// When it is not running.
    #[must_use]
    pub fn cpu(&self) -> Duration {
        self.process.as_ref().expect("a running PostgreSQL").cpu()
    }

    /// Stops the server at once, like a crash.
    ///
    /// # Panics
    /// When it is not running.
    pub fn kill(&mut self) {
        let mut process = self.process.take().expect("a running PostgreSQL");
        quit(process.id());
        let _ = process.wait(seconds(60));
    }

    /// Starts the server on its existing data.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start_again(&mut self) {
        let (data, log) = (self.data(), self.folder.path().join("log"));
        let mut command = as_account("QUIT", self.host.as_ref());
        let address = self.host.as_ref().map_or(Ipv4Addr::LOCALHOST, Host::address);
        command.arg(programs().join("postgres")).arg("-D").arg(&data).stdin(Stdio::null());
        for setting in [
            format!("listen_addresses={address}"),
            format!("port={}", self.port.address().port()),
            "unix_socket_directories=".to_owned(),
            "max_connections=300".to_owned(),
            format!("fsync={}", self.durable),
            format!("full_page_writes={}", self.durable),
            // Databases of tests do not live long enough for it.
            "autovacuum=off".to_owned(),
            "max_wal_size=256MB".to_owned(),
            "ssl=on".to_owned(),
            format!("ssl_cert_file={}", self.file("server.pem").display()),
            format!("ssl_key_file={}", self.file("server.key").display()),
        ] {
            command.args(["-c", &setting]);
        }
        let mut process = Process::start("PostgreSQL", command, &log);
        until("PostgreSQL to be ready", || {
            if let Some(status) = process.ended() {
                panic!("PostgreSQL ended with {status}:\n{}", process.log());
            }
            let state = read_lossy(&data.join("postmaster.pid"));
            if state.lines().any(|line| line.trim() == "ready") { Ok(()) } else { Err(process.log()) }
        });
        self.process = Some(process);
    }

    fn make(&self) {
        let password = self.file("password");
        std::fs::write(&password, PASSWORD).expect("a file with the password");
        self.make_certificates();
        let data = self.data();
        std::fs::create_dir(&data).expect("a folder for the data");
        mode(&data, 0o700);
        if is_root() {
            let owned = [&data, &password, &self.file("server.key")];
            let status = Command::new("chown").arg(ACCOUNT).args(owned).status().expect("chown starts");
            assert!(status.success(), "chown: {status}");
        }
        let mut command = as_account("KILL", None);
        command.arg(programs().join("initdb")).arg("-D").arg(&data);
        command.args(["--username", ROLE, "--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C"]);
        command.arg("--no-sync").arg("--pwfile").arg(&password);
        let output = command.output().expect("initdb starts");
        assert!(output.status.success(), "initdb: {}", String::from_utf8_lossy(&output.stderr));
        let rules = data.join("pg_hba.conf");
        let mut known = std::fs::read_to_string(&rules).expect("the rules of access");
        if self.trusting {
            known.insert_str(0, "hostnossl all all 127.0.0.1/32 trust\n");
        }
        if self.host.is_some() {
            known.push_str(&format!("host all all {NETWORK} scram-sha-256\n"));
        }
        std::fs::write(&rules, known).expect("rules of access");
    }

    /// A certificate for `localhost`, and the certificate of its authority.
    fn make_certificates(&self) {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key"));
        let authority = authority.expect("a certificate of our own");
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
        let certificate = params.signed_by(&key, &authority).expect("a certificate");
        let key_file = self.file("server.key");
        for (file, text) in [
            (self.file("ca.pem"), pem("CERTIFICATE", authority.der())),
            (self.file("server.pem"), pem("CERTIFICATE", certificate.der())),
            (key_file.clone(), pem("PRIVATE KEY", &key.serialize_der())),
        ] {
            std::fs::write(file, text).expect("a file for a certificate");
        }
        mode(&key_file, 0o600);
    }

    fn data(&self) -> PathBuf {
        self.file("data")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // A regular end of the server also ends its child processes.
        if let Some(process) = &self.process {
            quit(process.id());
        }
        if let Some(mut process) = self.process.take() {
            for _ in 0..200 {
                if process.ended().is_some() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

/// The text form of a certificate or key.
fn pem(what: &str, bytes: &[u8]) -> String {
    let text = STANDARD.encode(bytes);
    let lines: Vec<String> =
        text.as_bytes().chunks(64).map(|line| String::from_utf8_lossy(line).into_owned()).collect();
    format!("-----BEGIN {what}-----\n{}\n-----END {what}-----\n", lines.join("\n"))
}

/// Asks the server to end at once, its children with it.
fn quit(id: u32) {
    // Fails only when the server has ended already.
    let _ = Command::new("kill").args(["-QUIT", &id.to_string()]).status();
}

/// A command that runs as an account the server accepts, and ends with our thread by `signal`.
fn as_account(signal: &str, host: Option<&Host>) -> Command {
    let program = Path::new("setpriv");
    let mut command = host.map_or_else(|| Command::new(program), |host| host.command(program));
    if is_root() {
        command.args(["--reuid", ACCOUNT, "--regid", "nogroup", "--clear-groups"]);
    }
    command.args(["--pdeathsig", signal, "--"]);
    command
}

fn is_root() -> bool {
    nix::unistd::Uid::effective().is_root()
}

fn mode(path: &Path, bits: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(bits))
        .expect("permissions of our own file");
}

fn has_room(folder: &str) -> bool {
    nix::sys::statvfs::statvfs(folder)
        .is_ok_and(|space| space.blocks_available() * space.fragment_size() >= MEMORY_BYTES_MIN)
}

/// The folder with the programs of the newest version that is installed.
fn programs() -> PathBuf {
    let versions = std::fs::read_dir(PACKAGES).into_iter().flatten().flatten();
    let number = |path: &PathBuf| path.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok());
    let newest = versions.map(|entry| entry.path()).filter(|path| number(path).is_some()).max_by_key(number);
    let folder = newest.unwrap_or_else(|| panic!("PostgreSQL is not installed; run: cargo xtask setup"));
    folder.join("bin")
}
