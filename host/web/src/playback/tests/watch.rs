//! The player page of a playback, over real sockets.

use super::*;
use crate::watch::{INCOMPLETE, NO_LOOK_UP, TOO_MANY_KEYS, WRONG_KEY};

/// Start of the page's policy, the same for all destinations.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; media-src 'self' blob:; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; ";

impl Rig {
    fn watch(&self, query: &str) -> String {
        format!("/watch/{}{query}", self.path)
    }
}

#[tokio::test]
async fn a_valid_key_gets_the_page_and_the_page_does_not_contain_the_key() {
    let rig = Rig::new().await;
    for name in ["apiKey", "key"] {
        let answer = rig.get(&rig.watch(&format!("?{name}={}&autoplay=0", rig.key))).await;
        let page = String::from_utf8(answer.ok().to_vec()).unwrap();
        assert!(page.contains("<title>test</title>") && page.contains("data-state=\"starting\""), "{page}");
        assert!(!page.contains("pk_"), "{page}");
        assert_eq!(answer.header("content-type"), "text/html; charset=utf-8");
        assert_eq!(answer.header("cache-control"), "no-store");
        assert_eq!(answer.header("referrer-policy"), "no-referrer");
        assert_eq!(answer.header("x-content-type-options"), "nosniff");
        assert_eq!(answer.header("x-robots-tag"), "noindex, nofollow");
        assert_eq!(answer.header("content-security-policy"), format!("{POLICY}frame-ancestors *"));
    }
    let head = rig.ask("HEAD", &rig.watch(&format!("?apiKey={}", rig.key)), &[]).await;
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert_eq!(rig.used().await, 0, "pages are not metered");
    let script = rig.get(&format!("/assets/{}", crate::pages::testing::SCRIPT)).await;
    assert_eq!(script.ok(), "play();\n".repeat(100).as_bytes());
    for other in ["/assets/", "/assets/..%2fwatch.html", "/assets/none.js"] {
        assert_eq!(rig.get(other).await.status, 404, "{other}");
    }
}

#[tokio::test]
async fn the_page_can_read_the_viewer_count() {
    let rig = Rig::new().await;
    let address = |key: &str| format!("/watch/{}/viewers?apiKey={key}", rig.path);
    let count = rig.get(&address(&rig.key)).await;
    assert_eq!((count.text(), count.header("cache-control")), ("{\"viewers\":0}", "no-store"));
    rig.get(&rig.asset("media.m3u8").await).await.ok();
    let before = rig.used().await;
    assert_eq!(rig.get(&address(&rig.key)).await.text(), "{\"viewers\":1}");
    assert_eq!(rig.get(&address("pk_wrong")).await.status, 401);
    assert_eq!(rig.get(&address("")).await.status, 400);
    assert_eq!(rig.used().await, before, "asking is not metered");
}

#[tokio::test]
async fn only_allowed_origins_may_embed_the_page() {
    let rig =
        Rig::with_config(json!({ "allowedOrigins": ["https://a.example", "https://b.example/"] })).await;
    let answer = rig.get(&rig.watch(&format!("?apiKey={}", rig.key))).await;
    answer.ok();
    let expected = format!("{POLICY}frame-ancestors 'self' https://a.example https://b.example");
    assert_eq!(answer.header("content-security-policy"), expected);
}

#[tokio::test]
async fn without_a_valid_key_the_page_shows_the_error_and_no_stream_data() {
    let rig = Rig::new().await;
    let wrong = new_api_key(KeyKind::Public).into_inner();
    let permanent = rig.new_key(KeyKind::Permanent, None).await;
    for (query, status, says) in [
        (String::new(), 400, INCOMPLETE),
        (format!("?apiKey={wrong}"), 401, WRONG_KEY),
        (format!("?apiKey={permanent}"), 401, WRONG_KEY),
    ] {
        let answer = rig.get(&rig.watch(&query)).await;
        assert_eq!(answer.status, status, "{query}");
        assert_eq!(answer.header("content-type"), "text/html; charset=utf-8");
        let page = answer.text();
        assert!(page.contains(says) && page.contains("data-state=\"problem\""), "{page}");
        assert!(!page.contains("test") && !page.contains("k_"), "{page}");
    }
    let elsewhere = rig.get(&format!("/watch/0000000000000000000000?apiKey={}", rig.key)).await;
    assert_eq!(elsewhere.status, 401);
    rig.intruder().await.enable_destination(rig.destination.0, false).await;
    rig.app.clock.advance(FRESH);
    let disabled = rig.get(&rig.watch(&format!("?apiKey={}", rig.key))).await;
    assert_eq!(disabled.status, 401);
    let guesses = crate::auth::RATE_INVALID_KEYS.max;
    for _ in 0..=guesses {
        rig.get(&rig.watch(&format!("?apiKey={wrong}"))).await;
    }
    let limited = rig.get(&rig.watch(&format!("?apiKey={wrong}"))).await;
    assert_eq!(limited.status, 429);
    assert!(limited.text().contains(TOO_MANY_KEYS), "{limited:?}");
}

