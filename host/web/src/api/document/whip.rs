//! WHIP: served beside the generated operations, because its bodies are SDP.

use serde_json::{Value, json};

use super::errors::answer;
use super::playback::with_retry;
use satcast_core::config::WHIP_PATH;

const SDP: &str = "application/sdp";
/// Beginning of an offer and an answer.
const EXAMPLE: &str =
    "v=0\r\no=- 5228595038118931041 2 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\na=group:BUNDLE 0 1\r\n";

/// Adds both paths. Called after the operations of the API are completed, whose rules do not apply to them.
pub(super) fn describe(document: &mut Value) {
    document["paths"][WHIP_PATH] = json!({ "post": publish() });
    document["paths"][format!("{WHIP_PATH}/{{id}}")] = json!({ "delete": leave() });
}

fn publish() -> Value {
    let mut responses = refusals();
    let location =
        json!({"description": "Address of the publish, `/whip/{id}`.", "schema": {"type": "string"}});
    responses["201"] = json!({
        "description": "The answer. Media may come now.",
        "headers": {"Location": location, "X-Request-Id": {"$ref": "#/components/headers/X-Request-Id"}},
        "content": sdp()
    });
    responses["400"] = answer(
        "The offer cannot be read, or sends nothing",
        "malformed_body",
        "The offer sends neither video nor audio; add a track that sends",
    );
    responses["403"] = answer(
        "The stream may not be published now, or not from this address",
        "publish_refused",
        "The balance does not pay for a destination; add credit",
    );
    responses["404"] = answer(
        "The service takes no WHIP",
        "whip_off",
        "WHIP is off in this service; the operator turns it on with [ingest] webrtc_listen. Use RTMP or SRT meanwhile",
    );
    responses["409"] = answer(
        "Another encoder publishes with this key",
        "already_published",
        "The stream is already published",
    );
    responses["413"] =
        answer("The offer is too large", "body_too_large", "The request body is larger than 65536 bytes");
    responses["415"] = answer(
        "The Content-Type is not SDP",
        "content_type_not_supported",
        "Send the offer as SDP with the header Content-Type: application/sdp",
    );
    responses["422"] = answer(
        "The offer has no codec that the service takes",
        "codec_refused",
        "The offer has no audio codec that the service takes; choose Opus",
    );
    json!({
        "operationId": "publishByWhip",
        "tags": ["Public"],
        "summary": "Publish by WHIP",
        "description": "For OBS, browsers and other encoders with WebRTC (RFC 9725): the offer of the encoder, with the stream key or \
            backup key as bearer token. Video is H.264, HEVC or AV1, audio is Opus. Candidates of the offer are not needed, and PATCH is \
            answered with 405. Of several nodes, the one that answers has the media port. Scripts of any website may call it.",
        "security": [{"bearer": []}],
        "parameters": [],
        "requestBody": {"required": true, "content": sdp()},
        "responses": responses
    })
}

fn leave() -> Value {
    let mut responses = refusals();
    responses["200"] = json!({
        "description": "The encoder has left.",
        "headers": {"X-Request-Id": {"$ref": "#/components/headers/X-Request-Id"}}
    });
    responses["404"] = answer(
        "The publish has ended, or WHIP is off",
        "not_found",
        "No publish has this address; it may have ended",
    );
    json!({
        "operationId": "endWhip",
        "tags": ["Public"],
        "summary": "End a publish by WHIP",
        "description": "With the key that began it. The session of the stream ends as if the encoder had stopped.",
        "security": [{"bearer": []}],
        "parameters": [{
            "name": "id", "in": "path", "required": true, "description": "From `Location`.", "schema": {"type": "string"}
        }],
        "responses": responses
    })
}

fn sdp() -> Value {
    json!({ SDP: {"schema": {"type": "string"}, "example": EXAMPLE} })
}

/// Error responses of both.
fn refusals() -> Value {
    json!({
        "401": answer("No stream key, or an unknown one", "invalid_key",
            "Unknown stream key; it may have been replaced, copy it again"),
        "429": with_retry(answer("Too many encoders or wrong keys from this address", "too_many_encoders",
            "Too many connections from this address")),
        "500": {"$ref": "#/components/responses/Internal"},
        "503": with_retry(answer("The service cannot take encoders at the moment", "publish_unavailable",
            "The server cannot check the stream key at the moment; try again shortly"))
    })
}
