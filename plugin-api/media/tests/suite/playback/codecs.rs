//! HEVC, AV1 and Opus, from fragmented MP4 written by ffmpeg.

use super::{Packaged, check, package, packets, source};
use satcast_media::playlist::Multivariant;

const SOURCES: &str =
    "-f lavfi -i testsrc2=size=320x180:rate=25 -f lavfi -i sine=frequency=440:sample_rate=48000 -t 7";

/// A keyframe every two seconds; more parameters may follow.
const X265: &str = "-c:v libx265 -preset ultrafast -x265-params \
    keyint=50:min-keyint=50:scenecut=0:log-level=1:open-gop=0";

fn mp4(arguments: &str) -> Packaged {
    let folder = tempfile::tempdir().expect("temporary folder");
    let packaged = package(packets(source::mp4(folder.path(), &format!("{SOURCES} {arguments}"))));
    check::all(&packaged);
    assert_eq!((packaged.target, packaged.refused), (2, 0));
    packaged
}

#[test]
fn hevc_with_b_frames() {
    let packaged = mp4(&format!("{X265}:bframes=3 -tag:v hvc1 -c:a aac"));
    let index = Multivariant::new(&packaged.inits[0], &packaged.rates());
    assert!(
        index.codecs.starts_with("hvc1.1.6.L") && index.codecs.ends_with(",mp4a.40.2"),
        "{}",
        index.codecs
    );
    assert_eq!((index.resolution, index.frame_rate_milli), (Some((320, 180)), Some(25_000)));
}

#[test]
fn hevc_of_high_dynamic_range() {
    let colours = "transfer=smpte2084:colorprim=bt2020:colormatrix=bt2020nc";
    let packaged = mp4(&format!("-pix_fmt yuv420p10le {X265}:{colours} -tag:v hvc1 -c:a aac"));
    let index = Multivariant::new(&packaged.inits[0], &packaged.rates());
    let index = index.render("media.m3u8", true).expect("plain name");
    assert!(index.contains("VIDEO-RANGE=PQ") && index.contains("hvc1.2."), "{index}");
}

#[test]
fn av1_with_opus() {
    let packaged =
        mp4("-c:v libaom-av1 -cpu-used 8 -usage realtime -g 50 -keyint_min 50 -b:v 300k -c:a libopus");
    let index = Multivariant::new(&packaged.inits[0], &packaged.rates());
    assert!(index.codecs.starts_with("av01.0.0") && index.codecs.ends_with("M.08,opus"), "{}", index.codecs);
    assert_eq!(index.resolution, Some((320, 180)));
}
