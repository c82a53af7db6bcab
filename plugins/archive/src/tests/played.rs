//! Real streams: the store has exactly the recording, and ffmpeg plays it.

use std::os::unix::fs::PermissionsExt as _;

use satcast_media::{Kind, Packet};

use super::encoded::{flv, mp4, run};
use super::kit::{Kit, is_nowhere, until};
use super::media::{self, video_of};
use super::server::{Ask, SECRET_KEY};
use crate::tests::media::AVC;
use satcast_plugin_api::driver::RecordingState;

const VIDEO: &str = "-f lavfi -i testsrc2=size=320x180:rate=25";
const LARGER: &str = "-f lavfi -i testsrc2=size=480x270:rate=25";
const AUDIO: &str = "-f lavfi -i sine=frequency=440:sample_rate=48000";
const H264: &str = "-c:v libx264 -preset ultrafast -bf 2 -g 50 -c:a aac";
const X265: &str =
    "-c:v libx265 -preset ultrafast -x265-params keyint=50:min-keyint=50:scenecut=0:log-level=1:open-gop=0";
const AV1: &str = "-c:v libaom-av1 -cpu-used 8 -usage realtime -g 50 -keyint_min 50 -b:v 300k";

fn frames(packets: &[Packet], kind: Kind) -> usize {
    packets.iter().filter(|packet| !packet.is_config() && packet.kind() == kind).count()
}

/// Codec and frames of each stream, as ffprobe counts them; the whole file decodes without a word.
fn probe(bytes: &[u8]) -> Vec<(String, usize)> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("r.mp4"), bytes).unwrap();
    run("ffmpeg", "-i r.mp4 -f null -", folder.path());
    let counted = "-count_packets -show_entries stream=codec_name,nb_read_packets -of csv=p=0 r.mp4";
    let line = |line: &str| {
        let (codec, count) = line.split_once(',').unwrap();
        (codec.to_owned(), count.trim_matches(',').parse().unwrap())
    };
    run("ffprobe", counted, folder.path()).lines().map(line).collect()
}

/// Records, uploads, compares; returns the objects.
fn recorded(packets: Vec<Packet>) -> Vec<(String, Vec<u8>)> {
    let kit = Kit::new();
    let audio_only = frames(&packets, Kind::Video) == 0;
    let expected = media::files(packets.clone());
    kit.record("s1", packets);
    kit.until_all(RecordingState::Ready);
    assert!(kit.recordings().iter().all(|recording| recording.audio_only == audio_only));
    let objects = kit.server.objects();
    assert!(objects.iter().map(|(_, bytes)| bytes).eq(expected.iter()), "the bytes of the recording");
    assert!(until(|| kit.files("spool").is_empty()));
    assert!(kit.server.leftovers().is_empty());
    objects
}

#[test]
fn h264_with_aac_is_recorded_whole() {
    let packets = flv(&format!("{VIDEO} {AUDIO} -t 6 {H264}"));
    let (video, audio) = (frames(&packets, Kind::Video), frames(&packets, Kind::Audio));
    let kit = Kit::new();
    let expected = media::files(packets.clone());
    kit.record("ses_1", packets);
    kit.until_all(RecordingState::Ready);
    let recording = kit.only();
    kit.assert_whole(&expected[0]);
    let (key, bytes) = kit.server.objects().remove(0);
    let found = probe(&bytes);
    // Audio of the first few milliseconds may lie before the first video frame.
    assert_eq!(found[0], ("h264".to_owned(), video));
    assert!(found[1].0 == "aac" && (audio - 4..=audio).contains(&found[1].1), "{found:?} {audio}");
    assert_eq!(key, format!("pre/fix/{}", recording.file_name));
    assert_eq!(recording.url, Some(format!("s3://recordings/{key}")));
    assert!(
        recording.file_name.starts_with("my-stream/20") && recording.file_name.ends_with("Z-ses_1-1.mp4")
    );
    assert!((5990..=6100).contains(&recording.duration_ms), "{recording:?}");
    assert_eq!((recording.size_bytes, recording.uploaded_bytes), (bytes.len() as u64, bytes.len() as u64));
    assert_eq!((recording.destination_id, recording.attempt, recording.attempt_opened), (7, 0, true));
    let notes = kit.server.notes();
    for note in ["video/mp4", "My stream", "ses_1"] {
        assert!(notes.contains(note), "{note} in {notes}");
    }
    // Two threads tell of it: the time of a change says which came last.
    let mut reports = kit.host.reports.lock().clone();
    reports.sort_by_key(|report| report.changed_at_ms);
    assert!(reports.windows(2).all(|pair| pair[0].changed_at_ms < pair[1].changed_at_ms));
    assert!(reports.iter().any(|report| report.state == RecordingState::Recording && report.size_bytes > 0));
    assert_eq!(reports.last().map(|report| report.state), Some(RecordingState::Ready));
    assert!(is_nowhere(kit.folder.path(), SECRET_KEY));
}

