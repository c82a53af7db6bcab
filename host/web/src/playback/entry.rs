//! The text of playlists: the entry of a viewer, which is the published playlist with a token in front of every URI, and the names that
//! a playlist lists.

use satcast_plugin_api::AssetBody;

use satcast_drivers::published::Published;

const MAP: &str = "#EXT-X-MAP:";
const PART: &str = "#EXT-X-PART:";
const GAP: &str = "#EXT-X-GAP";

/// Puts `t/<token>/` in front of every URI of a playlist: lines that are not tags, and `URI` attributes of tags. All URIs below
/// the entry are relative, so no other playlist is rewritten.
pub(super) fn with_token(playlist: &str, token: &str) -> String {
    let prefix = format!("t/{token}/");
    let mut text = String::with_capacity(playlist.len() + 8 * prefix.len());
    for line in playlist.split_inclusive('\n') {
        if line.starts_with('#') {
            tag_with_prefix(&mut text, line, &prefix);
        } else if line.trim().is_empty() {
            text.push_str(line);
        } else {
            text.push_str(&prefix);
            text.push_str(line);
        }
    }
    text
}

/// Adds the prefix in a tag. Quoted attribute values cannot contain quotes (RFC 8216, section 4.2).
fn tag_with_prefix(text: &mut String, line: &str, prefix: &str) {
    for (index, part) in line.split('"').enumerate() {
        let quoted = index % 2 == 1;
        if index > 0 {
            text.push('"');
        }
        if quoted && (text.ends_with(":URI=\"") || text.ends_with(",URI=\"")) {
            text.push_str(prefix);
        }
        text.push_str(part);
    }
}

/// The newest init segment and the newest segment of a media playlist, or the newest part if that segment is missing
/// (EXT-X-GAP): then there are parts alone.
pub(super) fn newest(playlist: &str) -> Option<(Option<&str>, &str)> {
    let mut lines = playlist.lines().rev();
    let (mut init, mut part) = (None, None);
    let segment = loop {
        let line = lines.next()?;
        if !line.starts_with('#') && !line.trim().is_empty() {
            break line;
        }
        if line.starts_with(MAP) {
            init = init.or(uri_of(line));
        } else if line.starts_with(PART) {
            part = part.or(uri_of(line));
        }
    };
    if lines.clone().take_while(|line| line.starts_with('#')).any(|line| line.trim() == GAP) {
        return Some((init, part?));
    }
    Some((lines.find(|line| line.starts_with(MAP)).and_then(uri_of), segment))
}

/// The first URI line of a playlist.
pub(super) fn first(playlist: &str) -> Option<&str> {
    playlist.lines().find(|line| !line.starts_with('#') && !line.trim().is_empty())
}

/// Whether the playlist lists playlists instead of segments.
pub(super) fn is_multivariant(playlist: &str) -> bool {
    playlist.lines().any(|line| line.starts_with("#EXT-X-STREAM-INF"))
}

fn uri_of(tag: &str) -> Option<&str> {
    let (_, rest) = tag.split_once("URI=\"")?;
    Some(rest.split_once('"')?.0)
}

/// The text of a playlist.
pub(super) fn text(asset: &Published) -> Option<&str> {
    match &asset.body {
        AssetBody::Memory(bytes) if asset.is_playlist() => std::str::from_utf8(bytes).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_uri_gets_the_token_and_nothing_else_changes() {
        let entry = "#EXTM3U\n#EXT-X-MEDIA:TYPE=AUDIO,NAME=\"x,URI=\",URI=\"audio.m3u8\",LANGUAGE=\"en\"\n\
                     #EXT-X-STREAM-INF:BANDWIDTH=1,CODECS=\"avc1.64001f,mp4a.40.2\"\nmedia.m3u8\n\n\
                     #EXT-X-I-FRAME-STREAM-INF:URI=\"i.m3u8\"\r\nlow.m3u8";
        let expected = "#EXTM3U\n#EXT-X-MEDIA:TYPE=AUDIO,NAME=\"x,URI=\",URI=\"t/TOK/audio.m3u8\",LANGUAGE=\"en\"\n\
                        #EXT-X-STREAM-INF:BANDWIDTH=1,CODECS=\"avc1.64001f,mp4a.40.2\"\nt/TOK/media.m3u8\n\n\
                        #EXT-X-I-FRAME-STREAM-INF:URI=\"t/TOK/i.m3u8\"\r\nt/TOK/low.m3u8";
        assert_eq!(with_token(entry, "TOK"), expected);
        assert_eq!(with_token("", "TOK"), "");
    }

    #[test]
    fn the_preview_playlist_is_an_entry_as_well() {
        let preview = "#EXTM3U\n#EXT-X-MAP:URI=\"i0.mp4\"\n#EXTINF:6.000,\np17-3.m4s\n";
        let expected = "#EXTM3U\n#EXT-X-MAP:URI=\"t/T/i0.mp4\"\n#EXTINF:6.000,\nt/T/p17-3.m4s\n";
        assert_eq!(with_token(preview, "T"), expected);
    }

    #[test]
    fn the_newest_segments_are_found_from_the_end() {
        let media = "#EXTM3U\n#EXT-X-MAP:URI=\"i1.mp4\"\n#EXTINF:2,\n1.m4s\n#EXT-X-DISCONTINUITY\n\
                     #EXT-X-MAP:URI=\"i2.mp4\",BYTERANGE=\"1@0\"\n#EXTINF:2,\n2.m4s\n#EXTINF:2,\n3.m4s\n#EXT-X-ENDLIST\n";
        assert_eq!(newest(media), Some((Some("i2.mp4"), "3.m4s")));
        assert_eq!(newest("#EXTM3U\n#EXTINF:2,\n1.ts\n"), Some((None, "1.ts")));
        assert_eq!(newest("#EXTM3U\n#EXT-X-MAP:URI=\"i1.mp4\"\n"), None);
        let gap = "#EXTM3U\n#EXT-X-PART:DURATION=0.5,URI=\"gap\",GAP=YES\n#EXT-X-GAP\n#EXTINF:0.5,\ngap\n";
        assert_eq!(newest(gap), None);
        let parts = format!(
            "{gap}#EXT-X-MAP:URI=\"i1.mp4\"\n#EXT-X-PART:DURATION=0.5,URI=\"1\"\n\
             #EXT-X-PART:DURATION=0.5,URI=\"2\"\n#EXT-X-PRELOAD-HINT:TYPE=PART,URI=\"3\"\n"
        );
        assert_eq!(newest(&parts), Some((Some("i1.mp4"), "2")));
        assert_eq!(first("#EXTM3U\n\n#EXT-X-STREAM-INF:BANDWIDTH=1\nmedia.m3u8\n"), Some("media.m3u8"));
        assert_eq!(first("#EXTM3U\n"), None);
        assert!(is_multivariant("#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\nm\n") && !is_multivariant(media));
    }
}
