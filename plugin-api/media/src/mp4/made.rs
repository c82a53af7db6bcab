//! Makes small files, for tests of this crate and others, and for the corpus.

use crate::fuzz::RECORDS;

/// Ticks per second of the movie and of its video.
pub const SCALE: u32 = 1_000;
/// Ticks per second of the audio, and of one of its frames.
pub const AUDIO_SCALE: u32 = 48_000;
const AUDIO_FRAME: u32 = 1_024;

/// A file to make: H.264 of 1280x720 (the size of the configuration), and AAC of 48 kHz with two channels.
#[derive(Debug, Clone)]
pub struct File {
    /// Video frames, of 40 ms each.
    pub frames: u32,
    /// Numbers of the keyframes, from 1; `None`: no table, so all are.
    pub keyframes: Option<Vec<u32>>,
    /// Presentation minus decode time of each frame, over and over; empty: no table.
    pub compositions: Vec<i32>,
    /// Edits of the video: duration, media time, rate.
    pub edits: Vec<(u32, i32, u32)>,
    /// Audio frames; `None`: no track.
    pub audio: Option<u32>,
    /// The codes of the sample entries.
    pub codes: [[u8; 4]; 2],
    /// The `moov` is behind the media, with 64-bit offsets.
    pub moov_last: bool,
    /// The `moov` says that fragments follow.
    pub fragmented: bool,
}

impl Default for File {
    /// Two seconds with a keyframe each second.
    fn default() -> Self {
        Self {
            frames: 50,
            keyframes: Some(vec![1, 26]),
            compositions: Vec::new(),
            edits: Vec::new(),
            audio: Some(94),
            codes: [*b"avc1", *b"mp4a"],
            moov_last: false,
            fragmented: false,
        }
    }
}

impl File {
    /// The bytes of the file.
    pub fn bytes(&self) -> Vec<u8> {
        let ftyp = atom(b"ftyp", &[b"isom\0\0\0\0isommp42"]);
        let media: Vec<u8> = [self.video(), self.heard()].concat().concat();
        let mdat = atom(b"mdat", &[&media]);
        if self.moov_last {
            return [ftyp.clone(), mdat, self.moov(ftyp.len() + 8)].concat();
        }
        // The length of the moov does not depend on the offsets in it.
        let moov_bytes = self.moov(0).len();
        [ftyp.clone(), self.moov(ftyp.len() + moov_bytes + 8), mdat].concat()
    }

    /// Payloads of the video, with a length prefix.
    pub fn video(&self) -> Vec<Vec<u8>> {
        let frame = |index: u32| {
            let is_key = self.keyframes.as_ref().is_none_or(|keys| keys.contains(&(index + 1)));
            let [high, low] = (index as u16).to_be_bytes();
            vec![0, 0, 0, 4, if is_key { 0x65 } else { 0x41 }, 0x88, high, low]
        };
        (0..self.frames).map(frame).collect()
    }

    /// Payloads of the audio.
    pub fn heard(&self) -> Vec<Vec<u8>> {
        let frame = |index: u32| [&[0x21][..], &index.to_be_bytes(), &[7; 3]].concat();
        (0..self.audio.unwrap_or(0)).map(frame).collect()
    }

    fn moov(&self, media_at: usize) -> Vec<u8> {
        let mvhd = atom(b"mvhd", &[&[0; 12], &SCALE.to_be_bytes(), &[0; 84]]);
        let video = self.trak(0, media_at);
        let audio = match self.audio {
            Some(_) => self.trak(1, media_at + self.video().concat().len()),
            None => Vec::new(),
        };
        let mvex = if self.fragmented { atom(b"mvex", &[]) } else { Vec::new() };
        atom(b"moov", &[&mvhd, &video, &audio, &mvex])
    }

