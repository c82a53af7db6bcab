//! A strict parser of playlists: a fault that a tolerant player would accept is an error here (RFC 8216, and this service's own
//! rules: a date on every segment, relative names, an initialization segment after each discontinuity).

use std::collections::BTreeMap;

use crate::lowlatency::Version;

/// Some players refuse later versions.
const VERSION_MAX: u32 = 10;

/// A multivariant playlist with its one rendition.
#[derive(Clone, Debug)]
pub struct Index {
    /// Attributes of the rendition, quotes removed.
    pub attributes: BTreeMap<String, String>,
    /// Relative address of the media playlist.
    pub media: String,
}

/// A media playlist.
#[derive(Clone, Debug)]
pub struct Media {
    /// EXT-X-VERSION.
    pub version: u32,
    /// EXT-X-TARGETDURATION in seconds.
    pub target_seconds: u64,
    /// Media sequence number of the first segment.
    pub sequence: u64,
    /// EXT-X-DISCONTINUITY-SEQUENCE, 0 when left out.
    pub discontinuity_sequence: u64,
    /// EXT-X-INDEPENDENT-SEGMENTS is there.
    pub independent: bool,
    /// EXT-X-ENDLIST is there.
    pub ended: bool,
    /// The window, oldest first; never empty.
    pub segments: Vec<Segment>,
    /// The content about parts, when it has parts.
    pub parts: Option<Version>,
}

/// One segment as it is listed.
#[derive(Clone, Debug, PartialEq)]
pub struct Segment {
    /// Media sequence number.
    pub sequence: u64,
    /// Relative address.
    pub name: String,
    /// EXTINF in seconds.
    pub duration: f64,
    /// EXT-X-PROGRAM-DATE-TIME in milliseconds since 1970.
    pub date_ms: i64,
    /// EXT-X-DISCONTINUITY precedes it.
    pub discontinuity: bool,
    /// Relative address of its initialization segment.
    pub init: String,
}

impl Media {
    /// The newest segment.
    ///
    /// # Panics
    /// Never: the parser refuses a playlist without segments.
    #[must_use]
    pub fn newest(&self) -> &Segment {
        self.segments.last().expect("a parsed playlist has at least one segment")
    }

    /// Seconds of media in the window.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.segments.iter().map(|segment| segment.duration).sum()
    }

    /// Whether this is a valid update of `before`: nothing published was changed.
    ///
    /// # Errors
    /// The change that is not allowed.
    pub fn follows(&self, before: &Media) -> Result<(), String> {
        if self.target_seconds != before.target_seconds {
            return Err(format!(
                "the target changed from {} to {}",
                before.target_seconds, self.target_seconds
            ));
        }
        if self.sequence < before.sequence || self.newest().sequence < before.newest().sequence {
            return Err(format!("the media sequence fell from {} to {}", before.sequence, self.sequence));
        }
        match (&before.parts, &self.parts) {
            (Some(before), Some(now)) => now.follows(before)?,
            (None, None) => {}
            (before, _) => {
                return Err(format!("parts appeared or disappeared; before: {}", before.is_some()));
            }
        }
        if before.ended && !self.ended {
            return Err("the end was removed".into());
        }
        let removed = before.segments.iter().filter(|segment| segment.sequence < self.sequence);
        let removed = removed.filter(|segment| segment.discontinuity).count() as u64;
        // Segments that appeared and disappeared between two requests may have had more discontinuities.
        if self.discontinuity_sequence < before.discontinuity_sequence + removed {
            return Err(format!("{} discontinuities are counted", self.discontinuity_sequence));
        }
        for old in &before.segments {
            let now = self.segments.iter().find(|segment| segment.sequence == old.sequence);
            if now.is_some_and(|now| now != old) {
                return Err(format!("segment {} was {old:?} and is {now:?}", old.sequence));
            }
        }
        Ok(())
    }
}

/// Reads a multivariant playlist.
///
/// # Errors
/// The line and its fault.
pub fn index(text: &str) -> Result<Index, String> {
    let mut lines = lines(text)?;
    let (mut version, mut attributes, mut media) = (None, None, None);
    for (number, line) in &mut lines {
        let wrong = |what: &str| Err(format!("line {number}: {what}: {line}"));
        match line.split_once(':').unwrap_or((line, "")) {
            ("#EXT-X-VERSION", value) if version.is_none() => version = Some(self::version(value)?),
            ("#EXT-X-INDEPENDENT-SEGMENTS", "") => {}
            ("#EXT-X-STREAM-INF", list) if attributes.is_none() => attributes = Some(self::attributes(list)?),
            (tag, _) if tag.starts_with('#') => return wrong("a tag that was not expected"),
            _ if attributes.is_some() && media.is_none() => media = Some(name(line)?),
            _ => return wrong("an address that was not expected"),
        }
    }
    version.ok_or("no EXT-X-VERSION")?;
    let attributes = attributes.ok_or("no EXT-X-STREAM-INF")?;
    for needed in ["BANDWIDTH", "CODECS"] {
        if !attributes.contains_key(needed) {
            return Err(format!("no {needed} in EXT-X-STREAM-INF"));
        }
    }
    Ok(Index { attributes, media: media.ok_or("no address of a media playlist")? })
}

