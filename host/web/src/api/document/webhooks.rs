//! Requests to webhooks, as `x-webhooks`: OpenAPI 3.0 has no field for requests that the service sends.

use serde_json::{Map, Value, json};

/// An event: its name, its summary, and the fields of its data.
type Event = (&'static str, &'static str, &'static [&'static str]);

/// Example name of a recording, as the archive driver makes it.
const RECORDING: &str = "sunday-service/2027-01-15T080000Z-ses_4GyTq0dZPvL1sWmN8bXcRk-1.mp4";

/// All events. The specification fixes four of them.
const EVENTS: &[Event] = &[
    ("stream.started", "A stream starts to receive data.", &[]),
    (
        "stream.ended",
        "A stream has stopped.",
        &[
            "endedAt",
            "durationMinutes",
            "durationSeconds",
            "totalCostSats",
            "bandwidthGB",
            "endReason",
            "destinations",
        ],
    ),
    (
        "recording.ready",
        "A recording was uploaded.",
        &["fileName", "sizeBytes", "durationSeconds", "destinationId", "url"],
    ),
    (
        "test.ping",
        "The webhook is tested; sent even if the webhook does not subscribe to it.",
        &["webhookId"],
    ),
    ("destination.connected", "A destination forwards.", &["destinationId", "platform"]),
    ("destination.failed", "A destination has stopped forwarding.", &["destinationId", "platform", "error"]),
    ("destination.recovered", "A destination forwards again.", &["destinationId", "platform"]),
    ("limit.warning", "A session used 80 % of its `maxSats` or of its `maxDurationMinutes`.", &["limit"]),
    ("limit.reached", "A session ended at a hard limit.", &["limit"]),
    (
        "balance.low",
        "A charge took the account's balance below `lowBalanceSats` of the service (see `GET /api/public/config`), or three refills in a row failed. Sent once, and again only after the balance was above the limit.",
        &["balance"],
    ),
    (
        "stream.health",
        "Health issues of the stream appeared or cleared; at most six times a minute per stream.",
        &["appeared", "cleared", "issues"],
    ),
    ("stream.failover", "The other encoder of the stream took over.", &["from", "to", "reason"]),
    ("recording.failed", "A recording could not be uploaded.", &["fileName", "destinationId", "error"]),
    (
        "recording.expiring",
        "A recording will be deleted at its store by `retentionDays` or `maxGigabytes` of its destination. Sent once, at least a day before.",
        &["fileName", "sizeBytes", "durationSeconds", "destinationId", "url", "expiresAt"],
    ),
    (
        "clip.ready",
        "A clip was made and uploaded.",
        &["clipId", "title", "sizeBytes", "durationSeconds", "url", "costSats"],
    ),
    ("clip.failed", "A clip could not be made or uploaded; it costs nothing.", &["clipId", "title", "error"]),
];

/// Events that do not belong to a session.
const WITHOUT_SESSION: &[&str] = &["test.ping", "balance.low"];
/// Fields in the data of all other events.
const OF_SESSION: &[&str] = &["streamKeyId", "label", "sessionId", "startedAt"];

/// Declares every event with its schema, an example and the signature headers.
pub(super) fn describe(document: &mut Value) {
    let mut webhooks = Map::new();
    for event in EVENTS {
        let (shape, example) = body(event);
        let name = shape_name(event.0);
        webhooks.insert(event.0.to_owned(), json!({"post": request(event, &name, example)}));
        document["components"]["schemas"][&name] = shape;
    }
    document["x-webhooks"] = Value::Object(webhooks);
}

/// `stream.started` gives `StreamStartedEvent`.
fn shape_name(event: &str) -> String {
    let capital = |word: &str| word[..1].to_ascii_uppercase() + &word[1..];
    event.split('.').map(capital).collect::<String>() + "Event"
}

fn request((name, summary, _): &Event, shape: &str, example: Value) -> Value {
    let content = json!({"schema": {"$ref": format!("#/components/schemas/{shape}")}, "example": example});
    json!({
        "operationId": format!("on{shape}"),
        "summary": summary,
        "description": manners(name),
        "tags": ["Webhooks"],
        "security": [],
        "parameters": headers(),
        "requestBody": {"required": true, "content": {"application/json": content}},
        "responses": {"2XX": {"description": "Accepted."}, "410": {"description": "Disables the webhook."}}
    })
}

/// Describes the delivery of an event and the effect of each response.
fn manners(event: &str) -> String {
    match event {
        "test.ping" => "Sent once, at once, when the webhook is tested, even if the webhook does not subscribe to it. The response to \
        the test request holds the receiver's answer. There is no other attempt, and the webhook is never disabled."
            .to_owned(),
        _ => format!(
            "Sent to webhooks that subscribe to `{event}`, at least once, in no guaranteed order. Any status from 200 to 299 \
            accepts the event; 410 disables the webhook; otherwise the delivery is tried again, up to ten times over three days, \
            and not before `Retry-After` (at most a day). A failing delivery does not delay other deliveries. With \
             1,000 deliveries waiting further ones are given up, and the log says so."
        ),
    }
}

