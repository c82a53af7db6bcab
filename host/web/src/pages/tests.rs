use poem::http::header::{ACCEPT, ACCEPT_ENCODING};

use super::*;

fn asked(encoding: &str) -> Request {
    Request::builder().header(ACCEPT_ENCODING, encoding).finish()
}

#[tokio::test]
async fn scripts_are_kept_for_ever_and_compressed_once() {
    let pages = testing::pages();
    let packed = pages.asset(&asked("br, gzip"), testing::SCRIPT).unwrap();
    assert_eq!(packed.headers()[CONTENT_ENCODING], "gzip");
    assert_eq!(packed.headers()[CACHE_CONTROL], "public, max-age=31536000, immutable");
    assert_eq!(packed.headers()[CONTENT_TYPE], "text/javascript; charset=utf-8");
    assert_eq!(packed.headers()[VARY], "Accept-Encoding");
    let plain = pages.asset(&asked("identity"), testing::SCRIPT).unwrap();
    assert!(plain.headers().get(CONTENT_ENCODING).is_none());
    let (packed, plain) =
        (packed.into_body().into_bytes().await.unwrap(), plain.into_body().into_bytes().await.unwrap());
    assert_eq!(plain, "play();\n".repeat(100));
    assert!(packed.len() < plain.len() && packed.starts_with(&[0x1f, 0x8b]));
    for name in ["", "watch.html", "../watch.html", "script-a1.js", "script-A1.js/"] {
        assert_eq!(pages.asset(&asked("gzip"), name).unwrap_err().http_status(), 404, "{name}");
    }
}

#[tokio::test]
async fn reference_and_manual_are_pages_with_a_strict_policy() {
    let pages = testing::pages();
    let manual = |path| pages.manual(&asked(""), path).unwrap();
    for (page, kept, text) in [
        (pages.reference(&asked("")).unwrap(), "no-cache", "<title>Reference</title>"),
        (manual(""), "public, max-age=300", "<title>Manual</title>"),
        (manual("drivers/guide.html"), "public, max-age=300", "<title>Guide</title>"),
    ] {
        assert_eq!(
            page.headers()[CONTENT_SECURITY_POLICY],
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self' data:; \
             connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        );
        assert_eq!(page.headers()[CONTENT_TYPE], "text/html; charset=utf-8");
        assert_eq!(page.headers()[CACHE_CONTROL], kept);
        assert_eq!(page.into_body().into_string().await.unwrap(), text);
    }
    for path in
        ["drivers", "drivers/", "drivers/../index.html", "../docs.html", "%2e%2e/docs.html", "/index.html"]
    {
        assert_eq!(pages.manual(&asked(""), path).unwrap_err().http_status(), 404, "{path}");
    }
}

#[tokio::test]
async fn the_dashboard_is_a_page_with_a_strict_policy() {
    let page = testing::pages().dashboard(&asked(""));
    assert_eq!(page.headers()["cross-origin-opener-policy"], "same-origin");
    assert_eq!(
        page.headers()[CONTENT_SECURITY_POLICY],
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; media-src 'self' blob:; \
         connect-src 'self'; worker-src 'self' blob:; font-src 'self'; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'"
    );
    assert_eq!(page.headers()[CONTENT_TYPE], "text/html; charset=utf-8");
    assert_eq!(page.headers()[CACHE_CONTROL], "no-cache");
    assert_eq!(page.into_body().into_string().await.unwrap(), "<title>Dashboard</title>");
}

#[tokio::test]
async fn a_browser_gets_the_dashboard_at_an_unknown_address() {
    const BROWSER: &str = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
    let pages = testing::pages();
    let asked = |method: Method, path: &str, accept: &str| {
        Request::builder().method(method).uri_str(path).header(ACCEPT, accept).finish()
    };
    for path in ["/foo", "/keys/", "/index.html", "/admin", "/apis"] {
        let page = pages.unknown(&asked(Method::GET, path, BROWSER)).unwrap();
        assert_eq!(page.status(), StatusCode::NOT_FOUND, "{path}");
        assert!(page.headers().contains_key(CONTENT_SECURITY_POLICY), "{path}");
        assert_eq!(page.into_body().into_string().await.unwrap(), "<title>Dashboard</title>");
    }
    for path in ["/api", "/api/foo", "/hls/x", "/watch/x/y", "/docs/", "/manual/x", "/metrics/"] {
        assert!(pages.unknown(&asked(Method::GET, path, BROWSER)).is_none(), "{path}");
    }
    for accept in ["*/*", "application/json", "application/json, text/html", ""] {
        assert!(pages.unknown(&asked(Method::GET, "/foo", accept)).is_none(), "{accept}");
    }
    let browser = asked(Method::GET, "/foo", BROWSER);
    assert!(Pages::load(Path::new("/nowhere")).unknown(&browser).is_none(), "without pages");
    assert!(pages.unknown(&asked(Method::POST, "/foo", BROWSER)).is_none());
}

#[test]
fn the_dashboard_has_the_paths_of_its_script() {
    let routes = include_str!("../../../dashboard/src/routes.ts");
    let loaded = routes.lines().filter(|line| line.contains("load: () =>"));
    let paths: Vec<_> = loaded.filter_map(|line| line.split('\'').nth(1)).collect();
    assert_eq!(paths, DASHBOARD_PATHS);
}

#[tokio::test]
async fn without_the_folder_the_dashboard_says_how_to_get_the_pages() {
    let page = Pages::load(Path::new("/nowhere")).dashboard(&asked("gzip"));
    assert_eq!(page.status(), 503);
    assert_eq!(page.headers()[CONTENT_TYPE], "text/plain; charset=utf-8");
    let text = page.into_body().into_string().await.unwrap();
    assert_eq!(text, format!("{}\n", ApiError::pages_not_built()));
}

#[test]
fn without_the_folder_requests_get_pages_not_built() {
    let pages = Pages::load(Path::new("/nowhere"));
    for error in [
        pages.asset(&asked("gzip"), testing::SCRIPT).unwrap_err(),
        pages.reference(&asked("gzip")).unwrap_err(),
        pages.licences(&asked("gzip")).unwrap_err(),
        pages.manual(&asked("gzip"), "").unwrap_err(),
    ] {
        assert_eq!(error.http_status(), 503);
        assert_eq!(error.body("req_1")["code"], "pages_not_built");
    }
}
