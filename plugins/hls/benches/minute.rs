//! CPU time of one minute of a 6 Mbit/s stream: from the host's packets to published segments, files and playlists.
//!
//! `cargo bench -p satcast-driver-hls`. The whole process is measured, the testkit's part of the work included.

use std::time::{Duration, Instant};

use bytes::Bytes;
use nix::time::{ClockId, clock_gettime};
use satcast_driver_hls::{Hls, TYPE};
use satcast_media::fuzz::RECORDS;
use satcast_plugin_api::Codec;
use satcast_plugin_api::driver_entry;
use satcast_plugin_api::testkit::{TestDestination, Testkit, config, media};
use serde_json::json;

driver_entry!(entry, Hls);

const MINUTES: i64 = 70;
/// Video frames of 23.6 kB, every sixtieth a keyframe of 100 kB; about 47 AAC packets of 427 bytes a second.
const FRAME_BYTES: usize = 23_600;
const KEYFRAME_BYTES: usize = 100_000;

fn cpu() -> Duration {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).expect("known clock").into()
}

/// Two seconds from `start_ms` on.
fn push(destination: &TestDestination, start_ms: i64) {
    let payload = |bytes: usize| Bytes::from(vec![0x5a; bytes]);
    let mut audio_ms = start_ms * 3 / 64 * 64 / 3;
    for frame in 0..60 {
        let dts_ms = start_ms + frame * 100 / 3;
        let bytes = if frame == 0 { KEYFRAME_BYTES } else { FRAME_BYTES };
        destination.push(media(Codec::H264, 0, dts_ms, frame == 0, payload(bytes)));
        while audio_ms < dts_ms + 33 {
            destination.push(media(Codec::Aac, 0, audio_ms.max(start_ms), false, payload(427)));
            audio_ms += 64 / 3;
        }
    }
}

/// Waits until the playlist ends at least `media_ms` after the start. Media comes much faster than real time here, and
/// the disk must keep up. `begin_ms`: the wall time of the start, once it is known.
fn wait_for(kit: &Testkit, destination: &TestDestination, media_ms: i64, begin_ms: &mut Option<i64>) {
    let reported = |end_ms: i64| {
        kit.wait_until(destination, |report| {
            report
                .playback
                .as_ref()
                .is_some_and(|reported| reported.first_ms + reported.window_ms as i64 >= end_ms)
        })
    };
    assert!(reported(0), "nothing is playable");
    let first_ms = destination.report(|report| report.playback.as_ref().map(|reported| reported.first_ms));
    let begin_ms = *begin_ms.get_or_insert(first_ms.unwrap_or(0));
    assert!(reported(begin_ms + media_ms), "{media_ms} ms are not listed after a while");
}

fn main() {
    let kit = Testkit::start(entry).expect("the driver starts");
    let destination = kit.open(TYPE, &json!({})).expect("the destination opens");
    destination.push(config(Codec::H264, RECORDS[0].1));
    destination.push(config(Codec::Aac, RECORDS[2].1));
    let (mut minutes, mut begin_ms) = (Vec::new(), None);
    for minute in 0..MINUTES {
        let (before, start) = (cpu(), Instant::now());
        for part in 0..30 {
            let start_ms = minute * 60_000 + part * 2000;
            push(&destination, start_ms);
            // The first segments come with the third keyframe, and the newest waits for its audio.
            if start_ms >= 6000 {
                wait_for(&kit, &destination, start_ms - 4000, &mut begin_ms);
            }
        }
        minutes.push((cpu() - before, start.elapsed()));
    }
    for minute in [0, 1, 10, 30, 59, MINUTES as usize - 1] {
        let (used, wall) = minutes[minute];
        println!("minute {:>2}: {used:.1?} of CPU, {wall:.1?} in all", minute + 1);
    }
    let all: Duration = minutes.iter().map(|(used, _)| *used).sum();
    println!("mean of {MINUTES} minutes: {:.1?} of CPU", all / MINUTES as u32);
    let (events, assets) = destination.report(|report| (report.events.clone(), report.assets.len()));
    assert!(events.is_empty() && assets > 1800, "{events:?}, {assets} assets");
    destination.stop();
    destination.wait_for_end().expect("a good end");
    kit.forget_assets(&destination);
    let folder = kit.data_dir().expect("the kit has a folder");
    kit.shut_down();
    std::fs::remove_dir_all(folder).expect("it is the kit's own");
}
