//! Requests that a driver answers: same keys, ranges, metering and headers as assets, and a time limit.

use std::fs::File;
use std::sync::{OnceLock, Weak};

use satcast_plugin_api::driver::{
    Config, Ctx, Destination, Driver, DriverInfo, DynDestination, Host, Media, State,
};
use satcast_plugin_api::host::{Delivery, DriverWaker, MediaSource, Recv};
use satcast_plugin_api::http::{ANSWER_SECS, IN_FLIGHT_MAX, LONG_ANSWER_SECS, Method as HttpMethod};
use satcast_plugin_api::recording::About;
use satcast_plugin_api::{DestType, Error, HttpRequest, HttpResponse, Route, driver_entry};

use super::*;
use satcast_drivers::published::{Opening, Unanswered};
use satcast_drivers::{Drivers, Observer, OpenDestination, OpenRequest};

const TEXT: &str = "0123456789";

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Empty {}

struct Asking;
struct Out;

impl Driver for Asking {
    const INFO: DriverInfo = DriverInfo { id: "asked", version: "1.0.0", title: "Answers viewers" };

    fn types() -> Vec<DestType> {
        let kind = DestType::of::<Empty>("asked").route(Route::new("x")).route(Route::new("next").long());
        vec![kind.route(Route::new("open").preview())]
    }

    fn load(_: &Host) -> Result<Self, Error> {
        Ok(Asking)
    }

    fn open(&self, _: Config<'_>) -> Result<Arc<dyn DynDestination>, Error> {
        Ok(Arc::new(Out))
    }
}

impl Destination for Out {
    async fn run(self: Arc<Self>, ctx: Ctx, _: Media) -> Result<(), Error> {
        ctx.stopping().await;
        Ok(())
    }

    async fn http(self: Arc<Self>, request: HttpRequest) -> Result<HttpResponse, Error> {
        let text = |body| Ok(HttpResponse::of("text/html", body));
        match request.path.split_once('/').map_or(request.path.as_str(), |(_, rest)| rest) {
            "text" => Ok(HttpResponse::bytes("text/html", TEXT).max_age(9).header("ETag", "\"e\"")),
            "echo" => {
                Ok(HttpResponse::bytes("text/plain", format!("{:?} {}", request.audience, request.query)))
            }
            "deep/er" => Ok(HttpResponse::bytes("text/plain", request.path)),
            "file" => {
                let mut file = tempfile::tempfile().map_err(|error| Error::internal(error.to_string()))?;
                std::io::Write::write_all(&mut file, TEXT.as_bytes()).unwrap();
                text(AssetBody::Open { file: Some(Arc::new(file)), offset: 2, len: 6 })
            }
            "folder" => {
                text(AssetBody::Open { file: Some(Arc::new(File::open("/").unwrap())), offset: 0, len: 1 })
            }
            "parts" => text(AssetBody::Parts(vec!["1.m4s".into(), "2.m4s".into()])),
            "gone" => text(AssetBody::Parts(vec!["nobody.m4s".into()])),
            "teapot" => {
                Ok(HttpResponse { status: 418, ..HttpResponse::bytes("text/plain", "short and stout") })
            }
            "nothing" => Ok(HttpResponse::empty(204)),
            "none" => Ok(HttpResponse::not_found()),
            "cookie" => Ok(HttpResponse::bytes("text/plain", "x").header("Set-Cookie", "session=stolen")),
            "panic" => panic!("asked to"),
            _ => std::future::pending().await,
        }
    }
}

driver_entry!(asked_entry, Asking);

fn drivers() -> Drivers {
    static DRIVERS: OnceLock<Drivers> = OnceLock::new();
    DRIVERS.get_or_init(|| testing::start(asked_entry)).clone()
}

/// A queue that nothing comes from.
struct Nothing;

impl MediaSource for Nothing {
    fn recv(&self, _: usize, _: &mut Vec<Delivery>, _: DriverWaker) -> Recv {
        Recv::Empty
    }
    fn released(&self, _: usize) {}
    fn abandoned(&self) {}
}

struct Deaf;

impl Observer for Deaf {
    fn state(&self, _: State, _: Option<Error>) {}
    fn stopped(&self, _: Result<(), Error>) {}
    fn event(&self, _: &str, _: Value) {}
}

/// Opens the destination of `opening`.
async fn open(opening: &Opening) -> OpenDestination {
    let request = OpenRequest {
        kind: "asked".into(),
        config: json!({}),
        destination: opening.destination,
        about: About::default(),
        source: 1,
        media: Arc::new(Nothing),
        observer: Arc::new(Deaf),
        counters: Arc::default(),
        assets: opening.assets().clone(),
    };
    drivers().open(request).await.unwrap()
}

impl Rig {
    /// A URL below the destination's URL, with the key.
    fn asked(&self, rest: &str) -> String {
        format!("/hls/{}/{rest}?a=1&apiKey={}", self.path, self.key)
    }
}

