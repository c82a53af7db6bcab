//! From the first packet to a stream that plays.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use satcast_tests::encoder::Publish;
use satcast_tests::figures::results::{OURS, Results};
use satcast_tests::figures::{Options, turns};
use satcast_tests::hosted::Hosted;
use satcast_tests::nginx::Nginx;
use satcast_tests::player::{Engine, Player};
use satcast_tests::service::Setup;
use satcast_tests::source::{Recipe, Source};
use satcast_tests::wait;
use serde_json::json;

/// Keys that poll the status in turn, because each gets 60 answers a minute.
const KEYS: usize = 8;

/// A row: its name, the stream, whether the destination has parts, and whether nginx takes part.
const CASES: [(&str, Recipe, bool, bool); 3] = [
    ("start", Recipe::SHARED, false, true),
    ("start with parts", Recipe::SHARED, true, false),
    ("start with a GOP of 5 s", Recipe::LONG_GROUPS, false, false),
];
const SIDES: [&str; 2] = [OURS, "nginx-rtmp"];

pub(crate) fn run(options: Options, results: &mut Results) {
    for (row, recipe, has_parts, beside_nginx) in CASES {
        let source = Source::of(recipe);
        let sides = if beside_nginx { &SIDES[..] } else { &SIDES[..1] };
        for repeat in 0..options.repeats {
            for side in turns(repeat, sides.len()).map(|turn| sides[turn]) {
                println!("{row}, repeat {}: {side}", repeat + 1);
                if side == OURS {
                    let (ready, playable) = satcast(&source, has_parts);
                    results.note(row, "ready_s", side, repeat, ready);
                    results.note(row, "playable_s", side, repeat, playable);
                } else {
                    results.note(row, "playable_s", side, repeat, nginx(&source));
                }
            }
        }
    }
}

fn now_millis() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970").as_secs_f64() * 1000.0
}

/// Seconds from the first packet to `hlsReady`, and to the first frame in an hls.js that gets the address then; the start of the
/// browser and its page is not in it.
fn satcast(source: &Source, has_parts: bool) -> (f64, f64) {
    let service = Setup::default().start();
    let hosted = Hosted::with(&service, "bench", &json!({ "lowLatency": has_parts }));
    let keys: Vec<String> = (0..KEYS).map(|_| Hosted::key(&service, hosted.destination)).collect();
    let mut player = Player::launch(Engine::HlsJs);
    let _encoder = Publish::of(source).endless().to(&service.ingest_url(&hosted.stream.key));
    let mut turns = keys.iter().cycle();
    let (status, now) = wait::until("hlsReady", || {
        let status = hosted.status_of(turns.next().expect("a key")).ok();
        if status["hlsReady"] == true { Ok((status, now_millis())) } else { Err(status.to_string()) }
    });
    let started = status["startedAtMs"].as_f64().expect("startedAtMs of the stream");
    let state = player.open(status["hlsUrl"].as_str().expect("the address of the stream"));
    player.finish();
    let ready = (now - started) / 1000.0;
    (ready, ready + state["firstFrameMs"].as_f64().expect("firstFrameMs") / 1000.0)
}

/// nginx creates the file of the first segment with the first packet, and the playlist when the segment is complete.
fn nginx(source: &Source) -> f64 {
    let nginx = Nginx::packaging();
    let _encoder = Publish::of(source).endless().to(&format!("{}/bench", nginx.url()));
    let there = |name: &str| wait::until(name, || made(&nginx.packaged(name)));
    there("bench-0.ts");
    let began = now_millis();
    there("bench.m3u8");
    (now_millis() - began) / 1000.0
}

fn made(path: &Path) -> Result<(), String> {
    if path.exists() { Ok(()) } else { Err(format!("{} is not there", path.display())) }
}
