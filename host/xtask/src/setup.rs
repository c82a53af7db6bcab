//! `cargo xtask setup`: checks and installs the tools that are needed besides Rust.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::process;

/// Oldest compiler that the workspace builds with (edition 2024 and the crates it uses).
const RUST_MIN: (u32, u32) = (1, 95);
/// Oldest Node that the players of the tests and the dashboard's tools run on.
const NODE_MIN: (u32, u32) = (20, 19);

/// Version of the test runner that is installed when missing; its groups and weights are in `tests/nextest.toml`.
const NEXTEST: &str = "0.9.143";

/// A Debian package that the tests or the benchmarks use as a peer.
struct Package {
    /// Name for apt.
    name: &'static str,
    /// A file that exists once the package is installed.
    file: &'static str,
    /// Its use in the project.
    purpose: &'static str,
    /// Whether current tests need it.
    required: bool,
}

const PACKAGES: &[Package] = &[
    Package {
        name: "gcc",
        file: "/usr/bin/cc",
        purpose: "links Rust, builds SQLite, compiles the C driver of a test",
        required: true,
    },
    Package {
        name: "g++",
        file: "/usr/bin/c++",
        purpose: "compiles the header of the driver contract; builds libFuzzer (cargo xtask soak)",
        required: true,
    },
    Package {
        name: "libc6-dev",
        file: "/usr/include/stdio.h",
        purpose: "C headers for the above",
        required: true,
    },
    Package { name: "make", file: "/usr/bin/make", purpose: "builds drivers in C", required: true },
    Package {
        name: "binutils",
        file: "/usr/bin/nm",
        purpose: "lists what binary and drivers export",
        required: true,
    },
    Package {
        name: "util-linux",
        file: "/usr/bin/setpriv",
        purpose: "ends test processes with their test",
        required: true,
    },
    Package {
        name: "iproute2",
        file: "/usr/sbin/ip",
        purpose: "makes networks of hosts that lose packets",
        required: true,
    },
    Package { name: "curl", file: "/usr/bin/curl", purpose: "the commands of the documents", required: true },
    Package {
        name: "jq",
        file: "/usr/bin/jq",
        purpose: "reads answers in the same commands",
        required: true,
    },
    Package {
        name: "ffmpeg",
        file: "/usr/bin/ffmpeg",
        purpose: "encoder and player of the end-to-end tests",
        required: true,
    },
    Package {
        name: "faketime",
        file: "/usr/bin/faketime",
        purpose: "moves the clock of a service under test",
        required: true,
    },
    Package {
        name: "srt-tools",
        file: "/usr/bin/srt-live-transmit",
        purpose: "calls the service by SRT",
        required: true,
    },
    Package {
        name: "gstreamer1.0-tools",
        file: "/usr/bin/gst-launch-1.0",
        purpose: "an encoder besides ffmpeg",
        required: true,
    },
    Package {
        name: "gstreamer1.0-plugins-bad",
        file: "/usr/share/gstreamer-1.0/presets/GstFreeverb.prs",
        purpose: "its transport streams and SRT",
        required: true,
    },
    Package {
        name: "nginx",
        file: "/usr/sbin/nginx",
        purpose: "third-party RTMP server to push to, and HTTP server for comparison",
        required: true,
    },
    Package {
        name: "libnginx-mod-rtmp",
        file: "/usr/lib/nginx/modules/ngx_rtmp_module.so",
        purpose: "its RTMP module",
        required: true,
    },
    Package {
        name: "chromium-headless-shell",
        file: "/usr/bin/chromium-headless-shell",
        purpose: "player of the playback tests",
        required: true,
    },
    Package {
        name: "python3-venv",
        // dpkg's own list, because the package has no files and only depends on others.
        file: "/var/lib/dpkg/info/python3-venv.list",
        purpose: "the Python tools of the API tests, and the wallets of the wallet tests",
        required: true,
    },
    Package {
        name: "default-jre-headless",
        file: "/usr/bin/java",
        purpose: "generates the Python client of the API tests",
        required: true,
    },
    Package {
        name: "postgresql",
        file: "/usr/lib/postgresql",
        purpose: "database server of the tests, which start their own",
        required: true,
    },
    Package {
        name: "prometheus",
        file: "/usr/bin/promtool",
        purpose: "checks alerts and metrics",
        required: true,
    },
    Package {
        name: "systemd",
        file: "/lib/systemd/systemd",
        purpose: "first process of the machine that packages are installed on",
        required: true,
    },
];

/// Checks the tools, installs missing packages when we are root, names the one command when we are not.
pub(crate) fn run() -> Result<(), String> {
    check_rust()?;
    check_node()?;
    check_nextest()?;
    for package in PACKAGES {
        let state = match (installed(package), package.required) {
            (true, _) => "ok",
            (false, true) => "missing",
            (false, false) => "not yet needed",
        };
        println!("  {:<24} {state:<15} {}", package.name, package.purpose);
    }
    let missing = missing();
    if missing.is_empty() {
        return Ok(());
    }
    if !is_root()? {
        return Err(format!(
            "packages are missing; install them and run this again: sudo apt-get install --no-install-recommends {}",
            missing.join(" ")
        ));
    }
    install(&missing)?;
    let still = self::missing();
    if still.is_empty() {
        Ok(())
    } else {
        Err(format!("apt-get ran, but these are still missing: {}; install them by hand", still.join(", ")))
    }
}