fn headers() -> Value {
    let header = |name: &str, required: bool, description: &str, example: &str| {
        json!({"name": name, "in": "header", "required": required, "description": description,
               "schema": {"type": "string"}, "example": example})
    };
    json!([
        header("webhook-id", true, "Event id, the same in every attempt.", "evt_EXAMPLE"),
        header("webhook-timestamp", true, "Time of the attempt, Unix seconds.", "1800000000"),
        header(
            "webhook-signature",
            false,
            "`v1,` and the Base64 of the HMAC-SHA256 over `id.timestamp.body` with the webhook's secret, where `id` and \
             `timestamp` are the two headers and `body` the exact bytes. Two with a space between while the secret is \
             replaced; absent without a secret. What follows `whsec_` in a secret is Base64 of the key, any other secret \
             is the key itself.",
            "v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4="
        )
    ])
}

/// Schema and example of an event's body.
fn body((name, summary, fields): &Event) -> (Value, Value) {
    let common = if WITHOUT_SESSION.contains(name) { &[] } else { OF_SESSION };
    let names: Vec<&str> = common.iter().chain(fields.iter()).copied().collect();
    let (mut properties, mut example) = (Map::new(), Map::new());
    for field in &names {
        let (schema, value) = match (*name, *field) {
            ("recording.ready" | "recording.expiring", "durationSeconds") => recorded_seconds(),
            ("clip.ready", field) => clip_field(field),
            (_, field) => data_field(field),
        };
        properties.insert((*field).to_owned(), schema);
        example.insert((*field).to_owned(), value);
    }
    let shape = json!({
        "type": "object",
        "description": summary,
        "required": ["id", "type", "timestamp", "data"],
        "properties": {
            "id": {"type": "string", "description": "The event's id."},
            "type": {"type": "string", "enum": [name], "description": "What happened."},
            "timestamp": {"type": "string", "format": "date-time", "description": "Time of the event."},
            "data": {"type": "object", "required": names, "properties": properties}
        }
    });
    let body =
        json!({"id": "evt_EXAMPLE", "type": name, "timestamp": "2027-01-15T08:00:00.000Z", "data": example});
    (shape, body)
}

/// Length of a recording, which is not a whole number of seconds.
fn recorded_seconds() -> (Value, Value) {
    let schema =
        json!({"type": "number", "format": "double", "description": "Length of the recording in seconds."});
    (schema, json!(3601.5))
}

/// As [`data_field`] for `clip.ready`, which is smaller and shorter than a recording.
fn clip_field(name: &str) -> (Value, Value) {
    let described = |(mut schema, _): (Value, Value), description: &str, example: Value| {
        schema["description"] = json!(description);
        (schema, example)
    };
    match name {
        "sizeBytes" => described(data_field(name), "Size of the clip.", json!(15_728_640)),
        "durationSeconds" => described(recorded_seconds(), "Length of the clip in seconds.", json!(31.5)),
        "url" => described(
            data_field(name),
            "Location of the clip in the store.",
            json!("s3://recordings/clips/EXAMPLE.mp4"),
        ),
        _ => data_field(name),
    }
}

/// Schema and example of a field of `data`.
fn data_field(name: &str) -> (Value, Value) {
    let field = |kind: &str, description: &str, example: Value| {
        let mut schema = json!({"type": kind, "description": description});
        if kind == "integer" {
            schema["format"] = json!("int64");
        }
        (schema, example)
    };
    match name {
        "streamKeyId" => field("integer", "Stream key identifier.", json!(12)),
        "label" => field("string", "Label of the stream key.", json!("Sunday service")),
        "sessionId" => field("string", "Session identifier.", json!("01K9Z3M8Q0EXAMPLE")),
        "startedAt" => {
            field("integer", "Start of the session, Unix milliseconds.", json!(1_799_998_765_432_i64))
        }
        "endedAt" => field("integer", "End, Unix milliseconds.", json!(1_800_000_000_000_i64)),
        "durationMinutes" => field("integer", "Whole minutes.", json!(20)),
        "durationSeconds" => field("integer", "Seconds.", json!(34)),
        "totalCostSats" => field("integer", "Sats charged.", json!(42)),
        "bandwidthGB" => field("number", "GB (10^9 bytes) sent to viewers.", json!(1.25)),
        "expiresAt" => field(
            "integer",
            "Time of the deletion, Unix milliseconds; it may come later, never earlier.",
            json!(1_800_086_400_000_i64),
        ),
        "endReason" => field("string", "Why the session ended.", json!("unpublished")),
        "fileName" => field("string", "Name of the recording.", json!(RECORDING)),
        "sizeBytes" => field("integer", "Size of the recording.", json!(734_003_200)),
        "destinationId" => field("integer", "Destination identifier.", json!(7)),
        "url" => field(
            "string",
            "Location of the recording in the store.",
            json!(format!("s3://recordings/{RECORDING}")),
        ),
        "clipId" => field("integer", "Clip identifier.", json!(5)),
        "title" => field("string", "Title of the clip.", json!("The goal")),
        "costSats" => field("integer", "Sats charged.", json!(0)),
        "webhookId" => field("integer", "Webhook identifier.", json!(3)),
        "platform" => field("string", "Platform name of the destination.", json!("rtmp")),
        "error" => field("string", "Error text.", json!("the server closed the connection")),
        "limit" => field("string", "Which one: `maxSats` or `maxDurationMinutes`.", json!("maxSats")),
        "balance" => field("integer", "Credit in sats, rounded down.", json!(12)),
        "from" => field("string", "Encoder before: `primary` or `backup`.", json!("primary")),
        "to" => field("string", "Encoder whose media goes out now: `primary` or `backup`.", json!("backup")),
        "reason" => field(
            "string",
            "`disconnected` (connection ended), `unpublished` (encoder stopped), `stalled` (no media) or `returned` (the \
             primary encoder publishes steadily again).",
            json!("disconnected"),
        ),
        "appeared" => codes("Codes of new issues.", json!(["keyframe_interval"])),
        "cleared" => codes("Codes of cleared issues.", json!([])),
        "issues" => issues(),
        _ => destinations(),
    }
}

