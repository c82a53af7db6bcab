//! Posters over HTTP, of a stream that is really live.

use bytes::Bytes;
use poem::Request;
use poem::http::{HeaderMap, Method, StatusCode};
use satcast_media::fuzz::RECORDS;
use satcast_media::{Codec, NANOS_PER_MILLI, Packet};
use serde_json::{Value, json};

use super::status::Hosted;
use super::{Rig, contract};
use crate::playback::RATE_PREVIEW;
use satcast_live::{POSTER_NAME, Publisher};

/// A keyframe after its configuration.
fn start() -> Vec<Packet> {
    let (_, record) = RECORDS.into_iter().find(|(codec, _)| *codec == Codec::H264).unwrap();
    let at = 100 * NANOS_PER_MILLI;
    let keyframe = Packet::media(Codec::H264, true, at, at, Bytes::from_static(&[7; 1_000]));
    vec![Packet::configuration(Codec::H264, Bytes::from_static(record)), keyframe]
}

struct Poster {
    status: StatusCode,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Poster {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    fn error(&self, status: u16, code: &str) {
        let body: Value = serde_json::from_slice(&self.body).unwrap();
        assert_eq!((self.status.as_u16(), &body["code"]), (status, &json!(code)));
    }
}

impl Rig {
    /// The poster, with this query.
    async fn poster(&self, hosted: &Hosted, query: &str, headers: &[(&str, &str)]) -> Poster {
        let path = format!("/hls/{}/{POSTER_NAME}", hosted.path());
        let mut request = Request::builder().method(Method::GET).uri_str(format!("{path}?{query}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut response = self.app.playback.answer(request.finish()).await;
        let (status, headers) = (response.status(), response.headers().clone());
        let body = response.take_body().into_vec().await.unwrap();
        contract::check(&Method::GET, &path, status, &headers, &String::from_utf8_lossy(&body));
        Poster { status, headers, body }
    }

    async fn used(&self) -> u64 {
        self.app.playback.this_hour(self.account).await.unwrap().bytes
    }
}

async fn live() -> (Rig, Hosted, Publisher, String) {
    let rig = Rig::new().await;
    let hosted = rig.hosted().await;
    let (mut publisher, opening) = rig.go_live(&hosted).await;
    rig.poster(&hosted, &hosted.query(), &[]).await.error(404, "starting");
    publisher.push(&mut start());
    let preview = format!("token={}", rig.app.playback.preview_token(&opening, hosted.path()));
    (rig, hosted, publisher, preview)
}

#[tokio::test]
async fn a_poster_has_the_access_of_the_playlist_and_is_metered() {
    let (rig, hosted, _publisher, preview) = live().await;
    let poster = rig.poster(&hosted, &hosted.query(), &[]).await;
    assert_eq!((poster.status, poster.header("content-type")), (StatusCode::OK, "video/mp4"));
    assert!(poster.body.ends_with(&[7; 1_000]));
    assert_eq!(poster.header("cache-control"), "max-age=5");
    assert_eq!(rig.used().await, poster.body.len() as u64);
    let part = rig.poster(&hosted, &hosted.query(), &[("Range", "bytes=0-9")]).await;
    assert_eq!((part.status, part.body.len()), (StatusCode::PARTIAL_CONTENT, 10));
    let used = rig.used().await;
    let shown = rig.poster(&hosted, &preview, &[]).await;
    assert_eq!((shown.body == poster.body, shown.header("cache-control")), (true, "private, no-store"));
    assert_eq!(rig.used().await, used, "a preview is not metered");
    let own = rig.poster(&hosted, "", &[("X-API-Key", &hosted.key)]).await;
    assert_eq!((own.status, own.header("cache-control")), (StatusCode::OK, "no-store"));
    rig.poster(&hosted, "", &[]).await.error(400, "key_required");
    rig.poster(&hosted, "apiKey=pk_x", &[]).await.error(401, "invalid_key");
    rig.poster(&hosted, "token=x", &[]).await.error(401, "invalid_key");
}

#[tokio::test]
async fn posters_count_for_the_limit_of_the_preview() {
    let (rig, hosted, _publisher, preview) = live().await;
    for _ in 0..RATE_PREVIEW.max {
        assert_eq!(rig.poster(&hosted, &preview, &[]).await.status, StatusCode::OK);
    }
    rig.poster(&hosted, &preview, &[]).await.error(429, "rate_limited");
    assert_eq!(rig.poster(&hosted, &hosted.query(), &[]).await.status, StatusCode::OK);
}

#[tokio::test]
async fn a_stream_that_is_not_live_has_no_poster() {
    let rig = Rig::new().await;
    let hosted = rig.hosted().await;
    rig.poster(&hosted, &hosted.query(), &[]).await.error(404, "offline");
    let (rig, hosted, publisher, _) = live().await;
    drop(publisher);
    rig.post(&format!("/api/streams/{}/stop", hosted.stream), &json!({})).await.ok();
    rig.poster(&hosted, &hosted.query(), &[]).await.error(404, "offline");
}
