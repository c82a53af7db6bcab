//! Tests of webhooks, the delivery log and redelivery.

use std::time::Duration;

use futures_util::future::join_all;
use poem::Request;
use poem::http::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::time::timeout;

use super::Rig;
use satcast_net::outbound::GuardError;

const HOOKS: &str = "/api/webhooks";
/// As the service has it.
const TESTS_AT_ONCE_MAX: usize = 16;
/// Those of one account.
const TESTS_PER_ACCOUNT_MAX: usize = 4;
const WAIT_MAX: Duration = Duration::from_secs(60);
const ALLOWED: &str = "[webhooks]\nallow_targets = [\"127.0.0.1\"]";

/// Starts a receiver with a fixed response; returns its url.
async fn receiver(answer: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            // A small request arrives in one or two reads; its end does not matter here.
            let _ = socket.read(&mut [0; 4_096]).await;
            let _ = socket.write_all(answer.as_bytes()).await;
            let _ = socket.shutdown().await;
        }
    });
    format!("http://{address}/in")
}

async fn webhook(rig: &Rig, url: &str) -> String {
    let body = json!({"url": url, "events": ["stream.ended"]});
    format!("{HOOKS}/{}", rig.post(HOOKS, &body).await.ok()["id"])
}

#[tokio::test]
async fn a_test_returns_its_result_and_is_in_the_delivery_log() {
    let rig = Rig::with_config(ALLOWED).await;
    let good = webhook(&rig, &receiver("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi").await).await;
    let tested = rig.ask(Method::POST, &format!("{good}/test"), None).await.ok();
    assert_eq!(
        tested,
        json!({"success": true, "deliveryId": 1, "ok": true, "status": 200, "latencyMs": 0, "answer": "hi",
               "error": null})
    );
    let bad =
        webhook(&rig, &receiver("HTTP/1.1 302 Found\r\nlocation: /\r\ncontent-length: 0\r\n\r\n").await)
            .await;
    let tested = rig.ask(Method::POST, &format!("{bad}/test"), None).await.ok();
    assert_eq!(
        (&tested["success"], &tested["ok"], &tested["status"]),
        (&json!(true), &json!(false), &json!(302))
    );
    let log = rig.get(&format!("{bad}/deliveries")).await.ok();
    let event = log[0]["eventId"].as_str().unwrap().to_owned();
    let now = 1_800_000_000_000_i64;
    let error = "the receiver answered 302; redirects are not followed";
    let id = bad.rsplit('/').next().unwrap();
    let body = format!(
        r#"{{"id":"{event}","type":"test.ping","timestamp":"2027-01-15T08:00:00.000Z","data":{{"webhookId":{id}}}}}"#
    );
    assert_eq!(
        log,
        json!([{"id": 2, "eventId": event, "type": "test.ping", "state": "failed", "createdAt": now,
                "nextAttemptAt": null, "body": body, "attempts": [{"at": now, "durationMs": 0, "status": 302,
                "ok": false, "answer": "", "error": error}]}])
    );
    assert_eq!(rig.get(&format!("{bad}/deliveries?state=delivered")).await.ok(), json!([]));
    assert_eq!(rig.get(&format!("{bad}/deliveries?state=failed")).await.ok(), log);
    let shown = rig.get(HOOKS).await.ok();
    assert_eq!(shown[0]["lastDelivery"], json!({"at": now, "status": 302, "ok": false}));
    assert_eq!(shown[1]["lastDelivery"], json!({"at": now, "status": 200, "ok": true}));
}

#[tokio::test]
async fn an_unreachable_receiver_has_no_status() {
    let rig = Rig::with_config(ALLOWED).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let hook = webhook(&rig, &format!("http://{address}/in")).await;
    let tested = rig.ask(Method::POST, &format!("{hook}/test"), None).await.ok();
    assert_eq!((&tested["ok"], &tested["status"]), (&json!(false), &Value::Null));
    assert_eq!(tested["error"], GuardError::connection_refused(address).to_string());
    assert_eq!(rig.get(HOOKS).await.ok()[0]["lastDelivery"]["status"], Value::Null);
}

