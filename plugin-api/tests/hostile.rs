//! Drivers that break the contract in the host's own process, with the testkit as host: a table that was built by hand, and an author's
//! code that panics.
#![allow(clippy::unwrap_used)] // A failed step is a failed test.
#![allow(unsafe_code)] // Builds a C table by hand.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::Instant;

use bytes::Bytes;
use parking_lot::Mutex;
use satcast_plugin_api::abi::{
    self, SatcastDriver, SatcastErrorSink, SatcastHost, SatcastMedia, SatcastOpen, SatcastPacket, SatcastStr,
    SatcastWaker,
};
use satcast_plugin_api::driver::{
    Config, Ctx, Destination, Driver, DriverInfo, DynDestination, Host, Media, State,
};
use satcast_plugin_api::host::TableError;
use satcast_plugin_api::testkit::{self, TestDestination, Testkit};
use satcast_plugin_api::{Class, Codec, DestType, Error, driver_entry};
use serde_json::json;

/// Consecutive openings, each with its own task.
const CYCLES: usize = 1000;

// ---- a table built by hand; its configuration, a JSON string, says which rule it breaks ----

static HOST: AtomicPtr<SatcastHost> = AtomicPtr::new(std::ptr::null_mut());
/// Packets that were kept after the end of their destination.
static KEPT: Mutex<Vec<usize>> = Mutex::new(Vec::new());

struct Rogue {
    place: String,
    dest: u64,
    media: usize,
}

fn host() -> &'static SatcastHost {
    // SAFETY: host tables live for the process.
    unsafe { &*HOST.load(Ordering::Acquire) }
}

impl Rogue {
    fn stopped(&self) {
        // SAFETY: the table's function with the table's context.
        unsafe { host().stopped.unwrap()(host().ctx, self.dest, std::ptr::null()) };
    }

    /// Calls every host function, long after the driver's end.
    fn late(&self) {
        let text = SatcastStr::new("late");
        let mut slot = std::ptr::null_mut();
        let desc = abi::SatcastMetricDesc {
            size: size_of::<abi::SatcastMetricDesc>() as u32,
            reserved: 0,
            name: text,
        };
        // SAFETY: the table's functions with the table's context; everything lives for the calls.
        unsafe {
            host().log.unwrap()(host().ctx, self.dest, 3, text, text, std::ptr::null(), 0);
            host().state.unwrap()(host().ctx, self.dest, abi::STATE_LIVE, std::ptr::null());
            host().event.unwrap()(host().ctx, self.dest, text, text);
            host().metric.unwrap()(host().ctx, self.dest, &raw const desc, &raw mut slot);
            host().metric.unwrap()(host().ctx, self.dest + 1000, &raw const desc, &raw mut slot);
        }
        self.stopped();
    }

    fn run(self) {
        loop {
            let mut packets = [std::ptr::null::<SatcastPacket>(); 4];
            let waker = SatcastWaker { data: std::ptr::null_mut(), wake: None, drop: None };
            let media = self.media as *mut SatcastMedia;
            // SAFETY: the queue was not given back yet; there is room for four.
            let count = unsafe {
                host().media_recv.unwrap()(host().ctx, media, packets.as_mut_ptr(), 4, &raw const waker)
            };
            if count < 0 {
                break;
            }
            if count == 0 {
                std::thread::yield_now();
            }
            for packet in packets.into_iter().take(count as usize) {
                self.take(packet);
            }
        }
        if self.place != "abandons" {
            // SAFETY: the queue is given back once.
            unsafe { host().media_release.unwrap()(host().ctx, self.media as *mut SatcastMedia) };
        }
        if self.place == "twice" {
            self.stopped();
        }
        self.stopped();
        if self.place == "late" {
            self.late();
        }
    }

    fn take(&self, packet: *const SatcastPacket) {
        // SAFETY: a packet that was handed over is alive until its release.
        let vt = unsafe { &*(*packet).vt };
        match self.place.as_str() {
            "keeps" => KEPT.lock().push(packet as usize),
            "early" => {
                self.stopped();
                // SAFETY: as above.
                unsafe { (vt.release)(packet) };
            }
            "double" => {
                // SAFETY: the first is due; the second breaks the contract, which a debug build survives.
                unsafe {
                    (vt.release)(packet);
                    (vt.release)(packet);
                }
            }
            // SAFETY: as above; one reference more, and both given back.
            _ => unsafe {
                (vt.retain)(packet);
                (vt.release)(packet);
                (vt.release)(packet);
            },
        }
    }
}

unsafe extern "C" fn init(host: *const SatcastHost, _: *const SatcastErrorSink) -> i32 {
    HOST.store(host.cast_mut(), Ordering::Release);
    abi::OK
}

