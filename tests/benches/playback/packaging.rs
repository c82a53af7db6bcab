//! CPU and memory of ingest and packaging, without viewers, and every frame counted in the segments.

use std::time::Instant;

use satcast_tests::figures::results::{OURS, Results};
use satcast_tests::figures::{Options, turns};
use satcast_tests::hls::Viewer;
use satcast_tests::hosted::Hosted;
use satcast_tests::load::frames::{Last, Stamp};
use satcast_tests::load::publishers::{Ingest, Publishers};
use satcast_tests::nginx::Nginx;
use satcast_tests::process::Process;
use satcast_tests::service::{Service, Setup};
use satcast_tests::wait;
use serde_json::json;

/// Streams at a time, and whether the service makes parts: one alone, and enough to show the cost that streams share.
const CASES: [(usize, bool); 4] = [(1, false), (10, false), (50, false), (50, true)];
const SIDES: [&str; 2] = [OURS, "nginx-rtmp"];
/// Segments of two seconds that are packaged before the measurement: more than stay in memory.
const STEADY_SEGMENTS: usize = 10;

/// The figures of a measurement with their names.
type Figures = Vec<(&'static str, f64)>;

pub(crate) fn run(options: Options, results: &mut Results) {
    for (streams, with_parts) in CASES {
        let row = format!("packaging {streams}{}", if with_parts { " with parts" } else { "" });
        // nginx-rtmp makes no parts.
        let sides: &[&str] = if with_parts { &SIDES[..1] } else { &SIDES };
        for repeat in 0..options.repeats {
            for side in turns(repeat, sides.len()).map(|turn| sides[turn]) {
                println!("{row}, repeat {}: {side}", repeat + 1);
                let figures = if side == OURS {
                    satcast(streams, with_parts, options)
                } else {
                    nginx(streams, options)
                };
                for (figure, value) in figures {
                    results.note(&row, figure, side, repeat, value);
                }
            }
        }
    }
}

fn satcast(streams: usize, with_parts: bool, options: Options) -> Figures {
    let service = Setup::default().start();
    let hosted = Hosted::many(&service, streams, &json!({ "lowLatency": with_parts }));
    let idle_kib = service.process().resident_kib();
    let publishers = Publishers::start(Instant::now(), ingests(&service, &hosted));
    let mut viewers: Vec<Viewer> = hosted.iter().map(|hosted| hosted.viewer()).collect();
    for viewer in &mut viewers {
        viewer.media_when("a steady window", |media| media.segments.len() >= STEADY_SEGMENTS);
    }
    let figures = measure(service.process(), streams, idle_kib, options, || {
        viewers.iter_mut().map(|viewer| viewer.media().newest().sequence).collect()
    });
    let counted = viewers.iter_mut().enumerate().map(|(stream, viewer)| count(stream, viewer)).sum::<u64>();
    // A stream that could not be published ends the run.
    let sent = publishers.frames();
    assert!(counted > 0 && counted <= sent, "{counted} frames of {sent} are in the segments");
    [figures, vec![("frames", counted as f64), ("wrong", 0.0)]].concat()
}

fn ingests(service: &Service, hosted: &[Hosted]) -> Vec<Ingest> {
    let address = service.rtmp_address();
    let ingest = |hosted: &Hosted| Ingest { address, app: "live".into(), name: hosted.stream.key.clone() };
    hosted.iter().map(ingest).collect()
}

/// Counts the frames in all listed segments, and expects that none is missing, comes again or belongs to another stream.
fn count(stream: usize, viewer: &mut Viewer) -> u64 {
    let (mut last, mut counted) = (Last::default(), 0);
    let segments = viewer.media().segments;
    for chunk in viewer.chunks(&segments) {
        for (is_video, stamp) in Stamp::all(&chunk.bytes) {
            assert_eq!(stamp.stream as usize, stream, "a frame in {} of another stream", chunk.entry.name);
            let missing = last.take(is_video, stamp.number);
            assert_eq!(missing, Some(0), "frames missing before number {} in stream {stream}", stamp.number);
            counted += 1;
        }
    }
    counted
}

fn nginx(streams: usize, options: Options) -> Figures {
    let nginx = Nginx::packaging();
    let idle_kib = nginx.process().resident_kib();
    let name = |number: usize| format!("bench{number}");
    let ingest = |number| Ingest { address: nginx.address(), app: "live".into(), name: name(number) };
    let publishers = Publishers::start(Instant::now(), (0..streams).map(ingest).collect());
    let made = |number: usize| {
        let text = std::fs::read_to_string(nginx.packaged(&format!("{}.m3u8", name(number))));
        text.unwrap_or_default().lines().filter(|line| line.starts_with("#EXTINF")).count()
    };
    for number in 0..streams {
        wait::until("a steady window", || match made(number) {
            count if count >= STEADY_SEGMENTS => Ok(()),
            count => Err(format!("{count} segments after {} frames", publishers.frames())),
        });
    }
    measure(nginx.process(), streams, idle_kib, options, || {
        (0..streams).map(|number| made(number) as u64).collect()
    })
}

/// CPU and memory for each stream. `newest` gives a number for each stream that grows with its segments: each must be packaged all
/// the time, or the figures would be wrong.
fn measure(
    server: &Process,
    streams: usize,
    idle_kib: u64,
    options: Options,
    mut newest: impl FnMut() -> Vec<u64>,
) -> Figures {
    let segments = newest();
    let (cpu, began) = (server.cpu(), Instant::now());
    std::thread::sleep(options.window);
    let (cpu, took) = ((server.cpu() - cpu).as_secs_f64(), began.elapsed().as_secs_f64());
    let kib = server.resident_kib().saturating_sub(idle_kib);
    let made: Vec<u64> = newest().iter().zip(segments).map(|(after, before)| after - before).collect();
    let least = (options.window.as_secs() / 2).saturating_sub(1);
    assert!(made.iter().all(|count| *count >= least), "{made:?} segments were made of {least} at least");
    vec![
        ("cpu", cpu * 60.0 / took / streams as f64),
        ("mb_per_stream", kib as f64 * 1024.0 / 1e6 / streams as f64),
    ]
}
