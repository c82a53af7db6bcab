//! Assets as sent: whole, in ranges, compressed, from memory, files and parts.

use std::io::Read as _;

use super::*;

fn unpacked(answer: &Answer) -> String {
    let mut text = String::new();
    flate2::read::GzDecoder::new(&answer.body[..]).read_to_string(&mut text).unwrap();
    text
}

#[tokio::test]
async fn playlists_are_compressed_if_the_client_accepts_gzip() {
    let rig = Rig::new().await;
    let media = rig.asset("media.m3u8").await;
    for asked in ["gzip", "gzip, identity;q=1, *;q=0", "br, gzip;q=0.1"] {
        let packed = rig.ask("GET", &media, &[("Accept-Encoding", asked)]).await;
        packed.ok();
        assert_eq!((packed.header("content-encoding"), packed.header("vary")), ("gzip", "Accept-Encoding"));
        assert_eq!(packed.header("content-length"), packed.body.len().to_string());
        assert_eq!(unpacked(&packed), media_playlist(1..40));
    }
    for asked in ["identity", "gzip;q=0", "br"] {
        let plain = rig.ask("GET", &media, &[("Accept-Encoding", asked)]).await;
        assert_eq!((plain.header("content-encoding"), plain.header("vary")), ("", "Accept-Encoding"));
        assert_eq!(plain.text(), media_playlist(1..40));
    }
    let segment = rig.asset("1.m4s").await;
    let media = rig.ask("GET", &segment, &[("Accept-Encoding", "gzip")]).await;
    assert_eq!(media.header("content-encoding"), "");
}

#[tokio::test]
async fn a_new_version_of_a_playlist_is_seen_at_once() {
    let rig = Rig::new().await;
    let media = rig.asset("media.m3u8").await;
    rig.ask("GET", &media, &[("Accept-Encoding", "gzip")]).await.ok();
    rig.publish("media.m3u8", PLAYLIST_TYPE, 1, Audience::Both, media_playlist(2..50).into_bytes());
    let packed = rig.ask("GET", &media, &[("Accept-Encoding", "gzip")]).await;
    assert_eq!(unpacked(&packed), media_playlist(2..50));
}

#[tokio::test]
async fn one_range_of_memory_files_and_parts_is_served() {
    let rig = Rig::new().await;
    let bytes = noise(300_020);
    rig.file("file.m4s", &bytes);
    let parts = AssetBody::Parts(vec!["1.m4s".into(), "file.m4s".into(), "2.m4s".into()]);
    rig.put("parts.m4s", "video/mp4", 3_600, Audience::Both, parts);
    let file = bytes[10..300_010].to_vec();
    let all = [noise(100_001), file.clone(), noise(100_002)].concat();
    for (name, bytes) in [("1.m4s", noise(100_001)), ("file.m4s", file), ("parts.m4s", all)] {
        let target = rig.asset(name).await;
        assert_eq!(rig.get(&target).await.ok(), bytes, "{name}");
        let size = bytes.len();
        for (first, last) in [(0, 0), (0, size - 1), (1, 70_000), (99_990, 100_010), (size - 1, size - 1)] {
            if last >= size {
                continue;
            }
            let answer = rig.ask("GET", &target, &[("Range", &format!("bytes={first}-{last}"))]).await;
            assert_eq!(answer.status, 206);
            assert_eq!(answer.header("content-range"), format!("bytes {first}-{last}/{size}"));
            assert_eq!(answer.header("content-length"), (last + 1 - first).to_string());
            assert!(answer.body == bytes[first..=last], "{name} {first}-{last}");
        }
        let tail = rig.ask("GET", &target, &[("Range", "bytes=-5")]).await;
        assert_eq!((tail.status, &tail.body[..]), (206, &bytes[size - 5..]));
        let beyond = rig.ask("GET", &target, &[("Range", &format!("bytes={size}-"))]).await;
        beyond.error(416, "range_not_satisfiable");
        assert_eq!(beyond.header("content-range"), format!("bytes */{size}"));
    }
}

#[tokio::test]
async fn several_ranges_and_ranges_of_playlists_get_the_whole_asset() {
    let rig = Rig::new().await;
    let (segment, media) = (rig.asset("1.m4s").await, rig.asset("media.m3u8").await);
    let several = rig.ask("GET", &segment, &[("Range", "bytes=0-1,5-6")]).await;
    assert_eq!(several.ok(), noise(100_001));
    assert_eq!(several.header("accept-ranges"), "bytes");
    let playlist = rig.ask("GET", &media, &[("Range", "bytes=0-1")]).await;
    assert_eq!(playlist.ok(), media_playlist(1..40).as_bytes());
    assert_eq!(playlist.header("accept-ranges"), "");
}

