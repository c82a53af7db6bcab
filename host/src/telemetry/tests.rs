//! Traces from spans to a collector, also to one that does not take them.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tracing::field::Empty;
use tracing_subscriber::layer::SubscriberExt as _;
use url::Url;

use super::export::{BATCH_SPANS_MAX, Exporter};
use super::spans::{Ended, FIELDS_MAX, FieldValue, Spans, TEXT_BYTES_MAX};
use super::{QUEUE_SPANS_MAX, encode};
use satcast_core::trace::{self, TraceContext};
use satcast_net::outbound::Guard;
use satcast_net::outbound::http::Client;

const CALLER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
/// Longest wait for the exporter.
const WAIT: Duration = Duration::from_secs(60);

/// Makes spans by `work`, and gives those that ended.
fn collected(ratio: f64, queue_max: usize, work: impl FnOnce()) -> mpsc::Receiver<Ended> {
    let (sender, ended) = mpsc::channel(queue_max);
    trace::exports();
    let subscriber = tracing_subscriber::registry().with(Spans::new(sender, ratio));
    tracing::subscriber::with_default(subscriber, work);
    ended
}

fn request(caller: Option<&str>) -> tracing::Span {
    let span =
        tracing::error_span!("request", request_id = "req_1", method = "GET", route = Empty, status = Empty);
    if let Some(caller) = caller.and_then(TraceContext::parse) {
        caller.adopt(&span);
    }
    span
}

/// What a collector does with a request.
#[derive(Clone, Copy, Debug)]
enum Manner {
    Answers(u16),
    Hangs,
}

/// A collector with its address; it keeps the bodies.
async fn collector(manner: Manner) -> (Url, Arc<Mutex<Vec<Value>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = Url::parse(&format!("http://{}/otlp", listener.local_addr().unwrap())).unwrap();
    let bodies = Arc::<Mutex<Vec<Value>>>::default();
    let kept = bodies.clone();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            tokio::spawn(take(socket, manner, kept.clone()));
        }
    });
    (address, bodies)
}

async fn take(mut socket: TcpStream, manner: Manner, kept: Arc<Mutex<Vec<Value>>>) {
    let mut read = Vec::new();
    let (head, length) = loop {
        if socket.read_buf(&mut read).await.unwrap_or(0) == 0 {
            return;
        }
        let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&read[..end]).to_lowercase();
        let length =
            head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
        if let Some(length) = length.filter(|length| read.len() >= end + 4 + length) {
            break (head, end + 4..end + 4 + length);
        }
    };
    assert!(
        head.starts_with("post /otlp/v1/traces ") && head.contains("content-type: application/json"),
        "{head}"
    );
    kept.lock().push(serde_json::from_slice(&read[length]).unwrap());
    match manner {
        Manner::Hangs => std::future::pending().await,
        Manner::Answers(status) => {
            let answer = format!("HTTP/1.1 {status} X\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{{}}");
            socket.write_all(answer.as_bytes()).await.unwrap();
        }
    }
}

/// Runs the exporter until the queue is empty; gives the spans that were sent and lost.
async fn export(ended: mpsc::Receiver<Ended>, base: &Url, limit: Duration) -> (u64, u64) {
    let guard = Guard::new(&["127.0.0.0/8".to_owned()]).unwrap();
    let client = Client::new(guard, Duration::from_secs(5)).unwrap();
    let before = trace::counts();
    let exporter = Exporter::new(ended, base, encode::resource("test", Some("a"))).with_limit(limit);
    // The sender is gone, so that it ends by itself.
    tokio::time::timeout(WAIT, exporter.run(client, std::future::pending())).await.expect("it ends");
    let after = trace::counts();
    (after.0 - before.0, after.1 - before.1)
}

fn spans(body: &Value) -> Vec<Value> {
    body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().cloned().unwrap_or_default()
}

fn attribute(span: &Value, key: &str) -> Value {
    let attributes = span["attributes"].as_array().unwrap();
    attributes
        .iter()
        .find(|attribute| attribute["key"] == key)
        .map_or(Value::Null, |found| found["value"].clone())
}

