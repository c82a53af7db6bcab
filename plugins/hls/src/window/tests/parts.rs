//! Parts: listed as they come, taken away later than they leave the list, and never named without being there.

use satcast_media::playlist::part_name;
use satcast_media::segment::Part;

use super::*;

const HALF: Duration = Duration::from_millis(500);

impl Opening {
    fn parted(dvr_seconds: u32) -> Self {
        Self::starting(2, Some(502_000_000), dvr_seconds, Limits::default())
    }

    /// Part number `index` of the next segment arrives.
    fn part(&mut self, index: u32) {
        self.part_of(index, false);
    }

    fn part_of(&mut self, index: u32, is_last: bool) {
        let part = Part {
            sequence: FIRST + self.made,
            index,
            init_id: self.init,
            duration_ns: 500_000_000,
            independent: index == 0,
            is_last,
            discontinuity: self.cut,
            program_date_time_ms: 1_760_000_000_000 + self.made as i64 * self.segment_ms,
            bytes: Bytes::from(vec![index as u8; self.segment_bytes / 4]),
        };
        self.window.part(part, self.now, &self.host);
    }

    /// A segment comes in four parts in the time it lasts.
    fn parts_and_segment(&mut self) {
        for index in 0..4 {
            self.pass(HALF);
            self.part_of(index, index == 3);
        }
        self.segment();
        self.write();
    }

    fn parts_published(&self) -> Vec<u64> {
        let prefix = format!("l{FIRST}-");
        let names = self.host.names();
        let numbers = names.iter().filter_map(|name| name.strip_prefix(&prefix)?.strip_suffix(".m4s"));
        let mut numbers: Vec<u64> = numbers.map(|number| number.parse().unwrap()).collect();
        numbers.sort_unstable();
        numbers
    }

    fn next(&self) -> Option<(u64, u32)> {
        self.host.followed.borrow().as_ref().and_then(|reported| reported.next)
    }
}

#[test]
fn each_part_is_a_version_that_viewers_wait_for() {
    let mut opening = Opening::parted(3600);
    assert!(!opening.window.is_playable());
    opening.part(0);
    assert_eq!(opening.next(), Some((FIRST, 1)));
    (1..4).for_each(|index| opening.part(index));
    // The segment is listed at once, before its file is there: the next part comes soon.
    opening.segment();
    assert_eq!((opening.listed(), opening.next()), (vec![0], Some((FIRST + 1, 0))));
    for index in 0..4 {
        let hint = opening.host.followed.borrow().as_ref().unwrap().hint.clone().unwrap();
        assert!(
            opening.host.text(MEDIA).ends_with(&format!("#EXT-X-PRELOAD-HINT:TYPE=PART,URI=\"{hint}\"\n"))
        );
        opening.part(index);
        assert!(opening.host.text(MEDIA).contains(&format!("DURATION=0.50000,URI=\"{hint}\"")));
        assert_eq!(opening.next(), Some((FIRST + 1, index + 1)));
    }
    let reported = opening.host.followed.borrow().clone().unwrap();
    assert_eq!((reported.hold_back_ms, reported.delta), (2000, None));
    opening.segment();
    // The last part of a segment comes into the list with it.
    (0..3).for_each(|index| opening.part(index));
    let before = opening.host.text(MEDIA);
    opening.part_of(3, true);
    assert_eq!((opening.host.text(MEDIA), opening.next()), (before, Some((FIRST + 2, 3))));
    opening.segment();
    assert_eq!(opening.next(), Some((FIRST + 3, 0)));
    (0..19).for_each(|_| opening.parts_and_segment());
    assert_eq!(opening.host.followed.borrow().as_ref().unwrap().delta.as_deref(), Some(DELTA));
    assert!(opening.host.text(DELTA).contains("#EXT-X-SKIP:SKIPPED-SEGMENTS=16\n"));
    opening.window.end(opening.now, &opening.host);
    let reported = opening.host.followed.borrow().clone().unwrap();
    assert_eq!((reported.next, reported.hint, reported.hold_back_ms), (None, None, 2000));
    assert!(opening.host.text(MEDIA).ends_with("#EXT-X-ENDLIST\n"));
}

