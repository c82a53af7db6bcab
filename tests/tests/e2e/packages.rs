//! Packages: installed, started, used, upgraded and removed as their page says, on a machine of their own; the image runs there too.

use std::path::Path;
use std::process::Command;

use satcast_tests::author::{root, run};
use satcast_tests::machine::{Machine, SHARED};
use satcast_tests::reader::{blocks, read};
use satcast_tests::release;
use satcast_tests::service::Setup;

/// The released version, and the next one.
const VERSIONS: [&str; 2] = ["0.1.0", "0.2.0"];
/// What the shell of the page has: `sudo` and a container engine are not installed.
const PRELUDE: &str = include_str!("packages.sh");
/// A `!` would not end the script.
const STOPPED: &str = "if systemctl is-active --quiet satcast; then exit 1; fi";
/// Lines that an operator adds: a driver in a process of its own, and a destination on the same machine.
const OWN: &str = "[driver.rtmp]\nisolation = \"process\"\n[outbound]\nallow = [\"127.0.0.0/8\"]\n";

/// The blocks of the page, run in order.
struct Page {
    machine: Machine,
    blocks: Vec<String>,
}

impl Page {
    /// Runs the next block, which has `text`; gives what it printed.
    #[track_caller]
    fn paste(&mut self, text: &str) -> String {
        let block = self.blocks.remove(0);
        assert!(block.contains(text), "the next block has no `{text}`: {block}");
        self.run(&block)
    }

    /// Runs lines with the functions and variables of the blocks before.
    #[track_caller]
    fn run(&self, lines: &str) -> String {
        self.machine.run(&format!("{PRELUDE}\n{lines}\nkeep_variables\n"))
    }

    /// The answer of the service to a GET with the key of the page.
    #[track_caller]
    fn get(&self, path: &str, filter: &str) -> String {
        let line = format!("curl -fs -H \"X-API-Key: $KEY\" http://127.0.0.1:8080{path} | jq -c '{filter}'");
        self.run(&line).trim().to_owned()
    }
}

pub(crate) fn installs_packages(document: &str) {
    if !Machine::is_possible() {
        eprintln!(
            "left out: this user may not start the machine that {document} is tried on, which needs root and mounts"
        );
        return;
    }
    let folder = tempfile::tempdir().expect("a folder for packages");
    let (built, shared) = (folder.path().join("build"), folder.path().join("shared"));
    release::lay(&built);
    release::pack(&built, &shared, VERSIONS[0]);
    next_version(folder.path(), &shared);

    let mut page = Page { machine: Machine::boot(&shared), blocks: blocks(&read(document), "sh") };
    page.paste("apt-get install");
    assert_eq!(page.run("systemctl is-active satcast").trim(), "active");
    let owners = page.run("stat -c '%a %U %G' /etc/satcast/satcast.toml /var/lib/satcast");
    assert_eq!(owners, "640 root satcast\n700 satcast satcast\n");
    units_are_good(&page);
    page.paste("key create");
    page.run(&format!("cat >> /etc/satcast/satcast.toml <<'END'\n{OWN}END\n"));
    page.paste("check-config");
    streams(&page);
    page.paste("satcast.socket");
    restarts_without_refusal(&page);
    upgrades(&mut page);
    leaves(&mut page);
    page.paste("podman load");
    let said = page.run("until curl -fs http://127.0.0.1:8080/readyz; do sleep 0.1; done");
    assert!(!said.is_empty());
    assert!(page.blocks.is_empty(), "blocks that no test runs: {:?}", page.blocks);
}

#[test]
fn the_settings_of_the_compose_file_pass_the_check() {
    let text = std::fs::read_to_string(root().join("packaging/containers/compose.yaml")).expect("the file");
    let settings = text.lines().filter_map(|line| line.trim().split_once(": "));
    let settings = settings.filter(|(name, _)| name.starts_with("SATCAST_"));
    let (mut setup, mut count) = (Setup::default(), 0);
    for (name, value) in settings {
        setup = setup.set(name, value);
        count += 1;
    }
    assert!(count > 0);
    setup.stopped().run(&["check-config"]);
}

/// The same package with the next version.
fn next_version(folder: &Path, shared: &Path) {
    let [old, new] = VERSIONS.map(|version| shared.join(format!("satcast_{version}_amd64.deb")));
    let tree = folder.join("next");
    run(Command::new("dpkg-deb").arg("--raw-extract").arg(old).arg(&tree));
    let control = tree.join("DEBIAN/control");
    let text = std::fs::read_to_string(&control).expect("the description of the package");
    std::fs::write(&control, text.replace(VERSIONS[0], VERSIONS[1])).expect("the description of the package");
    let mut pack = Command::new("dpkg-deb");
    run(pack.args(["--root-owner-group", "-Znone", "--build"]).arg(tree).arg(new));
}

