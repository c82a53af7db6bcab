//! What viewers can have while everything works.

use std::time::Duration;

use satcast_media::playlist::{init_name, preview_name};

use super::host::Reported;
use super::*;

fn name(number: u64) -> String {
    segment_name(FIRST + number)
}

#[test]
fn a_segment_is_written_then_listed() {
    let mut opening = Opening::with(3600);
    opening.segment();
    assert_eq!(opening.published(), [0]);
    assert!(!opening.host.names().contains(&MEDIA.to_owned()), "not listed before it is written");
    assert!(!opening.window.is_playable());
    opening.write();
    assert!(opening.folder.path().join(name(0)).exists());
    assert_eq!(opening.listed(), [0]);
    assert!(opening.window.is_playable());
    let reported = Reported {
        preview: None,
        first_ms: 1_760_000_000_000,
        window_ms: 2000,
        window_max_ms: 3_600_000,
        fresh_ms: 6000,
        ended: false,
    };
    assert_eq!(*opening.host.reported.borrow(), Some(reported));
    let init = init_name(FIRST, 0);
    assert!(opening.host.text(MEDIA).contains(&format!("#EXT-X-MAP:URI=\"{init}\"\n")));
    let look = |asset: &super::host::Published| (asset.content_type.clone(), asset.audience);
    assert_eq!(opening.host.with(&init, look), ("video/mp4".to_owned(), Audience::Both));
    assert_eq!(opening.host.with(&name(0), look), ("video/mp4".to_owned(), Audience::Hosted));
}

#[test]
fn the_newest_stays_in_memory_and_the_others_are_files() {
    let mut opening = Opening::with(3600);
    opening.run(20);
    assert_eq!(opening.listed(), (0..20).collect::<Vec<_>>());
    for number in 0..20 {
        assert_eq!(opening.host.is_file(&name(number)), number < 19, "{number}");
        assert_eq!(opening.host.bytes(&name(number)), number.to_be_bytes().repeat(125), "{number}");
    }
    assert_eq!(opening.files(), 20);
    assert_eq!(opening.host.segment_memory(), 1000);
}

#[test]
fn a_short_window_rolls_and_removed_segments_stay_for_a_grace_time() {
    let mut opening = Opening::with(10);
    opening.run(100);
    assert_eq!(opening.listed(), (95..100).collect::<Vec<_>>());
    // Segment 99 came at 198 s, and it is 200 s now. Segment n left the list at 2n + 10.
    assert_eq!(opening.published(), (51..100).collect::<Vec<_>>());
    assert_eq!(opening.host.reported.borrow().as_ref().unwrap().window_ms, 10_000);
    let text = opening.host.text(MEDIA);
    assert!(text.contains(&format!("#EXT-X-MEDIA-SEQUENCE:{}\n", FIRST + 95)), "{text}");
    // Without new segments the grace time still ends, but listed segments stay.
    opening.pass(Duration::from_secs(300));
    let oldest = opening.published()[0];
    assert!(oldest > 60 && opening.listed() == [95, 96, 97, 98, 99], "{oldest}");
}