#[test]
fn parts_are_played_before_the_first_segment() {
    let mut opening = Opening::parted(3600);
    opening.part(0);
    let text = opening.host.text(MEDIA);
    assert!(
        text.contains(&format!("#EXT-X-MEDIA-SEQUENCE:{}\n", FIRST - 1)) && text.contains("#EXT-X-GAP\n")
    );
    // 250 bytes in half a second, and a tenth more.
    assert!(opening.host.text(ENTRY).contains("BANDWIDTH=4400,AVERAGE-BANDWIDTH=4000,"));
    let reported = opening.host.reported.borrow().clone().unwrap();
    assert_eq!((reported.first_ms, reported.window_ms, reported.fresh_ms), (1_760_000_000_000, 0, 6000));
    assert!(opening.window.is_playable() && !opening.window.has_segment());
    let age = |opening: &Opening| opening.host.with(MEDIA, |asset| asset.max_age_secs);
    assert_eq!(age(&opening), 0, "players of whole segments wait, and a cache must not answer them");
    // A GOP that is longer than the target of the start.
    (1..9).for_each(|index| opening.part(index));
    opening.window.target_raised(5, &opening.host);
    assert!(opening.host.text(MEDIA).contains("#EXT-X-TARGETDURATION:5\n"));
    opening.segment_ms = 5000;
    opening.part_of(9, true);
    opening.segment();
    assert_eq!((opening.listed(), opening.next(), age(&opening)), (vec![0], Some((FIRST + 1, 0)), 1));
    assert!(opening.window.has_segment() && !opening.host.text(MEDIA).contains("GAP"));
    assert!(opening.host.text(ENTRY).contains("BANDWIDTH=1760,AVERAGE-BANDWIDTH=1600,"));
}

#[test]
fn each_version_is_rendered_once_and_nothing_else_is() {
    let mut opening = Opening::parted(60);
    let times = |opening: &Opening, name: &str| opening.host.with(name, |asset| asset.times);
    opening.parts_and_segment();
    for segments in 1..60_u32 {
        // Three parts, and the segment with its last.
        assert_eq!(times(&opening, MEDIA), segments * 4);
        opening.parts_and_segment();
        // What is written, handed over and taken away is in no list.
        opening.pass(Duration::from_millis(10));
        if segments == 6 {
            assert_eq!(times(&opening, DELTA), 1);
        } else if segments > 6 {
            assert_eq!(times(&opening, DELTA), 1 + (segments - 6) * 4);
        }
    }
}

#[test]
fn parts_stay_published_for_three_targets_after_they_left_the_playlist() {
    let mut opening = Opening::parted(60);
    for segments in 1..40_u64 {
        opening.parts_and_segment();
        let listed = opening.host.text(MEDIA).matches("#EXT-X-PART:").count() as u64;
        assert_eq!(listed, segments.min(2) * 4);
        // Two listed segments, and those that left the playlist in the six seconds before.
        let published = opening.parts_published();
        let kept = segments.min(5) * 4;
        assert_eq!(published, (segments * 4 - kept..segments * 4).collect::<Vec<_>>());
        assert_eq!(opening.host.bytes(&part_name(FIRST, segments * 4 - 1)), [3; 250]);
    }
    assert!(opening.window.parts.bytes() <= 20 * 250);
    // When nothing comes any more those go that are not listed.
    opening.pass(Duration::from_secs(60));
    assert_eq!(opening.parts_published().len(), 8);
    assert_eq!(opening.window.parts.next_wake(), None);
}