/// The tags before the next address.
#[derive(Default)]
struct Pending {
    duration: Option<f64>,
    date_ms: Option<i64>,
    discontinuity: bool,
    mapped: bool,
}

/// Reads a media playlist.
///
/// # Errors
/// The line and its fault.
pub fn media(text: &str) -> Result<Media, String> {
    let mut header: BTreeMap<&str, &str> = BTreeMap::new();
    let mut segments: Vec<Segment> = Vec::new();
    let (mut init, mut pending, mut ended) = (None, Pending::default(), false);
    for (number, line) in lines(text)? {
        let wrong = |what: &str| format!("line {number}: {what}: {line}");
        if ended {
            return Err(wrong("a line after the end"));
        }
        match line.split_once(':').unwrap_or((line, "")) {
            (
                tag @ ("#EXT-X-VERSION"
                | "#EXT-X-TARGETDURATION"
                | "#EXT-X-MEDIA-SEQUENCE"
                | "#EXT-X-DISCONTINUITY-SEQUENCE"
                | "#EXT-X-INDEPENDENT-SEGMENTS"
                | "#EXT-X-SERVER-CONTROL"
                | "#EXT-X-PART-INF"),
                value,
            ) => {
                if init.is_some() || header.insert(tag, value).is_some() {
                    return Err(wrong("a header tag that is late or repeated"));
                }
            }
            ("#EXT-X-MAP", list) => {
                let mut list = attributes(list)?;
                init = Some(name(&list.remove("URI").ok_or_else(|| wrong("no URI"))?)?);
                pending.mapped = true;
            }
            ("#EXT-X-DISCONTINUITY", "") => pending.discontinuity = true,
            ("#EXT-X-PROGRAM-DATE-TIME", value) => {
                pending.date_ms = Some(date_ms(value).ok_or_else(|| wrong("a date that cannot be read"))?);
            }
            ("#EXTINF", value) => {
                pending.duration = Some(duration(value).ok_or_else(|| wrong("no duration"))?)
            }
            ("#EXT-X-ENDLIST", "") => ended = true,
            // Tags about parts are parsed below; without their header tags a playlist has no parts.
            ("#EXT-X-PART" | "#EXT-X-PRELOAD-HINT", _) if header.contains_key("#EXT-X-PART-INF") => {}
            (tag, _) if tag.starts_with('#') => return Err(wrong("a tag that was not expected")),
            _ => {
                let done = std::mem::take(&mut pending);
                let sequence = segments.last().map(|last| last.sequence + 1);
                let sequence = sequence.map_or_else(|| number_of(&header, "#EXT-X-MEDIA-SEQUENCE"), Ok)?;
                segments.push(done.segment(sequence, line, init.as_deref()).map_err(|what| wrong(&what))?);
            }
        }
    }
    let has_parts = header.contains_key("#EXT-X-PART-INF") || header.contains_key("#EXT-X-SERVER-CONTROL");
    let parts = has_parts.then(|| Version::parse(text)).transpose()?;
    Ok(Media { parts, ..finish(&header, segments, ended)? })
}

impl Pending {
    fn segment(self, sequence: u64, line: &str, init: Option<&str>) -> Result<Segment, String> {
        if self.discontinuity && !self.mapped {
            return Err("a discontinuity without EXT-X-MAP".into());
        }
        Ok(Segment {
            sequence,
            name: name(line)?,
            duration: self.duration.ok_or("no EXTINF")?,
            date_ms: self.date_ms.ok_or("no EXT-X-PROGRAM-DATE-TIME")?,
            discontinuity: self.discontinuity,
            init: init.ok_or("no EXT-X-MAP")?.to_owned(),
        })
    }
}

