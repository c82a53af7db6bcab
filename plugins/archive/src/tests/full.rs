//! A full disk: recording stops with an error, the recorded part is uploaded, and then there is space again.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use satcast_plugin_api::driver::{About, RecordingState};
use satcast_plugin_api::{Error, Secret};

use super::kit::{Host, Kit, disk_full, limits, until};
use super::media::{self, AVC, video_of};
use super::server::{ACCESS_KEY, BUCKET, SECRET_KEY};
use crate::config::Settings;
use crate::keeper;
use crate::recorder::{Order, Recorder};
use crate::rules::Rules;

const FOLDER: &str = "SATCAST_TEST_FULL_FOLDER";
const STORE: &str = "SATCAST_TEST_FULL_STORE";
/// Size of the small disk; the driver takes one MiB of it at once.
const DISK_MIB: u32 = 12;

fn stream() -> Vec<satcast_media::Packet> {
    video_of(AVC, 0, 500, 50, 40_000)
}

/// Records until the disk is full; returns the error for the owner.
async fn until_full(recorder: &mut Recorder, before: impl Fn(usize)) -> Error {
    for (at, packet) in stream().into_iter().enumerate() {
        before(at);
        recorder.push(packet);
        if let Err(error) = recorder.write().await {
            return error;
        }
    }
    panic!("never full");
}

#[test]
fn a_full_disk_ends_the_file_and_keeps_its_whole_fragments() {
    let kit = Kit::new();
    let mut recorder = kit.recorder(kit.order("s1"));
    let full_at = |at| kit.host.is_full.store(at >= 200, Ordering::SeqCst);
    assert_eq!(kit.run(until_full(&mut recorder, full_at)), disk_full());
    kit.until_all(RecordingState::Ready);
    let whole = media::files(stream()).remove(0);
    let objects = kit.server.objects();
    assert!(whole.starts_with(&objects[0].1) && objects[0].1.len() > 4_000_000, "{}", objects[0].1.len());
    assert!(kit.only().duration_ms >= 4500, "{:?}", kit.only());
    // There is space again: the same opening continues in another file.
    kit.host.is_full.store(false, Ordering::SeqCst);
    kit.run(async {
        for packet in video_of(AVC, 20_000, 100, 50, 1000) {
            recorder.push(packet);
            recorder.write().await.unwrap();
        }
        recorder.finish().await.unwrap();
    });
    kit.until_all(RecordingState::Ready);
    assert_eq!(kit.server.objects().len(), 2);
    // A disk that is full before the first byte leaves nothing behind.
    kit.host.is_full.store(true, Ordering::SeqCst);
    let mut recorder = kit.recorder(kit.order("s2"));
    assert_eq!(kit.run(until_full(&mut recorder, |_| {})), disk_full());
    assert!(kit.of("s2").is_empty() && kit.files("spool").is_empty());
    // A file that is full before the first fragment is removed again, also from the host's list.
    kit.host.is_full.store(false, Ordering::SeqCst);
    kit.host.space.store(4096, Ordering::SeqCst);
    let mut recorder = kit.recorder(kit.order("s3"));
    assert_eq!(kit.run(until_full(&mut recorder, |_| {})), disk_full());
    let last = || {
        let reports = kit.host.reports.lock();
        reports.iter().rev().find(|report| report.session_id == "s3").cloned()
    };
    assert!(until(|| last().is_some_and(|report| report.gone && report.size_bytes == 0)), "{:?}", last());
    assert!(until(|| kit.of("s3").is_empty() && kit.files("spool").is_empty()));
}

/// What the process on the small disk does.
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
    let host = Arc::new(Host::default());
    host.is_down.store(true, Ordering::SeqCst);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let core = keeper::start(folder.as_ref(), &settings, limits(), host.clone()).unwrap();
        let about = About { session_id: "full".into(), ..About::default() };
        let mut recorder = Recorder::new(core.clone(), Order { about, own: None, rules: Rules::default() });
        // Another program takes all free space: not even a journal entry fits.
        let take_all = |at| {
            if at == 150 {
                let last = std::fs::write(std::path::Path::new(&folder).join("last"), vec![1; 16 << 20]);
                println!("kind={:?}", last.unwrap_err().kind());
            }
        };
        let told = until_full(&mut recorder, take_all).await;
        println!("full={} told: {told}", told == disk_full());
        host.is_down.store(false, Ordering::SeqCst);
        let is_ready =
            || core.table.recordings().unwrap().iter().all(|one| one.state == RecordingState::Ready);
        println!("ready={}", until(is_ready));
        // The copy is removed when the journal has that, and not before.
        let spool = std::path::Path::new(&folder).join("spool");
        println!("left={}", !until(|| std::fs::read_dir(&spool).unwrap().next().is_none()));
        println!("length {}", core.table.recordings().unwrap()[0].duration_ms);
    });
}

/// On a real file system of a few MiB, where the machine lets us have one.
#[test]
fn uploads_free_a_really_full_disk() {
    let kit = Kit::new();
    let small = tempfile::tempdir().unwrap();
    let script = format!(
        "mount -t tmpfs -o size={DISK_MIB}m tmpfs \"$1\" && exec \"$2\" --exact tests::full::child --nocapture"
    );
    let probe =
        Command::new("unshare").args(["-Urm", "mount", "-t", "tmpfs", "tmpfs"]).arg(small.path()).output();
    if !probe.is_ok_and(|probe| probe.status.success()) {
        println!("this machine gives nobody a file system of his own; the injected failure above must do");
        return;
    }
    let mut command = Command::new("unshare");
    command.args(["-Urm", "sh", "-c", &script, "sh"]).arg(small.path()).arg(std::env::current_exe().unwrap());
    command.env(FOLDER, small.path()).env(STORE, format!("http://{}", kit.server.address));
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said} {}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("full=true"), "{said}");
    assert!(said.contains("kind=StorageFull") && said.contains("ready=true"), "{said}");
    assert!(said.contains("left=false"), "the copy went: {said}");
    let objects = kit.server.objects();
    let whole = media::files(stream()).remove(0);
    assert!(objects.len() == 1 && whole.starts_with(&objects[0].1), "{said}");
    assert!(objects[0].1.len() > 4_000_000, "{}", objects[0].1.len());
}
