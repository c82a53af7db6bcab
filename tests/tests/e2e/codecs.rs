//! HEVC, AV1 and Opus by Enhanced RTMP: every packet reaches the viewer, in segments that decode.

use satcast_tests::caller::{Call, Outcome};
use satcast_tests::coded::{Coded, Coding};
use satcast_tests::hosted::Hosted;
use satcast_tests::probe::{assert_decodes, assert_segments, hashes, hashes_of_file};
use satcast_tests::record::Track;
use satcast_tests::service::Setup;

use crate::archive::end;

fn watch(coding: Coding, video_codec: &str) {
    let coded = Coded::of(coding);
    let service = Setup::default().start();
    let hosted = Hosted::new(&service, "codecs");
    let (mut call, outcome) = Call::publish(service.rtmp_address(), "live", &hosted.stream.key);
    assert_eq!(outcome, Outcome::Publishing);
    coded.publish_faster(&mut call, 4);
    drop(call);
    let mut viewer = hosted.viewer();
    let index = viewer.index();
    let attribute = |name: &str| index.attributes.get(name).map_or("", String::as_str);
    assert_eq!((attribute("RESOLUTION"), attribute("FRAME-RATE")), ("320x180", "25.000"));
    let (found, audio) = attribute("CODECS").split_once(',').expect("two codecs");
    assert!(found.starts_with(video_codec), "{found}");
    assert_eq!(audio.to_ascii_lowercase(), "opus");
    end(&service.api(), &hosted.stream);
    let media = viewer.media_when("the end of the playlist", |media| media.ended);
    let chunks = viewer.chunks(&media.segments);
    assert_segments(&chunks);
    assert_decodes(&chunks);
    for track in [Track::Video, Track::Audio] {
        let (sent, got) = (hashes_of_file(coded.path(), track), hashes(&chunks, track));
        assert!(got.len() > 250, "{} packets of {track:?}", got.len());
        assert!(sent.windows(got.len()).any(|run| run == got), "other packets of {track:?} than were sent");
    }
}

#[test]
fn hevc_and_opus() {
    watch(Coding::HEVC_OPUS, "hvc1.");
}

#[test]
fn av1_and_opus() {
    watch(Coding::AV1_OPUS, "av01.");
}
