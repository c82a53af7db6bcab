//! The live edge of a playlist: its newest assets, and the time at which its media ends.
//!
//! The status needs them at every request, and a playlist of an hour is long: it is read once for each version.

use std::sync::Arc;

use satcast_plugin_api::AssetBody;
use time::{Date, Month};

use super::entry;
use satcast_drivers::published::{Assets, Edge, Published};

const DATE: &str = "#EXT-X-PROGRAM-DATE-TIME:";
const DURATION: &str = "#EXTINF:";
const PART: &str = "#EXT-X-PART:";
const CONTROL: &str = "#EXT-X-SERVER-CONTROL:";
const TARGET: &str = "#EXT-X-TARGETDURATION:";
/// Target durations that a player stays behind a playlist without an explicit hold-back (RFC 8216, 6.3.3).
const TARGETS_BEHIND: f64 = 3.0;

/// The live edge of a playlist; its text is read once for each version.
pub(super) fn of(playlist: &Published) -> Option<&Edge> {
    playlist.edge(|text| {
        if entry::is_multivariant(text) {
            return Edge { playlist: entry::first(text).map(str::to_owned), ..Edge::default() };
        }
        let (init, segment) = entry::newest(text).unzip();
        Edge {
            playlist: None,
            segment: segment.map(str::to_owned),
            init: init.flatten().map(str::to_owned),
            end_ms: end_ms(text),
            distance_ms: distance_ms(text),
        }
    })
}

/// The media playlist that players load.
pub(super) fn media(assets: &Assets) -> Option<Arc<Published>> {
    let entry = hosted(assets, &assets.playback()?.entry)?;
    match &of(&entry)?.playlist {
        Some(name) => hosted(assets, name),
        None => Some(entry),
    }
}

/// Entry, media playlist, newest init segment and newest segment are published.
pub(super) fn is_playable(assets: &Assets) -> Option<()> {
    let media = media(assets)?;
    let edge = of(&media)?;
    for name in edge.init.iter().chain([edge.segment.as_ref()?]) {
        is_there(assets, &*hosted(assets, name)?)?;
    }
    Some(())
}

/// An asset that viewers with a key may fetch.
fn hosted(assets: &Assets, name: &str) -> Option<Arc<Published>> {
    assets.get(name).filter(|asset| asset.audience.is_hosted())
}

fn is_there(assets: &Assets, asset: &Published) -> Option<()> {
    match &asset.body {
        AssetBody::Memory(bytes) => (!bytes.is_empty()).then_some(()),
        // The file is not checked, because a hanging disk must not block the caller. The driver keeps it while it is published.
        AssetBody::File { len, .. } | AssetBody::Open { len, .. } => (*len > 0).then_some(()),
        AssetBody::Parts(names) => names.iter().try_for_each(|name| {
            let part = assets.get(name).filter(|part| !matches!(part.body, AssetBody::Parts(_)))?;
            is_there(assets, &part)
        }),
    }
}

/// Wall-clock time of the end of the listed media: the last date, plus the media listed after it.
fn end_ms(playlist: &str) -> Option<i64> {
    let (mut behind_secs, mut whole) = (0.0, false);
    for line in playlist.lines().rev() {
        if let Some(duration) = line.strip_prefix(DURATION) {
            // The parts of a whole segment are listed before it and are counted with it.
            whole = true;
            behind_secs += seconds(duration.split(',').next()?)?;
        } else if let Some(part) = line.strip_prefix(PART).filter(|_| !whole) {
            behind_secs += seconds(attribute(part, "DURATION")?)?;
        } else if let Some(date) = line.strip_prefix(DATE) {
            return Some(date_ms(date)? + millis(behind_secs));
        }
    }
    None
}

/// The hold-back that the playlist asks for: the part hold-back if it has parts.
fn distance_ms(playlist: &str) -> Option<i64> {
    let head = || playlist.lines().take_while(|line| !line.starts_with(DURATION));
    if let Some(control) = head().find_map(|line| line.strip_prefix(CONTROL)) {
        let said = attribute(control, "PART-HOLD-BACK").or_else(|| attribute(control, "HOLD-BACK"));
        if let Some(secs) = said.and_then(seconds) {
            return Some(millis(secs));
        }
    }
    let target = head().find_map(|line| line.strip_prefix(TARGET)).and_then(seconds)?;
    Some(millis(target * TARGETS_BEHIND))
}

/// A value of an attribute list; the attributes read here never follow a quoted comma.
fn attribute<'a>(list: &'a str, name: &str) -> Option<&'a str> {
    list.split(',')
        .find_map(|pair| pair.split_once('=').filter(|(known, _)| *known == name).map(|(_, value)| value))
}

