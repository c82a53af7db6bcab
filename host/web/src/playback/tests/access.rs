//! Keys, tokens, the end of a session, and masking in the log.

use super::super::access::{Age, Question, STORE_WAIT};
use super::*;

#[tokio::test]
async fn a_viewer_with_a_key_follows_the_entry_to_the_segments() {
    let rig = Rig::new().await;
    let index = rig.get(&rig.index()).await;
    assert_eq!(index.header("content-type"), PLAYLIST_TYPE);
    assert_eq!(index.header("cache-control"), "max-age=1");
    assert!(!index.text().contains("pk_"), "{}", index.text());
    let media = index.first(&format!("/hls/{}/", rig.path));
    let playlist = rig.get(&media).await;
    assert_eq!(playlist.text(), media_playlist(1..40), "as it was published, the same for everyone");
    assert_eq!(playlist.header("cache-control"), "max-age=1");
    assert_eq!(playlist.header("vary"), "Accept-Encoding");
    assert_eq!(playlist.header("x-request-id"), "", "a cache would give it to others");
    let segment = rig.get(&playlist.first(&media)).await;
    assert_eq!(segment.ok(), noise(100_001));
    assert_eq!(segment.header("cache-control"), "max-age=3600, immutable");
    assert_eq!(segment.header("content-type"), "video/mp4");
    assert_eq!(segment.header("vary"), "");
}