fn finish(header: &BTreeMap<&str, &str>, segments: Vec<Segment>, ended: bool) -> Result<Media, String> {
    let target_seconds = number_of(header, "#EXT-X-TARGETDURATION")?;
    let first = segments.first().ok_or("no segment")?;
    let mut names: Vec<&str> = segments.iter().map(|segment| segment.name.as_str()).collect();
    names.sort_unstable();
    if names.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err("a segment is listed twice".into());
    }
    if let Some(long) = segments.iter().find(|segment| segment.duration.round() as u64 > target_seconds) {
        return Err(format!("{long:?} is longer than the target of {target_seconds} s"));
    }
    if let Some(pair) = segments.windows(2).find(|pair| pair[0].date_ms >= pair[1].date_ms) {
        return Err(format!("dates go back from {:?} to {:?}", pair[0], pair[1]));
    }
    Ok(Media {
        version: version(header.get("#EXT-X-VERSION").ok_or("no EXT-X-VERSION")?)?,
        target_seconds,
        sequence: first.sequence,
        discontinuity_sequence: match header.get("#EXT-X-DISCONTINUITY-SEQUENCE") {
            Some(_) => number_of(header, "#EXT-X-DISCONTINUITY-SEQUENCE")?,
            None => 0,
        },
        independent: header.contains_key("#EXT-X-INDEPENDENT-SEGMENTS"),
        ended,
        segments,
        parts: None,
    })
}

/// Numbered lines after `#EXTM3U`.
fn lines(text: &str) -> Result<impl Iterator<Item = (usize, &str)>, String> {
    if !text.ends_with('\n') || text.contains(['\r', '\u{feff}']) || text.contains("\n\n") {
        return Err("the lines are not plain".into());
    }
    let mut lines = text.lines().enumerate().map(|(index, line)| (index + 1, line));
    if lines.next().is_some_and(|(_, line)| line == "#EXTM3U") { Ok(lines) } else { Err("no EXTM3U".into()) }
}

fn version(value: &str) -> Result<u32, String> {
    let version = value.parse().map_err(|_| format!("version {value}"))?;
    if version <= VERSION_MAX { Ok(version) } else { Err(format!("version {version} is refused by players")) }
}

fn number_of(header: &BTreeMap<&str, &str>, tag: &str) -> Result<u64, String> {
    header.get(tag).and_then(|value| value.parse().ok()).ok_or_else(|| format!("no number in {tag}"))
}

/// A relative address without a query: the service needs no query here, and a key would be in it.
fn name(text: &str) -> Result<String, String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/".contains(&byte);
    if text.starts_with('/') || text.contains("..") || !text.bytes().all(plain) {
        return Err(format!("no plain relative address: {text}"));
    }
    Ok(text.to_owned())
}

/// `NAME=value,NAME="value"`; commas may stand in quotes.
fn attributes(list: &str) -> Result<BTreeMap<String, String>, String> {
    let mut found = BTreeMap::new();
    let mut rest = list;
    while !rest.is_empty() {
        let (key, after) = rest.split_once('=').ok_or_else(|| format!("no value in {rest}"))?;
        let (value, after) = match after.strip_prefix('"') {
            Some(quoted) => {
                let (value, after) = quoted.split_once('"').ok_or("an open quote")?;
                (value, after.strip_prefix(',').unwrap_or(after))
            }
            None => after.split_once(',').unwrap_or((after, "")),
        };
        if found.insert(key.to_owned(), value.to_owned()).is_some() {
            return Err(format!("{key} is repeated in {list}"));
        }
        rest = after;
    }
    Ok(found)
}

/// `2.00000,`
fn duration(value: &str) -> Option<f64> {
    let seconds: f64 = value.strip_suffix(',')?.parse().ok()?;
    (seconds > 0.0).then_some(seconds)
}

