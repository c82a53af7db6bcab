//! Tests without playback; the page itself is tested in `playback/tests/watch.rs`.

use tempfile::tempdir;

use super::*;

#[test]
fn a_page_of_another_version_is_not_served() {
    let folder = tempdir().unwrap();
    let page = folder.path().join(FILE);
    for (text, is_served) in
        [("{{label}}{{kind}}{{state}}{{headline}}{{advice}}", true), ("<p>{{label}}</p>", false)]
    {
        std::fs::write(&page, text).unwrap();
        assert_eq!(Watch::of(&Pages::load(folder.path())).0.is_some(), is_served, "{text}");
    }
    std::fs::remove_file(page).unwrap();
    assert!(Watch::of(&Pages::load(folder.path())).0.is_none());
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
fn the_policy_allows_media_from_the_stores_of_a_recording_alone() {
    let of = |stores: &[&str]| policy(&stores.iter().map(ToString::to_string).collect::<Vec<_>>(), &[]);
    assert!(of(&[]).contains("media-src 'self' blob:; connect-src 'self'; "));
    let listed = of(&["https://a.example", "http://b.example:81"]);
    for part in [
        "media-src 'self' blob: https://a.example http://b.example:81; ",
        "connect-src 'self' https://a.example http://b.example:81; ",
        "script-src 'self'; ",
    ] {
        assert!(listed.contains(part), "{listed}");
    }
}

#[test]
fn each_problem_of_a_recording_has_its_headline() {
    let of = |error: ApiError, shown| View::problem(&error, shown).headline;
    let (stream, recording) = (Shown::Stream("path"), Shown::Recording(7));
    for (error, of_stream, of_recording) in [
        (ApiError::public_key_required(), INCOMPLETE, INCOMPLETE),
        (ApiError::invalid_public_key(), WRONG_KEY, OLD_ADDRESS),
        (ApiError::invalid_token(), WRONG_KEY, OLD_ADDRESS),
        (ApiError::not_found("recording"), WRONG_KEY, NO_RECORDING),
        (ApiError::internal(), NO_LOOK_UP, NO_LOOK_UP),
    ] {
        assert_eq!((of(error.clone(), stream), of(error, recording)), (of_stream, of_recording));
    }
}

#[test]
fn headlines_texts() {
    assert_eq!(INCOMPLETE, "The address of this player is not complete");
    assert_eq!(WRONG_KEY, "This key does not open this stream");
    assert_eq!(TOO_MANY_KEYS, "Too many wrong keys came from your network");
    assert_eq!(NO_LOOK_UP, "The service cannot look this address up at present");
    assert_eq!(NO_RECORDING, "The recording is not here");
    assert_eq!(OLD_ADDRESS, "This address does not open the recording");
}
