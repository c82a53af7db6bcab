//! Assets and every limit of one opening.

use std::io::Read as _;

use bytes::Bytes;
use satcast_plugin_api::playback::PLAYLIST_TYPE;
use satcast_plugin_api::{AssetBody, Audience, Followed};

use super::*;
use crate::published::asset::ASSETS_MAX;

fn asset(name: &str, body: Bytes) -> Asset {
    Asset {
        name: name.into(),
        content_type: "video/mp4".into(),
        max_age_secs: 5,
        audience: Audience::Both,
        body: AssetBody::Memory(body),
        followed: Followed::default(),
    }
}

fn publish(assets: &Assets, name: &str, body: &'static [u8]) -> Result<(), Error> {
    assets.publish(asset(name, Bytes::from_static(body)), Path::new("/data"))
}

fn memory(assets: &Assets, name: &str) -> Bytes {
    match &assets.get(name).unwrap().body {
        AssetBody::Memory(bytes) => bytes.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn assets_are_replaced_and_retracted() {
    let assets = Assets::default();
    publish(&assets, "a.m4s", b"one").unwrap();
    publish(&assets, "a.m4s", b"two2").unwrap();
    assert_eq!(memory(&assets, "a.m4s"), "two2");
    assert_eq!(assets.by_name.memory_bytes(), 4);
    let parts = Asset { body: AssetBody::Parts(vec!["b".into()]), ..asset("a.m4s", Bytes::new()) };
    assets.publish(parts, Path::new("/data")).unwrap();
    assert_eq!(assets.by_name.memory_bytes(), 1 + size_of::<String>() as u64);
    let keep = None;
    let body = AssetBody::File { path: "dvr/a".into(), offset: 1, len: 2, keep };
    assets.publish(Asset { body, ..asset("a.m4s", Bytes::new()) }, Path::new("/data")).unwrap();
    assert_eq!(assets.by_name.memory_bytes(), 0);
    let published = assets.get("a.m4s").unwrap();
    assert!(matches!(&published.body, AssetBody::File { path, .. } if path == Path::new("/data/dvr/a")));
    assets.retract("a.m4s");
    assets.retract("a.m4s");
    assert!(assets.get("a.m4s").is_none());
}

#[test]
fn playlists_of_a_session_that_goes_on_elsewhere_stay_as_they_are() {
    let assets = Assets::default();
    let list = |text: &'static [u8]| {
        let asset = asset("media.m3u8", Bytes::from_static(text));
        assets.publish(Asset { content_type: PLAYLIST_TYPE.into(), ..asset }, Path::new("/data"))
    };
    list(b"live").unwrap();
    assets.continue_elsewhere();
    list(b"ended").unwrap();
    publish(&assets, "a.m4s", b"the last one").unwrap();
    assert_eq!(
        (memory(&assets, "media.m3u8"), memory(&assets, "a.m4s")),
        ("live".into(), "the last one".into())
    );
}

#[test]
fn playlists_are_compressed_once_and_others_never() {
    let assets = Assets::default();
    let text = Bytes::from("#EXTINF:2.000,\n1760000000.m4s\n".repeat(100));
    let playlist = Asset { content_type: PLAYLIST_TYPE.into(), ..asset("media.m3u8", text.clone()) };
    assets.publish(playlist, Path::new("/data")).unwrap();
    assets.publish(asset("a.m4s", text.clone()), Path::new("/data")).unwrap();
    let published = assets.get("media.m3u8").unwrap();
    let packed = published.gzip().unwrap();
    let mut unpacked = Vec::new();
    flate2::read::GzDecoder::new(&packed[..]).read_to_end(&mut unpacked).unwrap();
    assert_eq!(unpacked, text);
    assert_eq!(published.gzip().unwrap().as_ptr(), packed.as_ptr(), "the same bytes for every viewer");
    assert_eq!(assets.get("a.m4s").unwrap().gzip(), None);
    let tiny = Asset { content_type: PLAYLIST_TYPE.into(), ..asset("tiny.m3u8", Bytes::from_static(b"#")) };
    assets.publish(tiny, Path::new("/data")).unwrap();
    assert_eq!(assets.get("tiny.m3u8").unwrap().gzip(), None, "larger than it was");
}

/// Bytes of a driver whose release calls back.
struct CallsBack(Arc<Assets>);

impl AsRef<[u8]> for CallsBack {
    fn as_ref(&self) -> &[u8] {
        b"bytes"
    }
}

impl Drop for CallsBack {
    fn drop(&mut self) {
        self.0.retract("other");
    }
}

#[test]
fn releasing_an_asset_may_call_back() {
    let assets = Arc::new(Assets::default());
    let made = || asset("a", Bytes::from_owner(CallsBack(assets.clone())));
    assets.publish(made(), Path::new("/data")).unwrap();
    assets.publish(made(), Path::new("/data")).unwrap();
    assets.retract("a");
    assert!(assets.get("a").is_none());
}

#[test]
fn every_limit_refuses_and_keeps_existing_assets() {
    let assets = Assets::default();
    for bad in ["", "a\nb", "\u{e4}", &"t".repeat(CONTENT_TYPE_BYTES_MAX + 1)] {
        let asset = Asset { content_type: bad.into(), ..asset("a", Bytes::new()) };
        assert!(assets.publish(asset, Path::new("/data")).is_err(), "{bad:?}");
    }
    let open = AssetBody::Open { file: None, offset: 0, len: 0 };
    assert!(assets.publish(Asset { body: open, ..asset("a", Bytes::new()) }, Path::new("/data")).is_err());
    static LARGE: [u8; 16 * 1024 * 1024] = [0; 16 * 1024 * 1024];
    for n in 0..16 {
        publish(&assets, &format!("l{n}"), &LARGE).unwrap();
    }
    assert!(publish(&assets, "one-too-many", b"x").unwrap_err().message.contains("bytes"));
    publish(&assets, "l0", b"smaller").unwrap();
    for n in 16..ASSETS_MAX {
        publish(&assets, &format!("s{n}"), b"x").unwrap();
    }
    assert!(publish(&assets, "s", b"x").unwrap_err().message.contains("assets"));
    assert_eq!(memory(&assets, "l0"), "smaller");
}

#[test]
fn the_drivers_latest_playback_facts_count() {
    let assets = Assets::default();
    assert_eq!(assets.playback(), None);
    let playback = Playback {
        entry: "index.m3u8".into(),
        preview: None,
        first_ms: 1,
        window_ms: 2,
        window_max_ms: 3,
        fresh_ms: 4_000,
        ended: false,
    };
    assets.set_playback(playback.clone(), Duration::from_secs(1));
    assets.set_playback(Playback { ended: true, ..playback }, Duration::from_secs(2));
    let facts = assets.playback().unwrap();
    assert_eq!((facts.fresh_until, facts.ended), (Some(Duration::from_secs(6)), true));
}
