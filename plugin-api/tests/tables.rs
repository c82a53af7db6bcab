//! Tables of wrong, old, new and hostile drivers: each is refused with its own message, or read.
#![allow(clippy::unwrap_used)] // A failed step is a failed test.
#![allow(unsafe_code)] // Builds C tables by hand.

use std::cell::Cell;
use std::ffi::c_void;

use satcast_plugin_api::abi::{self, SatcastDriver, SatcastErrorSink, SatcastHost, SatcastOpen, SatcastStr};
use satcast_plugin_api::host::{Table, TableError};

const MANIFEST: &str = r#"{"title":"T","types":[{"name":"t","title":"T","schema":{}}]}"#;

unsafe extern "C" fn init(_: *const SatcastHost, _: *const SatcastErrorSink) -> i32 {
    abi::OK
}
unsafe extern "C" fn open(_: *const SatcastOpen, _: *mut *mut c_void, _: *const SatcastErrorSink) -> i32 {
    abi::OK
}
unsafe extern "C" fn stop(_: *mut c_void, _: u32) -> i32 {
    abi::OK
}
unsafe extern "C" fn destroy(_: *mut c_void) {}
unsafe extern "C" fn deinit() {}

fn good() -> SatcastDriver {
    SatcastDriver {
        magic: abi::MAGIC,
        abi_major: abi::ABI_MAJOR,
        abi_minor: abi::ABI_MINOR,
        size: size_of::<SatcastDriver>(),
        flags: abi::FLAG_PANIC_UNWIND,
        id: SatcastStr::new("t"),
        version: SatcastStr::new("1"),
        toolchain: SatcastStr::new("test"),
        manifest_json: SatcastStr::new(MANIFEST),
        init: Some(init),
        validate: None,
        open: Some(open),
        stop: Some(stop),
        destroy: Some(destroy),
        deinit: Some(deinit),
        get_extension: None,
    }
}

thread_local! {
    static SERVED: Cell<*const SatcastDriver> = const { Cell::new(std::ptr::null()) };
}

unsafe extern "C" fn entry(_: u32) -> *const SatcastDriver {
    SERVED.get()
}

fn read(table: *const SatcastDriver) -> Result<Table, TableError> {
    SERVED.set(table);
    // SAFETY: the entry returns the table given here, which outlives the call.
    unsafe { Table::read(entry) }
}

fn refusal(change: impl FnOnce(&mut SatcastDriver)) -> TableError {
    let mut table = good();
    change(&mut table);
    read(&raw const table).err().unwrap()
}

#[test]
fn good_table_is_read() {
    let table = read(&raw const *Box::leak(Box::new(good()))).unwrap();
    assert_eq!((table.id(), table.version(), table.panics_unwind()), ("t", "1", true));
}

#[test]
fn longer_and_newer_tables_are_read() {
    #[repr(C)]
    struct Newer {
        table: SatcastDriver,
        appended: [u64; 9],
    }
    let mut newer = Newer { table: good(), appended: [u64::MAX; 9] };
    newer.table.abi_minor = abi::ABI_MINOR + 1;
    newer.table.size = size_of::<Newer>();
    newer.appended[0] = 1;
    assert!(read((&raw const newer).cast()).is_ok());
}

#[test]
fn older_tables_without_the_last_field_are_read() {
    let mut table = good();
    table.size = std::mem::offset_of!(SatcastDriver, get_extension);
    assert!(read(&raw const table).is_ok());
}

#[test]
fn refusals_texts() {
    for (refusal, text) in [
        (
            TableError::NoTable,
            "its entry offers no table for plugin API 1; install the driver of the same release as this host",
        ),
        (TableError::Magic, "its table does not begin with the Satcast magic; it is no Satcast driver"),
        (
            TableError::Version { driver: 2 },
            "it was built for plugin API 2, this host needs 1; install the driver of the same release as this host",
        ),
        (
            TableError::Short { size: 24, needed: 80 },
            "its table has 24 bytes but needs 80; build the driver again with this release's plugin API",
        ),
        (TableError::Missing("init"), "its table lacks the function init"),
        (TableError::Id("../x".into()), "its id \"../x\" must be 1 to 32 characters of a-z, 0-9 and -"),
    ] {
        assert_eq!(refusal.to_string(), text);
    }
}

#[test]
fn each_wrong_table_gets_its_own_message() {
    assert_eq!(read(std::ptr::null()).err(), Some(TableError::NoTable));
    assert_eq!(refusal(|table| table.magic = 0), TableError::Magic);
    assert_eq!(refusal(|table| table.abi_major = 2), TableError::Version { driver: 2 });
    assert!(matches!(refusal(|table| table.size = 24), TableError::Short { size: 24, .. }));
    assert_eq!(refusal(|table| table.init = None), TableError::Missing("init"));
    assert_eq!(refusal(|table| table.open = None), TableError::Missing("open"));
    assert_eq!(refusal(|table| table.stop = None), TableError::Missing("stop"));
    assert_eq!(refusal(|table| table.destroy = None), TableError::Missing("destroy"));
    assert_eq!(refusal(|table| table.deinit = None), TableError::Missing("deinit"));
    assert!(matches!(refusal(|table| table.id = SatcastStr::new("../x")), TableError::Id(_)));
    let bad = refusal(|table| table.manifest_json = SatcastStr::new("{"));
    assert!(matches!(bad, TableError::Manifest(_)));
    let broken = [0xff_u8, 0xfe];
    let bad = refusal(|table| table.id = SatcastStr { ptr: broken.as_ptr(), len: 2 });
    assert!(matches!(bad, TableError::Id(_)));
}
