//! State of a driver whose change was refused.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use parking_lot::RwLock;

use super::*;
use crate::load::loader;
use crate::registry::drivers::Inner;
use crate::registry::keeper::LoadOptions;
use crate::registry::starting::{Source, start};
use crate::run::HostParts;
use crate::testing::Scripted;
use satcast_core::clock::Clock;
use satcast_core::config::Flags;
use satcast_core::ids::AccountId;
use satcast_net::outbound::Guard;

satcast_plugin_api::driver_entry!(entry, Scripted);

const ID: &str = "script";

fn config(folder: &Path, pinned: Option<&str>) -> Config {
    let file = tempfile::NamedTempFile::new().unwrap();
    let pinned = pinned.map(|pinned| format!("sha256 = \"{pinned}\"")).unwrap_or_default();
    let text = format!("[drivers]\ndir = {folder:?}\nenabled = [\"{ID}\"]\n[driver.{ID}]\n{pinned}\n");
    fs::write(file.path(), text).unwrap();
    Config::load(Some(file.path()), std::iter::empty(), &Flags::default()).unwrap().config
}

/// A driver that runs as if it were loaded from the file in `folder`. Any other load there is refused: this test
/// binary cannot probe libraries.
fn running(folder: &Path, scratch: &Path) -> Drivers {
    let runtime = tokio::runtime::Handle::current();
    let (guard, clock, recordings) = (Guard::new(&[]).unwrap(), Clock::system(), Default::default());
    let parts = HostParts { guard, runtime, clock, data_dir: scratch.join("data"), recordings };
    let config = config(folder, None);
    let exe = PathBuf::from("/bin/false");
    let options = LoadOptions { config: &config, exe, images: scratch.join("images") };
    let keeper = Keeper::new(&options, &parts);
    let source = Source::Thread { table: Box::new(loader::linked(entry).unwrap()), flags: 0, lease: None };
    let settings = config.driver_settings(ID);
    let started = start(source, &parts, &settings).unwrap();
    let file = folder.join("script.so");
    let (_, hash) = loader::read_library(&file).unwrap();
    let mut registry = Registry::default();
    registry.put(Entry::loaded(ID, Some(file), started).made_from(&hash, &settings));
    let registry = RwLock::new(Arc::new(registry));
    Drivers { inner: Arc::new(Inner { registry, keeper: Some(keeper), ..Inner::default() }) }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_change_is_shown_until_the_driver_is_current() {
    let (folder, scratch) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let everybody =
        |mode| fs::set_permissions(folder.path(), Permissions::from_mode(mode)).expect("other permissions");
    everybody(0o755);
    let put = |text: &str| {
        let file = folder.path().join("script.so");
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    };
    put("first");
    let drivers = running(folder.path(), scratch.path());
    let refused = || {
        let [summary] = &drivers.summaries()[..] else { panic!("one driver") };
        assert_eq!((&summary.state, summary.version.as_str()), (&State::Loaded, "1.0.0"), "it keeps running");
        summary.refused.clone()
    };
    let reload = |pinned| drivers.reconfigure(&config(folder.path(), pinned));
    let is_refused = |words: &str| {
        let why = refused().unwrap_or_default();
        assert!(why.contains(words), "{why:?}");
    };
    let other = "ab".repeat(32);
    assert_eq!(refused(), None);
    put("second");
    reload(None);
    assert!(refused().is_some());
    put("first");
    reload(None);
    assert_eq!(refused(), None, "the old file is back");
    reload(Some(&other));
    is_refused("pins abab");
    reload(None);
    assert_eq!(refused(), None, "the old settings are back");
    everybody(0o777);
    reload(None);
    is_refused("drivers folder");
    everybody(0o755);
    assert_eq!(drivers.change(ID, Change::Enable).unwrap().refused, None);
    assert_eq!(refused(), None);
    put("third");
    assert!(drivers.change(ID, Change::Replace).is_err());
    assert!(refused().is_some());
    everybody(0o777);
    assert!(drivers.change(ID, Change::Replace).is_err());
    is_refused("drivers folder");
    everybody(0o755);
    fs::remove_file(folder.path().join("script.so")).unwrap();
    assert!(matches!(drivers.change(ID, Change::Replace), Err(ChangeError::Refused { .. })));
    is_refused("no script.so in the drivers folder");
    assert!(matches!(drivers.change("other", Change::Enable), Err(ChangeError::Unknown(_))));
    let disabled = drivers.change(ID, Change::Disable).unwrap();
    assert_eq!((disabled.state, disabled.refused), (State::Disabled, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_that_made_the_driver_hang_is_set_aside_after_a_reload() {
    satcast_plugin_api::driver_entry!(hanging_entry, Scripted);
    let drivers = crate::testing::start(hanging_entry);
    let registry = drivers.registry();
    let entry = registry.entry(ID).unwrap();
    assert_eq!(entry.hung_for(), None);
    let config = serde_json::json!({ "mode": "hang" });
    assert!(drivers.validate(AccountId(7), ID, &config).await.is_err());
    assert_eq!(entry.hung_for(), Some(7));
    entry.hold(7);
    let services = &entry.running().unwrap().services;
    assert!(services.may_open(7).is_err() && services.may_ask(7).is_err());
    assert!(services.may_open(8).is_ok() && services.may_ask(8).is_ok());
    entry.clear_faults();
    assert!(services.may_open(7).is_ok());
}
