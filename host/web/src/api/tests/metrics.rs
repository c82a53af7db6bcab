//! What operators measure.

use std::collections::{BTreeMap, BTreeSet};

use super::Rig;
use satcast_store::ArchiveState;

/// The page for operators, whose table names every family.
const DOCUMENT: &str = include_str!("../../../../../docs/operate.md");

#[tokio::test(flavor = "multi_thread")]
async fn metrics_are_for_operators_and_show_live_destinations() {
    let mut rig = Rig::new().await;
    let hosted = rig.hosted().await;
    let (_publisher, _opening) = rig.go_live(&hosted).await;
    rig.get("/metrics").await.error(403, "not_operator");
    let owner = std::mem::take(&mut rig.key);
    rig.get("/metrics").await.error(401, "key_required");
    rig.key = rig.operator().await;
    let answer = rig.get("/metrics").await;
    assert_eq!((answer.status.as_u16(), answer.header("cache-control")), (200, "no-store"));
    assert!(answer.header("content-type").starts_with("text/plain; version=0.0.4"));
    let labels =
        format!("stream=\"{}\",destination=\"{}\",type=\"self-hosted\"", hosted.stream, hosted.destination);
    for line in [
        "satcast_sessions{state=\"live\"} 1".to_owned(),
        "satcast_sessions{state=\"reconnecting\"} 0".to_owned(),
        format!("satcast_build_info{{version=\"{}\"}} 1", env!("CARGO_PKG_VERSION")),
        format!("satcast_destination_dropped_packets_total{{{labels}}} 0"),
        "# TYPE satcast_destination_driver_total counter".to_owned(),
        "satcast_driver_loaded{driver=\"bad\"} 0".to_owned(),
        "satcast_driver_change_refused{driver=\"bad\"} 0".to_owned(),
        "satcast_driver_state{driver=\"bad\",state=\"refused\"} 1".to_owned(),
        "satcast_driver_crashes_total{driver=\"bad\"} 0".to_owned(),
        "# TYPE satcast_driver_crashes_total counter".to_owned(),
    ] {
        assert!(answer.text.lines().any(|known| known == line), "{line} is not in {}", answer.text);
    }
    let since = rig.app.clock.now().0 / 1_000;
    let since = format!("satcast_destination_state_since_seconds{{{labels}}} {since}");
    assert!(answer.text.lines().any(|known| known == since), "{since} is not in {}", answer.text);
    assert!(
        answer.text.contains(&format!("satcast_destination_state{{{labels},state=\"")),
        "{}",
        answer.text
    );
    assert!(!answer.text.contains(&owner) && !answer.text.contains("live_"), "{}", answer.text);
}

/// A family of the exposition format: its type, and its samples as name, labels and value.
#[derive(Default)]
struct Family {
    kind: String,
    has_help: bool,
    samples: Vec<(String, String, f64)>,
}

/// Reads the text format 0.0.4 strictly: every sample follows the HELP and TYPE lines of its family, families do not mix,
/// and no series comes twice.
fn parsed(text: &str) -> BTreeMap<String, Family> {
    assert!(text.ends_with('\n'));
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let (mut current, mut series) = (String::new(), BTreeSet::new());
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, words) = help.split_once(' ').expect("a name and a help text");
            assert!(!families.contains_key(name) && !words.is_empty(), "{line}");
            current = name.to_owned();
            families.entry(current.clone()).or_default().has_help = true;
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').expect("a name and a type");
            assert!(name == current && ["counter", "gauge", "summary"].contains(&kind), "{line}");
            families.get_mut(name).expect("its help").kind = kind.to_owned();
        } else {
            let (of, value) = line.rsplit_once(' ').expect("a series and a value");
            let (name, labels) = of.split_once('{').map_or((of, ""), |(name, rest)| {
                (name, rest.strip_suffix('}').unwrap_or_else(|| panic!("{line}")))
            });
            assert!(series.insert(of.to_owned()), "{of} comes twice");
            let family = families.get_mut(&current).expect("a family");
            let is_own = match family.kind.as_str() {
                "summary" => {
                    [format!("{current}_sum"), format!("{current}_count")].iter().any(|own| own == name)
                }
                _ => name == current,
            };
            assert!(is_own, "{line} is below {current}");
            check_labels(labels);
            let value: f64 = value.parse().unwrap_or_else(|_| panic!("{line}"));
            family.samples.push((name.to_owned(), labels.to_owned(), value));
        }
    }
    families
}