#[tokio::test]
async fn head_is_like_get_without_bytes() {
    let rig = Rig::new().await;
    rig.file("file.m4s", &noise(5_020));
    let names = ["media.m3u8", "1.m4s", "file.m4s"];
    let mut targets = vec![rig.index(), rig.preview()];
    for name in names {
        targets.push(rig.asset(name).await);
    }
    for target in targets {
        let used = rig.used().await;
        let head = rig.ask("HEAD", &target, &[("Range", "bytes=0-1")]).await;
        assert_eq!((head.status, head.body.len()), (200, 0), "{target}");
        assert_eq!(rig.used().await, used, "not counted");
        let get = rig.get(&target).await;
        for name in ["content-length", "content-type", "cache-control", "vary", "accept-ranges"] {
            assert_eq!(head.header(name), get.header(name), "{name} of {target}");
        }
        assert_eq!(head.header("content-length"), get.body.len().to_string());
    }
}

#[tokio::test]
async fn files_that_are_gone_or_shorter_are_not_found() {
    let rig = Rig::new().await;
    rig.file("file.m4s", &noise(10_000));
    let target = rig.asset("file.m4s").await;
    rig.get(&target).await.ok();
    std::fs::write(rig.folder.path().join("file.m4s"), noise(5_000)).unwrap();
    rig.get(&target).await.error(404, "not_found");
    std::fs::remove_file(rig.folder.path().join("file.m4s")).unwrap();
    rig.get(&target).await.error(404, "not_found");
    std::os::unix::fs::symlink("/etc/passwd", rig.folder.path().join("file.m4s")).unwrap();
    rig.get(&target).await.error(503, "piece_unreadable");
    let parts = AssetBody::Parts(vec!["1.m4s".into(), "never-there.m4s".into()]);
    rig.put("parts.m4s", "video/mp4", 1, Audience::Both, parts);
    let parts = rig.asset("parts.m4s").await;
    rig.get(&parts).await.error(404, "not_found");
    rig.put("nested.m4s", "video/mp4", 1, Audience::Both, AssetBody::Parts(vec!["p1-3.m4s".into()]));
    let nested = rig.asset("nested.m4s").await;
    rig.get(&nested).await.error(404, "not_found");
}

#[tokio::test]
async fn a_file_that_two_viewers_want_is_sent_from_memory() {
    let rig = Rig::new().await;
    let bytes = noise(300_020);
    let file = &bytes[10..300_010];
    rig.file("file.m4s", &bytes);
    let (target, preview) = (rig.asset("file.m4s").await, rig.preview_asset("file.m4s"));
    for _ in 0..3 {
        assert_eq!(rig.get(&preview).await.ok(), file);
        assert_eq!(rig.ask("HEAD", &target, &[]).await.status, 200);
    }
    assert_eq!(rig.get(&target).await.ok(), file);
    assert_eq!(rig.playback.cache.bytes_taken(), 0, "previews, HEAD and a single viewer take no memory");
    let part = rig.ask("GET", &target, &[("Range", "bytes=5-9")]).await;
    assert_eq!((part.status, &part.body[..]), (206, &file[5..10]));
    assert_eq!(rig.playback.cache.bytes_taken(), 300_000, "read whole");
    std::fs::remove_file(rig.folder.path().join("file.m4s")).unwrap();
    let all = (0..20).map(|_| rig.get(&target));
    for answer in futures_util::future::join_all(all).await {
        assert_eq!(answer.ok(), file);
    }
    // A new asset of the same name is another file.
    rig.file("file.m4s", &noise(2_020));
    assert_eq!(rig.get(&target).await.ok().len(), 2_000);
    assert_eq!(rig.playback.cache.bytes_taken(), 0, "replaced assets take their bytes with them");
}

#[tokio::test]
async fn a_missing_file_of_a_later_part_aborts_the_response() {
    let rig = Rig::new().await;
    rig.file("late.m4s", &noise(10_000));
    let parts = AssetBody::Parts(vec!["1.m4s".into(), "late.m4s".into()]);
    rig.put("parts.m4s", "video/mp4", 1, Audience::Both, parts);
    let target = rig.asset("parts.m4s").await;
    std::fs::remove_file(rig.folder.path().join("late.m4s")).unwrap();
    let mut socket = rig.send("GET", &target, &[]).await;
    let mut answer = Vec::new();
    // The connection may be reset when the response is aborted.
    let _ = tokio::time::timeout(WAIT_MAX, socket.read_to_end(&mut answer)).await.unwrap();
    let answer = parse(&answer);
    assert_eq!(answer.header("content-length"), (100_001 + 9_980).to_string());
    assert!(answer.body.len() <= 100_001 && noise(100_001).starts_with(&answer.body), "no wrong byte");
}
