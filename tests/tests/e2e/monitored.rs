//! The alerts and the dashboard: accepted by Prometheus' own tool, and made of metrics that the service has.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::process::{Command, Stdio};

use satcast_tests::author::{clean, root, run};
use satcast_tests::encoder::Publish;
use satcast_tests::hosted::Hosted;
use satcast_tests::service::Setup;
use satcast_tests::source::Source;
use serde_json::Value;

const FOLDER: &str = "packaging/prometheus";
const ALERTS: &str = "packaging/prometheus/alerts.yml";
const DASHBOARD: &str = "packaging/grafana/satcast.json";
/// What Prometheus itself makes.
const OWN: &str = "up";
/// It counts bits, which the rules do not like, and is published.
const PUBLISHED: &str = "satcast_destination_bits_per_second ";
/// Figures of summaries.
const OF_SUMMARIES: [&str; 2] = ["_sum", "_count"];

/// `/metrics` of a service with a live stream.
fn metrics() -> String {
    let service = Setup::default().start();
    service.run(&["account", "create", "watcher", "--operator"]);
    let hosted = Hosted::new(&service, "watched");
    let _encoder = Publish::of(&Source::shared()).endless().to(&service.ingest_url(&hosted.stream.key));
    hosted.ready();
    let key = service.run(&["key", "create", "--account", "watcher", "--type", "permanent"]);
    let request = service.api().request("GET", "/metrics").header("X-API-Key", key.trim());
    request.send().and_then(|answer| answer.error_for_status()?.text()).expect("the metrics")
}

/// Names of metrics in an expression of PromQL. Every name of ours begins with one of these.
fn names(expression: &str) -> impl Iterator<Item = &str> {
    let words = expression.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    words.filter(|word| word.starts_with("satcast_") || word.starts_with("process_") || *word == OWN)
}

/// Every expression in the values of the key `expr`, at any depth.
fn expressions(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                match value {
                    Value::String(text) if key == "expr" => found.push(text.clone()),
                    _ => expressions(value, found),
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| expressions(value, found)),
        _ => {}
    }
}

#[test]
fn alerts_pass_their_tests() {
    let folder = root().join(FOLDER);
    for arguments in [
        ["check", "rules", "alerts.yml"],
        ["test", "rules", "alerts.test.yml"],
        ["check", "config", "prometheus.yml"],
    ] {
        let mut promtool = clean("promtool", &folder);
        promtool.args(arguments);
        // The file with the key is on the reader's machine.
        run(if arguments[1] == "config" { promtool.arg("--syntax-only") } else { &mut promtool });
    }
}

#[test]
fn alerts_and_dashboard_use_metrics_that_the_service_has() {
    let metrics = metrics();
    let types = metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let mut known: BTreeSet<String> = [OWN.to_owned()].into();
    for (name, kind) in types {
        known.insert(name.to_owned());
        if kind == "summary" {
            known.extend(OF_SUMMARIES.map(|part| format!("{name}{part}")));
        }
    }
    let alerts = std::fs::read_to_string(root().join(ALERTS)).expect("the alerts");
    let dashboard = std::fs::read_to_string(root().join(DASHBOARD)).expect("the dashboard");
    let mut used = Vec::new();
    expressions(&serde_json::from_str(&dashboard).expect("the dashboard in JSON"), &mut used);
    assert!(used.len() > 20, "{} expressions", used.len());
    // Texts of alerts name no metrics.
    used.push(alerts);
    let unknown: BTreeSet<&str> =
        used.iter().flat_map(|text| names(text)).filter(|name| !known.contains(*name)).collect();
    assert!(unknown.is_empty(), "{unknown:?} in {known:?}");
    checked_by_promtool(&metrics);
}

/// The names and types of the metrics follow the rules of Prometheus.
fn checked_by_promtool(metrics: &str) {
    let mut command = Command::new("promtool");
    command.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut promtool = command.spawn().expect("promtool is installed (cargo xtask setup)");
    promtool.stdin.take().expect("its input").write_all(metrics.as_bytes()).expect("the metrics are read");
    let output = promtool.wait_with_output().expect("promtool ends");
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    let faults = said.lines().filter(|line| !line.starts_with(PUBLISHED));
    assert_eq!(faults.collect::<Vec<_>>(), Vec::<&str>::new());
}
