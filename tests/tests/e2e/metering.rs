//! Metering counts exactly the bytes that viewers received: every byte of every answer to a key.

use satcast_tests::database::Database;
use satcast_tests::encoder::Publish;
use satcast_tests::hls::Viewer;
use satcast_tests::hosted::Hosted;
use satcast_tests::service::Setup;
use satcast_tests::source::{Recipe, Source};
use satcast_tests::wait::{self, seconds};

/// How long counted bytes may be on their way to the database.
const STORED_AFTER_SECONDS: u64 = 12;
/// Fifty times the resolution of the status, which is a hundredth of a GB, and a tenth more.
const SHOWN_BYTES: u64 = 550_000_000;
/// An aborted answer may be counted this much too high.
const ABORT_EXCESS_BYTES: u64 = 512 * 1024;
const ABORTS: u64 = 5;

#[test]
fn metered_bytes_are_received_bytes() {
    let service = Setup::default().start();
    let hosted = Hosted::new(&service, "metered");
    let _encoder =
        Publish::of(&Source::of(Recipe::HEAVY)).endless().to(&service.ingest_url(&hosted.stream.key));
    let mut viewer = hosted.viewer();
    let mut database = Database::of(service.folder());
    let stored = |database: &mut Database, wanted: u64| {
        wait::within("the metered bytes", seconds(STORED_AFTER_SECONDS), || {
            match database.bytes_sent(hosted.destination) {
                bytes if bytes >= wanted => Ok(bytes),
                bytes => Err(format!("{bytes} of {wanted} bytes")),
            }
        })
    };

    let preview = hosted.preview_url(&mut viewer);
    free_answers(&mut viewer, &preview);
    let media = viewer.media_when("five segments", |media| media.segments.len() >= 5);
    viewer.chunks(&media.segments);
    let identity = viewer.path("media.m3u8");
    viewer.http.get(&identity, &[]).assert_status(200);
    let segment = viewer.path(&media.newest().name);
    viewer.http.get(&segment, &[("range", "bytes=100-199999")]).assert_status(206);
    let received = viewer.http.body_bytes();
    let metered = stored(&mut database, received);
    println!("whole answers: {received} bytes received, {metered} metered");
    assert!(metered.abs_diff(received) * 100 <= received, "{received} bytes received, {metered} metered");

    let mut aborted = 0;
    for _ in 0..ABORTS {
        aborted += viewer.http.give_up_after(&segment, 200_000);
    }
    let after = stored(&mut database, metered + aborted);
    // Bytes that are not counted yet would appear in the next two rounds.
    std::thread::sleep(seconds(STORED_AFTER_SECONDS / 2));
    let after = database.bytes_sent(hosted.destination).max(after);
    let excess = after - metered - aborted;
    println!("{ABORTS} aborted answers: {aborted} bytes received, {excess} more metered");
    assert!(excess <= ABORTS * ABORT_EXCESS_BYTES, "{excess} bytes too many for {ABORTS} aborted answers");

    while viewer.http.body_bytes() < SHOWN_BYTES {
        viewer.http.get(&segment, &[]).assert_status(200);
    }
    let received = viewer.http.body_bytes();
    let status = hosted.status();
    let shown =
        status["bandwidth"]["usedGB"].as_str().and_then(|used| used.parse::<f64>().ok()).expect("usedGB");
    println!("{received} bytes received in all, the status shows {shown} GB");
    let total = stored(&mut database, received);
    assert!(total <= received + excess + received / 100, "{received} bytes received, {total} metered");
    // The status covers one clock hour, and a new hour may have begun since the first byte.
    let hour = status["bandwidth"]["hourStart"].as_i64().expect("hourStart") * 1000;
    let of_hour = database.bytes_sent_in(hosted.destination, hour) as f64 / 1e9;
    assert!((shown - of_hour).abs() <= 0.011 * shown + 0.01, "{of_hour} GB in this hour, shown are {shown}");
}

/// Answers that cost nothing: errors, HEAD, preflight requests and the preview.
#[track_caller]
fn free_answers(viewer: &mut Viewer, preview: &str) {
    let mut preview = Viewer::of(preview);
    let media = preview.media();
    preview.chunks(&media.segments);
    let segment = viewer.media().newest().name.clone();
    let path = viewer.path(&segment);
    for (method, path, status) in
        [("HEAD", path.clone(), 200), ("GET", path.replace(".m4s", "0.m4s"), 404), ("POST", path, 405)]
    {
        let before = viewer.http.body_bytes();
        viewer.http.request(method, &path, &[]).assert_status(status);
        // Bodies of errors are not metered, and not counted as received either.
        viewer.http.forget_since(before);
    }
}