fn installed(package: &Package) -> bool {
    Path::new(package.file).exists()
}

fn missing() -> Vec<&'static str> {
    PACKAGES
        .iter()
        .filter(|package| package.required && !installed(package))
        .map(|package| package.name)
        .collect()
}

fn is_root() -> Result<bool, String> {
    let status = std::fs::read_to_string("/proc/self/status")
        .map_err(|error| format!("cannot read our user id: {error}"))?;
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("Uid:"))
        .and_then(|ids| ids.split_whitespace().nth(1));
    Ok(effective == Some("0"))
}

fn check_rust() -> Result<(), String> {
    let text = process::output(process::command("rustc").arg("--version"))?;
    match version(&text) {
        Some(found) if found >= RUST_MIN => {
            println!("  {:<18} {:<15} {}", "rustc", "ok", text.trim());
            Ok(())
        }
        _ => Err(format!(
            "{} is too old: install Rust {}.{} or newer from rustup.rs",
            text.trim(),
            RUST_MIN.0,
            RUST_MIN.1
        )),
    }
}

/// Node and npm build the pages and run the players of the playback tests; a distribution's own Node is often too old.
fn check_node() -> Result<(), String> {
    let found = node();
    let (major, minor) = NODE_MIN;
    let state = if found.is_ok() { "ok" } else { "missing" };
    println!(
        "  {:<18} {state:<15} pages, players of the tests; version {major}.{minor} or newer with npm",
        "node"
    );
    found
}

/// Builds the test runner from source for the current user, once; it takes some minutes.
fn check_nextest() -> Result<(), String> {
    let is_there = process::available("cargo-nextest", "--version");
    let state = if is_there { "ok" } else { "missing" };
    println!("  {:<18} {state:<15} runs the tests", "cargo-nextest");
    if is_there {
        return Ok(());
    }
    process::run(process::cargo().args([
        "install",
        "--locked",
        "--quiet",
        &format!("cargo-nextest@{NEXTEST}"),
    ]))
}

/// Fails when Node or npm is missing or too old.
pub(crate) fn node() -> Result<(), String> {
    let found = process::output(process::command("node").arg("--version")).ok();
    let npm = process::available("npm", "--version");
    let state = match found.as_deref().and_then(version) {
        Some(found) if found >= NODE_MIN && npm => return Ok(()),
        Some(found) if found >= NODE_MIN => "npm not found",
        Some(_) => "too old",
        None => "not found",
    };
    let (major, minor) = NODE_MIN;
    Err(format!("node: {state}; install Node {major}.{minor} or newer with npm from nodejs.org"))
}

/// Major and minor number of the first version in `text`.
fn version(text: &str) -> Option<(u32, u32)> {
    text.split_whitespace().find_map(|word| {
        let mut parts = word.trim_start_matches('v').split('.');
        Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
    })
}

fn install(packages: &[&str]) -> Result<(), String> {
    // Debian starts a packaged server as soon as it is installed, but only tests may start these servers.
    let _services_stay_down = PolicyRc::deny(Path::new("/usr/sbin/policy-rc.d"))?;
    let mut update = process::command("apt-get");
    process::run(update.args(["update", "-qq"]).env("DEBIAN_FRONTEND", "noninteractive"))?;
    let mut install = process::command("apt-get");
    install.args(["install", "-y", "-qq", "--no-install-recommends"]).args(packages);
    process::run(install.env("DEBIAN_FRONTEND", "noninteractive"))
}

/// Prevents dpkg from starting services; dropping it restores the machine's own policy.
struct PolicyRc {
    path: PathBuf,
    before: Option<(Vec<u8>, u32)>,
}

impl PolicyRc {
    fn deny(path: &Path) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("cannot change {}: {error}", path.display());
        let before = match std::fs::read(path) {
            Ok(bytes) => Some((bytes, std::fs::metadata(path).map_err(failed)?.permissions().mode())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed(error)),
        };
        let guard = Self { path: path.to_owned(), before };
        std::fs::write(path, "#!/bin/sh\nexit 101\n").map_err(failed)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).map_err(failed)?;
        Ok(guard)
    }
}

impl Drop for PolicyRc {
    fn drop(&mut self) {
        let restored = match &self.before {
            None => std::fs::remove_file(&self.path),
            Some((bytes, mode)) => std::fs::write(&self.path, bytes)
                .and_then(|()| std::fs::set_permissions(&self.path, std::fs::Permissions::from_mode(*mode))),
        };
        if let Err(error) = restored {
            eprintln!("warning: cannot restore {}: {error}", self.path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_the_output_of_tools() {
        assert_eq!(version("rustc 1.95.0 (59807616e 2026-04-14)"), Some((1, 95)));
        assert_eq!(version("v20.20.2\n"), Some((20, 20)));
        assert_eq!(version("no version here"), None);
    }

    #[test]
    fn the_service_policy_is_put_back() {
        let path = std::env::temp_dir().join(format!("satcast-policy-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        drop(PolicyRc::deny(&path).unwrap());
        assert!(!path.exists());

        std::fs::write(&path, "own").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
        let guard = PolicyRc::deny(&path).unwrap();
        assert!(std::fs::read_to_string(&path).unwrap().contains("exit 101"));
        drop(guard);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "own");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        std::fs::remove_file(path).unwrap();
    }
}
