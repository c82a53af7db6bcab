//! nginx as a cache in front, with the configuration of the packages.

use satcast_tests::database::Database;
use satcast_tests::encoder::Publish;
use satcast_tests::hls::Viewer;
use satcast_tests::hosted::Hosted;
use satcast_tests::nginx::{Nginx, shipped};
use satcast_tests::ports::Port;
use satcast_tests::service::{Service, Setup};
use satcast_tests::source::Source;
use satcast_tests::wait::{self, seconds};

/// The header that says whether an answer came from the cache.
const CACHE: &str = "x-cache";
/// Viewers behind the cache besides the first.
const OTHERS: usize = 4;
/// The interval of metering, and a margin.
const METERED_AFTER_SECONDS: u64 = 7;

/// The configuration without TLS, because the viewers of this test speak none; `proxied` has the rest. It redirects at `redirect`.
fn config(service: &Service, redirect: &Port) -> String {
    let text = shipped("satcast.conf", &service.base().replace("http://", ""));
    let text = text.replace("listen 80;", &format!("listen {};", redirect.address()));
    let lines = text.replace("LISTEN ssl http2;", "LISTEN;");
    lines.lines().filter(|line| !line.trim().starts_with("ssl_")).collect::<Vec<_>>().join("\n")
}

#[test]
fn behind_nginx_viewers_come_from_the_cache_and_a_revoked_key_still_ends() {
    let service = Setup::default().set("SATCAST_HTTP__TRUSTED_PROXIES", "[\"127.0.0.1\"]").start();
    let hosted = Hosted::new(&service, "cached");
    let _encoder =
        Publish::of(&Source::shared()).faster(2).endless().to(&service.ingest_url(&hosted.stream.key));
    let redirect = Port::lease();
    let nginx = Nginx::before(&config(&service, &redirect));
    let url = hosted.ready().replace(&service.base(), &format!("http://{}", nginx.address()));
    let mut first = Viewer::of(&url);
    let media = first.media_when("four segments", |media| media.segments.len() >= 4);
    first.chunks(&media.segments);
    let mut database = Database::of(service.folder());
    std::thread::sleep(seconds(METERED_AFTER_SECONDS));
    let before = database.bytes_sent(hosted.destination);

    let mut served = 0;
    for _ in 0..OTHERS {
        let mut other = Viewer::of(&url);
        for segment in &media.segments {
            let reply = other.load(&segment.name);
            assert_eq!(reply.header(CACHE), Some("HIT"), "{}", segment.name);
            served += reply.body.len() as u64;
        }
        let path = other.path(&media.newest().name);
        let part = other.http.get(&path, &[("range", "bytes=100-199")]);
        assert_eq!((part.status, part.body.len(), part.header(CACHE)), (206, 100, Some("HIT")));
    }
    std::thread::sleep(seconds(METERED_AFTER_SECONDS));
    let fetched = database.bytes_sent(hosted.destination) - before;
    println!("{served} bytes served to {OTHERS} viewers, {fetched} fetched for them");
    assert!(served > 4_000_000 && fetched * 50 < served, "{fetched} bytes fetched for {served}");

    kept_apart(&mut first);
    errors_are_not_kept(&mut first, &url);
    revoked(&service, &mut first, &url);
    let log = nginx.written("satcast.log") + &nginx.written("satcast-error.log");
    assert!(
        log.contains("/index.m3u8 200") && !log.contains("pk_"),
        "a key, or nothing, in nginx's log: {log}"
    );
}

/// Requests that wait for a part are cached separately.
fn kept_apart(viewer: &mut Viewer) {
    let media = viewer.path("media.m3u8");
    for query in ["?_HLS_msn=1", "?_HLS_msn=1&_HLS_part=0"] {
        let reply = viewer.http.get(&format!("{media}{query}"), &[]);
        assert_eq!(reply.header(CACHE), Some("MISS"), "{query}: {}", reply.status);
    }
}

fn errors_are_not_kept(viewer: &mut Viewer, url: &str) {
    let gone = viewer.path("never-there.m4s");
    let (_, index) = satcast_tests::http::split_url(url);
    let wrong = format!("{}?apiKey=pk_wrong", index.split('?').next().unwrap_or_default());
    for (path, status) in [(gone, 404), (wrong, 401)] {
        for _ in 0..2 {
            let reply = viewer.http.get(&path, &[]);
            reply.assert_status(status);
            assert_eq!(reply.header(CACHE), Some("MISS"), "an error came from the cache");
        }
    }
}

fn revoked(service: &Service, viewer: &mut Viewer, url: &str) {
    let (_, index) = satcast_tests::http::split_url(url);
    let media = viewer.path("media.m3u8");
    viewer.http.get(&index, &[]).assert_status(200);
    let keys = service.api().get("/api/keys").ok();
    let key = keys.as_array().into_iter().flatten().find(|key| key["type"] == "public");
    let id = key.and_then(|key| key["id"].as_i64()).expect("the public key");
    let _ = service.api().delete(&format!("/api/keys/{id}")).ok();
    for path in [index, media] {
        wait::within("the key to be revoked", seconds(5), || match viewer.http.get(&path, &[]).status {
            401 => Ok(()),
            status => Err(format!("still {status}")),
        });
    }
}