fn codes(description: &str, example: Value) -> (Value, Value) {
    let schema = json!({"type": "array", "description": description, "items": {"type": "string"}});
    (schema, example)
}

/// Current issues of the stream's health.
fn issues() -> (Value, Value) {
    let text = |description: &str| json!({"type": "string", "description": description});
    let schema = json!({
        "type": "array",
        "description": "All current issues, as in `health` of the stream key.",
        "items": {
            "type": "object",
            "required": ["code", "text", "platforms"],
            "properties": {
                "code": text("Stable code of the issue."),
                "text": text("Measured value, and the values that platforms ask for."),
                "platforms": {
                    "type": "array",
                    "description": "Destination types of this stream that are affected; empty when all are.",
                    "items": {"type": "string"}
                }
            }
        }
    });
    let example = json!([{
        "code": "keyframe_interval",
        "text": "keyframe interval 5.0 s: Twitch asks for 2 s",
        "platforms": ["twitch"]
    }]);
    (schema, example)
}

/// Destinations of an ended session.
fn destinations() -> (Value, Value) {
    let names = ["destinationId", "platform", "startedAt", "endedAt", "totalCostSats"];
    let fields = names.map(|name| (name, data_field(name)));
    let properties: Map<String, Value> =
        fields.iter().map(|(name, (schema, _))| ((*name).to_owned(), schema.clone())).collect();
    let example: Map<String, Value> =
        fields.iter().map(|(name, (_, example))| ((*name).to_owned(), example.clone())).collect();
    let schema = json!({
        "type": "array",
        "maxItems": 100,
        "description": "The destinations that took part, each with its share of the cost.",
        "items": {"type": "object", "required": names, "properties": properties}
    });
    (schema, json!([example]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::document::testing::{Unknown, bundled, first_fault};

    #[test]
    fn every_event_has_a_schema_a_valid_example_and_signature_headers() {
        let document = bundled();
        let webhooks = document["x-webhooks"].as_object().unwrap();
        assert_eq!(webhooks.len(), EVENTS.len());
        for (name, item) in webhooks {
            let content = &item["post"]["requestBody"]["content"]["application/json"];
            assert_eq!(content["example"]["type"], json!(name));
            assert_eq!(first_fault(&document, &content["schema"], &content["example"], Unknown::Fault), None);
            let headers: Vec<_> =
                item["post"]["parameters"].as_array().unwrap().iter().map(|header| &header["name"]).collect();
            assert_eq!(headers, ["webhook-id", "webhook-timestamp", "webhook-signature"]);
        }
        let required =
            |shape: &str| document["components"]["schemas"][shape]["properties"]["data"]["required"].clone();
        assert_eq!(required("StreamStartedEvent"), json!(OF_SESSION));
        assert_eq!(required("TestPingEvent"), json!(["webhookId"]));
        assert_eq!(required("StreamEndedEvent").as_array().map(Vec::len), Some(11));
    }

    #[test]
    fn descriptions_state_the_retries_in_these_texts() {
        let document = bundled();
        for (name, item) in document["x-webhooks"].as_object().unwrap() {
            let text = item["post"]["description"].as_str().unwrap();
            assert_eq!(text.contains("up to ten times over three days"), name != "test.ping", "{text}");
            let summary = item["post"]["summary"].as_str().unwrap();
            assert!(!summary.contains("not sent yet"), "{name}: {summary}");
        }
    }
}
