//! From the first packet to a stream that plays.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use satcast_tests::encoder::Publish;
use satcast_tests::figures::{Options, summary};
use satcast_tests::hls::Viewer;
use satcast_tests::hosted::Hosted;
use satcast_tests::nginx::Nginx;
use satcast_tests::player::{Engine, Player};
use satcast_tests::service::Setup;
use satcast_tests::source::Source;
use satcast_tests::wait::{self, seconds};

/// Keys that poll the status in turn, because each gets 60 answers a minute.
const KEYS: usize = 8;

/// Times of one start, in seconds.
struct Start {
    ready: f64,
    hls_js: f64,
    native: f64,
}

pub(crate) fn run(source: &Source, options: Options) {
    let (mut starts, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..options.repeats {
        starts.push(satcast(source));
        theirs.push(nginx(source));
    }
    let of = |field: fn(&Start) -> f64| summary(&starts.iter().map(field).collect::<Vec<_>>());
    println!("\nseconds from the first packet to hlsReady            {}", of(|start| start.ready));
    println!("  and from the address to the first frame, hls.js  {}", of(|start| start.hls_js));
    println!("                                             native  {}", of(|start| start.native));
    println!("seconds from the first packet to nginx's playlist    {}", summary(&theirs));
}

fn now_millis() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970").as_secs_f64() * 1000.0
}

fn satcast(source: &Source) -> Start {
    let service = Setup::default().start();
    let hosted = Hosted::new(&service, "bench");
    let keys: Vec<String> = (0..KEYS).map(|_| Hosted::key(&service, hosted.destination)).collect();
    let _encoder = Publish::of(source).endless().to(&service.ingest_url(&hosted.stream.key));
    let mut turns = keys.iter().cycle();
    let (status, now) = wait::until("hlsReady", seconds(20), || {
        let status = hosted.status_of(turns.next().expect("a key")).ok();
        if status["hlsReady"] == true { Ok((status, now_millis())) } else { Err(status.to_string()) }
    });
    let started =
        service.api().stream(&hosted.stream)["startedAt"].as_f64().expect("startedAt of the stream");
    let url = status["hlsUrl"].as_str().expect("the address of the stream");
    let first_frame = |engine: Engine| {
        let (player, state) = Player::start(engine, url);
        player.finish();
        state["firstFrameMs"].as_f64().expect("firstFrameMs") / 1000.0
    };
    let hls_js = first_frame(Engine::HlsJs);
    // Chromium's own player starts a live stream at its third segment.
    Viewer::of(url).media_when("three segments", seconds(20), |media| media.segments.len() >= 3);
    let native = first_frame(Engine::Native);
    Start { ready: (now - started) / 1000.0, hls_js, native }
}

/// nginx creates the file of the first segment with the first packet, and the playlist when the segment is complete.
fn nginx(source: &Source) -> f64 {
    let nginx = Nginx::packaging();
    let _encoder = Publish::of(source).endless().to(&format!("{}/bench", nginx.url()));
    let there = |name: &str| wait::until(name, seconds(20), || made(&nginx.packaged(name)));
    there("bench-0.ts");
    let began = now_millis();
    there("bench.m3u8");
    (now_millis() - began) / 1000.0
}

fn made(path: &Path) -> Result<(), String> {
    if path.exists() { Ok(()) } else { Err(format!("{} is not there", path.display())) }
}
