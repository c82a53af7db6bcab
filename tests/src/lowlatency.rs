//! Playlists with parts, read strictly (RFC 8216bis, sections 4.4.3.8, 4.4.4.9, 4.4.5.2, 4.4.5.3).

/// The content of one version of a playlist with parts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Version {
    /// EXT-X-TARGETDURATION in seconds.
    pub target: f64,
    /// PART-TARGET in seconds.
    pub part_target: f64,
    /// PART-HOLD-BACK in seconds.
    pub hold_back: f64,
    /// CAN-SKIP-UNTIL in seconds.
    pub skip_until: f64,
    /// Number of the first segment: EXT-X-MEDIA-SEQUENCE, or the number after a missing segment in front (EXT-X-GAP).
    pub sequence: u64,
    /// SKIPPED-SEGMENTS, 0 without.
    pub skipped: u64,
    /// Names of the whole segments that are listed, and their durations in seconds.
    pub segments: Vec<(String, f64)>,
    /// Parts, oldest first.
    pub parts: Vec<Part>,
    /// Name of the announced next part.
    pub hint: Option<String>,
}

/// A part as it is listed.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// Media sequence number of its segment.
    pub sequence: u64,
    /// Name.
    pub name: String,
    /// DURATION in seconds.
    pub duration: f64,
    /// INDEPENDENT=YES.
    pub independent: bool,
    /// Name of the initialization segment it needs.
    pub init: String,
}

impl Version {
    /// Parses a playlist and checks its rules.
    ///
    /// # Panics
    /// When it breaks a rule.
    #[track_caller]
    #[must_use]
    pub fn read(text: &str) -> Self {
        Self::parse(text).unwrap_or_else(|error| panic!("{error} in the playlist:\n{text}"))
    }

