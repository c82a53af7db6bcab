//! Playlists with parts, read strictly (RFC 8216bis, sections 4.4.3.8, 4.4.4.9, 4.4.5.2, 4.4.5.3).

/// What is to be compared of two versions of a playlist with parts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Version {
    /// EXT-X-TARGETDURATION in seconds.
    pub target: f64,
    /// PART-TARGET in seconds.
    pub part_target: f64,
    /// PART-HOLD-BACK in seconds.
    pub hold_back: f64,
    /// EXT-X-MEDIA-SEQUENCE.
    pub sequence: u64,
    /// SKIPPED-SEGMENTS, 0 without.
    pub skipped: u64,
    /// Names of the whole segments that are listed.
    pub segments: Vec<String>,
    /// Parts, oldest first.
    pub parts: Vec<Part>,
    /// Name of the part that comes next.
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
    /// Reads a playlist and checks what it says.
    ///
    /// # Panics
    /// When it breaks a rule.
    #[track_caller]
    #[must_use]
    pub fn read(text: &str) -> Self {
        let mut version = Version::default();
        let (mut init, mut open) = (String::new(), false);
        for line in text.lines() {
            let (tag, value) = line.split_once(':').unwrap_or((line, ""));
            let attribute =
                |name: &str| attribute(value, name).unwrap_or_else(|| panic!("no {name} in {line}"));
            let number = |text: &str| text.parse::<f64>().unwrap_or_else(|_| panic!("no number in {line}"));
            match tag {
                "#EXT-X-TARGETDURATION" => version.target = number(value),
                "#EXT-X-MEDIA-SEQUENCE" => version.sequence = number(value) as u64,
                "#EXT-X-SERVER-CONTROL" => {
                    assert_eq!(attribute("CAN-BLOCK-RELOAD"), "YES");
                    version.hold_back = number(&attribute("PART-HOLD-BACK"));
                    assert!(number(&attribute("HOLD-BACK")) >= 3.0 * version.target, "{line}");
                    assert!(number(&attribute("CAN-SKIP-UNTIL")) >= 6.0 * version.target, "{line}");
                }
                "#EXT-X-PART-INF" => version.part_target = number(&attribute("PART-TARGET")),
                "#EXT-X-SKIP" => version.skipped = number(&attribute("SKIPPED-SEGMENTS")) as u64,
                "#EXT-X-MAP" => init = attribute("URI"),
                "#EXT-X-PART" => {
                    open = true;
                    version.parts.push(Part {
                        sequence: version.next(),
                        name: attribute("URI"),
                        duration: number(&attribute("DURATION")),
                        independent: value.ends_with(",INDEPENDENT=YES"),
                        init: init.clone(),
                    });
                }
                "#EXT-X-DISCONTINUITY" | "#EXT-X-PROGRAM-DATE-TIME" => {
                    assert!(!open, "{line} behind a part:\n{text}")
                }
                "#EXT-X-PRELOAD-HINT" => {
                    assert_eq!(attribute("TYPE"), "PART");
                    assert!(version.hint.replace(attribute("URI")).is_none(), "two hints:\n{text}");
                }
                _ if !line.starts_with('#') => {
                    assert!(version.hint.is_none(), "a segment behind the hint:\n{text}");
                    version.segments.push(line.to_owned());
                    open = false;
                }
                _ => {}
            }
        }
        version.check(text);
        version
    }

    /// Number of the first segment that is not whole.
    #[must_use]
    pub fn next(&self) -> u64 {
        self.sequence + self.skipped + self.segments.len() as u64
    }

    /// How many parts of that segment are listed.
    #[must_use]
    pub fn next_part(&self) -> usize {
        self.parts.iter().filter(|part| part.sequence == self.next()).count()
    }

    #[track_caller]
    fn check(&self, text: &str) {
        assert!(self.hold_back >= 3.0 * self.part_target && self.part_target > 0.0, "{text}");
        assert!(text.contains("\n#EXT-X-VERSION:9\n"), "{text}");
        for (at, part) in self.parts.iter().enumerate() {
            let is_last = self.parts.get(at + 1).is_none_or(|next| next.sequence != part.sequence);
            let is_first = at == 0 || self.parts[at - 1].sequence != part.sequence;
            assert!(part.duration <= self.part_target, "{part:?} is longer than {}", self.part_target);
            assert!(is_last || part.duration >= 0.85 * self.part_target, "{part:?} is too short:\n{text}");
            assert_eq!(part.independent, is_first, "{part:?}:\n{text}");
            assert!(part.sequence + 3 > self.next(), "{part:?} is too old:\n{text}");
        }
        let head = text.find("#EXT-X-DISCONTINUITY-SEQUENCE").expect("a discontinuity sequence");
        assert!(text.find("#EXT-X-SKIP").is_none_or(|skip| head < skip), "{text}");
        assert!(self.hint.is_some() != text.ends_with("#EXT-X-ENDLIST\n"), "{text}");
    }

    /// Expects that this may be what `before` became, and that what was said to come next came.
    ///
    /// # Panics
    /// When it is otherwise.
    #[track_caller]
    pub fn assert_follows(&self, before: &Version) {
        assert_eq!((self.part_target, self.hold_back), (before.part_target, before.hold_back));
        let here = |version: &Version| (version.next(), version.next_part());
        assert!(here(self) >= here(before), "{:?} after {:?}", here(self), here(before));
        let last = before.parts.last().map(|part| &part.name);
        let new = self.parts.iter().skip_while(|part| Some(&part.name) != last).nth(1);
        if let (Some(new), Some(hint)) = (new, &before.hint) {
            assert_eq!(&new.name, hint, "another part than the one that was said to come next");
        }
    }
}

fn attribute(list: &str, name: &str) -> Option<String> {
    let mut attributes = list.split(',').filter_map(|attribute| attribute.split_once('='));
    attributes.find(|(key, _)| *key == name).map(|(_, value)| value.trim_matches('"').to_owned())
}