#[test]
fn parts_become_ranges_of_the_file_of_their_segment() {
    let mut opening = Opening::parted(60);
    (0..4).for_each(|_| opening.parts_and_segment());
    // The newest segment and its four parts.
    assert_eq!((opening.host.segment_memory(), opening.window.parts.bytes()), (2000, 1000));
    let file = 2_u64.to_be_bytes().repeat(125);
    for number in 8..12 {
        let name = part_name(FIRST, number);
        let first = (number as usize - 8) * 250;
        assert!(opening.host.is_file(&name) && opening.host.bytes(&name) == file[first..first + 250]);
    }
    assert!(!opening.host.is_file(&part_name(FIRST, 12)));
    // A segment whose part was refused has bytes that its parts do not have.
    opening.part(0);
    opening.host.refuses.set(Some("-17.m4s"));
    opening.part(1);
    opening.host.refuses.set(None);
    opening.segment();
    opening.write();
    opening.parts_and_segment();
    assert!(opening.host.is_file(&segment_name(FIRST + 4)) && !opening.host.is_file(&part_name(FIRST, 16)));
    assert_eq!(opening.host.segment_memory(), 2250);
}

#[test]
fn parts_stay_in_memory_without_a_file() {
    let mut opening = Opening::parted(60);
    opening.disk = Disk::Refuses;
    (0..3).for_each(|_| opening.parts_and_segment());
    assert_eq!((opening.host.segment_memory(), opening.window.parts.bytes()), (6000, 3000));
    assert_eq!(opening.host.bytes(&part_name(FIRST, 1)), [1; 250]);
}

#[test]
fn a_refused_part_costs_only_the_parts_of_its_segment() {
    let mut opening = Opening::parted(60);
    (0..3).for_each(|_| opening.parts_and_segment());
    opening.part(0);
    opening.part(1);
    opening.host.refuses.set(Some("-14.m4s"));
    opening.part(2);
    opening.host.refuses.set(None);
    assert!(!opening.host.text(MEDIA).contains("-12.m4s"), "the others of this segment go too");
    opening.part(3);
    opening.segment();
    assert_eq!(opening.listed(), [0, 1, 2, 3]);
    opening.part(0);
    let text = opening.host.text(MEDIA);
    assert!(text.ends_with(&format!(
        "#EXT-X-PART:DURATION=0.50000,URI=\"l{FIRST}-14.m4s\",INDEPENDENT=YES\n\
         #EXT-X-PRELOAD-HINT:TYPE=PART,URI=\"l{FIRST}-15.m4s\"\n"
    )));
    assert!(!text.contains("#EXT-X-DISCONTINUITY\n"));
}

#[test]
fn a_refused_segment_takes_its_parts_along() {
    let mut opening = Opening::parted(0);
    (0..2).for_each(|_| opening.parts_and_segment());
    (0..4).for_each(|index| opening.part(index));
    opening.host.refuses.set(Some(".m4s"));
    opening.segment();
    opening.host.refuses.set(None);
    assert_eq!((opening.listed(), opening.next()), (vec![0, 1], Some((FIRST + 2, 0))));
    assert!(!opening.host.text(MEDIA).contains("-11.m4s"));
    // The next one has its number, other names, and a discontinuity.
    opening.part(0);
    let text = opening.host.text(MEDIA);
    let start = text.rsplit_once("#EXT-X-DISCONTINUITY\n").unwrap().1;
    assert!(start.contains(&format!("URI=\"l{FIRST}-12.m4s\"")), "{text}");
    assert_eq!(opening.next(), Some((FIRST + 2, 1)));
    opening.segment();
    assert_eq!(opening.listed(), [0, 1, 2]);
}

#[test]
fn a_refused_first_segment_whose_parts_were_listed_leaves_a_discontinuity() {
    let mut opening = Opening::parted(0);
    (0..3).for_each(|index| opening.part(index));
    assert!(opening.host.text(MEDIA).contains("-2.m4s"));
    opening.host.refuses.set(Some(".m4s"));
    opening.segment();
    opening.host.refuses.set(None);
    opening.part(0);
    let text = opening.host.text(MEDIA);
    let start = text.rsplit_once("#EXT-X-DISCONTINUITY\n").unwrap().1;
    assert!(start.contains(&format!("URI=\"l{FIRST}-3.m4s\"")) && !text.contains("-2.m4s"), "{text}");
    assert_eq!(opening.next(), Some((FIRST, 1)));
    opening.segment();
    assert!(opening.host.text(MEDIA).contains("#EXT-X-DISCONTINUITY\n"));
    assert_eq!((opening.listed(), opening.window.discontinuities()), (vec![0], 1));
}