    /// The same.
    ///
    /// # Errors
    /// The rule that it breaks, and where.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (mut version, mut reading) = (Version::default(), Reading::default());
        for line in text.lines() {
            version.line(line, &mut reading).map_err(|what| format!("{what}: {line}"))?;
        }
        version.check(text)?;
        Ok(version)
    }

    fn line(&mut self, line: &str, reading: &mut Reading) -> Result<(), String> {
        let (tag, value) = line.split_once(':').unwrap_or((line, ""));
        let text = |name: &str| attribute(value, name).ok_or_else(|| format!("no {name}"));
        let number = |text: &str| text.parse::<f64>().map_err(|_| "no number".to_owned());
        match tag {
            "#EXT-X-TARGETDURATION" => self.target = number(value)?,
            "#EXT-X-MEDIA-SEQUENCE" => self.sequence = number(value)? as u64,
            "#EXT-X-SERVER-CONTROL" => {
                expect(text("CAN-BLOCK-RELOAD")? == "YES", "no blocking reload")?;
                self.hold_back = number(&text("PART-HOLD-BACK")?)?;
                self.skip_until = number(&text("CAN-SKIP-UNTIL")?)?;
                expect(number(&text("HOLD-BACK")?)? >= 3.0 * self.target, "less than three targets")?;
                expect(self.skip_until >= 6.0 * self.target, "less than six targets")?;
            }
            "#EXT-X-PART-INF" => self.part_target = number(&text("PART-TARGET")?)?,
            "#EXT-X-SKIP" => self.skipped = number(&text("SKIPPED-SEGMENTS")?)? as u64,
            "#EXT-X-MAP" => reading.init = text("URI")?,
            "#EXTINF" => reading.duration = number(value.trim_end_matches(','))?,
            "#EXT-X-GAP" => reading.is_missing = true,
            "#EXT-X-PART" if value.ends_with(",GAP=YES") => {}
            "#EXT-X-PART" => {
                expect(self.hint.is_none(), "a part after the hint")?;
                reading.is_open = true;
                self.parts.push(Part {
                    sequence: self.next(),
                    name: text("URI")?,
                    duration: number(&text("DURATION")?)?,
                    independent: value.ends_with(",INDEPENDENT=YES"),
                    init: reading.init.clone(),
                });
            }
            "#EXT-X-DISCONTINUITY" | "#EXT-X-PROGRAM-DATE-TIME" => {
                expect(!reading.is_open, "after a part of the same segment")?;
            }
            "#EXT-X-PRELOAD-HINT" => {
                expect(text("TYPE")? == "PART", "no part")?;
                expect(self.hint.replace(text("URI")?).is_none(), "a second hint")?;
            }
            _ if !line.starts_with('#') && std::mem::take(&mut reading.is_missing) => {
                expect(self.segments.is_empty(), "a missing segment behind another")?;
                self.sequence += 1;
            }
            _ if !line.starts_with('#') => {
                expect(self.hint.is_none(), "a segment after the hint")?;
                self.segments.push((line.to_owned(), reading.duration));
                reading.is_open = false;
            }
            _ => {}
        }
        Ok(())
    }

    /// Number of the first segment that is not complete.
    #[must_use]
    pub fn next(&self) -> u64 {
        self.sequence + self.skipped + self.segments.len() as u64
    }

    /// Number of listed parts of that segment.
    #[must_use]
    pub fn next_part(&self) -> usize {
        self.parts.iter().filter(|part| part.sequence == self.next()).count()
    }

    fn check(&self, text: &str) -> Result<(), String> {
        expect(self.hold_back >= 3.0 * self.part_target && self.part_target > 0.0, "a hold-back too small")?;
        expect(text.contains("\n#EXT-X-VERSION:9\n"), "the version is not 9")?;
        for (at, part) in self.parts.iter().enumerate() {
            let wrong = |is_right: bool, what: &str| expect(is_right, &format!("{what}: {part:?}"));
            let is_last = self.parts.get(at + 1).is_none_or(|next| next.sequence != part.sequence);
            let is_first = at == 0 || self.parts[at - 1].sequence != part.sequence;
            wrong(part.duration <= self.part_target, "longer than the target of parts")?;
            wrong(is_last || part.duration >= 0.85 * self.part_target, "too short")?;
            // A keyframe whose audio never arrived stays in the previous segment, and may be independent too.
            let may_begin = is_first || (is_last && part.independent);
            wrong(part.independent == may_begin, "INDEPENDENT is for the first part")?;
            wrong(part.sequence + 3 > self.next(), "too old")?;
        }
        let head = text.find("#EXT-X-DISCONTINUITY-SEQUENCE").ok_or("no discontinuity sequence")?;
        expect(text.find("#EXT-X-SKIP").is_none_or(|skip| head < skip), "a header tag after EXT-X-SKIP")?;
        expect(
            self.hint.is_some() != text.ends_with("#EXT-X-ENDLIST\n"),
            "a hint until the end, and none then",
        )?;
        let last = text.lines().last().unwrap_or_default();
        expect(self.hint.is_none() || last.starts_with("#EXT-X-PRELOAD-HINT:"), "a line after the hint")?;
        self.check_skip()
    }

    /// A delta leaves out all segments further from the end than CAN-SKIP-UNTIL, and no nearer ones (RFC 8216bis, 6.2.5.1).
    fn check_skip(&self) -> Result<(), String> {
        if self.skipped == 0 {
            return Ok(());
        }
        let kept: f64 = self.segments.iter().map(|(_, duration)| duration).sum();
        expect(kept >= self.skip_until, &format!("only {kept} s are kept of {} s", self.skip_until))?;
        let oldest = self.segments.first().map_or(0.0, |(_, duration)| *duration);
        expect(kept - oldest < self.skip_until, &format!("{kept} s are kept, one segment too many"))
    }

    /// Expects that this is a valid update of `before`, and that the announced part appeared.
    ///
    /// # Panics
    /// When it is otherwise.
    #[track_caller]
    pub fn assert_follows(&self, before: &Version) {
        self.follows(before).unwrap_or_else(|error| panic!("{error}: {self:?}\nafter {before:?}"));
    }

    /// Whether this is a valid update of `before`: the same promises, no removed entries, and the announced part appeared.
    ///
    /// # Errors
    /// What is otherwise.
    pub fn follows(&self, before: &Version) -> Result<(), String> {
        let promises = |version: &Version| (version.part_target, version.hold_back);
        expect(promises(self) == promises(before), "the target of parts or the hold-back changed")?;
        let here = |version: &Version| (version.next(), version.next_part());
        expect(here(self) >= here(before), &format!("{:?} after {:?}", here(self), here(before)))?;
        let last = before.parts.last().map(|part| &part.name);
        let new = self.parts.iter().skip_while(|part| Some(&part.name) != last).nth(1);
        match (new, &before.hint) {
            (Some(new), Some(hint)) if new.name != *hint => {
                Err(format!("part {} appeared instead of the announced {hint}", new.name))
            }
            _ => Ok(()),
        }
    }
}