/// The largest response: the kept part of a receiver's answer, with six bytes of JSON for each byte.
#[tokio::test]
async fn a_repeated_test_gets_the_first_response() {
    let rig = Rig::with_config(ALLOWED).await;
    let said = "\u{1}".repeat(1_024);
    let answer = format!("HTTP/1.1 500 X\r\ncontent-length: 2000\r\n\r\n{said}more");
    let hook = webhook(&rig, &receiver(answer.leak()).await).await;
    let test = || {
        let request = Request::builder().method(Method::POST).uri_str(format!("{hook}/test"));
        request.header("X-API-Key", &rig.key).header("Idempotency-Key", "k1").finish()
    };
    let first = rig.send(test()).await;
    assert_eq!(first.ok()["answer"], said);
    assert!(first.text.len() > 6 * 1_024);
    let again = rig.send(test()).await;
    assert_eq!((again.ok(), again.header("idempotent-replayed")), (first.ok(), "true"));
    assert_eq!(rig.get(&format!("{hook}/deliveries")).await.ok().as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn tests_are_limited_to_ten_a_minute() {
    let rig = Rig::with_config(ALLOWED).await;
    let hook = webhook(&rig, &receiver("HTTP/1.1 204 X\r\n\r\n").await).await;
    let path = format!("{hook}/test");
    for left in (0..10).rev() {
        let answer = rig.ask(Method::POST, &path, None).await;
        assert_eq!(answer.header("ratelimit"), format!("\"webhook-tests\";r={left};t=60"));
        answer.ok();
    }
    rig.ask(Method::POST, &path, None).await.error(429, "rate_limited");
    let log = rig.get(&format!("{hook}/deliveries?limit=4")).await;
    assert_eq!(log.ok().as_array().unwrap().len(), 4);
    let link = format!("<http://127.0.0.1:8080{hook}/deliveries?cursor=7&limit=4>; rel=\"next\"");
    assert_eq!(log.header("link"), link);
}

/// Slow receivers hold a bounded number of tests; the next test is refused after a wait.
#[tokio::test]
async fn concurrent_tests_are_bounded() {
    let mut rig = Rig::with_config(ALLOWED).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/in", listener.local_addr().unwrap());
    let mut asked = Vec::new();
    for name in ["one", "two", "three", "four", "five"] {
        rig.key = rig.account(name).await.1;
        asked.push((rig.key.clone(), webhook(&rig, &url).await));
    }
    let test = |(key, hook): &(String, String)| {
        let request = Request::builder().method(Method::POST).uri_str(format!("{hook}/test"));
        rig.send(request.header("X-API-Key", key).finish())
    };
    let slow = join_all((0..TESTS_AT_ONCE_MAX).map(|number| test(&asked[number / TESTS_PER_ACCOUNT_MAX])));
    let next = async {
        let mut silent = Vec::new();
        for _ in 0..TESTS_AT_ONCE_MAX {
            silent.push(timeout(WAIT_MAX, listener.accept()).await.expect("a running test").unwrap());
        }
        let next = async { (test(&asked[0]).await, test(&asked[4]).await) };
        rig.app.clock.passing(Duration::from_millis(100), next).await
    };
    tokio::select! {
        (of_who_has_many, of_who_has_none) = next => for answer in [of_who_has_many, of_who_has_none] {
            answer.error(503, "busy");
        },
        _ = slow => panic!("tests ended without a response"),
    }
}

#[tokio::test]
async fn only_the_owner_can_redeliver() {
    let mut rig = Rig::with_config(ALLOWED).await;
    let hook = webhook(&rig, &receiver("HTTP/1.1 500 X\r\ncontent-length: 0\r\n\r\n").await).await;
    let id = rig.ask(Method::POST, &format!("{hook}/test"), None).await.ok()["deliveryId"].clone();
    let path = format!("{hook}/deliveries/{id}/redeliver");
    assert_eq!(rig.ask(Method::POST, &path, None).await.ok(), json!({"success": true, "id": id}));
    let log = rig.get(&format!("{hook}/deliveries")).await.ok();
    assert_eq!((&log[0]["state"], &log[0]["nextAttemptAt"]), (&json!("pending"), &log[0]["createdAt"]));
    let missing = format!("{hook}/deliveries/99/redeliver");
    rig.ask(Method::POST, &missing, None).await.error(404, "not_found");
    rig.intruder().await.disable_webhook(1, "x").await;
    rig.ask(Method::POST, &path, None).await.error(409, "webhook_disabled");
    rig.key = rig.account("other").await.1;
    for path in [path, format!("{hook}/test")] {
        rig.ask(Method::POST, &path, None).await.error(404, "not_found");
    }
}
