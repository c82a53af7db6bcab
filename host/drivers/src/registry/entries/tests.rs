//! Types that two drivers serve.

use std::sync::Arc;

use satcast_plugin_api::driver::{self, Driver, DriverInfo, DynDestination};
use satcast_plugin_api::manifest::{SettingsSchema, TypesSetting};
use satcast_plugin_api::{DestType, Error};
use schemars::JsonSchema;
use serde_json::{Value, json};

use super::*;
use crate::load::loader;
use crate::registry::starting::{Source, start};
use crate::run::HostParts;
use crate::testing::Scripted;
use satcast_core::clock::Clock;
use satcast_net::outbound::Guard;

/// A driver whose types operators make.
struct Maker;

#[derive(JsonSchema)]
#[allow(dead_code)] // Only its schema is used.
struct Settings {
    types: BTreeMap<String, BTreeMap<String, String>>,
}

impl Driver for Maker {
    const INFO: DriverInfo = DriverInfo { id: "maker", version: "1.0.0", title: "Maker" };

    fn types() -> Vec<DestType> {
        vec![DestType::of::<BTreeMap<String, String>>("own")]
    }

    fn settings() -> Option<SettingsSchema> {
        Some(SettingsSchema::of::<Settings>())
    }

    fn made_types() -> Option<TypesSetting> {
        Some(TypesSetting { setting: "types".into(), like: Self::types().remove(0) })
    }

    fn load(_: &driver::Host) -> Result<Self, Error> {
        Ok(Self)
    }

    fn open(&self, _: driver::Config<'_>) -> Result<Arc<dyn DynDestination>, Error> {
        Err(Error::config("nothing is opened here"))
    }
}

satcast_plugin_api::driver_entry!(maker_entry, Maker);
satcast_plugin_api::driver_entry!(script_entry, Scripted);

fn entry(of: satcast_plugin_api::abi::SatcastDriverEntry, settings: Value) -> Entry {
    let parts = HostParts {
        guard: Guard::new(&[]).unwrap(),
        runtime: tokio::runtime::Handle::current(),
        clock: Clock::system(),
        data_dir: std::env::temp_dir().join("satcast-entries"),
        recordings: Default::default(),
    };
    let table = loader::linked(of).unwrap();
    let id = table.id().to_owned();
    let source = Source::Thread { table: Box::new(table), flags: 0, lease: None };
    let settings =
        DriverSettings { settings: serde_json::from_value(settings).unwrap(), ..DriverSettings::default() };
    Entry::loaded(&id, None, start(source, &parts, &settings).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_for_a_type_of_another_driver_is_refused_alone_in_any_order() {
    let maker = entry(maker_entry, json!({ "types": { "shown": {}, "church-tv": {} } }));
    let script = entry(script_entry, json!({}));
    for order in [[&maker, &script], [&script, &maker]] {
        let mut registry = Registry::default();
        order.into_iter().for_each(|entry| registry.put(entry.clone()));
        let summaries = registry.summaries();
        let [maker, script] = &summaries[..] else { panic!("two drivers") };
        assert_eq!(maker.types, ["church-tv", "own"]);
        let refused = entry_refused("types.shown in [driver.maker]", "shown", "script");
        assert_eq!((&maker.state, maker.refused.as_ref()), (&State::Loaded, Some(&refused)));
        assert_eq!((script.types.len(), &script.refused), (2, &None));
        assert!(registry.kind("shown").unwrap().playback, "the declared type has priority");
        registry.take("script");
        let [maker] = &registry.summaries()[..] else { panic!("one driver") };
        assert_eq!((maker.types.len(), &maker.refused), (3, &None), "no other driver has the type");
    }
}

#[test]
fn a_refused_entry_text() {
    assert_eq!(
        entry_refused("types.rtmp in [driver.platform]", "rtmp", "rtmp"),
        "types.rtmp in [driver.platform] is refused: driver rtmp serves type rtmp; give the entry another name"
    );
}