/// State of the parser.
#[derive(Debug, Default)]
struct Reading {
    init: String,
    /// EXTINF of the next address.
    duration: f64,
    /// Parts of the segment with the next address were read.
    is_open: bool,
    /// The segment with the next address is missing.
    is_missing: bool,
}

fn expect(is_right: bool, what: &str) -> Result<(), String> {
    if is_right { Ok(()) } else { Err(what.to_owned()) }
}

fn attribute(list: &str, name: &str) -> Option<String> {
    let mut attributes = list.split(',').filter_map(|attribute| attribute.split_once('='));
    attributes.find(|(key, _)| *key == name).map(|(_, value)| value.trim_matches('"').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::playlist;

    const HEAD: &str = "#EXTM3U\n#EXT-X-VERSION:9\n#EXT-X-TARGETDURATION:2\n#EXT-X-MEDIA-SEQUENCE:7\n\
        #EXT-X-DISCONTINUITY-SEQUENCE:0\n#EXT-X-INDEPENDENT-SEGMENTS\n\
        #EXT-X-SERVER-CONTROL:CAN-BLOCK-RELOAD=YES,PART-HOLD-BACK=2.000,HOLD-BACK=6.0,CAN-SKIP-UNTIL=12.0\n\
        #EXT-X-PART-INF:PART-TARGET=0.502\n";
    const MAP: &str = "#EXT-X-MAP:URI=\"i0.mp4\"\n";
    const TAIL: &str = "#EXT-X-PART:DURATION=0.50000,URI=\"l7-4.m4s\",INDEPENDENT=YES\n\
        #EXT-X-PART:DURATION=0.50000,URI=\"l7-5.m4s\"\n#EXT-X-PRELOAD-HINT:TYPE=PART,URI=\"l7-6.m4s\"\n";

    /// A playlist with `segments` whole segments and half of the next one.
    fn text(skip: &str, segments: usize) -> String {
        let date = |at| format!("#EXT-X-PROGRAM-DATE-TIME:2025-11-20T17:45:{:02}.000Z\n", 2 * at);
        let whole = |at| format!("{}#EXTINF:2.00000,\n{at}.m4s\n", date(at));
        format!("{HEAD}{skip}{MAP}{}{}{TAIL}", (0..segments).map(whole).collect::<String>(), date(segments))
    }

    #[test]
    fn a_good_version_is_read_and_a_wrong_one_refused() {
        let good = text("", 2);
        let version = playlist::media(&good).expect("a good playlist").parts.expect("it has parts");
        assert_eq!((version.next(), version.next_part(), version.hint.as_deref()), (9, 2, Some("l7-6.m4s")));
        for (from, to) in [
            ("VERSION:9", "VERSION:7"),
            ("CAN-BLOCK-RELOAD=YES,", ""),
            ("PART-HOLD-BACK=2.000", "PART-HOLD-BACK=1.500"),
            (",HOLD-BACK=6.0", ",HOLD-BACK=5.0"),
            ("SKIP-UNTIL=12.0", "SKIP-UNTIL=11.0"),
            ("DURATION=0.50000,URI=\"l7-4", "DURATION=0.40000,URI=\"l7-4"),
            ("DURATION=0.50000,URI=\"l7-4", "DURATION=0.51000,URI=\"l7-4"),
            (",INDEPENDENT=YES", ""),
            ("TYPE=PART", "TYPE=MAP"),
            ("#EXT-X-PRELOAD-HINT:TYPE=PART,URI=\"l7-6.m4s\"\n", ""),
            ("#EXT-X-PRELOAD-HINT", "#EXT-X-PRELOAD-HINT:TYPE=PART,URI=\"a\"\n#EXT-X-PRELOAD-HINT"),
            ("\"l7-6.m4s\"\n", "\"l7-6.m4s\"\n#EXT-X-PART:DURATION=0.50000,URI=\"l7-6.m4s\"\n"),
            ("\"l7-6.m4s\"\n", "\"l7-6.m4s\"\n#EXT-X-ENDLIST\n"),
        ] {
            let wrong = good.replacen(from, to, 1);
            assert_ne!(wrong, good, "{from} is not in the example");
            assert!(playlist::media(&wrong).is_err(), "{from} -> {to}");
        }
    }

    #[test]
    fn parts_alone_stand_behind_a_missing_segment() {
        let gap = "#EXT-X-START:TIME-OFFSET=-1.000\n#EXT-X-PART:DURATION=0.502,URI=\"gap.m4s\",GAP=YES\n\
            #EXT-X-GAP\n#EXTINF:0.502,\ngap.m4s\n";
        let text = text("", 0).replace(MAP, &format!("{gap}{MAP}"));
        let version = Version::read(&text.replace("SEQUENCE:7", "SEQUENCE:6"));
        assert_eq!((version.next(), version.next_part(), version.segments.len()), (7, 2, 0));
        let late = text.replace(gap, "").replace("#EXT-X-PRELOAD", &format!("{gap}#EXT-X-PRELOAD"));
        assert!(Version::parse(&late.replace(MAP, &format!("{MAP}#EXTINF:2,\n6.m4s\n"))).is_err());
    }

    #[test]
    fn a_delta_keeps_only_the_required_entries() {
        let skip = "#EXT-X-SKIP:SKIPPED-SEGMENTS=90\n";
        assert_eq!(Version::read(&text(skip, 6)).next(), 7 + 90 + 6);
        assert!(Version::parse(&text(skip, 5)).is_err(), "one is missing");
        assert!(Version::parse(&text(skip, 7)).is_err(), "one is too many");
    }

    #[test]
    fn a_promised_part_must_appear() {
        let good = text("", 2);
        let before = Version::read(&good);
        before.follows(&before).unwrap();
        let without = playlist::media(&good).unwrap();
        let without = playlist::Media { parts: None, ..without };
        assert!(playlist::media(&good).unwrap().follows(&without).is_err(), "parts appeared");
        let part = "#EXT-X-PRELOAD-HINT:TYPE=PART,URI=\"l7-6.m4s\"\n";
        let next =
            "#EXT-X-PART:DURATION=0.50000,URI=\"l7-6.m4s\"\n#EXT-X-PRELOAD-HINT:TYPE=PART,URI=\"l7-7.m4s\"\n";
        Version::read(&good.replace(part, next)).follows(&before).unwrap();
        for changed in [
            good.replace(part, &next.replacen("l7-6", "l7-8", 1)),
            good.replace("PART-TARGET=0.502", "PART-TARGET=0.503"),
            good.replace("BACK=2.000", "BACK=2.100"),
            text("", 1),
        ] {
            assert!(Version::read(&changed).follows(&before).is_err(), "{changed}");
        }
    }
}
