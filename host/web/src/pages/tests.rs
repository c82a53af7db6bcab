use poem::http::header::ACCEPT_ENCODING;

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

#[test]
fn without_the_folder_requests_get_pages_not_built() {
    let pages = Pages::load(Path::new("/nowhere"));
    for error in [
        pages.asset(&asked("gzip"), testing::SCRIPT).unwrap_err(),
        pages.reference(&asked("gzip")).unwrap_err(),
        pages.manual(&asked("gzip"), "").unwrap_err(),
    ] {
        assert_eq!(error.http_status(), 503);
        assert_eq!(error.body("req_1")["code"], "pages_not_built");
    }
}
