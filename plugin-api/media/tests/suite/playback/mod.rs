//! Packaging real streams: ffmpeg encodes, the segmenter packages, and ffmpeg and ffprobe read the result.

mod check;
mod clips;
mod codecs;
mod files;
mod random;
mod source;

use std::path::{Path, PathBuf};

use bytes::Bytes;
use satcast_media::Packet;
use satcast_media::playlist::{Entry, MediaPlaylist, Multivariant, Rates, init_name, segment_name};
use satcast_media::segment::{Event, Init, Segment, Segmenter, SegmenterStats};

/// First media sequence number and wall time of all tests.
const FIRST: u64 = 1_760_000_000;
const WALL_MS: i64 = 1_760_000_000_000;

/// One input of a segmenter.
enum Input {
    Packet(Packet),
    /// The encoder reconnected.
    Gap,
}

/// Output of a segmenter.
struct Packaged {
    /// Last announced target duration in seconds.
    target: u32,
    inits: Vec<Init>,
    segments: Vec<Segment>,
    stats: SegmenterStats,
    refused: usize,
}

fn package(inputs: impl IntoIterator<Item = Input>) -> Packaged {
    let mut segmenter = Segmenter::new(FIRST);
    for (index, input) in inputs.into_iter().enumerate() {
        match input {
            Input::Packet(packet) => segmenter.push(&packet, WALL_MS + index as i64),
            Input::Gap => segmenter.gap(),
        }
    }
    segmenter.finish();
    let stats = segmenter.stats();
    assert_eq!(segmenter.held_bytes(), 0);
    let mut packaged = Packaged { target: 0, inits: vec![], segments: vec![], stats, refused: 0 };
    while let Some(event) = segmenter.poll_event() {
        match event {
            Event::Started { target_seconds } | Event::TargetRaised { target_seconds } => {
                packaged.target = target_seconds;
            }
            Event::Init(init) => packaged.inits.push(init),
            Event::Part(_) => panic!("parts were not enabled"),
            Event::Segment(segment) => packaged.segments.push(segment),
            Event::TrackRefused { .. } => packaged.refused += 1,
        }
    }
    assert_eq!(stats.samples_in, stats.samples_out + stats.samples_dropped, "{stats:?}");
    packaged
}

fn packets(packets: Vec<Packet>) -> impl Iterator<Item = Input> {
    packets.into_iter().map(Input::Packet)
}

impl Packaged {
    fn init(&self, segment: &Segment) -> &Init {
        self.inits.iter().find(|init| init.id == segment.init_id).expect("init comes before its segment")
    }

    fn rates(&self) -> Rates {
        let mut rates = Rates::default();
        self.segments.iter().for_each(|segment| rates.observe(segment, self.target));
        rates
    }

    /// Segments from one discontinuity to the next.
    fn ranges(&self) -> Vec<&[Segment]> {
        let mut starts: Vec<usize> = (0..self.segments.len())
            .filter(|index| *index == 0 || self.segments[*index].discontinuity)
            .collect();
        starts.push(self.segments.len());
        starts.windows(2).map(|pair| &self.segments[pair[0]..pair[1]]).collect()
    }

    /// Writes all files, `index.m3u8`, `media.m3u8`, and `range<n>.m3u8` for each range.
    fn write(&self, folder: &Path) -> Vec<PathBuf> {
        for init in &self.inits {
            write(folder, &init_name(FIRST, init.id), &init.bytes);
        }
        for segment in &self.segments {
            write(folder, &segment_name(segment.sequence), &segment.bytes);
        }
        write(folder, "media.m3u8", self.playlist(&self.segments).as_bytes());
        let newest = Multivariant::new(self.inits.last().expect("an init"), &self.rates());
        let independent = self.segments.iter().all(|segment| segment.independent);
        let index = newest.render("media.m3u8", independent).expect("plain name");
        let index = write(folder, "index.m3u8", index.as_bytes());
        let ranges = self.ranges();
        if ranges.len() == 1 {
            return vec![index];
        }
        let range = |(number, segments): (usize, &&[Segment])| {
            write(folder, &format!("range{number}.m3u8"), self.playlist(segments).as_bytes())
        };
        ranges.iter().enumerate().map(range).collect()
    }

    fn playlist(&self, segments: &[Segment]) -> String {
        let mut playlist = MediaPlaylist::new(self.target, 3600);
        for (index, segment) in segments.iter().enumerate() {
            let entry = Entry {
                sequence: segment.sequence,
                duration_ns: segment.duration_ns,
                program_date_time_ms: segment.program_date_time_ms,
                discontinuity: segment.discontinuity && index > 0,
                independent: segment.independent,
                init: &init_name(FIRST, segment.init_id),
                name: &segment_name(segment.sequence),
            };
            playlist.push(entry).expect("the segmenter keeps the playlist rules");
        }
        playlist.end();
        playlist.render().expect("has segments")
    }

    /// Initialization and media segment as one file.
    fn whole(&self, segment: &Segment) -> Bytes {
        Bytes::from([&self.init(segment).bytes[..], &segment.bytes].concat())
    }
}

fn write(folder: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, bytes).expect("temporary folder");
    path
}
