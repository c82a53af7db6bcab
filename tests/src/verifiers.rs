//! The official libraries of Standard Webhooks, with which receivers verify webhooks.

use std::path::{Path, PathBuf};
use std::process::Command;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};
use standardwebhooks::Webhook;

use crate::clients;
use crate::process::guarded;
use crate::receiver::Received;

/// An official library of Standard Webhooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verifier {
    /// From npm.
    JavaScript,
    /// From PyPI.
    Python,
    /// From crates.io.
    Rust,
}

impl Verifier {
    /// Each of them.
    pub const ALL: [Self; 3] = [Self::JavaScript, Self::Python, Self::Rust];

    /// Whether the library accepts each request.
    ///
    /// # Panics
    /// When it cannot be run.
    #[must_use]
    #[track_caller]
    pub fn accepts(self, secret: &str, requests: &[Received]) -> Vec<bool> {
        let scripts = Path::new(env!("CARGO_MANIFEST_DIR"));
        match self {
            Self::JavaScript => {
                let mut node = guarded(Path::new("node"));
                node.arg(scripts.join("player/verify.mjs"));
                by_script(node, secret, requests)
            }
            Self::Python => {
                let mut python = clients::python("python");
                python.arg(scripts.join("clients/verify.py"));
                by_script(python, secret, requests)
            }
            Self::Rust => {
                let webhook = Webhook::new(secret).expect("a secret of Standard Webhooks");
                let accepts = |one: &Received| webhook.verify(one.body.as_bytes(), &header_map(one)).is_ok();
                requests.iter().map(accepts).collect()
            }
        }
    }
}

fn header_map(request: &Received) -> HeaderMap {
    let pair = |(name, value): (&String, &Value)| {
        let name = HeaderName::try_from(name.as_str()).expect("a header's name");
        (name, HeaderValue::try_from(value.as_str().unwrap_or_default()).expect("a header's value"))
    };
    request.headers.iter().map(pair).collect()
}

/// A script that reads the requests from a file and prints a verdict, and the event, for each.
#[track_caller]
fn by_script(mut script: Command, secret: &str, requests: &[Received]) -> Vec<bool> {
    let folder = tempfile::tempdir().expect("a folder for requests");
    let file: PathBuf = folder.path().join("requests.json");
    let all: Vec<Value> =
        requests.iter().map(|one| json!({ "headers": one.headers, "body": one.body })).collect();
    let text = json!({ "secret": secret, "requests": all }).to_string();
    std::fs::write(&file, text).expect("a file for requests");
    let output = script.arg(&file).output().expect("the script starts");
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let verdicts: Vec<Value> =
        said.lines().map(|line| serde_json::from_str(line).expect("JSON of the script")).collect();
    assert_eq!(verdicts.len(), requests.len(), "{script:?}: {said}{errors}");
    let believed = |(request, verdict): (&Received, Value)| {
        let ok = verdict["ok"] == true;
        // Only a part of the event is compared: JavaScript writes 0.0 as 0.
        let (read, sent) = (&verdict["event"], request.json());
        assert!(!ok || (&read["id"], &read["type"]) == (&sent["id"], &sent["type"]), "not {sent}: {verdict}");
        ok
    };
    requests.iter().zip(verdicts).map(believed).collect()
}