#[tokio::test]
async fn a_driver_answers_and_the_host_handles_keys_ranges_and_headers() {
    let rig = Rig::new().await;
    let driven = open(&rig.opening).await;
    for target in [rig.asked("x/text"), rig.asset("x/text").await] {
        let whole = rig.get(&target).await;
        assert_eq!(whole.ok(), TEXT.as_bytes());
        assert_eq!((whole.header("content-type"), whole.header("etag")), ("text/html", "\"e\""));
        assert_eq!((whole.header("cache-control"), whole.header("accept-ranges")), ("max-age=9", "bytes"));
        assert_eq!(whole.header("content-security-policy"), "default-src 'none'; sandbox");
        assert_eq!(whole.header("access-control-allow-origin"), "*");
        let part = rig.ask("GET", &target, &[("Range", "bytes=3-5")]).await;
        assert_eq!((part.status, part.text()), (206, "345"));
        assert_eq!(part.header("content-range"), "bytes 3-5/10");
        rig.ask("GET", &target, &[("Range", "bytes=10-")]).await.error(416, "range_not_satisfiable");
        let head = rig.ask("HEAD", &target, &[]).await;
        assert_eq!((head.status, head.header("content-length"), head.body.len()), (200, "10", 0));
    }
    let by_header = format!("/hls/{}/x/text", rig.path);
    let own = rig.ask("GET", &by_header, &[("X-API-Key", &rig.key)]).await;
    assert_eq!((own.status, own.header("cache-control")), (200, "private, no-store"), "no cache keeps it");
    assert_eq!(rig.get(&rig.asked("x/file")).await.ok(), b"234567");
    let parts = [noise(100_001), noise(100_002)].concat();
    assert_eq!(rig.get(&rig.asked("x/parts")).await.ok(), parts);
    assert_eq!(rig.get(&rig.asked("x/echo")).await.text(), "Hosted a=1", "no key");
    assert_eq!(rig.get(&rig.asset("x/deep/er").await).await.text(), "x/deep/er");
    let nothing = rig.get(&rig.asked("x/nothing")).await;
    assert_eq!((nothing.status, nothing.body.len(), nothing.header("content-type")), (204, 0, ""));
    let teapot = rig.get(&rig.asked("x/teapot")).await;
    assert_eq!((teapot.status, teapot.text()), (418, "short and stout"));
    for (rest, status, code) in [
        ("x/none", 404, "not_found"),
        ("x/gone", 404, "not_found"),
        ("unknown", 404, "not_found"),
        ("xx/text", 404, "not_found"),
        ("x/cookie", 500, "driver_failed"),
        ("x/folder", 500, "driver_failed"),
        ("x/panic", 500, "driver_failed"),
    ] {
        rig.get(&rig.asked(rest)).await.error(status, code);
    }
    rig.get(&format!("{}&{}", rig.asked("x/text"), "b".repeat(1024))).await.error(400, "request_too_long");
    let wrong = format!("/hls/{}/x/text?apiKey=pk_wrong", rig.path);
    rig.get(&wrong).await.error(401, "invalid_key");
    rig.get(&format!("/hls/{}/x/text", rig.path)).await.error(404, "not_found");
    drop(driven);
    rig.get(&rig.asked("x/text")).await.error(404, "not_found");
}

#[tokio::test]
async fn responses_are_metered_and_failures_are_not() {
    let rig = Rig::new().await;
    let _driven = open(&rig.opening).await;
    rig.get(&rig.asked("x/text")).await.ok();
    rig.ask("GET", &rig.asked("x/text"), &[("Range", "bytes=0-3")]).await;
    rig.ask("HEAD", &rig.asked("x/text"), &[]).await;
    rig.get(&rig.asked("x/teapot")).await;
    rig.get(&rig.asked("x/panic")).await;
    assert_eq!(rig.used().await, 14);
}

#[tokio::test]
async fn preview_viewers_reach_only_routes_that_allow_them() {
    let rig = Rig::new().await;
    let _driven = open(&rig.opening).await;
    let open = rig.get(&rig.preview_asset("open/echo")).await;
    assert_eq!((open.status, open.text()), (200, "Preview "));
    assert_eq!(open.header("cache-control"), "private, no-store");
    rig.get(&rig.preview_asset("x/text")).await.error(404, "not_found");
    assert_eq!(rig.used().await, 0);
}

fn asked(path: &str) -> HttpRequest {
    let (method, audience) = (HttpMethod::Get, Audience::Hosted);
    HttpRequest { method, audience, path: path.into(), query: String::new() }
}

#[tokio::test]
async fn a_driver_that_does_not_answer_times_out() {
    let opening = Rig::new().await.opening.clone();
    let driven = open(&opening).await;
    let handler = opening.assets().handler().unwrap();
    tokio::time::pause();
    for (path, secs) in [("x/never", ANSWER_SECS), ("next/never", LONG_ANSWER_SECS)] {
        let began = tokio::time::Instant::now();
        assert_eq!(handler.ask(asked(path)).await.unwrap_err(), Unanswered::TimedOut);
        let took = began.elapsed().as_secs();
        assert!((secs..=secs + 1).contains(&took), "{path}: {took} s");
    }
    let many: Vec<_> = (0..IN_FLIGHT_MAX)
        .map(|_| {
            let handler = handler.clone();
            tokio::spawn(async move { handler.ask(asked("next/never")).await.unwrap_err() })
        })
        .collect();
    // A scheduler may come to itself before it has come to all of them.
    for _ in 0..IN_FLIGHT_MAX {
        tokio::task::yield_now().await;
    }
    assert_eq!(handler.ask(asked("x/text")).await.unwrap_err(), Unanswered::Busy);
    for one in many {
        assert_eq!(one.await.unwrap(), Unanswered::TimedOut);
    }
    tokio::time::resume();
    assert_eq!(handler.ask(asked("x/text")).await.unwrap().status, 200, "there is room again");
    // The end of the opening ends the waiting.
    let waiting = {
        let handler = handler.clone();
        tokio::spawn(async move { handler.ask(asked("next/never")).await })
    };
    tokio::task::yield_now().await;
    let gone: Weak<_> = Arc::downgrade(&handler);
    drop(driven);
    assert_eq!(waiting.await.unwrap().unwrap_err(), Unanswered::NoRoute);
    assert!(opening.assets().handler().is_none());
    drop(handler);
    assert!(gone.upgrade().is_none());
}