/// `name="value",...` with escapes; names are plain.
fn check_labels(labels: &str) {
    let mut rest = labels;
    while !rest.is_empty() {
        let (name, after) = rest.split_once("=\"").expect("a label");
        assert!(
            name.chars().all(|c| c.is_ascii_lowercase() || c == '_') && !name.starts_with("__"),
            "{labels}"
        );
        let mut escaped = false;
        let end = after.find(|c| {
            let ends = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        });
        rest = &after[end.expect("the end of a value") + 1..];
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_family_follows_the_conventions_and_is_documented() {
    let mut rig = Rig::new().await;
    let hosted = rig.hosted().await;
    let (_publisher, _opening) = rig.go_live(&hosted).await;
    let _ = (rig.get("/api/audit").await, rig.get("/api/streams/999999").await, rig.get("/no/such").await);
    rig.key = rig.operator().await;
    let families = parsed(&rig.get("/metrics").await.text);
    for (name, family) in &families {
        assert!(family.has_help, "{name}");
        assert!(name.starts_with("satcast_") || name.starts_with("process_"), "{name}");
        assert_eq!(name.ends_with("_total"), family.kind == "counter", "{name} is a {}", family.kind);
        assert!(family.samples.iter().all(|(_, _, value)| *value >= 0.0), "{name}");
        assert!(DOCUMENT.contains(&format!("`{name}")), "{name} is not in docs/operate.md");
    }
    let value = |family: &str, labels: &str| {
        let samples = &families[family].samples;
        samples.iter().find(|(_, found, _)| found == labels).map(|(_, _, value)| *value)
    };
    const REQUESTS: &str = "satcast_http_requests_total";
    assert_eq!(value(REQUESTS, "route=\"/api/audit\",class=\"2xx\""), Some(1.0));
    assert_eq!(value(REQUESTS, "route=\"/api/streams/{id}\",class=\"4xx\""), Some(1.0));
    assert_eq!(value(REQUESTS, "route=\"other\",class=\"4xx\""), Some(1.0));
    assert_eq!(value("satcast_database_up", ""), Some(1.0));
    assert_eq!(value("satcast_outbox_deliveries", ""), Some(0.0));
    assert!(value("satcast_ledger_accounts", "") >= Some(2.0));
    assert!(value("satcast_received_bytes_total", "") > Some(0.0));
    // A state without recordings is there too, so that an alert sees its first one.
    for state in ArchiveState::ALL {
        let labels = format!("state=\"{}\"", state.as_str());
        assert_eq!(value("satcast_recordings", &labels), Some(0.0), "{labels}");
    }
    let destinations = &families["satcast_destinations"].samples;
    assert_eq!((destinations.len(), destinations.iter().map(|(_, _, count)| count).sum::<f64>()), (5, 1.0));
    let count = families["satcast_database_statement_seconds"].samples.iter();
    assert!(count.filter(|(name, _, _)| name.ends_with("_count")).all(|(_, _, count)| *count > 0.0));
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_without_a_database_leave_its_figures_out() {
    let mut rig = Rig::new().await;
    rig.key = rig.operator().await;
    assert_eq!(rig.get("/metrics").await.status.as_u16(), 200);
    let text = {
        let mut text = super::super::metrics::Text::default();
        rig.app.store.close().await;
        super::super::metrics::stored(&mut text, &rig.app).await;
        text.0
    };
    let families = parsed(&text);
    assert_eq!(families.keys().collect::<Vec<_>>(), ["satcast_database_up"]);
    assert_eq!(families["satcast_database_up"].samples[0].2, 0.0);
}
