//! The machine of a run, and the versions of what is measured on it.

use std::path::Path;
use std::process::Command;

use serde_json::{Map, Value, json};

/// Peers that cargo provides: package, and its name in the tables.
const CRATES: [&str; 3] = ["hyper", "object_store", "poem"];
/// Fields of the machine with their titles.
const TITLES: [(&str, &str); 8] = [
    ("command", "Command"),
    ("date", "Date"),
    ("commit", "Commit"),
    ("processor", "Processor"),
    ("cores", "Cores"),
    ("memory_gib", "Memory in GiB"),
    ("kernel", "Kernel"),
    ("load", "Load before the run"),
];

/// The command, date, commit, processor, cores, memory, kernel, load, and the peers with their versions. What cannot be found out is
/// left empty.
#[must_use]
pub fn describe(command: &str) -> Value {
    json!({
        "command": command,
        "date": output("date", &["-u", "+%Y-%m-%dT%H:%M:%SZ"]),
        "commit": output("git", &["describe", "--always", "--dirty", "--abbrev=10"]),
        "processor": value_of(&read("/proc/cpuinfo"), "model name"),
        "cores": std::thread::available_parallelism().map_or(0, usize::from),
        "memory_gib": gib(&read("/proc/meminfo")),
        // Its version alone: what follows names the build of a machine.
        "kernel": read("/proc/sys/kernel/osrelease").trim().split('-').next(),
        "load": read("/proc/loadavg").split(' ').next().unwrap_or_default(),
        "peers": peers(),
    })
}

/// The machine as rows of a table.
#[must_use]
pub fn rows(machine: &Value) -> Vec<[String; 2]> {
    let shown = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let mut rows: Vec<[String; 2]> =
        TITLES.iter().map(|(name, title)| [(*title).to_owned(), shown(&machine[name])]).collect();
    let peers = machine["peers"].as_object();
    rows.extend(peers.into_iter().flatten().map(|(name, version)| [name.clone(), shown(version)]));
    rows
}

fn peers() -> Map<String, Value> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let debian = |package: &str| output("dpkg-query", &["-W", "-f", "${Version}", package]);
    let lock = read(root.join("Cargo.lock"));
    let npm: Value = serde_json::from_str(&read(root.join("tests/peers/package.json"))).unwrap_or_default();
    let mut peers = Map::from_iter([
        ("nginx".to_owned(), json!(debian("nginx"))),
        ("nginx-rtmp".to_owned(), json!(debian("libnginx-mod-rtmp"))),
        ("srt-live-transmit".to_owned(), json!(debian("srt-tools"))),
        ("node-media-server".to_owned(), npm["dependencies"]["node-media-server"].clone()),
        ("node".to_owned(), json!(output("node", &["--version"]))),
        ("ffmpeg".to_owned(), json!(debian("ffmpeg"))),
    ]);
    peers.extend(CRATES.map(|name| (name.to_owned(), json!(locked(&lock, name)))));
    peers
}

/// What a program prints, or nothing.
fn output(program: &str, arguments: &[&str]) -> String {
    let mut command = Command::new(program);
    let output = command.args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).output();
    let printed = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    printed.unwrap_or_default()
}

fn read(path: impl AsRef<Path>) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// The value of the first line `name : value`.
fn value_of(text: &str, name: &str) -> String {
    let value = text.lines().find_map(|line| {
        let (found, value) = line.split_once(':')?;
        (found.trim() == name).then(|| value.trim().to_owned())
    });
    value.unwrap_or_default()
}

/// All memory, from the text of `/proc/meminfo`.
fn gib(meminfo: &str) -> u64 {
    let total = value_of(meminfo, "MemTotal");
    total.trim_end_matches(" kB").parse::<u64>().unwrap_or_default() / (1024 * 1024)
}

/// The version of a package in the text of `Cargo.lock`.
fn locked(lock: &str, package: &str) -> String {
    let name = format!("name = \"{package}\"");
    let mut lines = lock.lines().skip_while(|line| *line != name);
    let version = lines.nth(1).and_then(|line| line.strip_prefix("version = "));
    version.unwrap_or_default().trim_matches('"').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_and_the_lock_file_are_read() {
        assert_eq!(value_of("a : 1\nmodel name\t: A CPU @ 2 GHz\n", "model name"), "A CPU @ 2 GHz");
        assert_eq!(gib("MemTotal:       24596340 kB\nMemFree: 1 kB\n"), 23);
        let lock = "[[package]]\nname = \"hyper\"\nversion = \"1.12.0\"\n\n[[package]]\nname = \"poem\"\nversion = \"3\"\n";
        assert_eq!((locked(lock, "hyper"), locked(lock, "other")), ("1.12.0".to_owned(), String::new()));
    }

    #[test]
    fn this_machine_has_cores_and_every_title_is_a_field() {
        let machine = describe("cargo xtask bench all");
        assert!(machine["cores"].as_u64().is_some_and(|cores| cores > 0));
        assert!(TITLES.iter().all(|(name, _)| !machine[name].is_null()), "{machine}");
        assert_eq!(rows(&machine).len(), TITLES.len() + machine["peers"].as_object().unwrap().len());
    }
}
