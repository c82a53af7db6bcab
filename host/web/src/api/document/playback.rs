//! The playback URLs: served by `playback` on the same port, and so not among the generated operations.

use serde_json::{Value, json};

use super::errors::answer;

/// An operation with the same security as the playback URLs.
const LIKE: &str = "/paths/~1api~1public~1stream~1status/get/security";
/// Media type of a playlist (RFC 8216, section 4).
const PLAYLIST: &str = "application/vnd.apple.mpegurl";
/// Example of a multivariant playlist.
const EXAMPLE: &str = "#EXTM3U\n#EXT-X-VERSION:7\n#EXT-X-INDEPENDENT-SEGMENTS\n#EXT-X-STREAM-INF:BANDWIDTH=2500000,\
    CODECS=\"avc1.64001f,mp4a.40.2\",RESOLUTION=1280x720\nt/AbC123/media.m3u8\n";
/// Example of a media playlist.
const MEDIA_EXAMPLE: &str = "#EXTM3U\n#EXT-X-VERSION:7\n#EXT-X-TARGETDURATION:2\n#EXT-X-MEDIA-SEQUENCE:1763660700\n\
    #EXT-X-DISCONTINUITY-SEQUENCE:0\n#EXT-X-INDEPENDENT-SEGMENTS\n#EXT-X-MAP:URI=\"i1763660700-0.mp4\"\n\
    #EXT-X-PROGRAM-DATE-TIME:2025-11-20T17:45:00.000Z\n#EXTINF:2.00000,\n1763660700.m4s\n";
/// Example of the playlist of a recording.
const RECORDING_EXAMPLE: &str = "#EXTM3U\n#EXT-X-VERSION:7\n#EXT-X-TARGETDURATION:10\n#EXT-X-MEDIA-SEQUENCE:0\n\
    #EXT-X-PLAYLIST-TYPE:VOD\n#EXT-X-INDEPENDENT-SEGMENTS\n#EXT-X-MAP:URI=\"../30/t/AbC123/media.mp4\",BYTERANGE=\"1324@0\"\n\
    #EXT-X-PROGRAM-DATE-TIME:2027-01-08T08:00:00.000Z\n#EXTINF:4.000000,\n#EXT-X-BYTERANGE:2500000@1324\n\
    ../30/t/AbC123/media.mp4\n#EXT-X-ENDLIST\n";
/// Description of `playback_path`.
const PATH: &str = "Identifies the self-hosted destination; part of its `url`.";
/// A path of the service.
const PREFIX: &str = "/hls/{playback_path}";

/// Adds the playback URLs. Called after the operations of the API are completed, whose rules do not apply to them.
pub(super) fn describe(document: &mut Value) {
    let security = document.pointer(LIKE).cloned().unwrap_or_default();
    document["paths"][format!("{PREFIX}/index.m3u8")] = json!({ "get": index(&security) });
    document["paths"][format!("{PREFIX}/poster.mp4")] = json!({ "get": poster(&security) });
    document["paths"][format!("{PREFIX}/t/{{token}}/{{name}}")] = json!({ "get": below() });
    let vod = "/vod/{id}";
    document["paths"][format!("{vod}/index.m3u8")] = json!({ "get": recording(&security) });
    document["paths"][format!("{vod}/poster.mp4")] = json!({ "get": recording_poster(&security) });
    document["paths"][format!("{vod}/clip.mp4")] = json!({ "get": clip_file(&security) });
    document["paths"][format!("{vod}/t/{{token}}/media.mp4")] = json!({ "get": recording_media() });
    let responses = &mut document["components"]["responses"];
    responses["NotPlayable"] = not_playable();
    responses["NotNow"] = with_retry(answer(
        "The service is busy, or the requested media did not arrive in time",
        "not_in_time",
        "The encoder is not sending; try again in a second",
    ));
    responses["OutOfRange"] = answer(
        "The range starts after the end of the file; `Content-Range` has the size",
        "range_not_satisfiable",
        "The range starts after the end of the file; the Content-Range header has the size",
    );
}

/// Declares that the response says when to try again.
pub(super) fn with_retry(mut response: Value) -> Value {
    response["headers"]["Retry-After"] = json!({"$ref": "#/components/headers/Retry-After"});
    response
}

fn not_playable() -> Value {
    let mut response = with_retry(answer(
        "The stream is offline or starting, or the file is no longer available",
        "offline",
        "The stream is offline",
    ));
    let content = &mut response["content"]["application/json"];
    let offline = content["example"].take();
    let starting = json!({
        "error": "The stream is starting; try again in a second", "code": "starting",
        "requestId": offline["requestId"], "retryAfter": 1
    });
    *content = json!({"schema": content["schema"], "examples": {
        "offline": {"summary": "Offline", "value": offline},
        "starting": {"summary": "Live, but the first segment is not ready yet", "value": starting}
    }});
    response
}