unsafe extern "C" fn open(
    request: *const SatcastOpen,
    instance: *mut *mut c_void,
    errors: *const SatcastErrorSink,
) -> i32 {
    // SAFETY: request, instance and sink live for the call.
    unsafe {
        let place: String = serde_json::from_str(&(*request).config_json.read()).unwrap();
        match place.as_str() {
            "refuses" => return abi::ERR,
            "panics" => return abi::ERR_PANIC,
            "panics-as-network" => {
                let size = size_of::<abi::SatcastError>() as u32;
                let (error_class, message) = (abi::CLASS_NETWORK, SatcastStr::new("no-way"));
                let error = abi::SatcastError { size, error_class, retry_ms: 0, reserved: 0, message };
                (*errors).put.unwrap()((*errors).data, &raw const error);
                return abi::ERR_PANIC;
            }
            _ => {}
        }
        let rogue = Rogue { place, dest: (*request).dest, media: (*request).media as usize };
        std::thread::spawn(move || rogue.run());
        // Not an address that could be freed.
        *instance = std::ptr::dangling_mut::<u8>().cast();
    }
    abi::OK
}

unsafe extern "C" fn stop(_: *mut c_void, _: u32) -> i32 {
    abi::OK
}

unsafe extern "C" fn destroy(_: *mut c_void) {}

unsafe extern "C" fn deinit() {}

extern "C" fn rogue_entry(_: u32) -> *const SatcastDriver {
    const MANIFEST: &str = r#"{"title":"Rogue","types":[{"name":"rogue","title":"Rogue","schema":{}}]}"#;
    let table = SatcastDriver {
        magic: abi::MAGIC,
        abi_major: abi::ABI_MAJOR,
        abi_minor: abi::ABI_MINOR,
        size: size_of::<SatcastDriver>(),
        flags: abi::FLAG_PANIC_UNWIND,
        id: SatcastStr::new("rogue"),
        version: SatcastStr::new("1"),
        toolchain: SatcastStr::new("test"),
        manifest_json: SatcastStr::new(MANIFEST),
        init: Some(init),
        validate: Some(validate),
        open: Some(open),
        stop: Some(stop),
        destroy: Some(destroy),
        deinit: Some(deinit),
        get_extension: None,
    };
    Box::leak(Box::new(table))
}

/// Refuses, or fails, without a reason.
unsafe extern "C" fn validate(_: SatcastStr, config: SatcastStr, _: *const SatcastErrorSink) -> i32 {
    // SAFETY: the text lives for the call.
    let place: String = serde_json::from_str(&unsafe { config.read() }).unwrap();
    match place.as_str() {
        "invalid" => abi::ERR,
        "invalid-odd" => 77,
        "invalid-panic" => abi::ERR_PANIC,
        _ => abi::OK,
    }
}

fn opened(kit: &Testkit, place: &str) -> TestDestination {
    let dest = kit.open("rogue", &json!(place)).unwrap();
    for sequence in 0..40 {
        dest.push(testkit::media(Codec::H264, sequence, 0, sequence == 0, Bytes::from(vec![7; 3000])));
    }
    dest
}

fn ended(kit: &Testkit, dest: &TestDestination) {
    assert!(kit.wait_until(dest, |report| report.outcome.is_some()));
}

/// A driver's thread may continue for a moment after it reported its end.
fn all_given_back(dest: &TestDestination, place: &str) {
    let end = Instant::now() + testkit::WAIT_MAX;
    while dest.leased_packets() > 0 {
        assert!(Instant::now() < end, "{place} holds {} packets", dest.leased_packets());
        std::thread::yield_now();
    }
}

// One host table in a process, so this is one test; each step is a function.
#[test]
fn a_table_that_breaks_the_rules_harms_only_itself() {
    let kit = Testkit::start(rogue_entry).unwrap();
    for place in ["well", "twice", "late", "early", "abandons"] {
        let dest = opened(&kit, place);
        if place == "early" {
            // Destroyed while its thread runs.
            dest.wait_for_end().unwrap();
        }
        dest.stop();
        ended(&kit, &dest);
        dest.wait_for_end().unwrap();
        all_given_back(&dest, place);
    }
    refuses_without_a_word(&kit);
    says_that_it_panicked(&kit);
    keeps_packets_beyond_the_end(&kit);
    #[cfg(debug_assertions)]
    releases_twice(&kit);
    kit.shut_down();
}

fn refuses_without_a_word(kit: &Testkit) {
    for (place, class) in
        [("invalid", Class::Config), ("invalid-odd", Class::Internal), ("invalid-panic", Class::Panic)]
    {
        let error = kit.validate("rogue", &json!(place)).err().unwrap();
        assert_eq!(error.class, class, "{error}");
    }
}

