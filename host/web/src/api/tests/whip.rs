//! WHIP at the HTTP side: refusals, and pages of any website. `satcast-live` tests the port, the end-to-end tests both.

use poem::Request;
use poem::http::Method;
use satcast_live::ingest::{WhipRefusal, WhipRefused};

use super::Rig;
use crate::base::ApiError;

#[tokio::test]
async fn a_service_without_the_port_says_what_to_set() {
    let rig = Rig::new().await;
    let offer = Request::builder().method(Method::POST).uri_str("/whip").content_type("application/sdp");
    let text =
        rig.send(offer.header("Authorization", "Bearer live_x").body("v=0")).await.error(404, "whip_off");
    assert!(!text.is_empty());
    rig.ask(Method::DELETE, "/whip/abc", None).await.error(404, "whip_off");
    for (method, path, allow) in [
        (Method::GET, "/whip", "OPTIONS, POST"),
        (Method::DELETE, "/whip", "OPTIONS, POST"),
        (Method::PATCH, "/whip/abc", "DELETE, OPTIONS"),
        (Method::POST, "/whip/abc", "DELETE, OPTIONS"),
    ] {
        let answer = rig.ask(method, path, None).await;
        answer.error(405, "method_not_allowed");
        assert_eq!(answer.header("allow"), allow, "{path}");
    }
}

#[tokio::test]
async fn pages_of_any_website_may_publish() {
    let rig = Rig::new().await;
    for (path, method) in [("/whip", "POST"), ("/whip/abc", "DELETE")] {
        let answer = rig.ask(Method::OPTIONS, path, None).await;
        assert_eq!(answer.status.as_u16(), 204, "{path}");
        assert_eq!(answer.header("access-control-allow-origin"), "*");
        assert_eq!(answer.header("access-control-allow-headers"), "Authorization, Content-Type");
        assert_eq!(answer.header("access-control-allow-methods"), method);
        assert_eq!(answer.header("allow"), format!("{method}, OPTIONS"));
        assert!(answer.header("access-control-expose-headers").contains("Location"));
        assert_eq!(answer.header("accept-post") == "application/sdp", path == "/whip");
    }
    assert_eq!(rig.ask(Method::POST, "/whip", None).await.header("access-control-allow-origin"), "*");
    assert_eq!(rig.ask(Method::OPTIONS, "/whipped", None).await.header("access-control-allow-origin"), "");
}

#[test]
fn every_refusal_has_a_status_a_code_and_its_reason() {
    for (why, status, code, waits) in [
        (WhipRefusal::NoKey, 401, "key_required", false),
        (WhipRefusal::UnknownKey, 401, "invalid_key", false),
        (WhipRefusal::Denied, 403, "publish_refused", false),
        (WhipRefusal::Conflict, 409, "already_published", false),
        (WhipRefusal::Offer, 400, "malformed_body", false),
        (WhipRefusal::Codec, 422, "codec_refused", false),
        (WhipRefusal::Full, 429, "too_many_encoders", true),
        (WhipRefusal::Unavailable, 503, "publish_unavailable", true),
        (WhipRefusal::NoPublish, 404, "not_found", false),
    ] {
        let error = ApiError::publish_refused(WhipRefused { why, reason: "a reason".to_owned() });
        let body = error.body("req_1");
        assert_eq!((error.http_status().as_u16(), &body["code"]), (status, &code.into()), "{why:?}");
        assert_eq!(error.retry_after_secs().is_some(), waits, "{why:?}");
        assert_eq!(body["error"], "A reason");
    }
}