#[test]
fn hevc_with_aac() {
    let packets = mp4(&format!("{VIDEO} {AUDIO} -t 4 {X265}:bframes=3 -tag:v hvc1 -c:a aac"));
    let (video, audio) = (frames(&packets, Kind::Video), frames(&packets, Kind::Audio));
    let found = probe(&recorded(packets)[0].1);
    assert_eq!(found[0], ("hevc".to_owned(), video));
    assert!((audio - 4..=audio).contains(&found[1].1), "{found:?} {audio}");
}

#[test]
fn av1_with_opus() {
    let packets = mp4(&format!("{VIDEO} {AUDIO} -t 4 {AV1} -c:a libopus"));
    let (video, audio) = (frames(&packets, Kind::Video), frames(&packets, Kind::Audio));
    let found = probe(&recorded(packets)[0].1);
    assert_eq!(found[0], ("av1".to_owned(), video));
    assert!(found[1].0 == "opus" && (audio - 4..=audio).contains(&found[1].1), "{found:?} {audio}");
}

#[test]
fn one_track_alone() {
    let packets = flv(&format!("{AUDIO} -t 6 -c:a aac"));
    let audio = frames(&packets, Kind::Audio);
    assert_eq!(probe(&recorded(packets)[0].1), [("aac".to_owned(), audio)]);
    let packets = flv(&format!("{VIDEO} -t 3 {H264}"));
    assert_eq!(probe(&recorded(packets)[0].1), [("h264".to_owned(), 75)]);
}

/// The encoder comes back with another size.
#[test]
fn another_configuration_goes_to_another_file() {
    let mut packets = flv(&format!("{VIDEO} {AUDIO} -t 3 {H264}"));
    let mut second = flv(&format!("{LARGER} {AUDIO} -t 4 {H264}"));
    for packet in &mut second {
        packet.dts_ns += 5_000_000_000;
        packet.pts_ns += 5_000_000_000;
    }
    packets.extend(second);
    let objects = recorded(packets);
    assert!(objects[0].0.ends_with("-s1-1.mp4") && objects[1].0.ends_with("-s1-2.mp4"), "{}", objects[1].0);
    assert_eq!(probe(&objects[0].1)[0].1, 75);
    assert_eq!(probe(&objects[1].1)[0].1, 100);
}

#[test]
fn parts_go_up_while_it_is_recorded() {
    let kit = Kit::new();
    // 40 s of video of 28 kB: four parts.
    let packets = video_of(AVC, 0, 1000, 50, 28_000);
    let expected = media::files(packets.clone());
    let mut recorder = kit.recorder(kit.order("s1"));
    kit.run(async {
        for packet in packets {
            recorder.push(packet);
            recorder.write().await.unwrap();
        }
    });
    assert!(until(|| kit.only().uploaded_bytes == 24 * 1024 * 1024), "{:?}", kit.only());
    assert_eq!(kit.only().state, RecordingState::Recording);
    assert!(kit.server.objects().is_empty());
    let spooled = kit.folder.path().join("spool").join(&kit.files("spool")[0]);
    assert_eq!(std::fs::metadata(spooled).unwrap().permissions().mode() & 0o777, 0o600);
    kit.run(recorder.finish()).unwrap();
    kit.until_all(RecordingState::Ready);
    kit.assert_whole(&expected[0]);
    let asked = kit.server.asked();
    assert_eq!(asked.iter().filter(|ask| matches!(ask, Ask::Part(_))).count(), 4, "{asked:?}");
    assert_eq!(asked.iter().filter(|ask| **ask == Ask::Open).count(), 1);
}

#[test]
fn the_bucket_may_stand_before_the_host() {
    let kit = Kit::new();
    let (mut target, _) = kit.own(SECRET_KEY);
    target.endpoint = format!("http://s3.test:{}", kit.server.address.port());
    target.path_style = false;
    let mut order = kit.order("s1");
    let sealed = target.sealed(&*kit.host).unwrap();
    order.own = Some((target, sealed));
    let packets = video_of(AVC, 0, 100, 50, 1000);
    kit.record_for(order, packets.clone());
    kit.until_all(RecordingState::Ready);
    kit.assert_whole(&media::files(packets)[0]);
    let url =
        crate::actions::sign(kit.core(), &kit.only().file_name, std::time::Duration::from_secs(60)).unwrap();
    assert!(url.starts_with("http://recordings.s3.test:"), "{url}");
}
