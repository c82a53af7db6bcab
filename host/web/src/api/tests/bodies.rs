//! Exact error texts of malformed and refused bodies.

use poem::http::Method;

use super::Rig;

/// Status and code.
type Says = (u16, &'static str);
const MALFORMED: Says = (400, "malformed_field");
const UNKNOWN: Says = (400, "unknown_field");

const CLIP_RANGE: Says = (422, "clip_range_refused");

const STREAMS: &str = "/api/streams";
const CLIPS: &str = "/api/streams/1/clips";
const CASES: &[(&str, &str, Says, &str)] = &[
    (STREAMS, "[]", (400, "malformed_body"), "The request body must be a JSON object"),
    (STREAMS, "{", (400, "malformed_body"), "The request body is not JSON (line 1, column 1)"),
    (STREAMS, "{}", MALFORMED, "Field `label` is required"),
    (STREAMS, r#"{"label":null}"#, MALFORMED, "Field `label` must be a text"),
    (STREAMS, r#"{"label":" "}"#, (422, "label_refused"), "Field `label` must have 1 to 128 characters"),
    (
        STREAMS,
        r#"{"label":"a\u0007b"}"#,
        (422, "label_refused"),
        "Field `label` must not hold control characters",
    ),
    (
        STREAMS,
        r#"{"label":"x","name":1}"#,
        UNKNOWN,
        "Unknown field `name`; known fields: label, destinations, allowedAddresses, srtPassphrase",
    ),
    (STREAMS, r#"{"label":"x","destinations":{}}"#, MALFORMED, "Field `destinations` must be a list"),
    (
        STREAMS,
        r#"{"label":"x","destinations":[{"type":"rtmp","config":{"url":"rtmp://a.example/app"}},3]}"#,
        (400, "malformed_body"),
        "destinations[1] must be a JSON object",
    ),
    (
        STREAMS,
        r#"{"label":"x","destinations":[{"kind":"rtmp"}]}"#,
        UNKNOWN,
        "Unknown field `destinations[0].kind`; known fields: type, config, startDelaySeconds, stopDelaySeconds, checkStore",
    ),
    (STREAMS, r#"{"label":"x","destinations":[{}]}"#, MALFORMED, "Field `destinations[0].type` is required"),
    (
        STREAMS,
        r#"{"label":"x","destinations":[{"type":"rtmp","config":null}]}"#,
        MALFORMED,
        "Field `destinations[0].config` must be an object",
    ),
    (
        STREAMS,
        r#"{"label":"x","destinations":[{"type":"rtmp","stopDelaySeconds":301}]}"#,
        (422, "delay_refused"),
        "Field `destinations[0].stopDelaySeconds` must be a whole number of seconds from 0 to 300",
    ),
    (
        STREAMS,
        r#"{"label":"x","destinations":[{"type":"rtmp","checkStore":1}]}"#,
        MALFORMED,
        "Field `destinations[0].checkStore` must be true or false",
    ),
    (
        STREAMS,
        r#"{"label":"x","allowedAddresses":["::1",1]}"#,
        MALFORMED,
        "Field `allowedAddresses` must be a list of texts",
    ),
    ("/api/streams/1/limits", "{}", (422, "limit_refused"), "Send `maxSats`, `maxDurationMinutes` or both"),
    (
        "/api/streams/1/limits",
        r#"{"maxDurationMinutes":525601}"#,
        (422, "limit_refused"),
        "Field `maxDurationMinutes` must be a whole number from 1 to 525600, or null to remove it",
    ),
    (
        "PATCH /api/streams/1",
        "{}",
        (422, "nothing_to_change"),
        "Send `label`, `allowedAddresses` or `srtPassphrase`",
    ),
    (
        "PATCH /api/streams/1/destinations/1",
        r#"{"checkStore":true}"#,
        (422, "nothing_to_change"),
        "Send `enabled`, `config`, `startDelaySeconds` or `stopDelaySeconds`",
    ),
    (
        "PATCH /api/streams/1/destinations/1",
        r#"{"config":[]}"#,
        MALFORMED,
        "Field `config` must be an object",
    ),
    ("/api/keys", r#"{"type":1}"#, MALFORMED, "Field `type` must be a text"),
    (
        "/api/keys",
        r#"{"type":"other"}"#,
        (422, "key_refused"),
        "Field `type` must be \"public\" or \"permanent\"",
    ),
    ("/api/keys", r#"{"type":"public","scopes":"read"}"#, MALFORMED, "Field `scopes` must be a list"),
    (
        "/api/keys",
        r#"{"type":"public","scopes":["read",1]}"#,
        (422, "key_refused"),
        "Field `scopes` may hold \"read\", \"manage\" and \"webhooks\"",
    ),
    (
        "/api/keys",
        r#"{"type":"public","destinationId":"1"}"#,
        MALFORMED,
        "Field `destinationId` must be a whole number",
    ),
    (
        "/api/keys",
        r#"{"type":"permanent","label":"\u0000"}"#,
        (422, "label_refused"),
        "Field `label` must not hold control characters",
    ),
    (
        "/api/drivers",
        r#"{"driver":"rtmp","action":"restart"}"#,
        (422, "action_refused"),
        "Field `action` must be \"enable\", \"disable\" or \"replace\"",
    ),
    (
        "/api/archives/recover-pay",
        r#"{"fileName":""}"#,
        MALFORMED,
        "Field `fileName` must have 1 to 1024 characters",
    ),
    ("/api/wallet/topup", "{}", MALFORMED, "Field `amountSats` is required"),
    (
        "/api/wallet/topup",
        r#"{"amountSats":1.5}"#,
        (422, "amount_refused"),
        "Field `amountSats` must be a whole number of sats",
    ),
    (
        "PUT /api/wallet/connection",
        r#"{"type":"bank"}"#,
        (422, "wallet_type_refused"),
        "Field `type` must be one of: nwc, lnbits, phoenixd",
    ),
    (
        "PUT /api/wallet/connection",
        r#"{"type":"nwc","url":"x","refill":null}"#,
        MALFORMED,
        "Field `refill` must be an object",
    ),
    (
        "PUT /api/wallet/connection",
        r#"{"type":"nwc","url":"x","refill":{"amount":1}}"#,
        UNKNOWN,
        "Unknown field `refill.amount`; known fields: thresholdSats, amountSats, dailyCapSats",
    ),
    (
        "PUT /api/wallet/connection",
        r#"{"type":"nwc","url":"x","refill":{"amountSats":"1"}}"#,
        (422, "refill_refused"),
        "Field `refill.amountSats` must be a whole number of sats",
    ),
    ("/api/webhooks", r#"{"url":"x"}"#, MALFORMED, "Field `events` is required"),
    (
        "/api/webhooks",
        r#"{"url":"x","events":[1]}"#,
        MALFORMED,
        "Field `events` must be a list of event names",
    ),
    (
        "/api/webhooks",
        r#"{"url":"x","events":[]}"#,
        (422, "event_refused"),
        "Field `events` must name at least one event",
    ),
    (
        "/api/webhooks",
        r#"{"url":"x","events":["test.ping","test.ping"]}"#,
        (422, "event_refused"),
        "Field `events` names an event twice",
    ),
    (
        "/api/webhooks",
        r#"{"url":"x","events":["test"]}"#,
        (422, "event_refused"),
        "Field `events` names an unknown event; known events: stream.started, stream.ended, recording.ready, test.ping, \
         destination.connected, destination.failed, destination.recovered, limit.warning, limit.reached, balance.low, \
         stream.health, stream.failover, recording.failed, recording.expiring, clip.ready, clip.failed",
    ),
    (
        "/api/webhooks",
        r#"{"url":"x","events":["test.ping"],"stream_key_id":"1"}"#,
        MALFORMED,
        "Field `stream_key_id` must be a whole number or null",
    ),
    (CLIPS, "{}", CLIP_RANGE, "Send either `lastSeconds`, or both `from` and `to`"),
    (CLIPS, r#"{"to":1}"#, CLIP_RANGE, "Send either `lastSeconds`, or both `from` and `to`"),
    (
        CLIPS,
        r#"{"lastSeconds":5,"from":1}"#,
        CLIP_RANGE,
        "Send either `lastSeconds`, or both `from` and `to`",
    ),
    (
        CLIPS,
        r#"{"from":-5000,"to":5}"#,
        CLIP_RANGE,
        "Field `from` must be a time in Unix milliseconds, which is not negative",
    ),
    (CLIPS, r#"{"from":5,"to":5}"#, CLIP_RANGE, "Field `to` must be after `from`, by at most 600 seconds"),
];

#[tokio::test]
async fn errors_of_bodies_have_exact_texts() {
    for cases in CASES.chunks(10) {
        let rig = Rig::new().await;
        for (place, body, (status, code), text) in cases {
            let (method, path) = place.split_once(' ').unwrap_or(("POST", place));
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            assert_eq!(rig.ask(method, path, Some(body)).await.error(*status, code), *text, "{place} {body}");
        }
    }
}