/// systemd finds no fault in the units, and gives the service few rights (100 are all).
fn units_are_good(page: &Page) {
    page.run("systemd-analyze verify satcast.service satcast.socket satcast-rtmp.socket");
    page.run("systemd-analyze security --no-pager --offline=true --threshold=25 /lib/systemd/system/satcast.service");
    let process = "/proc/$(systemctl show --property MainPID --value satcast)/status";
    let rights = page.run(&format!("sed -n 's/^\\(NoNewPrivs\\|Seccomp\\|CapBnd\\):\\t//p' {process}"));
    // The one capability is CAP_NET_BIND_SERVICE.
    assert_eq!(rights, "0000000000000400\n1\n2\n");
}

/// Within these rights drivers load, also in a process of their own, and a stream is live at a player's destination.
fn streams(page: &Page) {
    page.run("ready");
    let drivers = page.get("/api/drivers", "[.[] | [.id, .state]]");
    let expected =
        ["archive", "hls", "platform", "rtmp", "srt"].map(|id| format!("[\"{id}\",\"loaded\"]")).join(",");
    assert_eq!(drivers, format!("[{expected}]"));
    let body = r#"{"label":"kept","destinations":[{"type":"self-hosted","config":{}},{"type":"rtmp","config":{"url":"rtmp://127.0.0.1:9/x"}}]}"#;
    page.run(&format!(
        "MADE=$(curl -fs -H \"X-API-Key: $KEY\" http://127.0.0.1:8080/api/streams --json '{body}')\n\
         encoder \"rtmp://127.0.0.1:1935/live/$(jq -r .streamKey <<< \"$MADE\")\"\n\
         STREAM=$(jq .id <<< \"$MADE\")"
    ));
    let states = "[.destinations[].state] | sort";
    let line = format!(
        "until [ \"$(curl -fs -H \"X-API-Key: $KEY\" http://127.0.0.1:8080/api/streams/$STREAM | jq -c '{states}')\" \
         = '[\"live\",\"retrying\"]' ]; do sleep 0.2; done"
    );
    page.run(&line);
    assert_eq!(page.run("systemctl show --property NRestarts --value satcast").trim(), "0");
}

/// With the sockets of systemd every connection during a restart gets its answer.
fn restarts_without_refusal(page: &Page) {
    page.run("ready");
    let said = page.run(
        "systemctl restart satcast > /dev/null &\n\
         for number in $(seq 30); do\n\
             curl --silent --output /dev/null --write-out '%{exitcode} ' --max-time 20 http://127.0.0.1:8080/healthz\n\
             sleep 0.05\n\
         done\n\
         wait",
    );
    assert_eq!(said, "0 ".repeat(30));
}

fn upgrades(page: &mut Page) {
    let process = "systemctl show --property MainPID --value satcast";
    let before = page.run(process);
    page.paste("apt-get install");
    page.run("ready");
    assert_ne!(page.run(process), before);
    assert_eq!(page.run("dpkg-query --show --showformat '${Version}' satcast"), VERSIONS[1]);
    assert!(page.run("cat /etc/satcast/satcast.toml").ends_with(OWN));
    assert_eq!(page.get("/api/streams", "[.[].label]"), "[\"kept\"]");
}

/// `remove` leaves configuration and data, and a new installation starts with them. `purge` leaves the data and the user.
fn leaves(page: &mut Page) {
    let block = page.blocks.remove(0);
    let (remove, purge) = block.split_once('\n').expect("two commands");
    page.run(remove);
    page.run(&format!("{STOPPED}\ntest -e /var/lib/satcast/secret.key -a -e /etc/satcast/satcast.toml"));
    page.run(&format!("apt-get install --yes ./satcast_{}_amd64.deb\nready", VERSIONS[1]));
    assert_eq!(page.get("/api/streams", "[.[].label]"), "[\"kept\"]");
    page.run(purge);
    page.run(&format!("{STOPPED}\ntest -e /var/lib/satcast/secret.key"));
    page.paste("rm -r /var/lib/satcast");
    let left = page
        .run("ls -d /etc/satcast /var/lib/satcast /usr/lib/satcast /usr/bin/satcast 2> /dev/null || true");
    assert_eq!(left, "");
    page.run("getent passwd satcast");
    assert_eq!(SHARED, page.run("pwd").trim());
}
