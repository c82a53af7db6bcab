//! All errors have the same body and never repeat the request.

use poem::Request;
use poem::http::Method;
use serde_json::{Value, json};

use super::Rig;
use crate::api::App;
use crate::api::body::BODY_MAX_BYTES;
use crate::base::{ApiError, Middleware};
use satcast_live::Admits;

#[tokio::test]
async fn unknown_paths_and_methods_have_the_error_shape() {
    let rig = Rig::new().await;
    for path in ["/", "/nothing", "/api", "/api/streams/1/nothing", "/api/streams/", "/docs/x", "/%zz"] {
        rig.get(path).await.error(404, "not_found");
    }
    for (method, path, allow) in [
        (Method::PUT, "/api/streams", "GET, HEAD, POST"),
        (Method::PUT, "/api/streams/1/destinations/2", "DELETE, PATCH"),
        (Method::POST, "/healthz", "GET, HEAD"),
        (Method::POST, "/api/public/config", "GET, HEAD, OPTIONS"),
        (Method::OPTIONS, "/api/streams/7", "DELETE, GET, HEAD, PATCH"),
    ] {
        let answer = rig.ask(method, path, None).await;
        answer.error(405, "method_not_allowed");
        assert_eq!(answer.header("allow"), allow, "{path}");
    }
}

#[tokio::test]
async fn unreadable_bodies_are_400_without_an_echo() {
    let rig = Rig::new().await;
    for body in
        ["", "{", "[]", "null", "\"hunter2\"", "{\"label\":\"hunter2\"} x", "{\"label\":\"hunter2\",}"]
    {
        let text = rig.ask(Method::POST, "/api/streams", Some(body)).await.error(400, "malformed_body");
        assert!(!text.contains("hunter2"), "{text}");
    }
    let deep = format!("{{\"label\":{}", "[".repeat(100_000));
    rig.ask(Method::POST, "/api/streams", Some(&deep)).await.error(400, "malformed_body");
    let bytes =
        Request::builder().method(Method::POST).uri_str("/api/streams").content_type("application/json");
    let answer = rig.send(bytes.header("X-API-Key", &rig.key).body(vec![0xff, 0xfe])).await;
    answer.error(400, "malformed_body");
}

#[tokio::test]
async fn bodies_that_are_too_large_or_not_json_are_refused() {
    let rig = Rig::new().await;
    let padding = BODY_MAX_BYTES - "{\"label\":\"\"}".len();
    let fits = format!("{{\"label\":\"{}\"}}", "x".repeat(padding));
    rig.ask(Method::POST, "/api/streams", Some(&fits)).await.error(422, "label_refused");
    let over = format!("{{\"label\":\"{}\"}}", "x".repeat(padding + 1));
    rig.ask(Method::POST, "/api/streams", Some(&over)).await.error(413, "body_too_large");
    for content_type in ["text/plain", "application/x-www-form-urlencoded", "nonsense"] {
        let request =
            Request::builder().method(Method::POST).uri_str("/api/streams").content_type(content_type);
        let answer = rig.send(request.header("X-API-Key", &rig.key).body("{\"label\":\"x\"}")).await;
        answer.error(415, "content_type_not_supported");
    }
    let request =
        Request::builder().method(Method::POST).uri_str("/api/streams").header("X-API-Key", &rig.key);
    rig.send(request.body("{\"label\":\"x\"}")).await.error(415, "content_type_not_supported");
    let charset =
        Request::builder().method(Method::POST).uri_str("/api/streams").header("X-API-Key", &rig.key);
    rig.send(charset.content_type("application/json; charset=utf-8").body("{\"label\":\"x\"}")).await.ok();
}

#[tokio::test]
async fn the_key_is_checked_before_the_body_is_read() {
    let rig = Rig::new().await;
    let request = Request::builder().method(Method::POST).uri_str("/api/streams").body("{");
    rig.send(request).await.error(401, "key_required");
}

#[tokio::test]
async fn unreadable_ids_and_parameters_are_named() {
    let rig = Rig::new().await;
    rig.get("/api/streams/hunter2").await.error(400, "malformed_path");
    rig.get("/api/streams/99999999999999999999").await.error(400, "malformed_path");
    rig.get("/api/streams/-1").await.error(404, "not_found");
    for (query, name) in
        [("limit=x", "limit"), ("limit=0", "limit"), ("limit=1001", "limit"), ("cursor=x", "cursor")]
    {
        let text = rig.get(&format!("/api/streams?{query}")).await.error(400, "malformed_parameter");
        assert!(text.contains(&format!("`{name}`")), "{text}");
    }
}