fn index(security: &Value) -> Value {
    let mut responses = refusals();
    responses["200"] = success(
        "The multivariant playlist. Its URIs are relative and carry a token instead of the key.",
        &[PLAYLIST],
        EXAMPLE,
    );
    responses["400"] = reference("KeyRequired");
    json!({
        "operationId": "getPlaylist",
        "tags": ["Public"],
        "summary": "Play a stream",
        "description": "The `hlsUrl` of the stream status, for use in a player. The URL is permanent, but works only while the stream is live; \
            404 with `Retry-After` and code `starting` until the first segment is there, or with `lowLatency` its first part. With `token` instead of a key: the \
            preview, for one or two viewers, 60 requests a minute.",
        "security": security,
        "parameters": [path_parameter("playback_path", PATH), preview_parameter()],
        "responses": responses
    })
}

fn poster(security: &Value) -> Value {
    let mut responses = refusals();
    responses["200"] = success("An MP4 with one frame, in the codec of the stream.", &["video/mp4"], "");
    responses["206"] = success("The requested range of it.", &["video/mp4"], "");
    responses["400"] = reference("KeyRequired");
    responses["416"] = reference("OutOfRange");
    json!({
        "operationId": "getPoster",
        "tags": ["Public"],
        "summary": "Show the newest keyframe",
        "description": "A still of a live stream, for a `<video>` without controls. A new one is made at most every 5 seconds. Bytes are \
            metered; with `token` instead of a key they are not, and the request counts for the limit of the preview.",
        "security": security,
        "parameters": [path_parameter("playback_path", PATH), preview_parameter(), range_parameter("One byte range.")],
        "responses": responses
    })
}

fn recording(security: &Value) -> Value {
    let mut responses = refusals();
    responses["200"] = success("A media playlist of byte ranges.", &[PLAYLIST], RECORDING_EXAMPLE);
    responses["400"] = reference("KeyRequired");
    responses["404"] = reference("NotFound");
    json!({
        "operationId": "getRecordingPlaylist",
        "tags": ["Public"],
        "summary": "Watch a recording",
        "description": "The `playbackUrl` of a recording, with its token; or, for a public recording, with the key of a self-hosted \
            destination of the same stream. Recordings of one session and destination are one playlist with discontinuities, which \
            begins at the recording that was asked for. While the session goes on it is an event that grows.",
        "security": security,
        "parameters": [recording_id(), owner_token()],
        "responses": responses
    })
}

fn owner_token() -> Value {
    json!({
        "name": "token", "in": "query", "required": false, "schema": {"type": "string"},
        "description": "Token of the owner, from `playbackUrl`; instead of a key."
    })
}

fn recording_poster(security: &Value) -> Value {
    let mut responses = refusals();
    responses["200"] = success("An MP4 with one frame, in the codec of the recording.", &["video/mp4"], "");
    responses["206"] = success("The requested range of it.", &["video/mp4"], "");
    responses["400"] = reference("KeyRequired");
    responses["404"] = reference("NotFound");
    responses["416"] = reference("OutOfRange");
    json!({
        "operationId": "getRecordingPoster",
        "tags": ["Public"],
        "summary": "Show the first keyframe of a recording or clip",
        "description": "The `posterUrl` of a recording or clip, for a `<video>` without controls, with the access of its playlist or \
            file. Bytes are metered. 404 without video.",
        "security": security,
        "parameters": [recording_id(), owner_token(), range_parameter("One byte range.")],
        "responses": responses
    })
}

fn recording_media() -> Value {
    let mut responses = refusals();
    responses["200"] = success("The whole recording, as far as it was made.", &["video/mp4"], "");
    responses["206"] = success("The requested range of it.", &["video/mp4"], "");
    responses["307"] = json!({
        "description": "With `[archive] playback = \"signed\"`: the store has the bytes at the address in `Location`, for an hour",
        "headers": {"X-Request-Id": {"$ref": "#/components/headers/X-Request-Id"}}
    });
    responses["404"] = reference("NotFound");
    responses["416"] = reference("OutOfRange");
    json!({
        "operationId": "getRecordingMedia",
        "tags": ["Public"],
        "summary": "Fetch a part of a recording",
        "description": "Players come here by the addresses in the playlist. Bytes are metered for the destination that made the \
            recording, but for those that the store sends itself.",
        "security": [],
        "parameters": [
            recording_id(),
            path_parameter("token", "The token from the URIs in the playlist."),
            range_parameter("One byte range."),
            {
                "name": "If-Range", "in": "header", "required": false, "schema": {"type": "string"},
                "description": "The `ETag` of an earlier answer: another recording, or a longer one, is sent whole."
            }
        ],
        "responses": responses
    })
}