/// `2026-11-20T19:08:00.123Z` in milliseconds since 1970.
fn date_ms(text: &str) -> Option<i64> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let numbers =
        |text: &str, by: char| text.split(by).map(|part| part.parse().ok()).collect::<Option<Vec<i64>>>();
    let (clock, millis) = time.split_once('.')?;
    let ([year, month, day], [hour, minute, second]) =
        (<[i64; 3]>::try_from(numbers(date, '-')?).ok()?, <[i64; 3]>::try_from(numbers(clock, ':')?).ok()?);
    let millis: i64 = if millis.len() == 3 { millis.parse().ok()? } else { return None };
    // Days before the month, counted from March, so that the leap day is the last.
    let (year, month) = if month < 3 { (year - 1, month + 9) } else { (year, month - 3) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1 - 719_468;
    Some((((days * 24 + hour) * 60 + minute) * 60 + second) * 1000 + millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "#EXTM3U\n#EXT-X-VERSION:7\n#EXT-X-TARGETDURATION:3\n#EXT-X-MEDIA-SEQUENCE:9\n\
        #EXT-X-INDEPENDENT-SEGMENTS\n#EXT-X-MAP:URI=\"i9-0.mp4\"\n\
        #EXT-X-PROGRAM-DATE-TIME:2026-11-20T19:08:00.000Z\n#EXTINF:2.00000,\n9.m4s\n\
        #EXT-X-DISCONTINUITY\n#EXT-X-MAP:URI=\"i9-1.mp4\"\n\
        #EXT-X-PROGRAM-DATE-TIME:2026-11-20T19:08:02.000Z\n#EXTINF:3.40000,\n10.m4s\n";

    #[test]
    fn a_good_playlist_is_read() {
        let media = media(GOOD).unwrap();
        assert_eq!((media.version, media.target_seconds, media.sequence, media.ended), (7, 3, 9, false));
        let newest = media.newest();
        assert_eq!((newest.sequence, newest.init.as_str(), newest.discontinuity), (10, "i9-1.mp4", true));
        assert_eq!(newest.date_ms - media.segments[0].date_ms, 2000);
        assert!((media.seconds() - 5.4).abs() < 1e-9);
    }

    #[test]
    fn faults_that_players_tolerate_are_refused() {
        for (from, to) in [
            ("#EXTM3U\n", ""),
            ("VERSION:7", "VERSION:11"),
            ("#EXT-X-TARGETDURATION:3\n", ""),
            ("TARGETDURATION:3", "TARGETDURATION:2"),
            ("#EXT-X-MEDIA-SEQUENCE:9\n", ""),
            ("#EXT-X-MAP:URI=\"i9-0.mp4\"\n", ""),
            ("#EXT-X-DISCONTINUITY\n#EXT-X-MAP:URI=\"i9-1.mp4\"\n", "#EXT-X-DISCONTINUITY\n"),
            ("#EXT-X-PROGRAM-DATE-TIME:2026-11-20T19:08:02.000Z\n", ""),
            ("19:08:02", "19:07:58"),
            ("#EXTINF:3.40000,\n", ""),
            ("10.m4s", "9.m4s"),
            ("10.m4s", "10.m4s?apiKey=pk_x"),
            ("10.m4s", "/hls/10.m4s"),
            ("10.m4s\n", "10.m4s\n#EXT-X-ENDLIST\n11.m4s\n"),
            ("#EXTINF:3.40000,", "#EXT-X-VERSION:7\n#EXTINF:3.40000,"),
        ] {
            let text = GOOD.replacen(from, to, 1);
            assert_ne!(text, GOOD, "{from} is not in the example");
            assert!(media(&text).is_err(), "{from} -> {to}");
        }
    }

    #[test]
    fn published_playlist_lines_do_not_change() {
        let before = media(GOOD).unwrap();
        before.follows(&before).unwrap();
        for (from, to) in [
            ("SEQUENCE:9", "SEQUENCE:8"),
            ("TARGETDURATION:3", "TARGETDURATION:4"),
            ("3.40000", "3.30000"),
            ("i9-1.mp4", "i9-2.mp4"),
        ] {
            let after = media(&GOOD.replacen(from, to, 1)).unwrap();
            assert!(after.follows(&before).is_err(), "{from} -> {to}");
        }
    }

    #[test]
    fn an_index_is_read_and_a_poor_one_refused() {
        let good = "#EXTM3U\n#EXT-X-VERSION:7\n#EXT-X-INDEPENDENT-SEGMENTS\n\
            #EXT-X-STREAM-INF:BANDWIDTH=9,CODECS=\"avc1.4d401f,mp4a.40.2\",RESOLUTION=1280x720\nt/abc/media.m3u8\n";
        let read = index(good).unwrap();
        assert_eq!(read.media, "t/abc/media.m3u8");
        assert_eq!(read.attributes["CODECS"], "avc1.4d401f,mp4a.40.2");
        assert_eq!(read.attributes["RESOLUTION"], "1280x720");
        for (from, to) in [("CODECS", "CODEX"), ("t/abc", "t/abc?apiKey=x"), ("t/abc", "http://x/t/abc")] {
            assert!(index(&good.replacen(from, to, 1)).is_err(), "{from} -> {to}");
        }
    }

    #[test]
    fn dates_are_read() {
        assert_eq!(date_ms("1970-01-01T00:00:00.000Z"), Some(0));
        assert_eq!(date_ms("2026-11-20T19:08:02.345Z"), Some(1_795_201_682_345));
        assert_eq!(date_ms("2024-02-29T23:59:59.999Z"), Some(1_709_251_199_999));
        assert_eq!(date_ms("2024-02-29T23:59:59Z"), None);
    }
}
