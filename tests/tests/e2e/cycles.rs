//! A driver is replaced, opened, ended by force and closed in cycles, beside a stream that must lose nothing. All of its resources are
//! released.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use satcast_tests::api::Api;
use satcast_tests::encoder::Publish;
use satcast_tests::scene::{HOSTILE, Scene, built, children, wait_until_gone};
use satcast_tests::service::{ACCOUNT, Setup};
use satcast_tests::soak;
use satcast_tests::usage::Usage;
use satcast_tests::wait;

use crate::changes::{OPERATOR, change, operator};

/// Cycles before the first measurement: both libraries are known then, and pools are full.
const FIRST: u64 = 2;
/// Cycles with one key: a key may write sixty times a minute.
const OF_A_KEY: u64 = 8;
/// Accepted growth: sockets, threads (pools change in size), and KiB of memory. A leak in each cycle would be more than that in the
/// long form. Resources that only drivers have are counted exactly in both forms.
const GROWN_FILES_MAX: usize = 12;
const GROWN_THREADS_MAX: usize = 12;
const GROWN_KIB_MAX: u64 = 24 * 1024;

#[test]
fn soak_repeated_kills_and_replacements_leak_nothing() {
    let mut rig = Rig::new("process");
    rig.run(|rig| {
        let before = children(&rig.scene.service);
        assert_eq!(before.len(), 1, "one process for one driver");
        kill(Pid::from_raw(before[0]), Signal::SIGKILL).expect("a signal to a child of the service");
        wait_until_gone(&before);
        wait::until("the next process", || match children(&rig.scene.service) {
            pids if pids.len() == 1 && pids != before => Ok(()),
            pids => Err(format!("{pids:?} after {before:?}")),
        });
    });
}

#[test]
fn soak_repeated_disabling_and_replacement_leaks_nothing() {
    let mut rig = Rig::new("thread");
    rig.run(|rig| {
        // The open destination continues, and is shown again with its driver.
        assert_eq!(change(&rig.operator, HOSTILE, "disable").status, 200);
        assert_eq!(change(&rig.operator, HOSTILE, "enable").ok()["state"], "loaded");
    });
}

struct Rig {
    scene: Scene,
    operator: Api,
    /// Two libraries that differ in nothing but their hash.
    libraries: [Vec<u8>; 2],
}

impl Rig {
    fn new(isolation: &str) -> Self {
        let setup = Setup::default()
            .set("SATCAST_LIMITS__KEYS_PER_ACCOUNT", "100")
            // Otherwise the system's allocator keeps the memory of a dozen libraries in each of its arenas.
            .set("MALLOC_MMAP_THRESHOLD_", "1048576");
        let scene = Scene::hostile(isolation, setup);
        let operator = operator(&scene.service);
        let library = std::fs::read(built().join("libsatcast_test_driver.so")).expect("the built library");
        let longer = [library.as_slice(), b"one"].concat();
        Self { scene, operator, libraries: [library, longer] }
    }

    /// Runs cycles with `disturb` while a destination is live, and compares the resources after them.
    fn run(&mut self, disturb: impl Fn(&Self)) {
        let url = self.scene.service.ingest_url(&self.scene.stream.key);
        let _encoder = Publish::of(&self.scene.source).endless().to(&url);
        self.scene.sink.wait_for_media(1);
        (0..FIRST).for_each(|number| self.cycle(number, &disturb));
        let before = self.held();
        // Six, fifty in the long form.
        let cycles = soak::rounds(24) / 4;
        for number in FIRST..FIRST + cycles {
            if number.is_multiple_of(OF_A_KEY) {
                (self.operator, self.scene.api) =
                    (self.scene.service.api_of(OPERATOR), self.scene.service.api_of(ACCOUNT));
            }
            self.cycle(number, &disturb);
        }
        let after = wait::until("the resources to be as before", || match self.held() {
            after if after.is_as(&before) => Ok(after),
            after => Err(format!("{after:?} after {before:?}")),
        });
        println!("{cycles} cycles: {before:?}, then {after:?}");
        let (before, after) = (before.usage, after.usage);
        assert!(after.threads <= before.threads + GROWN_THREADS_MAX, "{before:?}, then {after:?}");
        assert!(after.files <= before.files + GROWN_FILES_MAX, "{before:?}, then {after:?}");
        assert!(after.kib <= before.kib + GROWN_KIB_MAX, "{before:?}, then {after:?}");
        let list = self.scene.api.get(&format!("/api/streams/{}/destinations", self.scene.stream.id)).ok();
        assert_eq!(list.as_array().map(Vec::len), Some(1), "{list}");
        assert_eq!(
            (&list[0]["state"], list[0]["droppedPackets"].as_u64()),
            (&"live".into(), Some(0)),
            "{list}"
        );
        assert_eq!(self.scene.sink.publishes(), 1, "the healthy destination had to reconnect");
        self.scene.service.assert_running();
    }

    fn cycle(&self, number: u64, disturb: &impl Fn(&Self)) {
        let (scene, stream) = (&self.scene, &self.scene.stream);
        let before = children(&scene.service);
        // Written beside the old file and renamed over it, so that a reader never sees half of it.
        let (file, new) = (self.library("so"), self.library("new"));
        std::fs::write(&new, &self.libraries[usize::from(number.is_multiple_of(2))])
            .expect("a library in the folder");
        std::fs::set_permissions(&new, Permissions::from_mode(0o755)).expect("a library of ours");
        std::fs::rename(&new, file).expect("a library in place of another");
        let replaced = change(&self.operator, HOSTILE, "replace").ok();
        assert_eq!(replaced["state"], "loaded", "{replaced}");
        wait_until_gone(&before);
        let id = scene.add("nowhere");
        scene.api.wait_for_destination(stream, id, "live");
        disturb(self);
        scene.api.wait_for_destination(stream, id, "live");
        let path = format!("/api/streams/{}/destinations/{id}", stream.id);
        assert_eq!(scene.api.delete(&path).status, 200);
    }

    fn library(&self, ending: &str) -> PathBuf {
        self.scene.drivers.path().join(format!("{HOSTILE}.{ending}"))
    }

    /// The resources in use, once the replaced driver has ended.
    fn held(&self) -> Held {
        let pid = i32::try_from(self.scene.service.process().id()).expect("a process id");
        let one_of_each = |usage: &Usage| usage.drivers.values().all(|count| *count == 1);
        let usage = wait::until("the last driver to end", || match Usage::of(pid) {
            usage if one_of_each(&usage) => Ok(usage),
            usage => Err(format!("{:?}", usage.drivers)),
        });
        let copies = std::fs::read_dir(self.scene.service.folder().join("data/driver-images"));
        let mut copies: Vec<String> = copies
            .expect("the folder of private copies")
            .filter_map(|file| file.ok()?.file_name().into_string().ok())
            .collect();
        copies.sort();
        Held { usage, children: children(&self.scene.service).len(), copies }
    }
}

#[derive(Debug)]
struct Held {
    usage: Usage,
    children: usize,
    /// Files in the folder of private copies.
    copies: Vec<String>,
}

impl Held {
    /// Compares the resources that must be the same after each cycle.
    fn is_as(&self, other: &Self) -> bool {
        (self.children, &self.copies) == (other.children, &other.copies)
            && (&self.usage.drivers, &self.usage.kinds) == (&other.usage.drivers, &other.usage.kinds)
    }
}