fn clip_file(security: &Value) -> Value {
    let mut operation = recording_media();
    operation["operationId"] = json!("getClipFile");
    operation["summary"] = json!("Watch or download a clip");
    operation["description"] = json!(
        "The `playbackUrl` of a clip, with its token; or, for a public clip, with the key of a self-hosted destination of the same \
        stream. Bytes are metered for the destination for which the clip is kept, but for those that the store sends itself."
    );
    operation["security"] = security.clone();
    operation["responses"]["400"] = reference("KeyRequired");
    operation["responses"]["200"]["description"] = json!("The whole clip.");
    operation["parameters"] = json!([recording_id(), range_parameter("One byte range."), {
        "name": "token", "in": "query", "required": false, "schema": {"type": "string"},
        "description": "Token of the owner, from `playbackUrl`; instead of a key."
    }]);
    operation
}

fn recording_id() -> Value {
    json!({
        "name": "id", "in": "path", "required": true, "description": "Recording identifier.",
        "schema": {"type": "integer", "format": "int64"}
    })
}

fn preview_parameter() -> Value {
    json!({
        "name": "token", "in": "query", "required": false, "schema": {"type": "string"},
        "description": "The `playbackToken` of the stream status; instead of a key, it plays the preview."
    })
}

fn range_parameter(description: &str) -> Value {
    json!({
        "name": "Range", "in": "header", "required": false, "schema": {"type": "string"},
        "description": description
    })
}

fn below() -> Value {
    let mut responses = refusals();
    let media = [PLAYLIST, "video/mp4", "audio/mp4"];
    responses["200"] =
        success("A playlist, an initialization segment, a segment or a part.", &media, MEDIA_EXAMPLE);
    responses["206"] = success("The requested range of a file.", &["video/mp4", "audio/mp4"], "");
    responses["400"] = reference("Malformed");
    responses["416"] = reference("OutOfRange");
    let directive = |name: &str, description: &str, schema: Value| json!({"name": name, "in": "query", "required": false, "description": description, "schema": schema});
    json!({
        "operationId": "getPlaybackFile",
        "tags": ["Public"],
        "summary": "Fetch a playlist, segment or part",
        "description": "Players come here by the addresses in the playlists; nobody has to make one. The token is of one key and \
            session: after the end of the stream it goes on for 60 seconds, after the key is revoked for about a second. Media \
            players (with a `Range`, or known by `User-Agent`) get the first segments when there are three, at the latest after eight \
            seconds. Bytes are metered, but for those of the preview.",
        "security": [],
        "parameters": [
            path_parameter("playback_path", "As in the URL of the index."),
            path_parameter("token", "The token from the URIs in the index."),
            path_parameter("name", "Name of a playlist or media file."),
            directive("_HLS_msn", "Media sequence number: waits for a playlist with this segment (destinations with `lowLatency`).",
                json!({"type": "integer", "minimum": 0})),
            directive("_HLS_part", "Waits for this part of that segment.", json!({"type": "integer", "minimum": 0})),
            directive("_HLS_skip", "Requests a delta update, without the segments that the player already knows.", json!({"type": "string", "enum": ["YES", "v2"]})),
            range_parameter("One byte range; ignored for playlists.")
        ],
        "responses": responses
    })
}

fn path_parameter(name: &str, description: &str) -> Value {
    json!({"name": name, "in": "path", "required": true, "description": description, "schema": {"type": "string"}})
}

/// `playlist` is the example of a playlist.
fn success(description: &str, kinds: &[&str], playlist: &str) -> Value {
    let media = |kind: &str| match kind {
        PLAYLIST => json!({"schema": {"type": "string"}, "example": playlist}),
        _ => json!({"schema": {"type": "string", "format": "binary"}}),
    };
    let content = kinds.iter().map(|kind| ((*kind).to_owned(), media(kind)));
    let content: serde_json::Map<String, Value> = content.collect();
    json!({
        "description": description,
        "headers": {"X-Request-Id": {"$ref": "#/components/headers/X-Request-Id"}},
        "content": content
    })
}

fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/responses/{name}")})
}

/// Error responses of all paths.
fn refusals() -> Value {
    let names = [
        ("401", "Unauthorized"),
        ("403", "Forbidden"),
        ("404", "NotPlayable"),
        ("429", "RateLimited"),
        ("500", "Internal"),
        ("502", "StoreFailed"),
        ("503", "NotNow"),
    ];
    names
        .into_iter()
        .map(|(status, name)| (status.to_owned(), reference(name)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_playlist_has_an_example_of_its_own() {
        let mut document = json!({});
        describe(&mut document);
        for (address, line) in [("index.m3u8", "#EXT-X-STREAM-INF:"), ("t/{token}/{name}", "#EXTINF:")] {
            let answer = &document["paths"][format!("{PREFIX}/{address}")]["get"]["responses"]["200"];
            let example = answer["content"][PLAYLIST]["example"].as_str().unwrap();
            assert!(example.contains(line), "{address}: {example}");
        }
    }
}
