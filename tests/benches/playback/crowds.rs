//! CPU cost of many viewers that read as fast as they can: segments of the live edge, segments of the window, and the playlist of an
//! hour.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use satcast_tests::crowd::{Crowd, Paths};
use satcast_tests::encoder::Publish;
use satcast_tests::figures::{Options, Pairs, median};
use satcast_tests::hls::Viewer;
use satcast_tests::hosted::Hosted;
use satcast_tests::http::split_url;
use satcast_tests::nginx::Nginx;
use satcast_tests::process::Process;
use satcast_tests::service::{Service, Setup};
use satcast_tests::source::Source;
use satcast_tests::wait::seconds;

const VIEWERS: [usize; 3] = [50, 200, 1000];
/// Segments that viewers go through in turn.
const SEGMENTS: usize = 3;
/// Distance from the newest segment at which segments are no longer in the service's memory.
const OLD_SEGMENTS: usize = 20;
/// The window that is filled before the measurements, and the factor to real time of filling it.
const FILLED_SECONDS: u64 = 3_660;
const FASTER: u32 = 40;
/// File name of the playlist of an hour for nginx.
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

    /// Least of nginx's bytes for each CPU second.
    fn target(self) -> f64 {
        match self {
            Self::Newest | Self::Playlist => 0.95,
            Self::Old => 0.40,
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
struct Figure {
    /// Gbit for each CPU second.
    rate: f64,
    p99_ms: f64,
    /// Viewers that got no whole answer.
    starved: f64,
}

pub(crate) fn run(source: &Source, options: Options, measurements: &[What]) {
    let service = Setup::default().start();
    let hosted = Hosted::new(&service, "bench");
    let url = service.ingest_url(&hosted.stream.key);
    let mut filling = Publish::of(source).faster(FASTER).endless().seconds(FILLED_SECONDS).to(&url);
    filling.finish(seconds(FILLED_SECONDS / u64::from(FASTER) * 4));
    let _encoder = Publish::of(source).endless().to(&url);
    let mut viewer = hosted.viewer(seconds(30));
    let media = viewer.media_when("the encoder that goes on", seconds(60), |media| {
        media.segments.iter().rev().take(OLD_SEGMENTS + SEGMENTS).all(|segment| !segment.discontinuity)
    });
    println!("\na window of {} segments", media.segments.len());
    // The same bytes for nginx.
    let folder = tempfile::tempdir().expect("a folder for nginx");
    let files = copies(&mut viewer, folder.path());

    // Measured first, because the memory of an earlier crowd is not released.
    memory(&service, &mut viewer);
    println!(
        "\nGbit for each CPU second of the server (nginx: the same bytes, sendfile), p99 of whole answers, and viewers that \
         got none"
    );
    println!(
        "{:>8} {:>7}  {:>24}  {:>24}  {:>24}  {:>9}  {:>9}  {:>7}  {:>7}",
        "", "viewers", "satcast", "nginx", "ratio", "p99 ms", "nginx's", "starved", "nginx's"
    );
    for &what in measurements {
        let theirs: Paths = Arc::new(RwLock::new(if what == What::Playlist {
            vec![format!("/{PLAYLIST}")]
        } else {
            files.clone()
        }));
        for viewers in VIEWERS {
            let case = Case { what, viewers, options };
            case.run(&service, &mut viewer, folder.path(), &theirs);
        }
    }
}

struct Case {
    what: What,
    viewers: usize,
    options: Options,
}

impl Case {
    fn run(&self, service: &Service, viewer: &mut Viewer, folder: &Path, theirs: &Paths) {
        let mut pairs = Pairs::default();
        let (ours_seen, theirs_seen) = (RefCell::new(Vec::new()), RefCell::new(Vec::new()));
        for repeat in 0..self.options.repeats {
            pairs.measure(
                repeat,
                || note(&ours_seen, self.satcast(service, viewer)),
                || {
                    let nginx = Nginx::serving(folder);
                    note(&theirs_seen, self.measure(nginx.process(), nginx.address(), theirs))
                },
            );
        }
        let [ours, theirs, ratio] = pairs.summaries();
        let (name, viewers) = (self.what.name(), self.viewers);
        let seen = |figures: &RefCell<Vec<Figure>>, of: fn(&Figure) -> f64| {
            median(&figures.borrow().iter().map(of).collect::<Vec<f64>>())
        };
        let [our_p99, their_p99] =
            [&ours_seen, &theirs_seen].map(|figures| seen(figures, |figure| figure.p99_ms));
        let [our_starved, their_starved] =
            [&ours_seen, &theirs_seen].map(|figures| seen(figures, |figure| figure.starved));
        println!(
            "{name:>8} {viewers:>7}  {ours:>24}  {theirs:>24}  {ratio:>24}  {our_p99:>9.1}  {their_p99:>9.1}  \
             {our_starved:>7}  {their_starved:>7}"
        );
        let verdict = if pairs.ratio() >= self.what.target() { "met" } else { "MISSED" };
        println!("{:>16}  target: at least {:.2} of nginx: {verdict}", "", self.what.target());
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
        let crowd = Crowd::start(address, self.viewers, paths);
        std::thread::sleep(WARM_UP);
        let (bytes, times, answers, cpu) =
            (crowd.bytes(), crowd.times(), crowd.answers_of_each(), server.cpu());
        std::thread::sleep(self.options.window);
        let (bytes, cpu) = (crowd.bytes() - bytes, server.cpu() - cpu);
        let p99_ms = crowd.p99_ms(&times);
        let both = answers.iter().zip(crowd.answers_of_each());
        let starved = both.filter(|(before, after)| *before == after).count() as f64;
        assert_eq!(crowd.failures(), 0, "viewers were not served");
        Figure { rate: bytes as f64 * 8.0 / 1e9 / cpu.as_secs_f64(), p99_ms, starved }
    }
}

fn note(seen: &RefCell<Vec<Figure>>, figure: Figure) -> f64 {
    let rate = figure.rate;
    seen.borrow_mut().push(figure);
    rate
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

/// Prints the memory cost of a busy viewer.
fn memory(service: &Service, viewer: &mut Viewer) {
    let (address, _) = split_url(&service.base());
    for viewers in VIEWERS {
        let paths: Paths = Arc::new(RwLock::new(What::Newest.paths(viewer)));
        let before = service.process().resident_kib();
        let crowd = Crowd::start(address, viewers, &paths);
        std::thread::sleep(WARM_UP);
        let busy = service.process().resident_kib();
        drop(crowd);
        println!(
            "KiB of memory for each of {viewers} busy viewers: {} ({} MiB in all)",
            busy.saturating_sub(before) / viewers as u64,
            busy / 1024
        );
    }
}
