//! Viewer requests, over the C table.
#![allow(clippy::unwrap_used)] // A failed step is a failed test.

use std::fs::File;
use std::sync::Arc;

use satcast_plugin_api::driver::{
    Config, Ctx, Destination, Driver, DriverInfo, DynDestination, Host, Media, Method,
};
use satcast_plugin_api::http::{BODY_BYTES_MAX, HEADERS_MAX};
use satcast_plugin_api::testkit::{Answered, Testkit};
use satcast_plugin_api::{
    AssetBody, Audience, DestType, Error, HttpRequest, HttpResponse, Route, driver_entry,
};
use serde_json::json;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Empty {}

struct Answers {
    folder: std::path::PathBuf,
}

struct Out(std::path::PathBuf);

impl Driver for Answers {
    const INFO: DriverInfo = DriverInfo { id: "answers", version: "1.0.0", title: "Answers" };

    fn types() -> Vec<DestType> {
        let long = Route::new("next").long().preview();
        vec![DestType::of::<Empty>("answers").route(Route::new("a")).route(long)]
    }

    fn load(host: &Host) -> Result<Self, Error> {
        Ok(Self { folder: host.data_dir()? })
    }

    fn open(&self, _: Config<'_>) -> Result<Arc<dyn DynDestination>, Error> {
        Ok(Arc::new(Out(self.folder.clone())))
    }
}

impl Destination for Out {
    async fn run(self: Arc<Self>, _: Ctx, mut media: Media) -> Result<(), Error> {
        let mut batch = Vec::new();
        while media.recv_batch(&mut batch).await {
            batch.clear();
        }
        Ok(())
    }

    async fn http(self: Arc<Self>, request: HttpRequest) -> Result<HttpResponse, Error> {
        let file = || File::open(self.0.join("file")).unwrap();
        let case = request.path.strip_prefix("a/").unwrap_or_default();
        let of = |body| Ok(HttpResponse::of("text/plain", body));
        match case {
            "memory" => {
                Ok(HttpResponse::bytes("text/plain", request.query).max_age(7).header("ETag", "\"e\""))
            }
            "file" => of(AssetBody::File { path: "file".into(), offset: 2, len: 3, keep: None }),
            "descriptor" => of(AssetBody::Open { file: Some(Arc::new(file())), offset: 1, len: 4 }),
            "parts" => of(AssetBody::Parts(vec!["p".into()])),
            "behind" => of(AssetBody::Open { file: Some(Arc::new(file())), offset: u64::MAX, len: 2 }),
            "outside" => of(AssetBody::File { path: "/etc/passwd".into(), offset: 0, len: 1, keep: None }),
            "split" => Ok(HttpResponse::bytes("text/plain", "x").header("x-driver-x", "a\r\nb: c")),
            "many" => Ok((0..=HEADERS_MAX)
                .fold(HttpResponse::bytes("text/plain", "x"), |it, _| it.header("x-driver-x", "y"))),
            "large" => Ok(HttpResponse::bytes("text/plain", vec![0; BODY_BYTES_MAX as usize + 1])),
            "redirect" => Ok(HttpResponse { status: 302, ..HttpResponse::empty(204) }),
            "error" => Err(Error::internal("no")),
            "panic" => panic!("asked to"),
            "yield" => {
                tokio::task::yield_now().await;
                panic!("asked to, later")
            }
            "method" => {
                assert_eq!((request.method, request.audience), (Method::Head, Audience::Preview));
                Ok(HttpResponse::empty(204))
            }
            _ => Ok(HttpResponse::not_found()),
        }
    }
}

driver_entry!(entry, Answers);

fn asked(path: &str) -> HttpRequest {
    HttpRequest { method: Method::Get, path: path.into(), query: "q=1".into(), audience: Audience::Hosted }
}

#[test]
fn viewers_get_answers_from_memory_files_and_parts_and_errors_are_contained() {
    let kit = Testkit::start(entry).unwrap();
    let routes = &kit.table().manifest().types[0].routes;
    assert_eq!((routes.len(), routes[1].long, routes[1].preview, routes[0].long), (2, true, true, false));
    std::fs::write(kit.data_dir().unwrap().join("file"), "0123456789").unwrap();
    let destination = kit.open("answers", &json!({})).unwrap();
    let get = |path: &str| kit.get(&destination, &asked(path)).unwrap();
    let memory = Answered {
        status: 200,
        content_type: "text/plain".into(),
        max_age_secs: 7,
        headers: vec![("ETag".into(), "\"e\"".into())],
        body: Ok(b"q=1".to_vec()),
        parts: Vec::new(),
    };
    assert_eq!(get("a/memory"), memory);
    assert_eq!(get("a/file").body.unwrap(), b"234");
    assert_eq!(get("a/descriptor").body.unwrap(), b"1234");
    assert_eq!(get("a/parts").parts, ["p"]);
    assert_eq!(get("a/elsewhere").status, 404);
    for refused in ["behind", "outside", "split", "many", "large", "redirect", "error", "panic", "yield"] {
        assert_eq!(get(&format!("a/{refused}")).status, 500, "{refused}");
    }
    let head = HttpRequest { method: Method::Head, audience: Audience::Preview, ..asked("a/method") };
    assert_eq!(kit.get(&destination, &head).unwrap().status, 204);
    // The destination still runs after these errors. After its end it gets no requests.
    destination.stop();
    destination.wait_for_end().unwrap();
    assert_eq!(kit.get(&destination, &asked("a/memory")).unwrap().status, 404);
    kit.shut_down();
}
