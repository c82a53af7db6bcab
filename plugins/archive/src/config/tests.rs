use serde_json::{Value, json};

use super::*;

fn target(config: Value) -> Result<Option<Target>, String> {
    let config: Config = serde_json::from_value(config).map_err(|error| error.to_string())?;
    config.target().map_err(|error| error.message)
}

fn own(change: Value) -> Value {
    let mut config = json!({ "endpoint": "https://s3.example.org", "bucket": "b", "accessKey": "a", "secretKey": "hunter2" });
    for (key, value) in change.as_object().unwrap() {
        config[key] = value.clone();
    }
    config
}

#[test]
fn a_store_is_given_whole_or_not_at_all() {
    assert_eq!(target(json!({})), Ok(None));
    assert_eq!(target(json!({ "retentionDays": 30 })), Ok(None));
    let full = target(own(json!({ "prefix": "live/" }))).unwrap().unwrap();
    assert_eq!((full.region.as_str(), full.prefix.as_str(), full.path_style), ("us-east-1", "live", true));
    assert!(!format!("{full:?}").contains("hunter2"));
    for missing in ["endpoint", "bucket", "accessKey", "secretKey"] {
        let mut config = own(json!({}));
        config.as_object_mut().unwrap().remove(missing);
        let error = target(config).unwrap_err();
        assert_eq!(error, incomplete(missing).message);
    }
    assert_eq!(target(json!({ "prefix": "a" })).unwrap_err(), no_own_store().message);
}

#[test]
fn fields_are_checked_and_never_repeated() {
    let table = [
        ("endpoint", json!("ftp://s3.example.org")),
        ("endpoint", json!("s3.example.org")),
        ("endpoint", json!("https://user:hunter2@s3.example.org")),
        ("endpoint", json!("https://s3.example.org/bucket")),
        ("endpoint", json!(format!("https://{}.org", "x".repeat(600)))),
        ("bucket", json!("a/b")),
        ("bucket", json!("")),
        ("bucket", json!("..")),
        ("bucket", json!("x".repeat(64))),
        ("prefix", json!("../x")),
        ("region", json!("")),
        ("accessKey", json!("")),
        ("secretKey", json!("with space")),
        ("secretKey", json!("x".repeat(FIELD_BYTES_MAX + 1))),
        ("retentionDays", json!(0)),
        ("retentionDays", json!(RETENTION_DAYS_MAX + 1)),
        ("maxGigabytes", json!(0)),
        ("maxGigabytes", json!(GIGABYTES_MAX + 1)),
    ];
    for (field, value) in table {
        let error = target(own(json!({ field: value.clone() }))).unwrap_err();
        assert!(error.starts_with(&format!("{field}: ")), "{field} {value}: {error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
    assert!(target(json!({ "unknown": 1 })).is_err());
    let settings = Settings { bucket: Some("b".into()), ..Settings::default() };
    let text = format!("[archive] {}", incomplete("endpoint").message);
    assert_eq!(settings.target().unwrap_err(), Error::config(text));
    assert_eq!(Settings::default().target().unwrap(), None);
}
#[test]
fn refusals_texts() {
    let of = |change: Value| target(own(change)).unwrap_err();
    let endpoint = |text: &str| of(json!({ "endpoint": text }));
    let long = format!("https://{}.org", "x".repeat(600));
    for (said, text) in [
        (
            incomplete("bucket").message,
            "bucket: is missing; a store of your own needs a bucket, an endpoint and both keys; leave all four empty \
             to use the store of this service",
        ),
        (
            no_own_store().message,
            "endpoint: is missing; prefix, region and bucket in the path are for a store of your own, which needs a \
             bucket, an endpoint and both keys",
        ),
        (
            no_operator_store().message,
            "endpoint: is missing, and this service has no store of its own; enter the bucket, the endpoint and both \
             keys of your store, or ask the operator to set endpoint, bucket, access_key and secret_key in [archive]",
        ),
        (endpoint(&long), "endpoint: is too long, for example https://s3.example.org"),
        (endpoint("s3"), "endpoint: must be an address, for example https://s3.example.org"),
        (
            endpoint("ftp://a.example"),
            "endpoint: must begin with https:// or http://, for example https://s3.example.org",
        ),
        (
            endpoint("https://u:p@a.example"),
            "endpoint: must not hold a user or password; the keys have fields of their own, for example \
             https://s3.example.org",
        ),
        (
            endpoint("https://a.example/b"),
            "endpoint: must end with the host or port; the bucket has a field of its own, for example \
             https://s3.example.org",
        ),
        (of(json!({ "region": "" })), "region: must be 1 to 64 letters, digits, - and _"),
        (of(json!({ "bucket": "a/b" })), "bucket: must be 1 to 63 letters, digits, dots, - and _"),
        (of(json!({ "accessKey": "" })), "accessKey: must be 1 to 512 characters without spaces"),
        (of(json!({ "retentionDays": 0 })), "retentionDays: must be 1 to 3650"),
        (of(json!({ "prefix": "x".repeat(513) })), "prefix: is longer than 512 bytes"),
        (
            of(json!({ "prefix": "/a" })),
            "prefix: must be parts of letters, digits and . _ - = with / between them, and not begin with /",
        ),
    ] {
        assert_eq!(said, text);
    }
}
