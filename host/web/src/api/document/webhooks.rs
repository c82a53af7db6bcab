//! What webhooks are sent, as `x-webhooks`: OpenAPI 3.0 has no place of its own for requests that the service makes.

use serde_json::{Map, Value, json};

/// An event: its name, when it is sent, and the fields of its data with their example.
type Event = (&'static str, &'static str, &'static [&'static str]);

/// A recording, named as the archive driver does.
const RECORDING: &str = "sunday-service/2027-01-15T080000Z-ses_4GyTq0dZPvL1sWmN8bXcRk-1.mp4";

/// Every event. The first four are subscribed to like the others, but are the specified ones.
const EVENTS: &[Event] = &[
    ("stream.started", "A stream begins receiving data.", &[]),
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
    ("test.ping", "Its owner tests the webhook; sent whatever it subscribes to.", &["webhookId"]),
    ("destination.connected", "A destination forwards.", &["destinationId", "platform"]),
    ("destination.failed", "A destination stopped forwarding.", &["destinationId", "platform", "error"]),
    ("destination.recovered", "A destination forwards again.", &["destinationId", "platform"]),
    ("limit.warning", "A session used 80 % of its `maxSats` or of its `maxDurationMinutes`.", &["limit"]),
    ("limit.reached", "A session ended at a hard limit.", &["limit"]),
    (
        "balance.low",
        "A charge took the account's balance below the service's `lowBalanceSats` (see `GET /api/public/config`), or three refills in a row failed. Sent once, and again only after the balance was above.",
        &["balance"],
    ),
    (
        "stream.health",
        "Issues of the stream's health appeared or are gone; at most six times a minute and stream.",
        &["appeared", "cleared", "issues"],
    ),
    ("recording.failed", "A recording could not be uploaded.", &["fileName", "destinationId", "error"]),
];

/// Events that are about no session.
const WITHOUT_SESSION: &[&str] = &["test.ping", "balance.low"];
/// What the data of every other event has.
const OF_SESSION: &[&str] = &["streamKeyId", "label", "sessionId", "startedAt"];

/// Declares every event with its shape, an example and the headers of the signature.
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
        "responses": {"2XX": {"description": "Taken."}, "410": {"description": "Send nothing more."}}
    })
}

/// Who is sent an event, and what becomes of each answer.
fn manners(event: &str) -> String {
    match event {
        "test.ping" => "Sent once, at once, when its owner tests the webhook, whatever that subscribes to. The answer to the test \
                        says what the receiver answered; nothing is tried again, and nothing is disabled."
            .to_owned(),
        _ => format!(
            "Sent to webhooks that subscribe to `{event}`, at least once, in no promised order. Any status from 200 to 299 \
             takes it; 410 disables the webhook; everything else is tried again, up to ten times over three days, and not \
             before `Retry-After` (at most a day). What fails is sent beside what works, and keeps it from nothing. With \
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
        header("webhook-id", true, "The id of the event, the same in every attempt.", "evt_EXAMPLE"),
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

/// The shape of an event's body, and an example.
fn body((name, summary, fields): &Event) -> (Value, Value) {
    let common = if WITHOUT_SESSION.contains(name) { &[] } else { OF_SESSION };
    let names: Vec<&str> = common.iter().chain(fields.iter()).copied().collect();
    let (mut properties, mut example) = (Map::new(), Map::new());
    for field in &names {
        let (schema, value) = data_field(field);
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
            "timestamp": {"type": "string", "format": "date-time", "description": "When it happened."},
            "data": {"type": "object", "required": names, "properties": properties}
        }
    });
    let body =
        json!({"id": "evt_EXAMPLE", "type": name, "timestamp": "2027-01-15T08:00:00.000Z", "data": example});
    (shape, body)
}

/// The shape of a field of data, and an example.
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
        "startedAt" => field("integer", "Start, Unix milliseconds.", json!(1_799_998_765_432_i64)),
        "endedAt" => field("integer", "End, Unix milliseconds.", json!(1_800_000_000_000_i64)),
        "durationMinutes" => field("integer", "Whole minutes.", json!(20)),
        "durationSeconds" => field("integer", "Seconds.", json!(34)),
        "totalCostSats" => field("integer", "Sats charged.", json!(42)),
        "bandwidthGB" => field("number", "GB (10^9 bytes) that viewers got.", json!(1.25)),
        "endReason" => field("string", "Why it ended.", json!("unpublished")),
        "fileName" => field("string", "Name of the recording.", json!(RECORDING)),
        "sizeBytes" => field("integer", "Size of the recording.", json!(734_003_200)),
        "destinationId" => field("integer", "Destination identifier.", json!(7)),
        "url" => field("string", "Where the recording lies.", json!(format!("s3://recordings/{RECORDING}"))),
        "webhookId" => field("integer", "Webhook identifier.", json!(3)),
        "platform" => field("string", "Platform name of the destination.", json!("rtmp")),
        "error" => field("string", "What was wrong.", json!("the server closed the connection")),
        "limit" => field("string", "Which one: `maxSats` or `maxDurationMinutes`.", json!("maxSats")),
        "balance" => field("integer", "Credit in sats, rounded down.", json!(12)),
        "appeared" => codes("Codes of the issues that are new.", json!(["keyframe_interval"])),
        "cleared" => codes("Codes of the issues that are gone.", json!([])),
        "issues" => issues(),
        _ => destinations(),
    }
}

fn codes(description: &str, example: Value) -> (Value, Value) {
    let schema = json!({"type": "array", "description": description, "items": {"type": "string"}});
    (schema, example)
}

/// What is wrong with the stream.
fn issues() -> (Value, Value) {
    let text = |description: &str| json!({"type": "string", "description": description});
    let schema = json!({
        "type": "array",
        "description": "All issues that there are now, as in `health` of the stream key.",
        "items": {
            "type": "object",
            "required": ["code", "text", "platforms"],
            "properties": {
                "code": text("What is wrong, as a name that does not change."),
                "text": text("The figure, and who wants what."),
                "platforms": {
                    "type": "array",
                    "description": "Destination types of this stream that it breaks; empty when it is bad for everyone.",
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

/// What became of each destination of a session.
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
        "description": "The destinations that took part, with the part of the cost that each caused.",
        "items": {"type": "object", "required": names, "properties": properties}
    });
    (schema, json!([example]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::document::testing::{Unknown, bundled, first_fault};

    #[test]
    fn every_event_has_its_shape_a_true_example_and_the_signature() {
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
    fn how_long_is_tried_and_that_every_event_is_sent_text() {
        let document = bundled();
        for (name, item) in document["x-webhooks"].as_object().unwrap() {
            let text = item["post"]["description"].as_str().unwrap();
            assert_eq!(text.contains("up to ten times over three days"), name != "test.ping", "{text}");
            let summary = item["post"]["summary"].as_str().unwrap();
            assert!(!summary.contains("not sent yet"), "{name}: {summary}");
        }
    }
}
