//! The times of samples in fragmented MP4 (ISO/IEC 14496-12): ffprobe estimates durations from the frame rate, a browser takes them
//! from the file.

use crate::record::Track;

/// The times of one track in one segment.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// Kind of the track.
    pub track: Track,
    /// Decoding time of the first sample, seconds.
    pub start: f64,
    /// Duration of each sample, seconds.
    pub durations: Vec<f64>,
}

impl Span {
    /// Sum of the durations.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.durations.iter().sum()
    }

    /// Longest duration.
    #[must_use]
    pub fn longest(&self) -> f64 {
        self.durations.iter().copied().fold(0.0, f64::max)
    }
}

/// A track of the initialization segment.
struct Declared {
    id: u32,
    track: Track,
    timescale: f64,
    default_duration: u32,
}

/// Spans of the tracks of a segment; several fragments of one track are one span.
///
/// # Errors
/// What is missing or wrong.
pub fn spans(init: &[u8], segment: &[u8]) -> Result<Vec<Span>, String> {
    let declared = declared(init)?;
    let mut spans: Vec<Span> = Vec::new();
    for (kind, moof) in boxes(segment)? {
        for (_, traf) in
            boxes(if kind == *b"moof" { moof } else { &[] })?.into_iter().filter(|(kind, _)| kind == b"traf")
        {
            let span = fragment(&declared, traf)?;
            match spans.iter_mut().find(|known| known.track == span.track) {
                Some(known) => known.durations.extend(span.durations),
                None => spans.push(span),
            }
        }
    }
    if spans.is_empty() { Err("no fragment".into()) } else { Ok(spans) }
}

fn declared(init: &[u8]) -> Result<Vec<Declared>, String> {
    let moov = child(init, b"moov")?;
    let mut tracks = Vec::new();
    for (_, trak) in boxes(moov)?.into_iter().filter(|(kind, _)| kind == b"trak") {
        let mdia = child(trak, b"mdia")?;
        let mdhd = child(mdia, b"mdhd")?;
        let tkhd = child(trak, b"tkhd")?;
        // Times of version 1 are twice as long.
        let id = number(tkhd, if tkhd.first() == Some(&1) { 20 } else { 12 })?;
        let track = match child(mdia, b"hdlr")?.get(8..12) {
            Some(b"vide") => Track::Video,
            Some(b"soun") => Track::Audio,
            _ => return Err("a track that is neither video nor audio".into()),
        };
        let timescale = f64::from(number(mdhd, if mdhd.first() == Some(&1) { 20 } else { 12 })?);
        tracks.push(Declared { id, track, timescale, default_duration: 0 });
    }
    for (_, trex) in boxes(child(moov, b"mvex")?)?.into_iter().filter(|(kind, _)| kind == b"trex") {
        let (id, duration) = (number(trex, 4)?, number(trex, 12)?);
        if let Some(track) = tracks.iter_mut().find(|track| track.id == id) {
            track.default_duration = duration;
        }
    }
    Ok(tracks)
}

fn fragment(declared: &[Declared], traf: &[u8]) -> Result<Span, String> {
    let tfhd = child(traf, b"tfhd")?;
    let (flags, id) = (number(tfhd, 0)?, number(tfhd, 4)?);
    let track = declared.iter().find(|track| track.id == id).ok_or("a fragment of no track")?;
    let before = if flags & 1 == 0 { 0 } else { 8 } + if flags & 2 == 0 { 0 } else { 4 };
    let default = if flags & 8 == 0 { track.default_duration } else { number(tfhd, 8 + before)? };
    let tfdt = child(traf, b"tfdt")?;
    let start = match tfdt.first() {
        Some(1) => u64::from(number(tfdt, 4)?) << 32 | u64::from(number(tfdt, 8)?),
        _ => u64::from(number(tfdt, 4)?),
    };
    let mut durations = Vec::new();
    for (_, trun) in boxes(traf)?.into_iter().filter(|(kind, _)| kind == b"trun") {
        let (flags, count) = (number(trun, 0)?, number(trun, 4)?);
        let first = 8 + if flags & 1 == 0 { 0 } else { 4 } + if flags & 4 == 0 { 0 } else { 4 };
        let size = 4 * (flags >> 8 & 15).count_ones() as usize;
        for sample in 0..count as usize {
            let stated = flags & 0x100 != 0;
            let ticks = if stated { number(trun, first + sample * size)? } else { default };
            durations.push(f64::from(ticks) / track.timescale);
        }
    }
    Ok(Span { track: track.track, start: start as f64 / track.timescale, durations })
}

/// Kind and body.
type Framed<'a> = ([u8; 4], &'a [u8]);

/// The boxes that stand one after the other.
fn boxes(bytes: &[u8]) -> Result<Vec<Framed<'_>>, String> {
    let mut found = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let (size, kind) = (number(rest, 0)? as usize, rest.get(4..8).ok_or("a box without a kind")?);
        let body = rest.get(8..size).ok_or("a box that is longer than the file")?;
        found.push(([kind[0], kind[1], kind[2], kind[3]], body));
        rest = &rest[size..];
    }
    Ok(found)
}

fn child<'a>(bytes: &'a [u8], kind: &[u8; 4]) -> Result<&'a [u8], String> {
    let found = boxes(bytes)?.into_iter().find(|(known, _)| known == kind);
    found.map(|(_, body)| body).ok_or_else(|| format!("no {}", String::from_utf8_lossy(kind)))
}

fn number(bytes: &[u8], at: usize) -> Result<u32, String> {
    let digits = bytes.get(at..at + 4).and_then(|digits| digits.try_into().ok());
    digits.map(u32::from_be_bytes).ok_or_else(|| "a box that is too short".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(kind: &[u8; 4], parts: &[&[u8]]) -> Vec<u8> {
        let body = parts.concat();
        let size = u32::try_from(body.len() + 8).unwrap();
        [&size.to_be_bytes()[..], kind, &body].concat()
    }

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    #[test]
    fn stated_and_default_durations_are_read() {
        let handler = framed(b"hdlr", &[&[0; 8], b"vide", &[0; 13]]);
        let mdia = framed(b"mdia", &[&framed(b"mdhd", &[&words(&[0, 0, 0, 1000, 0, 0])]), &handler]);
        let trak = framed(b"trak", &[&framed(b"tkhd", &[&words(&[0, 0, 0, 7, 0])]), &mdia]);
        let mvex = framed(b"mvex", &[&framed(b"trex", &[&words(&[0, 7, 1, 40, 0, 0])])]);
        let init = framed(b"moov", &[&trak, &mvex]);
        let tfhd = framed(b"tfhd", &[&words(&[0x2_0000, 7])]);
        let tfdt = framed(b"tfdt", &[&words(&[0x0100_0000, 0, 5000])]);
        let stated = framed(b"trun", &[&words(&[0x301, 2, 0, 33, 9, 34, 9])]);
        let default = framed(b"trun", &[&words(&[0x201, 1, 0, 9])]);
        let segment = framed(b"moof", &[&framed(b"traf", &[&tfhd, &tfdt, &stated, &default])]);
        let spans = spans(&init, &segment).unwrap();
        assert_eq!(spans, [Span { track: Track::Video, start: 5.0, durations: vec![0.033, 0.034, 0.040] }]);
        assert!((spans[0].seconds() - 0.107).abs() < 1e-9 && (spans[0].longest() - 0.040).abs() < 1e-9);
        assert!(super::spans(&init, &segment[..40]).is_err());
        assert!(super::spans(&init, b"").is_err());
    }
}
