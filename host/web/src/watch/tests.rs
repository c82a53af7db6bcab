//! Tests without playback; the page itself is tested in `playback/tests/watch.rs`.

use poem::http::header::{ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE};

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

#[test]
fn without_the_folder_requests_get_pages_not_built() {
    let pages = Pages::load(Path::new("/nowhere"));
    let error = pages.asset(&asked("gzip"), testing::SCRIPT).unwrap_err();
    assert_eq!(error.http_status(), 503);
    assert_eq!(error.body("req_1")["code"], "pages_not_built");
}

#[test]
fn only_origins_that_may_play_may_embed_the_page() {
    let of = |origins: &[&str]| ancestors(&origins.iter().map(ToString::to_string).collect::<Vec<_>>());
    assert_eq!(of(&[]), "*");
    assert_eq!(
        of(&["https://a.example", "http://b.example:81/"]),
        "'self' https://a.example http://b.example:81"
    );
    for odd in [
        "https://a.example; script-src *",
        "https://a.example,x",
        "*",
        "https://a.example'x",
        "https://ä.example",
    ] {
        assert_eq!(of(&[odd]), "'self'", "{odd}");
    }
}

#[test]
fn headlines_texts() {
    assert_eq!(INCOMPLETE, "The address of this player is not complete");
    assert_eq!(WRONG_KEY, "This key does not open this stream");
    assert_eq!(TOO_MANY_KEYS, "Too many wrong keys came from your network");
    assert_eq!(NO_LOOK_UP, "The service cannot look this stream up at present");
}