#[tokio::test]
async fn playback_records_the_use_of_its_key() {
    let rig = Rig::new().await;
    rig.get(&rig.index()).await.ok();
    let hash = satcast_core::secret::key_hash(&rig.key);
    let used = loop {
        if let Some(used) = rig.app.store.key_by_hash(&hash).await.unwrap().unwrap().last_used_at {
            break used;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(used, START);
}

#[tokio::test]
async fn every_form_of_the_key_is_accepted_and_the_first_one_counts() {
    let rig = Rig::new().await;
    let index = format!("/hls/{}/index.m3u8", rig.path);
    let bearer = format!("Bearer {}", rig.key);
    for (target, headers) in [
        (index.clone(), vec![("X-API-Key", rig.key.as_str())]),
        (index.clone(), vec![("Authorization", bearer.as_str())]),
        (format!("{index}?key={}", rig.key), vec![]),
    ] {
        let answer = rig.ask("GET", &target, &headers).await;
        answer.ok();
        let cached = if headers.is_empty() { "max-age=1" } else { "no-store" };
        assert_eq!(answer.header("cache-control"), cached, "the key is in the address, or nobody keeps it");
    }
    rig.ask("GET", &rig.index(), &[("X-API-Key", "wrong")]).await.error(401, "invalid_key");
}

#[tokio::test]
async fn missing_wrong_and_foreign_keys_are_refused_as_specified() {
    let rig = Rig::new().await;
    let index = format!("/hls/{}/index.m3u8", rig.path);
    let text = rig.get(&index).await.error(400, "key_required")["error"].as_str().unwrap().to_owned();
    for way in ["X-API-Key", "Authorization: Bearer", "apiKey"] {
        assert!(text.contains(way), "{text}");
    }
    let permanent = rig.new_key(KeyKind::Permanent, None).await;
    let unknown = new_api_key(KeyKind::Public).into_inner();
    for key in [permanent.as_str(), &unknown, "pk_x"] {
        let body = rig.get(&format!("{index}?apiKey={key}")).await.error(401, "invalid_key");
        assert_eq!(body["error"], crate::base::ApiError::invalid_public_key().to_string());
    }
    let elsewhere = format!("/hls/0000000000000000000000/index.m3u8?apiKey={}", rig.key);
    rig.get(&elsewhere).await.error(401, "invalid_key");
    for target in ["/hls/", "/hls/x/media.m3u8", "/hls/x/t/T"] {
        rig.get(target).await.error(404, "not_found");
    }
    for target in [format!("/hls/{}/t/nonsense/media.m3u8", rig.path), format!("{index}?token=nonsense")] {
        rig.get(&target).await.error(401, "invalid_key");
    }
    let gone = rig.asset("never-there.m4s").await;
    rig.get(&gone).await.error(404, "not_found");
    let preview_only = rig.asset("preview.m3u8").await;
    rig.get(&preview_only).await.error(404, "not_found");
    assert_eq!(rig.get("/healthz").await.ok(), b"ok\n", "everything else is the API's");
}

#[tokio::test]
async fn guesses_are_limited_by_address_and_valid_keys_are_not() {
    let rig = Rig::new().await;
    let wrong = format!("/hls/{}/index.m3u8?apiKey=pk_wrong", rig.path);
    for _ in 0..60 {
        rig.get(&wrong).await.error(401, "invalid_key");
    }
    let refused = rig.get(&wrong).await;
    assert_eq!(refused.error(429, "rate_limited")["retryAfter"], 60);
    assert_eq!(refused.header("retry-after"), "60");
    rig.get(&rig.index()).await.ok();
}

#[tokio::test]
async fn a_revoked_key_ends_playback_at_the_next_playlist() {
    let rig = Rig::new().await;
    let (media, segment) = (rig.asset("media.m3u8").await, rig.asset("1.m4s").await);
    rig.get(&media).await.ok();
    rig.intruder().await.revoke_public_keys().await;
    rig.app.clock.advance(FRESH - Duration::from_millis(1));
    rig.get(&media).await.ok();
    rig.app.clock.advance(Duration::from_millis(1));
    rig.get(&segment).await.ok();
    rig.get(&media).await.error(401, "invalid_key");
    rig.get(&segment).await.error(401, "invalid_key");
    rig.get(&rig.index()).await.error(401, "invalid_key");
}

#[tokio::test]
async fn segments_alone_do_not_outlive_the_key_for_long() {
    let rig = Rig::new().await;
    let segment = rig.asset("1.m4s").await;
    rig.get(&segment).await.ok();
    rig.intruder().await.revoke_public_keys().await;
    rig.app.clock.advance(KNOWN - Duration::from_millis(1));
    rig.get(&segment).await.ok();
    rig.app.clock.advance(Duration::from_millis(1));
    rig.get(&segment).await.error(401, "invalid_key");
}

#[tokio::test]
async fn a_disabled_destination_ends_playback_and_preview_until_it_is_enabled() {
    let rig = Rig::new().await;
    let media = rig.asset("media.m3u8").await;
    let mut intruder = rig.intruder().await;
    intruder.enable_destination(rig.destination.0, false).await;
    rig.app.clock.advance(FRESH);
    for target in [&media, &rig.index(), &rig.preview(), &rig.preview_asset("1.m4s")] {
        rig.get(target).await.error(401, "invalid_key");
    }
    intruder.enable_destination(rig.destination.0, true).await;
    rig.app.clock.advance(FRESH);
    for target in [&media, &rig.index(), &rig.preview()] {
        rig.get(target).await.ok();
    }
}

#[tokio::test]
async fn playback_continues_for_a_while_when_the_store_fails() {
    let rig = Rig::new().await;
    let media = rig.asset("media.m3u8").await;
    rig.get(&media).await.ok();
    rig.intruder().await.damage_destination(rig.destination.0).await;
    rig.app.clock.advance(KNOWN - Duration::from_millis(1));
    rig.get(&media).await.ok();
    rig.app.clock.advance(FRESH);
    for _ in 0..2 {
        rig.get(&media).await.error(502, "store_failed");
    }
}

#[tokio::test]
async fn viewers_do_not_wait_for_a_store_that_hangs_while_there_is_an_earlier_answer() {
    let rig = Rig::new().await;
    let accesses = &rig.playback.accesses;
    let known = accesses.find(Question::Path(rig.path.clone()), Age::Fresh).await.unwrap().unwrap();
    let asking = tokio::spawn(std::future::pending());
    let answer = accesses.answer(asking, Some(Some(known.clone())));
    let answered = rig.app.clock.passing(STORE_WAIT, answer).await.unwrap().unwrap();
    assert_eq!(answered.destination, known.destination);
    // The next requests do not wait either while that query runs.
    let question = Question::Path(rig.path.clone());
    accesses.hang(&question);
    rig.intruder().await.enable_destination(rig.destination.0, false).await;
    let is_enabled = async |after| {
        rig.app.clock.advance(after);
        accesses.find(question.clone(), Age::Fresh).await.unwrap().unwrap().enabled
    };
    assert!(is_enabled(FRESH * 2).await);
    assert!(!is_enabled(KNOWN).await, "after a minute it counts no more");
}

#[tokio::test]
async fn after_the_end_the_entry_is_gone_and_the_rest_stays_for_a_minute() {
    let rig = Rig::new().await;
    let (media, segment) = (rig.asset("media.m3u8").await, rig.asset("1.m4s").await);
    rig.tell(true);
    rig.get(&rig.index()).await.error(404, "offline");
    rig.app.live.end_opening(&rig.opening);
    rig.get(&rig.index()).await.error(404, "offline");
    rig.get(&rig.preview()).await.error(404, "offline");
    rig.get(&rig.preview_asset("1.m4s")).await.error(404, "offline");
    rig.app.clock.advance(satcast_drivers::published::KEPT_AFTER_END - Duration::from_millis(1));
    rig.get(&media).await.ok();
    rig.get(&segment).await.ok();
    rig.app.clock.advance(Duration::from_millis(1));
    rig.get(&media).await.error(404, "offline");
    rig.get(&segment).await.error(404, "offline");
}

#[tokio::test]
async fn a_destination_that_published_no_entry_yet_is_offline() {
    let rig = Rig::new().await;
    rig.opening.assets().retract("index.m3u8");
    rig.get(&rig.index()).await.error(404, "offline");
    rig.publish("index.m3u8", "video/mp4", 1, Audience::Both, b"not a playlist".to_vec());
    rig.get(&rig.index()).await.error(404, "offline");
}

#[tokio::test]
async fn tokens_are_bound_to_their_path_and_session() {
    let rig = Rig::new().await;
    let segment = rig.asset("1.m4s").await;
    let elsewhere = segment.replace(&rig.path, "0000000000000000000000");
    rig.get(&elsewhere).await.error(401, "invalid_key");
    let other = rig.playback.mint.token(Grant::Preview, rig.destination, "ses_another", &rig.path);
    rig.get(&format!("/hls/{}/t/{other}/1.m4s", rig.path)).await.error(404, "offline");
    let as_entry = segment.split('/').nth(4).unwrap();
    rig.get(&format!("/hls/{}/index.m3u8?token={as_entry}", rig.path)).await.error(401, "invalid_key");
}

#[tokio::test]
async fn a_panic_gets_the_common_error_body() {
    let context = RequestContext::of(&Request::builder().uri_str("/hls/x").finish());
    let refused = caught::<()>(async { panic!("on purpose") }, &context).await.unwrap_err();
    let mut response = refused.response(&context);
    assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
    let body: Value = response.take_body().into_json().await.unwrap();
    assert_eq!(body["code"], "internal");
}

#[test]
fn tokens_and_keys_are_masked_in_the_log() {
    let token = "AQEAAAAAAAAABwAAAAAAAAABc2VzXz";
    let path = logged_path(&format!("/hls/path/t/{token}/1.m4s"));
    assert_eq!(without_token(&path), "/hls/path/t/AQE...zXz/1.m4s");
    let key = new_api_key(KeyKind::Public).into_inner();
    let shown = without_token(&logged_path(&format!("/hls/{key}/index.m3u8")));
    assert!(!shown.contains(&key[6..key.len() - 3]), "{shown}");
    assert_eq!(without_token(&logged_path(&format!("/hls/p/t/{}", "x".repeat(1_000)))), "/hls/p/t/xxx...xxx");
}

#[tokio::test]
async fn cached_answers_of_the_store_are_bounded() {
    let rig = Rig::new().await;
    for id in 0..ANSWERS_MAX as i64 + 10 {
        let found = rig.playback.accesses.find(access_question(id), Age::Fresh).await;
        assert!(found.unwrap().is_none());
    }
    assert_eq!(rig.playback.accesses.len(), ANSWERS_MAX);
    rig.app.clock.advance(FRESH);
    rig.get(&rig.index()).await.ok();
    assert_eq!(rig.playback.accesses.len(), 1, "old ones make room");
}

fn access_question(id: i64) -> Question {
    Question::Key(satcast_core::ids::KeyId(1_000_000 + id))
}