    fn trak(&self, track: usize, media_at: usize) -> Vec<u8> {
        let is_video = track == 0;
        let (handler, scale) = if is_video { (b"vide", SCALE) } else { (b"soun", AUDIO_SCALE) };
        let mdhd = atom(b"mdhd", &[&[0; 12], &scale.to_be_bytes(), &[0; 8]]);
        let hdlr = atom(b"hdlr", &[&[0; 8], handler, &[0; 13]]);
        let stsd = atom(b"stsd", &[&[0, 0, 0, 0, 0, 0, 0, 1], &self.entry(track)]);
        let samples = if is_video { self.video() } else { self.heard() };
        let duration = if is_video { 40 } else { AUDIO_FRAME };
        let count = samples.len() as u32;
        let stts = table(b"stts", &[vec![count, duration]]);
        let stsz = {
            let sizes: Vec<u8> =
                samples.iter().flat_map(|sample| (sample.len() as u32).to_be_bytes()).collect();
            atom(b"stsz", &[&[0; 8], &count.to_be_bytes(), &sizes])
        };
        let (stsc, offsets) = self.chunks(&samples, media_at);
        let mut tables = vec![stsd, stts, stsz, stsc, offsets];
        if is_video && !self.compositions.is_empty() {
            let rows = (0..count).map(|index| {
                let at = index as usize % self.compositions.len();
                vec![1, self.compositions[at] as u32]
            });
            tables.push(table(b"ctts", &rows.collect::<Vec<_>>()));
        }
        if let (true, Some(keys)) = (is_video, &self.keyframes) {
            tables.push(table(b"stss", &keys.iter().map(|key| vec![*key]).collect::<Vec<_>>()));
        }
        let stbl = atom(b"stbl", &[&tables.concat()]);
        let mdia = atom(b"mdia", &[&mdhd, &hdlr, &atom(b"minf", &[&stbl])]);
        let rows = self.edits.iter().map(|(duration, time, rate)| vec![*duration, *time as u32, rate << 16]);
        let elst = table(b"elst", &rows.collect::<Vec<_>>());
        let edts = match is_video && !self.edits.is_empty() {
            true => atom(b"edts", &[&elst]),
            false => Vec::new(),
        };
        atom(b"trak", &[&edts, &mdia])
    }

    fn entry(&self, track: usize) -> Vec<u8> {
        if track == 0 {
            let avcc = atom(b"avcC", &[RECORDS[0].1]);
            // Editors write boxes that are not needed.
            return atom(&self.codes[0], &[&[0; 78], &avcc, &atom(b"pasp", &[&[0, 0, 0, 1, 0, 0, 0, 1]])]);
        }
        let record = RECORDS[2].1;
        let specific = [&[5, record.len() as u8][..], record].concat();
        let decoder = [&[4, 13 + specific.len() as u8, 0x40, 0x15][..], &[0; 11], &specific].concat();
        // The longest form of a length.
        let stream = [&[3, 0x80, 0x80, 0x80, 3 + decoder.len() as u8, 0, 0, 0][..], &decoder].concat();
        let esds = atom(b"esds", &[&[0; 4], &stream]);
        atom(&self.codes[1], &[&[0; 28], &esds])
    }

    /// `stsc` and the offsets: chunks of ten samples, of which the last one may have fewer.
    fn chunks(&self, samples: &[Vec<u8>], media_at: usize) -> (Vec<u8>, Vec<u8>) {
        let mut at = media_at as u64;
        let mut rows = Vec::new();
        for chunk in samples.chunks(10) {
            let [high, low] = [(at >> 32) as u32, at as u32];
            rows.push(if self.moov_last { vec![high, low] } else { vec![low] });
            at += chunk.iter().map(Vec::len).sum::<usize>() as u64;
        }
        let (stsc, kind) =
            (table(b"stsc", &[vec![1, 10, 1]]), if self.moov_last { b"co64" } else { b"stco" });
        (stsc, table(kind, &rows))
    }
}

fn atom(kind: &[u8; 4], parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    [&(content.len() as u32 + 8).to_be_bytes()[..], kind, &content].concat()
}

/// A table with version, flags and a count.
fn table(kind: &[u8; 4], rows: &[Vec<u32>]) -> Vec<u8> {
    let numbers: Vec<u8> = rows.iter().flatten().flat_map(|number| number.to_be_bytes()).collect();
    atom(kind, &[&[0; 4], &(rows.len() as u32).to_be_bytes(), &numbers])
}
