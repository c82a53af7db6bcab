//! A network of the test's own: hosts in network namespaces behind one bridge, which lose packets when they are told to.
//!
//! It needs root. Everything ends with the thread that entered it, so nothing has to be removed.

use std::net::Ipv4Addr;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use nix::sched::{CloneFlags, unshare};
use nix::unistd::geteuid;
use tempfile::TempDir;

use crate::process::{Process, guarded};
use crate::wait::until;

/// The network of all hosts, as a network filter names it.
pub const NETWORK: &str = "10.77.0.0/24";
/// Address of the thread that entered the network, and of everything that it starts itself.
pub const HERE: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);

/// The network of the thread that entered it.
#[derive(Debug)]
pub struct Network(());

impl Network {
    /// Whether this user may have one, here: root of a container may lack the right.
    #[must_use]
    pub fn is_possible() -> bool {
        let script =
            "ip link set lo up && ip link add hub type bridge && ip link add one type veth peer name two";
        let mut command = guarded(Path::new("unshare"));
        command.args(["--net", "sh", "-c", script]);
        geteuid().is_root() && command.output().is_ok_and(|output| output.status.success())
    }

    /// Moves this thread, and all that it starts from now on, into a new network.
    ///
    /// # Panics
    /// When [`Network::is_possible`] is false.
    #[must_use]
    #[track_caller]
    pub fn enter() -> Self {
        unshare(CloneFlags::CLONE_NEWNET).expect("root may have a network of its own");
        let script = format!(
            "ip link set lo up && ip link add hub type bridge && ip addr add {HERE}/24 dev hub && ip link set hub up"
        );
        run(guarded(Path::new("sh")).args(["-ec", &script]));
        Self(())
    }

    /// A new host with the address 10.77.0.`number`.
    ///
    /// # Panics
    /// When it cannot be made, or the number is taken.
    #[must_use]
    #[track_caller]
    pub fn host(&self, number: u8) -> Host {
        let folder = tempfile::tempdir().expect("a folder for the host");
        let mut command = guarded(Path::new("unshare"));
        command.args(["--net", "sleep", "infinity"]);
        let holder = Process::start("a host", command, &folder.path().join("log"));
        let space = format!("/proc/{}/ns/net", holder.id());
        let number_of = |path: &str| std::fs::metadata(path).map(|space| space.ino()).ok();
        let ours = number_of("/proc/thread-self/ns/net");
        until("the network of a host", || match number_of(&space) {
            theirs if theirs.is_some() && theirs != ours => Ok(()),
            _ => Err(holder.log()),
        });
        let [a, b, c, _] = HERE.octets();
        let host = Host(Arc::new(Space { holder, address: Ipv4Addr::new(a, b, c, number), _folder: folder }));
        let pair = format!(
            "ip link add port{number} type veth peer name eth0 netns {} && ip link set port{number} master hub up",
            host.0.holder.id()
        );
        run(guarded(Path::new("sh")).args(["-ec", &pair]));
        host.ip(&["link", "set", "lo", "up"]);
        host.ip(&["addr", "add", &format!("{}/24", host.address()), "dev", "eth0"]);
        host.ip(&["link", "set", "eth0", "up"]);
        host
    }
}

/// A host of the network.
#[derive(Clone, Debug)]
pub struct Host(Arc<Space>);

#[derive(Debug)]
struct Space {
    /// Keeps the namespace while no other process is in it.
    holder: Process,
    address: Ipv4Addr,
    _folder: TempDir,
}

impl Host {
    /// Its address.
    #[must_use]
    pub fn address(&self) -> Ipv4Addr {
        self.0.address
    }

    /// A command for `program` on this host, with the process id of the program. It does not end by itself.
    #[must_use]
    pub fn command(&self, program: &Path) -> Command {
        self.enter(Command::new("nsenter"), program)
    }

    /// The same, but the process ends with the thread that starts it.
    #[must_use]
    pub fn guarded(&self, program: &Path) -> Command {
        self.enter(guarded(Path::new("nsenter")), program)
    }

    /// Loses everything that this host sends to `other`, until [`Host::mend`]. New connections from here fail at once; the
    /// other side, and connections that are there, hear nothing more.
    ///
    /// # Panics
    /// When it does so already.
    #[track_caller]
    pub fn lose(&self, other: &Host) {
        self.ip(&["route", "add", "blackhole", &format!("{}/32", other.address())]);
    }

    /// Ends [`Host::lose`].
    ///
    /// # Panics
    /// When nothing is lost.
    #[track_caller]
    pub fn mend(&self, other: &Host) {
        self.ip(&["route", "del", "blackhole", &format!("{}/32", other.address())]);
    }

    fn enter(&self, mut command: Command, program: &Path) -> Command {
        command.arg(format!("--net=/proc/{}/ns/net", self.0.holder.id())).arg("--").arg(program);
        command
    }

    #[track_caller]
    fn ip(&self, arguments: &[&str]) {
        run(self.guarded(Path::new("ip")).args(arguments));
    }
}

#[track_caller]
fn run(command: &mut Command) {
    let output = command.output().expect("iproute2 and util-linux are installed (cargo xtask setup)");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}