fn seconds(text: &str) -> Option<f64> {
    text.trim().parse().ok().filter(|secs: &f64| secs.is_finite() && *secs >= 0.0)
}

fn millis(secs: f64) -> i64 {
    (secs * 1_000.0).round() as i64
}

/// Parses `2027-01-15T08:00:00.000Z`, the only date format of these playlists, to Unix milliseconds.
fn date_ms(text: &str) -> Option<i64> {
    let (date, clock) = text.trim().strip_suffix('Z')?.split_once('T')?;
    let mut date = date.splitn(3, '-');
    let year = date.next()?.parse().ok()?;
    let month = Month::try_from(date.next()?.parse::<u8>().ok()?).ok()?;
    let day = Date::from_calendar_date(year, month, date.next()?.parse().ok()?).ok()?;
    let mut clock = clock.splitn(3, ':');
    let (hour, minute) = (clock.next()?.parse().ok()?, clock.next()?.parse().ok()?);
    let secs = seconds(clock.next()?)?;
    let minute = day.with_hms(hour, minute, 0).ok()?.assume_utc();
    Some(minute.unix_timestamp() * 1_000 + millis(secs))
}

#[cfg(test)]
mod tests {
    use super::*;

    const START_MS: i64 = 1_800_000_000_000;

    #[test]
    fn the_end_is_the_last_date_plus_the_media_after_it() {
        let segments = "#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXT-X-MAP:URI=\"i\"\n\
            #EXT-X-PROGRAM-DATE-TIME:2027-01-15T08:00:00.000Z\n#EXTINF:2.00000,\n1.m4s\n\
            #EXT-X-PROGRAM-DATE-TIME:2027-01-15T08:00:02.002Z\n#EXTINF:2.00200,\n2.m4s\n";
        assert_eq!(end_ms(segments), Some(START_MS + 4_004));
        let undated = format!("{segments}#EXTINF:1.5,\n3.m4s\n");
        assert_eq!(end_ms(&undated), Some(START_MS + 5_504));
        let parts = "#EXT-X-PROGRAM-DATE-TIME:2027-01-15T08:00:00.000Z\n#EXT-X-PART:DURATION=0.5,URI=\"a\"\n\
            #EXT-X-PART:DURATION=0.5,URI=\"b\",INDEPENDENT=YES\n#EXTINF:1.00000,\n1.m4s\n\
            #EXT-X-PROGRAM-DATE-TIME:2027-01-15T08:00:01.000Z\n#EXT-X-PART:DURATION=0.50000,URI=\"c\"\n\
            #EXT-X-PART:URI=\"d\",DURATION=0.25\n#EXT-X-PRELOAD-HINT:TYPE=PART,URI=\"e\"\n";
        assert_eq!(end_ms(parts), Some(START_MS + 1_750));
        let dated_once = parts.replace("#EXT-X-PROGRAM-DATE-TIME:2027-01-15T08:00:01.000Z\n", "");
        assert_eq!(end_ms(&dated_once), Some(START_MS + 1_750), "parts of a whole segment count once");
        for nothing in ["", "#EXTM3U\n#EXTINF:2.0,\n1.m4s\n", "#EXT-X-PROGRAM-DATE-TIME:yesterday\n"] {
            assert_eq!(end_ms(nothing), None, "{nothing}");
        }
    }

    #[test]
    fn the_distance_is_the_hold_back_of_the_playlist() {
        let plain = "#EXTM3U\n#EXT-X-TARGETDURATION:4\n#EXTINF:4,\n1\n";
        assert_eq!(distance_ms(plain), Some(12_000));
        let with = |control: &str| format!("#EXTM3U\n#EXT-X-SERVER-CONTROL:{control}\n{plain}");
        assert_eq!(distance_ms(&with("CAN-BLOCK-RELOAD=YES,PART-HOLD-BACK=2.0,HOLD-BACK=12")), Some(2_000));
        assert_eq!(distance_ms(&with("HOLD-BACK=6.5")), Some(6_500));
        assert_eq!(distance_ms(&with("CAN-SKIP-UNTIL=12")), Some(12_000));
        assert_eq!(distance_ms("#EXTM3U\n"), None);
    }

    #[test]
    fn dates_are_read_to_the_millisecond() {
        assert_eq!(date_ms("2027-01-15T08:00:00.000Z"), Some(START_MS));
        assert_eq!(date_ms("2027-01-15T08:00:59.999Z\r"), Some(START_MS + 59_999));
        for odd in [
            "2027-13-15T08:00:00Z",
            "2027-01-15T25:00:00Z",
            "2027-01-15 08:00:00Z",
            "2027-01-15T08:00:00+01:00",
            "",
        ] {
            assert_eq!(date_ms(odd), None, "{odd}");
        }
    }
}