#[tokio::test]
async fn every_response_has_a_request_id_and_security_headers() {
    let rig = Rig::new().await;
    let first = rig.get("/healthz").await;
    let second = rig.get("/nothing").await;
    assert_ne!(first.header("x-request-id"), second.header("x-request-id"));
    for answer in [first, second] {
        assert!(answer.header("x-request-id").starts_with("req_"));
        assert_eq!(answer.header("x-content-type-options"), "nosniff");
        assert_eq!(answer.header("cache-control"), "no-store");
        assert_eq!(answer.header("referrer-policy"), "no-referrer");
    }
}

#[tokio::test]
async fn a_store_that_fails_is_502_and_not_ready() {
    let rig = Rig::new().await;
    assert_eq!(rig.get("/readyz").await.status.as_u16(), 200);
    rig.app.store.close().await;
    rig.get("/api/streams").await.error(502, "store_failed");
    let answer = rig.get("/readyz").await;
    answer.error(503, "not_ready");
    assert_eq!(parts(&answer), ["database"]);
    assert_eq!(rig.get("/healthz").await.text, "ok\n");
    rig.app.stopping.store(true, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(parts(&rig.get("/readyz").await), ["service", "database"]);
}

/// The parts that are not ready.
fn parts(answer: &super::Answer) -> Vec<String> {
    let body = answer.json();
    let reasons = body["reasons"].as_array().into_iter().flatten();
    reasons.map(|reason| reason["part"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_node_that_takes_no_streams_is_not_ready() {
    let rig = Rig::new().await;
    for admits in [Admits::Returning, Admits::Nobody] {
        rig.app.live.admit(admits);
        let refused = rig.get("/readyz").await;
        assert_eq!(parts(&refused), ["node"]);
        refused.error(503, "not_ready");
    }
    rig.app.live.admit(Admits::All);
    assert_eq!(rig.get("/readyz").await.status.as_u16(), 200);
}

#[tokio::test]
async fn the_document_is_served() {
    let rig = Rig::new().await;
    let document = rig.get("/openapi.json").await;
    assert_eq!(
        (document.ok()["openapi"].clone(), document.header("content-type")),
        (json!("3.0.3"), "application/json")
    );
}

#[tokio::test]
async fn a_panic_is_500_and_the_next_request_is_served() {
    use poem::{EndpointExt as _, IntoEndpoint as _, Route};
    let rig = Rig::new().await;
    let route = Route::new()
        .at("/boom", poem::get(poem::endpoint::make_sync(|_| -> &'static str { panic!("hunter2") })))
        .at("/fine", poem::get(poem::endpoint::make_sync(|_| "fine")))
        .into_endpoint()
        .map_to_response();
    let middleware = Middleware::new(route, rig.app.clock.clone(), &[], Default::default());
    let mut response = middleware.answer(Request::builder().uri_str("/boom").finish()).await;
    assert_eq!(response.status().as_u16(), 500);
    let id = response.headers()["x-request-id"].to_str().unwrap().to_owned();
    let body: Value = serde_json::from_str(&response.take_body().into_string().await.unwrap()).unwrap();
    let text = "Internal error; give the requestId to the operator";
    assert_eq!(body, json!({"error": text, "code": "internal", "requestId": id}));
    assert_eq!(middleware.answer(Request::builder().uri_str("/fine").finish()).await.status().as_u16(), 200);
}

#[tokio::test]
async fn a_panic_in_spawned_work_is_500() {
    let work = async || -> Result<(), ApiError> { panic!("hunter2") };
    let error = App::to_the_end(work()).await.unwrap_err();
    assert_eq!(error.http_status().as_u16(), 500);
    assert_eq!(error.body("req_1")["code"], "internal");
    assert!(!error.body("req_1").to_string().contains("hunter2"));
}

#[tokio::test]
async fn an_unexpected_body_is_refused() {
    let rig = Rig::new().await;
    let stream = format!("/api/streams/{}", rig.stream().await);
    for path in [format!("{stream}/stop"), format!("{stream}/rotate")] {
        for body in [r#"{"secret":"hunter2"}"#, "garbage", "[]", "{{}}"] {
            let text = rig.ask(Method::POST, &path, Some(body)).await.error(400, "unexpected_body");
            assert!(!text.contains("hunter2"), "{text}");
        }
        let large = "x".repeat(300 * 1_024);
        rig.ask(Method::POST, &path, Some(&large)).await.error(413, "body_too_large");
        for body in ["", " ", "{}", " { } "] {
            rig.ask(Method::POST, &path, Some(body)).await.ok();
        }
    }
}
