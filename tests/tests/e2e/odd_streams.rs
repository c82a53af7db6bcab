//! Unusual streams: every frame and every audio packet reaches the viewer in correct segments.

use satcast_tests::encoder::Publish;
use satcast_tests::hls::{Chunk, Viewer};
use satcast_tests::hosted::Hosted;
use satcast_tests::player::assert_valid_playlists;
use satcast_tests::playlist::{Index, Media};
use satcast_tests::probe::{self, Packet, Stream, assert_decodes, assert_segments, runs};
use satcast_tests::record::{CARRIED_MILLIS, Track, assert_carried};
use satcast_tests::service::Setup;
use satcast_tests::source::{Recipe, Source};
use satcast_tests::wait::seconds;

use crate::archive::end;

/// At the join of two sources, the audio of the first may end within a frame of the second source.
const AUDIO_FRAME_MILLIS: i64 = 22;

/// A stream as a viewer gets it after its end.
struct Watched {
    index: Index,
    media: Media,
    chunks: Vec<Chunk>,
    packets: Vec<Vec<Packet>>,
    /// Seconds of the source before the first listed segment: a destination begins with the newest keyframe, and on a busy machine the
    /// encoder has sent more by then.
    began: f64,
}

/// Publishes the first `length` seconds of `source`, waits for the end of the playlist, and checks all of it.
/// The time of each packet is the encoder's `within_millis`.
#[track_caller]
fn watch(source: &Source, length: u64, within_millis: i64) -> Watched {
    let service = Setup::default().start();
    let hosted = Hosted::new(&service, "odd");
    let mut encoder =
        Publish::of(source).seconds(length).faster(2).to(&service.ingest_url(&hosted.stream.key));
    let mut viewer: Viewer = hosted.viewer();
    let index = viewer.index();
    encoder.finish(seconds(length + 60));
    end(&service.api(), &hosted.stream);
    let media = viewer.media_when("the end of the playlist", |media| media.ended);
    let chunks = viewer.chunks(&media.segments);
    let path = viewer.path("media.m3u8");
    assert_valid_playlists(&[&viewer.http.get(&path, &[]).text()]);
    let packets = assert_segments(&chunks);
    assert_decodes(&chunks);
    let runs = runs(&chunks);
    let began = runs
        .iter()
        .map(|run| assert_carried("a viewer", source.records(), &probe::records(run), within_millis));
    let began = began.min().expect("a run") as f64 / 1000.0;
    assert!(
        (media.seconds() + began - length as f64).abs() < 1.5,
        "{length} s were sent, {} s are listed from {began} s on",
        media.seconds()
    );
    Watched { index, media, chunks, packets, began }
}

fn streams(chunk: &Chunk) -> (Option<Stream>, Option<Stream>) {
    let of = |wanted: fn(&Stream) -> bool| probe::streams(chunk).into_iter().find(wanted);
    (of(|stream| stream.size.is_some()), of(|stream| stream.audio.is_some()))
}

fn video_packets(watched: &Watched) -> Vec<Packet> {
    watched.packets.iter().flat_map(|packets| probe::of_track(packets, Track::Video)).collect()
}

#[test]
fn b_frames_at_29_97_a_second_with_mono_audio_of_44_1_khz() {
    let watched = watch(&Source::of(Recipe::NTSC), 11, CARRIED_MILLIS);
    assert_eq!(watched.index.attributes["FRAME-RATE"], "29.970");
    assert_eq!(watched.index.attributes["RESOLUTION"], "640x360");
    let (_, audio) = streams(&watched.chunks[0]);
    assert_eq!(audio.and_then(|audio| audio.audio), Some((44_100, 1)));
    let video_packets = video_packets(&watched);
    assert!(video_packets.iter().any(|packet| packet.pts > packet.dts + 0.05), "no frame has B-frame order");
    assert!(watched.media.segments.iter().all(|segment| segment.duration < 2.2), "{:?}", watched.media);
}

#[test]
fn a_keyframe_every_five_seconds() {
    let watched = watch(&Source::of(Recipe::LONG_GROUPS), 18, CARRIED_MILLIS);
    let (last, whole) = watched.media.segments.split_last().expect("segments");
    assert!(whole.iter().all(|segment| (segment.duration - 5.0).abs() < 0.1), "{:?}", watched.media);
    assert!(last.duration < 5.1 && watched.media.independent, "{:?}", watched.media);
    assert_eq!(watched.media.target_seconds, 5, "the interval of the encoder");
}

#[test]
fn a_variable_frame_rate() {
    let watched = watch(&Source::of(Recipe::VARIABLE_RATE), 11, CARRIED_MILLIS);
    let spans = watched.chunks.iter().flat_map(probe::spans).filter(|span| span.track == Track::Video);
    let (short, long): (Vec<f64>, Vec<f64>) =
        spans.flat_map(|span| span.durations).partition(|time| *time < 0.05);
    assert!(short.len() > 50 && long.len() > 50, "{} short and {} long frames", short.len(), long.len());
    assert!(watched.media.segments.iter().all(|segment| segment.duration < 2.5), "{:?}", watched.media);
}

#[test]
fn a_codec_header_that_changes_in_mid_stream() {
    let watched = watch(&Source::joined(Recipe::SHARED, 8, Recipe::SMALL), 14, AUDIO_FRAME_MILLIS);
    let stretches = runs(&watched.chunks);
    assert_eq!(stretches.len(), 2, "{:?}", watched.media);
    let sizes: Vec<_> =
        stretches.iter().map(|run| streams(&run[0]).0.and_then(|stream| stream.size)).collect();
    assert_eq!(sizes, [Some((1280, 720)), Some((640, 360))]);
    let first = &stretches[1][0].entry;
    assert!(first.discontinuity && first.init != watched.media.segments[0].init, "{first:?}");
    let long: f64 = stretches[0].iter().map(|chunk| chunk.entry.duration).sum();
    let long = long + watched.began;
    assert!((long - 8.0).abs() < 0.1, "the change came after 8 s, the first stretch ends at {long} s");
}

#[test]
fn audio_without_video() {
    let watched = watch(&Source::of(Recipe::AUDIO_ONLY), 9, CARRIED_MILLIS);
    assert_eq!(watched.index.attributes["CODECS"], "mp4a.40.2");
    assert!(!watched.index.attributes.contains_key("RESOLUTION"), "{:?}", watched.index);
}

#[test]
fn video_without_audio() {
    let watched = watch(&Source::of(Recipe::VIDEO_ONLY), 9, CARRIED_MILLIS);
    let codecs = &watched.index.attributes["CODECS"];
    assert!(codecs.starts_with("avc1.") && !codecs.contains(','), "{codecs}");
}
