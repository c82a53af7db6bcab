//! The API reference in a browser: a request with a key, and nothing from other hosts.

use satcast_tests::player::reader_of_reference;
use satcast_tests::service::Setup;
use serde_json::json;

#[test]
fn a_reader_of_the_reference_lists_the_streams_with_a_key() {
    let service = Setup::default().start();
    let stream = service.api().create_stream("seen in the reference");
    let seen = reader_of_reference(&format!("{}/docs", service.base()), service.key());
    let seen = seen.unwrap_or_else(|said| panic!("the reader failed: {said}"));
    assert_eq!(seen["complaints"], json!([]), "{seen}");
    assert_eq!(seen["foreign"], json!([]), "{seen}");
    assert_eq!((&seen["status"], &seen["stored"]), (&json!("200"), &json!(0)), "{seen}");
    assert!(seen["body"].as_str().is_some_and(|body| body.contains(&stream.key)), "{seen}");

    // In the order of the document, which has the groups of the specification first.
    let document = service.api().get("/openapi.json").ok();
    let tags = document["tags"].as_array().expect("groups").iter().map(|tag| tag["name"].clone());
    assert_eq!(seen["groups"], json!(tags.collect::<Vec<_>>()), "{seen}");
    service.assert_not_logged(&[("the key", service.key())]);
}
