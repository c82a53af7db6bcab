//! A process that records is killed by the system at any point; another one continues.
//!
//! The process is this test binary again, selected by its environment. `SATCAST_SOAK=50` kills it more often.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use satcast_plugin_api::Secret;

use super::kit::{Host, Kit, limits, until};
use super::media::{self, AVC, video_of};
use super::server::{ACCESS_KEY, BUCKET, SECRET_KEY};
use crate::config::Settings;
use crate::keeper;
use crate::recorder::{Order, Recorder};
use crate::rules::Rules;
use satcast_plugin_api::driver::{About, RecordingState};

const FOLDER: &str = "SATCAST_TEST_FOLDER";
const STORE: &str = "SATCAST_TEST_STORE";
const SESSION: &str = "SATCAST_TEST_SESSION";
const FRAMES: i64 = 1500;

fn stream() -> Vec<satcast_media::Packet> {
    video_of(AVC, 0, FRAMES, 50, 20_000)
}

/// What the process does: records a minute in some seconds, says each second of it, and never ends by itself.
#[test]
fn child() {
    let Ok(folder) = std::env::var(FOLDER) else { return };
    let settings = Settings {
        endpoint: Some(std::env::var(STORE).unwrap()),
        bucket: Some(BUCKET.into()),
        access_key: Some(ACCESS_KEY.into()),
        secret_key: Some(Secret::new(SECRET_KEY.into())),
        ..Settings::default()
    };
    let about = About { session_id: std::env::var(SESSION).unwrap(), ..About::default() };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let core = keeper::start(folder.as_ref(), &settings, limits(), Arc::new(Host::default())).unwrap();
        let mut recorder = Recorder::new(core, Order { about, own: None, rules: Rules::default() });
        for packet in stream() {
            let at_ms = packet.dts_ns / media::MS;
            recorder.push(packet);
            recorder.write().await.unwrap();
            if at_ms % 1000 == 0 {
                println!("second {}", at_ms / 1000);
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        recorder.finish().await.unwrap();
        println!("second 60");
        std::future::pending::<()>().await;
    });
}

/// Kills the process a little after it reported `seconds`; returns the length of the recording that the next process
/// uploads.
fn killed_after(seconds: i64, later: Duration) {
    let mut kit = Kit::new();
    kit.kill();
    let session = format!("s{seconds}");
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "tests::killed::child", "--nocapture"])
        .env(FOLDER, kit.folder.path())
        .env(STORE, format!("http://{}", kit.server.address))
        .env(SESSION, &session)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = -1;
    // Kept until it is dead: it must die of the kill alone.
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for line in &mut lines {
        let line = line.unwrap();
        if let Some((_, second)) = line.rsplit_once("second ") {
            said = second.trim().parse().unwrap();
        }
        if said >= seconds {
            break;
        }
    }
    std::thread::sleep(later);
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    drop(lines);
    assert!(until(|| kit.server.is_idle()));
    kit.settings.prefix = None;
    kit.load();
    assert!(until(|| kit.recordings().iter().all(|recording| recording.state == RecordingState::Ready)));
    let objects = kit.server.objects();
    // A kill in the first second may leave nothing.
    assert!(
        objects.len() == 1 || (objects.is_empty() && said < 1),
        "{} objects after {said} s",
        objects.len()
    );
    if let Some((key, bytes)) = objects.first() {
        let whole = media::files(stream()).remove(0);
        assert!(key.contains(&session) && whole.starts_with(bytes), "{key}");
        let length_ms = kit.only().duration_ms;
        assert!(length_ms + 1000 >= said as u64 * 1000, "{length_ms} ms of {said} s");
    }
    assert!(until(|| kit.files("spool").is_empty()));
    assert!(until(|| kit.server.leftovers().is_empty()), "{:?}", kit.server.leftovers());
}

#[test]
fn a_process_that_is_killed_loses_less_than_a_second() {
    let rounds: i64 = std::env::var("SATCAST_SOAK").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(5);
    for round in 0..rounds {
        // Spread over the minute and its end, the same on every machine.
        killed_after(round * 61 / rounds.max(1) + round % 2, Duration::from_millis((round * 7 % 40) as u64));
    }
    killed_after(60, Duration::ZERO);
}