#[tokio::test]
async fn a_failing_store_is_shown_on_the_page() {
    let rig = Rig::new().await;
    rig.intruder().await.damage_destination(rig.destination.0).await;
    let answer = rig.get(&rig.watch(&format!("?apiKey={}", rig.key))).await;
    assert_eq!((answer.status, answer.header("content-type")), (502, "text/html; charset=utf-8"));
    assert!(answer.text().contains(NO_LOOK_UP), "{answer:?}");
    assert!(!answer.text().contains("pk_") && answer.text().contains("data-state=\"problem\""), "{answer:?}");
}

#[tokio::test]
async fn players_are_counted_by_playlist_requests_with_a_key() {
    let rig = Rig::new().await;
    let (media, segment) = (rig.asset("media.m3u8").await, rig.asset("1.m4s").await);
    let preview = rig.preview_asset("preview.m3u8");
    rig.get(&segment).await.ok();
    rig.get(&preview).await.ok();
    assert_eq!(rig.playback.viewers(rig.destination), 0, "neither segments nor the preview");
    assert_eq!(rig.ask("HEAD", &media, &[]).await.status, 200);
    assert_eq!(rig.ask("OPTIONS", &media, &[]).await.status, 204);
    rig.get(&rig.asset("none.m3u8").await).await.error(404, "not_found");
    rig.get(&media.replace("/t/", "/t/x")).await.error(401, "invalid_key");
    assert_eq!(rig.playback.viewers(rig.destination), 0, "neither page requests nor refused requests count");
    for agent in ["one", "one", "two"] {
        rig.ask("GET", &media, &[("User-Agent", agent), ("Accept-Encoding", "gzip")]).await.ok();
    }
    assert_eq!(rig.playback.viewers(rig.destination), 2);
    // Nobody here is a proxy that is trusted.
    for name in ["X-Forwarded-For", "X-Real-IP", "Forwarded", "CF-Connecting-IP"] {
        rig.ask("GET", &media, &[("User-Agent", "one"), (name, "198.51.100.7")]).await.ok();
    }
    assert_eq!(rig.playback.viewers(rig.destination), 2, "addresses that are only said");
    rig.app.clock.advance(SEEN);
    assert_eq!(rig.playback.viewers(rig.destination), 0);
}

#[tokio::test]
async fn the_pages_are_served_beside_the_api() {
    let rig = Rig::new().await;
    for (path, text) in [
        ("/", "<title>Dashboard</title>"),
        ("/setup?account=ann", "<title>Dashboard</title>"),
        ("/streams/7", "<title>Dashboard</title>"),
        ("/docs", "<title>Reference</title>"),
        ("/licenses", "one 1.0.0 (MIT)"),
        ("/manual/", "<title>Manual</title>"),
        ("/manual/drivers/guide.html", "<title>Guide</title>"),
    ] {
        let answer = rig.get(path).await;
        assert_eq!((answer.text(), answer.header("x-content-type-options")), (text, "nosniff"), "{path}");
        assert_eq!(rig.ask("HEAD", path, &[]).await.body.len(), 0, "{path}");
    }
    let to = rig.get("/manual").await;
    assert_eq!((to.status, to.header("location")), (307, "/manual/"));
    for path in ["/manual/none.html", "/manual/%2e%2e/docs.html", "/manual/..%2fdocs.html", "/docs/"] {
        assert_eq!(rig.get(path).await.status, 404, "{path}");
    }
    for path in ["/index.html", "/nothing", "/streams/", "/streams/7/8", "/api", "/api/nothing"] {
        let answer = rig.get(path).await;
        assert_eq!((answer.status, answer.header("content-type")), (404, "application/json"), "{path}");
    }
    for path in ["/index.html", "/nothing", "/streams/", "/streams/7/8"] {
        let page = rig.ask("GET", path, &[("Accept", "text/html,*/*;q=0.8")]).await;
        assert_eq!((page.status, page.text()), (404, "<title>Dashboard</title>"), "{path}");
    }
    rig.get("/api/public/config").await.ok();
}
