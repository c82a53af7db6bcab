//! Ranges and indexes of recordings, as viewers of them need: while they grow, from the local copy, and from the store.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use satcast_plugin_api::driver::{BytesAnswer, Fragment, IndexAnswer, RecordingIndex, RecordingState};
use satcast_plugin_api::{Class, Error};

use super::kit::{Kit, until};
use super::media::{self, AVC, video_of};
use super::server::{Act, Ask};
use crate::actions;
use crate::boxes;
use crate::reading;

fn stream() -> Vec<satcast_media::Packet> {
    video_of(AVC, 0, 300, 50, 40_000)
}

/// As many fragments in few bytes: the server of these tests reads a file by few KiB.
fn small_stream() -> Vec<satcast_media::Packet> {
    video_of(AVC, 0, 300, 50, 2_000)
}

fn range(kit: &Kit, name: &str, offset: u64, len: u32) -> Result<Bytes, Error> {
    let (give, take) = std::sync::mpsc::channel();
    let answer = BytesAnswer::calling(move |outcome| give.send(outcome).unwrap());
    kit.run(async { reading::range(kit.core(), name, offset, len, answer) });
    take.recv_timeout(std::time::Duration::from_secs(60)).unwrap()
}

fn page(kit: &Kit, name: &str, first: u64, most: u32) -> Result<RecordingIndex, Error> {
    let (give, take) = std::sync::mpsc::channel();
    let answer = IndexAnswer::calling(move |outcome| give.send(outcome).unwrap());
    kit.run(async { reading::index(kit.core(), name, first, most, answer) });
    take.recv_timeout(std::time::Duration::from_secs(60)).unwrap()
}

fn index(kit: &Kit, name: &str) -> RecordingIndex {
    page(kit, name, 0, 2048).unwrap()
}

/// The fragments of these bytes.
fn expected(bytes: &[u8]) -> (u64, Vec<Fragment>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    std::fs::write(&path, bytes).unwrap();
    let whole = boxes::whole(&std::fs::File::open(path).unwrap()).unwrap();
    assert_eq!(whole.bytes, bytes.len() as u64);
    (whole.init_bytes, whole.fragments)
}

/// The index of a whole recording, and every byte by its ranges.
fn assert_playable(kit: &Kit, name: &str, bytes: &[u8]) {
    let (init_bytes, fragments) = expected(bytes);
    // While it is made, on a slow machine, the first part is given.
    assert!(until(|| index(kit, name).is_complete));
    let found = index(kit, name);
    assert_eq!((found.init_bytes, found.bytes), (init_bytes, bytes.len() as u64));
    assert!(found.is_complete && found.fragments == fragments);
    let mut read = range(kit, name, 0, u32::try_from(init_bytes).unwrap()).unwrap().to_vec();
    for fragment in &fragments {
        read.extend_from_slice(&range(kit, name, fragment.offset, fragment.bytes).unwrap());
    }
    assert!(read == bytes, "{} bytes of {}", read.len(), bytes.len());
}

#[test]
fn a_recording_is_watched_while_it_grows_and_from_both_places_after() {
    let kit = Kit::new();
    kit.host.is_down.store(true, Ordering::SeqCst);
    let mut recorder = kit.recorder(kit.order("s1"));
    let whole = media::files(stream()).remove(0);
    let mut seen = 0;
    for packet in stream() {
        kit.run(async {
            recorder.push(packet);
            recorder.write().await.unwrap();
        });
        let Some(recording) = kit.recordings().into_iter().next() else { continue };
        let found = page(&kit, &recording.file_name, seen, 10).unwrap();
        assert!(!found.is_complete && found.bytes == recording.size_bytes, "{found:?}");
        for fragment in found.fragments {
            let bytes = range(&kit, &recording.file_name, fragment.offset, fragment.bytes).unwrap();
            assert!(bytes == whole[fragment.offset as usize..fragment.end() as usize]);
            seen += 1;
        }
    }
    assert!(seen > 8, "{seen}");
    kit.run(async { recorder.finish().await.unwrap() });
    let name = kit.only().file_name;
    assert_playable(&kit, &name, &whole);
    assert!(kit.server.asked().is_empty());

    kit.host.is_down.store(false, Ordering::SeqCst);
    kit.until_all(RecordingState::Ready);
    assert!(until(|| kit.files("spool").is_empty()));
    kit.server.script(|_, _| Act::Pass);
    assert_playable(&kit, &name, &whole);
    let fragments = expected(&whole).1.len();
    assert_eq!(kit.server.asked(), vec![Ask::Get; fragments + 1], "the index was kept");
    // Viewers start at keyframes, which begin fragments: one in two seconds here.
    let starts = index(&kit, &name).fragments.into_iter().filter(|it| it.is_keyframe);
    assert_eq!(
        starts.map(|it| it.start_us).collect::<Vec<_>>(),
        [0, 2, 4, 6, 8, 10].map(|second| second * 1_000_000)
    );
}

