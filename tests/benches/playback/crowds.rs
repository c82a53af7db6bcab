//! CPU cost of many viewers that read as fast as they can: segments of the live edge, segments of the window, and the playlist of an
//! hour.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use satcast_tests::crowd::{Crowd, Paths};
use satcast_tests::encoder::Publish;
use satcast_tests::figures::results::{OURS, Results};
use satcast_tests::figures::{Options, turns};
use satcast_tests::hls::Viewer;
use satcast_tests::hosted::Hosted;
use satcast_tests::http::split_url;
use satcast_tests::nginx::Nginx;
use satcast_tests::peer::Peer;
use satcast_tests::process::Process;
use satcast_tests::service::{Service, Setup};
use satcast_tests::source::Source;
use satcast_tests::wait::seconds;

const VIEWERS: [usize; 3] = [50, 200, 1000];
/// Viewers of the short form.
const FEW_VIEWERS: [usize; 1] = [200];
/// nginx serves the files with sendfile, hyper from its memory.
const SIDES: [&str; 3] = [OURS, "nginx", "hyper"];
/// Segments that viewers go through in turn.
const SEGMENTS: usize = 3;
/// Distance from the newest segment at which segments are no longer in the service's memory.
const OLD_SEGMENTS: usize = 20;
/// The window that is filled before the measurements, except in the short form, and the factor to real time of filling it.
const FILLED_SECONDS: u64 = 3_660;
const FASTER: u32 = 40;
/// File name of the playlist for nginx.
const PLAYLIST: &str = "hour.m3u8";
const WARM_UP: Duration = Duration::from_secs(2);

/// The kind of assets that are read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    Newest,
    Old,
    Playlist,
}

impl What {
    pub(crate) const ALL: [Self; 3] = [Self::Newest, Self::Old, Self::Playlist];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Newest => "newest",
            Self::Old => "old",
            Self::Playlist => "playlist",
        }
    }

    /// The paths at the service. The segments change while the stream continues.
    fn paths(self, viewer: &mut Viewer) -> Vec<String> {
        let from_end = match self {
            Self::Newest => 0,
            Self::Old => OLD_SEGMENTS,
            Self::Playlist => return vec![viewer.playlist()],
        };
        let mut names: Vec<String> =
            viewer.media().segments.into_iter().map(|segment| segment.name).collect();
        names.truncate(names.len() - from_end);
        names.split_off(names.len() - SEGMENTS).iter().map(|name| viewer.path(name)).collect()
    }
}

/// One measurement.
pub(crate) struct Figure {
    /// Gbit for each CPU second.
    rate: f64,
    p99_ms: f64,
    /// Viewers that got no whole answer.
    starved: f64,
}

pub(crate) fn run(source: &Source, options: Options, measurements: &[What], results: &mut Results) {
    let service = Setup::default().start();
    let hosted = Hosted::new(&service, "bench");
    let url = service.ingest_url(&hosted.stream.key);
    if !options.short {
        let mut filling = Publish::of(source).faster(FASTER).endless().seconds(FILLED_SECONDS).to(&url);
        filling.finish(seconds(FILLED_SECONDS / u64::from(FASTER) * 4));
    }
    let _encoder = Publish::of(source).endless().to(&url);
    let mut viewer = hosted.viewer();
    let wanted = if measurements.contains(&What::Old) { OLD_SEGMENTS + SEGMENTS } else { SEGMENTS };
    let media = viewer.media_when("segments of one encoder", |media| {
        let mut newest = media.segments.iter().rev().take(wanted);
        media.segments.len() >= wanted && newest.all(|segment| !segment.discontinuity)
    });
    println!("a window of {} segments", media.segments.len());
    // The same bytes for the peers.
    let folder = tempfile::tempdir().expect("a folder for the peers");
    let files = copies(&mut viewer, folder.path());
    let crowds: &[usize] = if options.short { &FEW_VIEWERS } else { &VIEWERS };

    // Measured first, because the memory of an earlier crowd is not released.
    for &viewers in crowds {
        let kib = memory(&service, &mut viewer, viewers);
        results.note(&format!("viewers newest {viewers}"), "kib_per_viewer", OURS, 0, kib);
    }
    for &what in measurements {
        let theirs: Paths = Arc::new(RwLock::new(if what == What::Playlist {
            vec![format!("/{PLAYLIST}")]
        } else {
            files.clone()
        }));
        for &viewers in crowds {
            let case = Case { what, viewers, options, folder: folder.path(), theirs: &theirs };
            case.run(&service, &mut viewer, results);
        }
    }
}

