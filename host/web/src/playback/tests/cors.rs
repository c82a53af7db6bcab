//! Which pages may play, and the methods.

use super::*;

const ORIGIN: &str = "https://site.example";

#[tokio::test]
async fn every_origin_may_read_responses_by_default() {
    let rig = Rig::new().await;
    let media = rig.asset("media.m3u8").await;
    for target in [rig.index(), media, "/hls/x/index.m3u8".into()] {
        let answer = rig.ask("GET", &target, &[("Origin", ORIGIN)]).await;
        assert_eq!(answer.header("access-control-allow-origin"), "*");
        assert_eq!(answer.header("timing-allow-origin"), "*");
        assert_eq!(answer.header("referrer-policy"), "no-referrer");
        assert!(answer.header("access-control-expose-headers").contains("Content-Range"));
        assert_eq!(answer.header("access-control-allow-credentials"), "");
    }
}

#[tokio::test]
async fn a_list_of_origins_is_enforced() {
    let rig = Rig::with_config(json!({"allowedOrigins": [ORIGIN]})).await;
    let (media, segment) = (rig.asset("media.m3u8").await, rig.asset("1.m4s").await);
    for target in [rig.index(), media.clone(), segment.clone(), rig.preview(), rig.preview_asset("1.m4s")] {
        let listed = rig.ask("GET", &target, &[("Origin", ORIGIN)]).await;
        listed.ok();
        assert_eq!(listed.header("access-control-allow-origin"), ORIGIN);
        let vary = if target.contains("m3u8") { "Accept-Encoding, Origin" } else { "Origin" };
        let lines = |answer: &Answer| {
            answer
                .headers
                .get_all("vary")
                .iter()
                .map(|line| line.to_str().unwrap().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(lines(&listed), [vary], "one line: there are caches that heed no more");
        let other = rig.ask("GET", &target, &[("Origin", "https://other.example")]).await;
        other.error(403, "origin_not_allowed");
        let program = rig.get(&target).await;
        program.ok();
        assert_eq!(
            program.header("access-control-allow-origin"),
            ORIGIN,
            "a cache gives it to its pages too"
        );
        assert_eq!(lines(&program), [vary]);
    }
    let used = rig.used().await;
    rig.ask("GET", &segment, &[("Origin", "https://other.example")]).await;
    assert_eq!(rig.used().await, used, "errors are not counted");
}

#[tokio::test]
async fn with_several_origins_requests_without_origin_get_no_cors_header() {
    let rig = Rig::with_config(json!({"allowedOrigins": [ORIGIN, "https://other.example"]})).await;
    let media = rig.asset("media.m3u8").await;
    let program = rig.get(&media).await;
    program.ok();
    assert_eq!(program.header("access-control-allow-origin"), "", "a cache may give it to any page");
    assert_eq!(program.header("vary"), "Accept-Encoding, Origin");
}

#[tokio::test]
async fn preflight_requests_are_answered() {
    let rig = Rig::new().await;
    let preflight = [("Origin", ORIGIN), ("Access-Control-Request-Method", "GET")];
    for target in [format!("/hls/{}/index.m3u8", rig.path), rig.preview_asset("1.m4s")] {
        let answer = rig.ask("OPTIONS", &target, &preflight).await;
        assert_eq!((answer.status, answer.body.len()), (204, 0));
        assert_eq!(answer.header("access-control-allow-origin"), "*");
        assert_eq!(answer.header("access-control-allow-methods"), "GET, HEAD, OPTIONS");
        assert_eq!(answer.header("access-control-max-age"), "86400");
        let allowed: Vec<&str> = answer.header("access-control-allow-headers").split(", ").collect();
        assert_eq!(allowed, ["Range", "X-API-Key", "Authorization", "X-Playback-Session-Id"]);
    }
}

#[tokio::test]
async fn other_methods_are_refused_with_an_allow_header() {
    let rig = Rig::new().await;
    let media = rig.asset("media.m3u8").await;
    for (method, target) in [("POST", rig.index()), ("DELETE", media.clone()), ("PUT", media)] {
        let answer = rig.ask(method, &target, &[]).await;
        answer.error(405, "method_not_allowed");
        assert_eq!(answer.header("allow"), "GET, HEAD, OPTIONS");
    }
}
