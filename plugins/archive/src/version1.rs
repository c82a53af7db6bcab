//! Journal files of version 1, whose fields were all at one level.

use serde_json::{Value, json};

use crate::entry::VERSION;

/// Converts an entry to the current form.
pub(crate) fn upgraded(old: &Value) -> Value {
    let is = |field: &str| old[field] == true;
    let is_gone = old["stage"] == "gone";
    let trouble = match &old["error"] {
        Value::Null => Value::Null,
        error => json!({ "error": error, "class": old["errorClass"] }),
    };
    let (removes, url) = (is("removeObject"), &old["url"]);
    let failing_ms = old["failingMs"].as_u64().unwrap_or(0);
    let state = match old["stage"].as_str() {
        Some("gone") => json!({ "gone": { "isDeleted": !trouble.is_null() } }),
        // The deletion was noted before the store was asked for it.
        stage if removes || stage == Some("leaving") => {
            let object = match (removes, url.is_null()) {
                (false, _) => "stays",
                (true, true) => "goesIfOurs",
                (true, false) => "goes",
            };
            json!({ "deleting": { "object": object, "failingMs": failing_ms } })
        }
        Some("recording") => json!({ "recording": { "trouble": trouble } }),
        Some("uploading") => json!({ "uploading": { "trouble": trouble, "failingMs": failing_ms } }),
        Some("ready") => json!({ "done": { "url": url } }),
        Some("failed") => json!({ "failed": { "trouble": trouble, "hasCopy": is("isLocal") } }),
        _ => Value::Null,
    };
    // The first files of this version do not note that an upload had begun, only its consequences.
    let has_traces = !old["upload"].is_null() || old["stale"] != json!([]) || !old["sum"].is_null();
    let at_store = match &old["key"] {
        key if is_gone || key.is_null() => Value::Null,
        key => json!({
            "key": key, "hasBegun": is("begun") || is("attemptOpened") || has_traces, "upload": old["upload"],
            "stale": old["stale"], "sum": old["sum"], "stays": is("stays"),
        }),
    };
    let bucket = match &old["sealed"] {
        _ if is_gone => json!({ "operators": null }),
        sealed if sealed.is_null() || is("ofOperator") => json!({ "operators": sealed }),
        sealed => json!({ "own": sealed }),
    };
    json!({
        "version": VERSION, "fileName": old["fileName"], "number": old["number"],
        "about": {
            "destinationId": old["destinationId"], "sessionId": old["sessionId"], "label": old["label"],
            "accountId": old["accountId"].as_i64().unwrap_or(0),
        },
        "startedAtMs": old["startedAtMs"], "changedAtMs": old["changedAtMs"],
        "retentionDays": old["retentionDays"], "bucket": bucket, "atStore": at_store,
        "bytes": old["bytes"], "durationMs": old["durationMs"],
        "attempt": old["attempt"], "attemptOpened": old["attemptOpened"], "state": state,
    })
}