struct Case<'a> {
    what: What,
    viewers: usize,
    options: Options,
    /// What the peers serve, and the paths of it.
    folder: &'a Path,
    theirs: &'a Paths,
}

impl Case<'_> {
    fn run(&self, service: &Service, viewer: &mut Viewer, results: &mut Results) {
        let row = format!("viewers {} {}", self.what.name(), self.viewers);
        for repeat in 0..self.options.repeats {
            for side in turns(repeat, SIDES.len()).map(|turn| SIDES[turn]) {
                println!("{row}, repeat {}: {side}", repeat + 1);
                let figure = match side {
                    OURS => self.satcast(service, viewer),
                    "nginx" => {
                        let nginx = Nginx::serving(self.folder);
                        self.measure(nginx.process(), nginx.address(), self.theirs)
                    }
                    _ => {
                        let hyper = Peer::start(side, &self.folder.to_string_lossy());
                        self.measure(hyper.process(), hyper.address(), self.theirs)
                    }
                };
                figure.note(results, &row, side, repeat);
            }
        }
    }

    fn satcast(&self, service: &Service, viewer: &mut Viewer) -> Figure {
        let (address, _) = split_url(&service.base());
        let paths: Paths = Arc::new(RwLock::new(self.what.paths(viewer)));
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(500));
                    *paths.write() = self.what.paths(viewer);
                }
            });
            let figure = self.measure(service.process(), address, &paths);
            over.store(true, Ordering::Relaxed);
            figure
        })
    }

    fn measure(&self, server: &Process, address: SocketAddr, paths: &Paths) -> Figure {
        Figure::of(server, (address, paths), self.viewers, self.options.window)
    }
}

impl Figure {
    /// Of viewers that read these paths for the time of `window`.
    pub(crate) fn of(
        server: &Process,
        (address, paths): (SocketAddr, &Paths),
        viewers: usize,
        window: Duration,
    ) -> Self {
        let crowd = Crowd::start(address, viewers, paths);
        std::thread::sleep(WARM_UP);
        let (bytes, times, answers, cpu) =
            (crowd.bytes(), crowd.times(), crowd.answers_of_each(), server.cpu());
        std::thread::sleep(window);
        let (bytes, cpu) = (crowd.bytes() - bytes, server.cpu() - cpu);
        let p99_ms = crowd.p99_ms(&times);
        let both = answers.iter().zip(crowd.answers_of_each());
        let starved = both.filter(|(before, after)| *before == after).count() as f64;
        assert_eq!(crowd.failures(), 0, "viewers were not served");
        Self { rate: bytes as f64 * 8.0 / 1e9 / cpu.as_secs_f64(), p99_ms, starved }
    }

    pub(crate) fn note(&self, results: &mut Results, row: &str, side: &'static str, repeat: usize) {
        results.note(row, "gbit_per_cpu_s", side, repeat, self.rate);
        results.note(row, "p99_ms", side, repeat, self.p99_ms);
        results.note(row, "starved", side, repeat, self.starved);
    }
}

/// Writes the newest segments and the playlist into `folder`; gives the paths of the segments.
fn copies(viewer: &mut Viewer, folder: &Path) -> Vec<String> {
    let media = viewer.media();
    let newest = &media.segments[media.segments.len() - SEGMENTS..];
    let playlist = viewer.playlist();
    let text = viewer.http.get(&playlist, &[]).text();
    std::fs::write(folder.join(PLAYLIST), text).expect("a playlist");
    let chunks = viewer.chunks(newest);
    let write = |name: &str, bytes: &[u8]| {
        std::fs::write(folder.join(name), bytes).expect("a segment");
        format!("/{name}")
    };
    chunks.iter().map(|chunk| write(&chunk.entry.name, &chunk.bytes)).collect()
}

/// The memory cost of a busy viewer, in KiB.
fn memory(service: &Service, viewer: &mut Viewer, viewers: usize) -> f64 {
    let (address, _) = split_url(&service.base());
    let paths: Paths = Arc::new(RwLock::new(What::Newest.paths(viewer)));
    let before = service.process().resident_kib();
    let crowd = Crowd::start(address, viewers, &paths);
    std::thread::sleep(WARM_UP);
    let busy = service.process().resident_kib();
    drop(crowd);
    busy.saturating_sub(before) as f64 / viewers as f64
}
