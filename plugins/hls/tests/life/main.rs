//! The driver under the testkit's host with media encoded by ffmpeg; ffmpeg and ffprobe read the published assets.
#![allow(clippy::unwrap_used)] // A failed step is a failed test.

mod hostile;
mod media;
mod played;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use satcast_driver_hls::{Hls, TYPE};
use satcast_plugin_api::driver_entry;
use satcast_plugin_api::testkit::{Options, TestDestination, Testkit};
use serde_json::{Value, json};

driver_entry!(entry, Hls);

/// Far ahead of the clock, as if it had been set back.
const LEFT_OVER: u64 = 9_000_000_000;

// One driver has one slot in a process, so its whole life is one test; each step is a function.
#[test]
fn a_drivers_life() {
    let dvr = dvr_folder();
    let old = dvr.join("1-1/900");
    std::fs::create_dir_all(&old).unwrap();
    std::fs::write(old.join(format!("{LEFT_OVER}.m4s")), b"left by a crash").unwrap();
    let data_dir = dvr.parent().map(Path::to_path_buf);
    let kit = Testkit::start_with(entry, Options { data_dir, ..Options::default() }).unwrap();
    let manifest = kit.table().manifest().types[0].clone();
    assert_eq!((manifest.name.as_str(), manifest.playback), (TYPE, true));
    assert!(!dvr.join("1-1").exists(), "renamed at once");
    refuses_bad_configurations(&kit);
    let number = played::video_and_audio(&kit);
    assert!(number > LEFT_OVER, "{number} must be above what the crash left");
    assert!(until(|| !dvr.join("trash-1-1").exists()), "deleted in the background");
    let next = played::a_reconnect_with_another_size(&kit);
    assert!(next > number, "{next} must be above {number}");
    played::audio_alone(&kit);
    played::keyframes_where_the_encoder_likes(&kit);
    played::a_short_window(&kit);
    played::a_change_of_settings(&kit);
    played::no_rewind(&kit);
    hostile::packets_that_make_no_sense(&kit);
    hostile::nothing_at_all(&kit);
    hostile::keyframes_that_are_too_far_apart(&kit);
    hostile::large_groups_do_not_stop_the_host(&kit);
    let last: u64 = std::fs::read_to_string(dvr.join("last-sequence")).unwrap().parse().unwrap();
    assert!(last > next, "{last}");
    played::what_is_open_goes_with_the_driver(&kit);
    kit.shut_down();
    assert!(boot_folders().is_empty(), "{:?}", boot_folders());
    std::fs::remove_dir_all(&dvr).unwrap();
    std::fs::remove_dir(dvr.parent().unwrap()).unwrap();
}

fn dvr_folder() -> PathBuf {
    std::env::temp_dir().join(format!("satcast-hls-life-{}", std::process::id())).join("dvr")
}

fn boot_folders() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dvr_folder()).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.is_dir()).collect()
}

/// Folders of openings that exist.
fn openings() -> usize {
    boot_folders().iter().map(|boot| std::fs::read_dir(boot).map_or(0, Iterator::count)).sum()
}

fn until(is_met: impl Fn() -> bool) -> bool {
    let end = Instant::now() + Duration::from_secs(20);
    while !is_met() {
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    true
}

fn unix_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64
}

fn open(kit: &Testkit, config: &Value) -> TestDestination {
    kit.open(TYPE, config).unwrap()
}

fn refuses_bad_configurations(kit: &Testkit) {
    kit.validate(TYPE, &json!({})).unwrap();
    kit.validate(TYPE, &json!({ "dvrSeconds": 0, "allowedOrigins": ["https://example.org"] })).unwrap();
    kit.validate(TYPE, &json!({ "dvrSeconds": 10.0 })).unwrap();
    for origin in ["https://example.org/", "ftp://example.org"] {
        let refused = kit.validate(TYPE, &json!({ "allowedOrigins": [origin] })).unwrap_err();
        assert!(refused.message.starts_with("allowedOrigins[0] "), "{refused}");
    }
    for bad in [json!({ "dvrSeconds": 3601 }), json!({ "unknown": 1 })] {
        assert!(kit.validate(TYPE, &bad).is_err() && kit.open(TYPE, &bad).is_err(), "{bad}");
    }
}