#[tokio::test]
async fn a_trace_has_its_caller_its_spans_and_their_fields() {
    let mut onward = None;
    let ended = collected(0.0, QUEUE_SPANS_MAX, || {
        let request = request(Some(CALLER));
        request.in_scope(|| {
            let webhook = tracing::error_span!("webhook", delivery_id = %7, attempt = 1_u32, error = Empty);
            onward = webhook.in_scope(TraceContext::current);
            webhook.record("error", "no answer");
        });
        request.record("route", "/api/streams/{id}").record("status", 200_u16);
    });
    let (address, bodies) = collector(Manner::Answers(200)).await;
    assert_eq!(export(ended, &address, WAIT).await, (2, 0));
    let bodies = bodies.lock().clone();
    let [webhook, request] = &spans(&bodies[0])[..] else { panic!("{bodies:?}") };
    let resource = bodies[0]["resourceSpans"][0]["resource"].to_string();
    assert!(resource.contains("service.name") && resource.contains("service.instance.id"), "{resource}");
    for span in [request, webhook] {
        assert_eq!(span["traceId"], "4bf92f3577b34da6a3ce929d0e0e4736");
        let times = ["startTimeUnixNano", "endTimeUnixNano"]
            .map(|time| span[time].as_str().unwrap().parse::<u64>().unwrap());
        assert!(times[0] > 1_700_000_000_000_000_000 && times[1] >= times[0], "{span}");
    }
    assert_eq!((&request["parentSpanId"], &request["kind"]), (&"00f067aa0ba902b7".into(), &2.into()));
    assert_eq!(request["name"], "GET /api/streams/{id}");
    assert_eq!(attribute(request, "http.response.status_code")["intValue"], "200");
    assert_eq!(attribute(request, "satcast.request_id")["stringValue"], "req_1");
    assert_eq!(request["status"], Value::Null);
    assert_eq!((&webhook["parentSpanId"], &webhook["status"]["code"]), (&request["spanId"], &2.into()));
    assert_eq!(attribute(webhook, "error.type")["stringValue"], "no answer");
    let onward = onward.expect("a context for the receiver").to_string();
    assert_eq!(
        onward,
        format!("00-4bf92f3577b34da6a3ce929d0e0e4736-{}-01", webhook["spanId"].as_str().unwrap())
    );
}

#[test]
fn the_caller_decides_about_its_trace_and_the_ratio_about_others() {
    let count = |ratio, caller: Option<&str>| {
        let mut ended = collected(ratio, 2_000, || (0..1_000).for_each(|_| drop(request(caller))));
        std::iter::from_fn(|| ended.try_recv().ok()).count()
    };
    let not_sampled = CALLER.replace("-01", "-00");
    assert_eq!((count(0.0, Some(CALLER)), count(1.0, Some(&not_sampled))), (1_000, 0));
    assert_eq!((count(0.0, None), count(1.0, None), count(1.0, Some("nonsense"))), (0, 1_000, 1_000));
    assert!((300..=700).contains(&count(0.5, None)));
}

#[test]
fn fields_are_limited_and_spans_of_libraries_left_out() {
    let mut ended = collected(1.0, 10, || {
        let _library = tracing::error_span!(target: "hyper", "library").entered();
        let _own = tracing::error_span!(
            "many",
            a = true,
            b = -1,
            c = u64::MAX,
            d = "é".repeat(200),
            e = 0,
            f = 0,
            g = 0,
            h = 0,
            i = 0,
            j = 0,
            k = 0,
            l = 0,
            m = 0,
            n = 0,
            o = 0,
            p = 0,
            q = 0
        );
    });
    let one = ended.try_recv().expect("the service's own span");
    assert!(ended.try_recv().is_err());
    assert_eq!((one.name, one.fields.iter().count()), ("many", FIELDS_MAX));
    assert_eq!(one.fields.get("c"), Some(&FieldValue::Number(i64::MAX)));
    assert_eq!(one.fields.get("d"), Some(&FieldValue::Text("é".repeat(TEXT_BYTES_MAX / 2))));
}

#[tokio::test]
async fn a_collector_that_does_not_take_spans_costs_only_the_spans() {
    let many = BATCH_SPANS_MAX + 1;
    let make = || (0..many).for_each(|_| drop(request(None)));
    for (manner, limit) in
        [(Manner::Answers(500), WAIT), (Manner::Answers(302), WAIT), (Manner::Hangs, Duration::from_secs(2))]
    {
        let (address, bodies) = collector(manner).await;
        let lost = export(collected(1.0, QUEUE_SPANS_MAX, make), &address, limit).await;
        assert_eq!(lost, (0, many as u64), "{manner:?}");
        let sizes: Vec<usize> = bodies.lock().iter().map(|body| spans(body).len()).collect();
        assert_eq!(sizes, [BATCH_SPANS_MAX, 1], "{manner:?}");
    }
    let nobody = Url::parse("http://127.0.0.1:1").unwrap();
    assert_eq!(export(collected(1.0, QUEUE_SPANS_MAX, make), &nobody, WAIT).await, (0, many as u64));
    // A full queue keeps nobody waiting.
    let before = trace::counts().1;
    let mut ended = collected(1.0, 3, make);
    assert_eq!(trace::counts().1 - before, many as u64 - 3);
    assert!((0..3).all(|_| ended.try_recv().is_ok()));
}