#[test]
fn hostile_ranges_and_failing_stores_are_errors() {
    let kit = Kit::new();
    kit.record("s1", stream());
    kit.until_all(RecordingState::Ready);
    let (name, size) = (kit.only().file_name, kit.only().size_bytes);
    range(&kit, &name, size - 1, 1).unwrap();
    for (offset, len) in [(size, 1), (size - 1, 2), (u64::MAX, 1), (u64::MAX, u32::MAX), (0, u32::MAX)] {
        assert_eq!(range(&kit, &name, offset, len).unwrap_err().class, Class::Config, "{offset} {len}");
    }
    assert!(page(&kit, &name, u64::MAX, 1).unwrap().fragments.is_empty());
    for unknown in ["no/such.mp4", "../../secret", ""] {
        assert_eq!(range(&kit, unknown, 0, 1).unwrap_err().class, Class::Config);
        assert_eq!(page(&kit, unknown, 0, 1).unwrap_err().class, Class::Config);
    }
    for (act, class) in [
        (Act::Answer(403), Class::Auth),
        (Act::Answer(503), Class::Remote),
        (Act::Answer(404), Class::Config),
        (Act::Answer(307), Class::Remote),
        (Act::Cut(0), Class::Network),
    ] {
        kit.server.on(Ask::Get, 9, act);
        assert_eq!(range(&kit, &name, 0, 10).unwrap_err().class, class, "{act:?}");
    }
    // Another program replaced the object by a shorter one.
    kit.server.place(&format!("pre/fix/{name}"), b"short");
    assert!(range(&kit, &name, 0, 10).is_err());
}

#[test]
fn a_lost_or_damaged_index_is_made_again() {
    let kit = Kit::new();
    kit.record("s1", small_stream());
    kit.until_all(RecordingState::Ready);
    let (name, whole) = (kit.only().file_name, media::files(small_stream()).remove(0));
    let path = kit.core().table.index_path(&name);
    let good = std::fs::read(&path).unwrap();
    let mut damaged = good.clone();
    damaged[32 * 3 + 5] ^= 1;
    let mut foreign = good.clone();
    foreign[0] ^= 1;
    // As an earlier version left it, cut anywhere, with a wrong record, of another version, and with records too many.
    let states =
        [Vec::new(), good[..32 * 4 + 7].to_vec(), damaged, foreign, [&good[..], &good[32..64]].concat()];
    for state in states {
        std::fs::write(&path, &state).unwrap();
        assert_playable(&kit, &name, &whole);
        assert_eq!(std::fs::read(&path).unwrap()[..good.len()], good, "{} bytes", state.len());
    }
    std::fs::remove_file(&path).unwrap();
    kit.server.script(|_, _| Act::Pass);
    assert!(until(|| index(&kit, &name).is_complete));
    assert_eq!(index(&kit, &name).fragments, expected(&whole).1);
    let asked = kit.server.asked().len();
    assert!(asked > 0);
    index(&kit, &name);
    assert_eq!(kit.server.asked().len(), asked, "once");
    // An object that this driver did not write.
    std::fs::remove_file(&path).unwrap();
    kit.server.place(&format!("pre/fix/{name}"), &vec![0x55; whole.len()]);
    assert_eq!(page(&kit, &name, 0, 1).unwrap_err().class, Class::Remote);
}

#[test]
fn after_a_kill_the_index_has_what_the_journal_confirms() {
    for (kept, cut) in [(0, 0), (5, 0), (0, 3), (5, 3)] {
        let mut kit = Kit::new();
        kit.host.is_down.store(true, Ordering::SeqCst);
        let mut recorder = kit.recorder(kit.order("s1"));
        kit.run(async {
            for packet in stream().into_iter().take(150) {
                recorder.push(packet);
                recorder.write().await.unwrap();
            }
        });
        let name = kit.only().file_name;
        kit.kill();
        drop(recorder);
        // The machine lost the end of one or of the other.
        let (spool, journal) = (kit.folder.path().join("spool"), kit.folder.path().join("index"));
        for (folder, lost, size) in [(spool, cut, 50_000), (journal, kept, 32)] {
            let path = std::fs::read_dir(folder).unwrap().next().unwrap().unwrap().path();
            let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
            file.set_len(file.metadata().unwrap().len() - lost * size).unwrap();
        }
        kit.load();
        kit.until_all(RecordingState::Uploading);
        let bytes = std::fs::read(kit.core().table.path(&name)).unwrap();
        assert_eq!(bytes.len() as u64, kit.only().size_bytes);
        assert_playable(&kit, &name, &bytes);
    }
}

#[test]
fn an_index_goes_with_its_recording() {
    let kit = Kit::new();
    kit.record("s1", stream());
    kit.until_all(RecordingState::Ready);
    let name = kit.only().file_name;
    assert_eq!(kit.files("index").len(), 1);
    kit.answer(|core, answer| actions::delete(core, &name, true, answer)).unwrap();
    assert!(kit.files("index").is_empty());
    assert_eq!(range(&kit, &name, 0, 1).unwrap_err().class, Class::Config);
    assert_eq!(page(&kit, &name, 0, 1).unwrap_err().class, Class::Config);
}