#[test]
fn files_go_when_the_host_gives_them_back() {
    let mut opening = Opening::with(10);
    opening.run(100);
    let published = opening.published().len();
    for _ in 0..2000 {
        if opening.files() == published {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(opening.files(), published);
    let folder = opening.folder.path().to_owned();
    let Opening { window, host, folder: held, data, .. } = opening;
    drop((window, host, held));
    for _ in 0..2000 {
        if !folder.exists() {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(!folder.exists() && data.path().join("dvr/boot").exists());
}

#[test]
fn without_rewind_nothing_is_written() {
    let mut opening = Opening::with(0);
    for count in 1..=80_u64 {
        opening.segment();
        assert_eq!(opening.window.next_write(opening.now), None);
        assert_eq!(opening.listed(), (count.saturating_sub(3)..count).collect::<Vec<_>>());
        opening.pass(Duration::from_secs(2));
    }
    assert_eq!(opening.host.reported.borrow().as_ref().unwrap().window_max_ms, 0);
    assert_eq!(opening.files(), 0);
    // 96 s with the grace time, and the segments of the preview.
    assert!(opening.published().len() <= 52, "{:?}", opening.published());
}

#[test]
fn the_owner_changes_the_window_while_it_is_watched() {
    let mut opening = Opening::with(60);
    opening.run(100);
    assert_eq!(opening.listed(), (70..100).collect::<Vec<_>>());
    let set = |opening: &mut Opening, seconds| opening.window.set_dvr(seconds, opening.now, &opening.host);
    set(&mut opening, 20);
    assert_eq!(opening.listed(), (90..100).collect::<Vec<_>>());
    assert!(opening.published().contains(&70), "players with the list before still ask");
    set(&mut opening, 60);
    opening.run(5);
    assert_eq!(opening.listed(), (90..105).collect::<Vec<_>>());
    assert_eq!(opening.host.reported.borrow().as_ref().unwrap().window_max_ms, 60_000);
    // Without rewind nothing more is written; when it is enabled again, the remaining segments are written.
    set(&mut opening, 0);
    assert_eq!(opening.listed(), (102..105).collect::<Vec<_>>());
    opening.run(5);
    assert!((105..110).all(|number| !opening.folder.path().join(name(number)).exists()));
    set(&mut opening, 60);
    opening.write();
    opening.run(5);
    assert_eq!(opening.listed(), (107..115).collect::<Vec<_>>());
    assert!((107..115).all(|number| opening.folder.path().join(name(number)).exists()));
}

#[test]
fn an_hour_is_an_hour_and_everything_is_bounded() {
    let mut opening = Opening::with(3600);
    opening.segment_bytes = 8;
    opening.host.checks.set(false);
    opening.run(1900);
    opening.host.check();
    assert_eq!(opening.listed().len(), 1800);
    // The last came at 3798 s, and it is 3800 s now.
    assert_eq!(opening.published().len(), 1844, "an hour and 90 s");
    let groups =
        opening.host.names().iter().filter(|name| name.starts_with('p') && name.ends_with(".m4s")).count();
    assert!((10..=16).contains(&groups), "{groups} groups of the preview");
    assert_eq!(opening.host.names().len(), 1844 + groups + 1 + 4);
    assert_eq!(opening.host.segment_memory(), 8);
    assert_eq!(opening.host.events(), [""; 0]);
}

#[test]
fn entries_are_published_again_only_when_they_are_wrong() {
    let mut opening = Opening::with(3600);
    opening.run(10);
    let times = |opening: &Opening, name: &str| opening.host.with(name, |asset| asset.times);
    assert_eq!((times(&opening, ENTRY), times(&opening, PREVIEW_ENTRY)), (1, 1));
    assert_eq!((times(&opening, MEDIA), times(&opening, PREVIEW_MEDIA)), (10, 3));
    opening.segment_bytes = 1040;
    opening.run(3);
    assert_eq!(times(&opening, ENTRY), 1, "a drift within the limit");
    opening.segment_bytes = 4000;
    opening.run(1);
    assert_eq!(times(&opening, ENTRY), 2);
    let before = opening.host.text(ENTRY);
    opening.change();
    opening.run(1);
    let after = opening.host.text(ENTRY);
    assert_eq!(times(&opening, ENTRY), 3);
    assert!(before.contains("CODECS=\"avc1.64001f\"") && after.contains("CODECS=\"avc1.42c01e\""), "{after}");
}

#[test]
fn the_preview_uses_the_same_segments() {
    let mut opening = Opening::with(3600);
    opening.run(2);
    assert_eq!(opening.host.reported.borrow().as_ref().unwrap().preview, None);
    opening.run(100);
    assert_eq!(opening.host.reported.borrow().as_ref().unwrap().preview.as_deref(), Some(PREVIEW_ENTRY));
    let text = opening.host.text(PREVIEW_MEDIA);
    assert_eq!(text.matches(".m4s\n").count(), 10, "{text}");
    let name = text.lines().find(|line| line.starts_with('p')).unwrap();
    assert_eq!(opening.host.bytes(name).len(), 3000);
    assert_eq!(opening.host.with(name, |asset| asset.audience), Audience::Preview);
    assert!(opening.host.text(PREVIEW_ENTRY).ends_with("\npreview-media.m3u8\n"));
    // The oldest segments of the list are still there when its last version is read late.
    let groups =
        opening.host.names().iter().filter(|name| name.starts_with('p') && name.ends_with(".m4s")).count();
    assert!((14..=16).contains(&groups), "{groups} with those of the grace time");
}

#[test]
fn a_group_of_the_preview_has_the_media_type_of_its_segments() {
    let mut opening = Opening::with(3600);
    opening.run(4);
    opening.change_to_audio();
    opening.run(1);
    opening.window.end(opening.now, &opening.host);
    let group = |first, count| {
        opening.host.with(&preview_name(FIRST + first, count), |asset| asset.content_type.clone())
    };
    assert_eq!([group(0, 3), group(3, 1), group(4, 1)], ["video/mp4", "video/mp4", "audio/mp4"]);
}

/// Groups of three segments of 10 s are listed until 93 s are left without them, longer than a window of 30 s with its grace time.
#[test]
fn the_preview_keeps_segments_that_the_window_does_not_need() {
    let mut opening = Opening::targeting(10, 0, Limits::default());
    opening.run(40);
    assert_eq!(opening.listed(), [37, 38, 39]);
    let text = opening.host.text(PREVIEW_MEDIA);
    assert_eq!(text.matches(".m4s\n").count(), 4, "{text}");
    let oldest = opening.published()[0];
    assert!((21..=24).contains(&oldest), "{oldest}");
}

#[test]
fn a_discontinuity_and_a_new_configuration_are_listed() {
    let mut opening = Opening::with(10);
    opening.run(4);
    opening.change();
    opening.segment();
    opening.write();
    let text = opening.host.text(MEDIA);
    let lines = format!("#EXT-X-DISCONTINUITY\n#EXT-X-MAP:URI=\"{}\"\n", init_name(FIRST, 1));
    assert!(text.contains(&lines), "{text}");
    opening.run(3);
    assert!(opening.host.names().contains(&init_name(FIRST, 0)), "the list and its grace time need it");
    opening.run(60);
    assert!(!opening.host.names().contains(&init_name(FIRST, 0)));
    assert!(opening.host.names().contains(&init_name(FIRST, 1)));
}

#[test]
fn an_opening_that_follows_another_goes_on_counting_discontinuities() {
    let mut opening = Opening::with(10);
    opening.run(1);
    assert!(opening.host.text(MEDIA).contains("#EXT-X-DISCONTINUITY-SEQUENCE:0\n"));
    assert!(!opening.host.text(MEDIA).contains("#EXT-X-DISCONTINUITY\n"));
    assert_eq!(opening.window.discontinuities(), 0);
    opening.window = Window::new(FIRST + 1, Some(3), 10, Limits::default());
    opening.window.started(2, None);
    opening.window.init(init(0), &opening.host);
    // A refused segment makes no discontinuity of its own before the first.
    opening.host.refuses.set(Some(".m4s"));
    opening.run(1);
    opening.host.refuses.set(None);
    opening.run(3);
    let head = format!(
        "#EXT-X-DISCONTINUITY-SEQUENCE:3\n#EXT-X-INDEPENDENT-SEGMENTS\n#EXT-X-DISCONTINUITY\n#EXT-X-MAP:URI=\"i{}-0.mp4\"\n",
        FIRST + 1
    );
    for list in [MEDIA, PREVIEW_MEDIA] {
        let text = opening.host.text(list);
        assert!(text.contains(&head), "{text}");
        assert_eq!(text.matches("#EXT-X-DISCONTINUITY\n").count(), 1, "{text}");
    }
    opening.run(3);
    let text = opening.host.text(MEDIA);
    assert!(text.contains("#EXT-X-DISCONTINUITY-SEQUENCE:4\n") && !text.contains("#EXT-X-DISCONTINUITY\n"));
    assert_eq!(opening.window.discontinuities(), 4);
}

#[test]
fn the_end_lists_everything_and_closes_the_playlists() {
    let mut opening = Opening::with(3600);
    opening.run(4);
    opening.segment();
    opening.segment();
    assert_eq!(opening.listed().len(), 4, "two wait for the disk");
    opening.window.end(opening.now, &opening.host);
    opening.host.check();
    assert_eq!(opening.listed(), (0..6).collect::<Vec<_>>());
    for list in [MEDIA, PREVIEW_MEDIA] {
        assert!(opening.host.text(list).ends_with("#EXT-X-ENDLIST\n"), "{list}");
    }
    assert!(opening.host.reported.borrow().as_ref().unwrap().ended);
    assert_eq!(opening.window.last(), Some(FIRST + 5));
    // A session without any segment has nothing to end.
    let mut empty = Opening::with(3600);
    empty.window.end(empty.now, &empty.host);
    assert_eq!((empty.window.last(), empty.host.reported.borrow().clone()), (None, None));
}

#[test]
fn a_raised_target_is_published_at_once() {
    let mut opening = Opening::with(0);
    opening.run(5);
    assert_eq!(opening.host.reported.borrow().as_ref().unwrap().fresh_ms, 6000);
    opening.window.target_raised(10, &opening.host);
    assert_eq!(opening.host.reported.borrow().as_ref().unwrap().fresh_ms, 30_000);
    assert!(opening.host.text(MEDIA).contains("#EXT-X-TARGETDURATION:10\n"));
    assert!(opening.host.text(PREVIEW_MEDIA).contains("#EXT-X-TARGETDURATION:31\n"));
    opening.segment_ms = 10_400;
    opening.run(9);
    assert_eq!(opening.host.count(COUNTER_REFUSED), 0);
    assert_eq!(opening.listed(), [11, 12, 13], "three targets");
    // Before there is anything to list it only counts for later.
    let mut early = Opening::with(3600);
    early.window.target_raised(10, &early.host);
    early.run(1);
    assert!(early.host.text(MEDIA).contains("#EXT-X-TARGETDURATION:10\n"));
}

#[test]
fn it_is_playable_while_a_keyframe_is_where_players_start() {
    let fresh_ms = |opening: &Opening| opening.host.reported.borrow().as_ref().unwrap().fresh_ms;
    // Target, seconds of a segment, segments in which players start.
    for (target, seconds, near) in [(2, 2, 3), (10, 10, 3), (10, 4, 8)] {
        let mut opening = Opening::targeting(target, 3600, Limits::default());
        opening.segment_ms = seconds * 1000;
        assert!(!opening.window.is_playable(), "there is nothing yet");
        opening.run(1);
        for _ in 0..2 {
            opening.keyed = false;
            for behind in 1..near + 3 {
                opening.run(1);
                assert_eq!(opening.window.is_playable(), behind < near, "{behind} of {near}");
                let expected = if behind < near { target * 3000 } else { 0 };
                assert_eq!(fresh_ms(&opening), expected, "{behind} of {near}");
            }
            opening.keyed = true;
            opening.run(1);
            assert!(opening.window.is_playable() && fresh_ms(&opening) == target * 3000);
        }
        assert_eq!(opening.host.events(), [EVENT_KEYFRAMES], "reported once");
        assert_eq!(opening.host.events.borrow()[0].1["reason"], KEYFRAMES_TOO_FAR);
    }
}

#[test]
fn segments_cut_between_keyframes_are_reported_and_stay_playable() {
    let mut opening = Opening::targeting(10, 0, Limits::default());
    opening.run(2);
    assert_eq!(opening.host.events(), [""; 0]);
    for round in 0..20 {
        opening.keyed = round % 2 == 1;
        opening.run(1);
        assert!(
            opening.window.is_playable() && opening.host.reported.borrow().as_ref().unwrap().fresh_ms > 0
        );
    }
    assert_eq!(opening.host.events(), [EVENT_KEYFRAMES]);
}

#[test]
fn keyframes_text() {
    let text = "keyframes are more than 10 s apart; set the encoder's keyframe interval to 2 s";
    assert_eq!(KEYFRAMES_TOO_FAR, text);
}