/// The return code for a panic wins over the reported class.
fn says_that_it_panicked(kit: &Testkit) {
    for (place, class, said) in [
        ("refuses", Class::Internal, " -1 "),
        ("panics", Class::Panic, " -3 "),
        ("panics-as-network", Class::Panic, "no-way"),
    ] {
        let error = kit.open("rogue", &json!(place)).err().unwrap();
        assert!(error.class == class && error.message.contains(said), "{place}: {error:?}");
    }
}

fn keeps_packets_beyond_the_end(kit: &Testkit) {
    let dest = opened(kit, "keeps");
    dest.stop();
    dest.wait_for_end().unwrap();
    assert_eq!(dest.leased_packets(), 40, "the host counts the held packets");
    for packet in KEPT.lock().drain(..) {
        let packet = packet as *const SatcastPacket;
        // SAFETY: it was kept, so it is alive, payload and all.
        unsafe {
            let payload = std::slice::from_raw_parts((*packet).data, (*packet).len);
            assert_eq!(payload, [7; 3000]);
            ((*(*packet).vt).release)(packet);
        }
    }
    assert_eq!(dest.leased_packets(), 0);
}

/// A second release of a packet is not counted.
#[cfg(debug_assertions)]
fn releases_twice(kit: &Testkit) {
    let dest = opened(kit, "double");
    dest.stop();
    dest.wait_for_end().unwrap();
    all_given_back(&dest, "double");
}

// ---- an author's code that panics in the driver itself ----

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Cfg {}

struct Plain;

impl Destination for Plain {
    async fn run(self: Arc<Self>, ctx: Ctx, mut media: Media) -> Result<(), Error> {
        ctx.state(State::Live);
        while media.recv_batch(&mut Vec::new()).await {}
        Ok(())
    }
}

/// Panics in `types` (0), in `load` (1), when it is dropped (2), or never.
struct Panics<const PLACE: u8>;

impl<const PLACE: u8> Driver for Panics<PLACE> {
    const INFO: DriverInfo = DriverInfo { id: "panics", version: "1.0.0", title: "Panics" };

    fn types() -> Vec<DestType> {
        assert!(PLACE != 0, "types panics");
        vec![DestType::of::<Cfg>("panics")]
    }

    fn load(_: &Host) -> Result<Self, Error> {
        assert!(PLACE != 1, "load-panics");
        Ok(Self)
    }

    fn open(&self, _: Config<'_>) -> Result<Arc<dyn DynDestination>, Error> {
        Ok(Arc::new(Plain))
    }
}

impl<const PLACE: u8> Drop for Panics<PLACE> {
    fn drop(&mut self) {
        assert!(PLACE != 2, "drop panics");
    }
}

driver_entry!(types_entry, Panics<0>);
driver_entry!(load_entry, Panics<1>);
driver_entry!(drop_entry, Panics<2>);
driver_entry!(good_entry, Panics<9>);

#[test]
fn panics_in_load_refuse_the_driver_and_panics_at_the_end_are_contained() {
    let refused = Testkit::start(types_entry).err().unwrap();
    assert_eq!(refused.message, TableError::NoTable.to_string());
    let refused = Testkit::start(load_entry).err().unwrap();
    assert_eq!((refused.class, refused.message.contains("load-panics")), (Class::Panic, true), "{refused}");
    let kit = Testkit::start(drop_entry).unwrap();
    let dest = kit.open("panics", &json!({})).unwrap();
    assert!(dest.wait_for_state(State::Live));
    dest.stop();
    dest.wait_for_end().unwrap();
    kit.shut_down();
}

#[cfg(target_os = "linux")]
#[test]
fn a_thousand_openings_leak_nothing() {
    let kit = Testkit::start(good_entry).unwrap();
    let cycle = || {
        let dest = kit.open("panics", &json!({})).unwrap();
        dest.push(testkit::media(Codec::H264, 0, 0, true, Bytes::from_static(b"x")));
        dest.stop();
        dest.wait_for_end().unwrap();
        assert_eq!(dest.leased_packets(), 0);
    };
    let count = |folder: &str| std::fs::read_dir(format!("/proc/self/{folder}")).unwrap().count();
    (0..10).for_each(|_| cycle());
    let before = (count("fd"), count("task"));
    (10..CYCLES).for_each(|_| cycle());
    // Other tests of this process may run at the same time; a leak per opening would count a thousand times.
    let after = (count("fd"), count("task"));
    assert!(after.0 < before.0 + 50 && after.1 < before.1 + 50, "{before:?}, then {after:?}");
    kit.shut_down();
}
