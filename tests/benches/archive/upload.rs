//! The upload of a recording, beside the plain one.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use satcast_plugin_api::driver::RecordingState;
use satcast_plugin_api::testkit::{HostCall, Testkit};
use satcast_tests::figures::results::{OURS, Results};
use satcast_tests::figures::turns;

use crate::{Recorded, cpu, plain};

const ROW: &str = "archive upload";
const SIDES: [&str; 2] = [OURS, "object_store"];

/// One upload.
struct Run {
    bytes: u64,
    wall: Duration,
    cpu: Duration,
}

/// Both uploads of the same recording; each repeat begins with another one, because the machine's speed drifts.
pub(crate) fn measure(recorded: &Recorded, endpoint: &str, repeat: usize, results: &mut Results) {
    // The driver takes its own file away when the store has it.
    let folder = tempfile::tempdir().expect("a folder for a copy");
    let file = folder.path().join("recording.mp4");
    std::fs::copy(recorded.file(), &file).expect("a copy");
    for side in turns(repeat, SIDES.len()).map(|turn| SIDES[turn]) {
        let run = if side == OURS { ours(&recorded.kit) } else { other(endpoint, &file, repeat) };
        let bytes = run.bytes as f64;
        results.note(ROW, "gbit_per_s", side, repeat, bytes * 8.0 / 1e9 / run.wall.as_secs_f64());
        results.note(ROW, "cpu_s_per_gb", side, repeat, run.cpu.as_secs_f64() / (bytes / 1e9));
    }
}

/// From the first part that the store has to the end: the pause before the first try is not part of it.
fn ours(kit: &Testkit) -> Run {
    kit.heal(HostCall::Connect);
    let first =
        std::iter::repeat_with(|| kit.wait_for_recording(|one| one.uploaded_bytes > 0)).flatten().next();
    let (before, began) = (cpu(), Instant::now());
    let first = first.expect("the first part").uploaded_bytes;
    let done = || kit.wait_for_recording(|one| one.state == RecordingState::Ready);
    let ready = std::iter::repeat_with(done).flatten().next().expect("ready");
    Run { bytes: ready.size_bytes - first, wall: began.elapsed(), cpu: cpu() - before }
}

fn other(endpoint: &str, file: &Path, repeat: usize) -> Run {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let store = Arc::new(plain::client(endpoint));
    let file = Arc::new(File::open(file).expect("the file"));
    let bytes = file.metadata().expect("its size").len();
    let (before, began) = (cpu(), Instant::now());
    runtime.expect("a runtime").block_on(plain::upload(store, file, bytes, &format!("plain{repeat}")));
    Run { bytes, wall: began.elapsed(), cpu: cpu() - before }
}
