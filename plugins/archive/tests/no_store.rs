//! A service without an operator's store.
#![allow(clippy::unwrap_used)] // A failed step is a failed test.

use satcast_driver_archive::{Archive, TYPE};
use satcast_plugin_api::testkit::Testkit;
use satcast_plugin_api::{Class, driver_entry};
use serde_json::json;

driver_entry!(entry, Archive);

#[test]
fn a_destination_without_a_store_says_what_is_missing() {
    let kit = Testkit::start(entry).unwrap();
    let refused = kit.validate(TYPE, &json!({})).unwrap_err();
    assert_eq!(refused.class, Class::Config);
    assert!(refused.message.contains("[archive]") && refused.message.starts_with("endpoint: "), "{refused}");
    assert!(kit.open(TYPE, &json!({})).is_err());
    let own =
        json!({ "endpoint": "https://s3.example.org", "bucket": "b", "accessKey": "a", "secretKey": "s" });
    kit.validate(TYPE, &own).unwrap();
    assert!(kit.recordings().unwrap().is_empty());
    kit.shut_down();
}
