use super::*;

fn fragment(number: u64) -> Fragment {
    Fragment {
        offset: 700 + 10 * number,
        bytes: 10,
        start_us: 5 * number,
        duration_us: 5,
        is_keyframe: number.is_multiple_of(2),
    }
}

#[test]
fn pages_have_what_was_appended_and_the_recording_confirms() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index");
    assert_eq!(page(&path, 1000, 0, 9).unwrap(), None);
    let mut writer = Writer::create(&path, 700).unwrap();
    let empty = Page { init_bytes: 700, count: 0, bytes: 700, fragments: Vec::new() };
    assert_eq!(page(&path, 1000, 0, 9).unwrap(), Some(empty));
    for number in 0..20 {
        writer.append(&fragment(number)).unwrap();
    }
    let all = page(&path, u64::MAX, 0, 100).unwrap().unwrap();
    assert_eq!((all.count, all.bytes), (20, 900));
    assert_eq!(all.fragments, (0..20).map(fragment).collect::<Vec<_>>());
    for (bytes, first, most, count, listed) in [
        (899, 0, 100, 19, 19),
        (900, 18, 100, 20, 2),
        (729, 1, 100, 2, 1),
        (709, 0, 9, 0, 0),
        (900, 99, 9, 20, 0),
    ] {
        let page = page(&path, bytes, first, most).unwrap().unwrap();
        assert_eq!((page.count, page.fragments.len()), (count, listed), "{bytes} {first}");
    }
    drop(writer);
    Writer::resume(&path, 3).unwrap().append(&fragment(3)).unwrap();
    assert_eq!(page(&path, u64::MAX, 0, 100).unwrap().unwrap().count, 4);
}

#[test]
fn a_damaged_index_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index");
    write(&path, 700, &(0..9).map(fragment).collect::<Vec<_>>()).unwrap();
    let good = std::fs::read(&path).unwrap();
    for at in 0..good.len() {
        let mut bytes = good.clone();
        bytes[at] ^= 0x10;
        std::fs::write(&path, bytes).unwrap();
        let found = page(&path, u64::MAX, 0, 9).unwrap();
        let is_shorter =
            |page: Page| page.count < 9 && page.fragments.iter().copied().eq((0..page.count).map(fragment));
        assert!(found.is_none_or(is_shorter), "byte {at}");
    }
    for length in 0..good.len() {
        std::fs::write(&path, &good[..length]).unwrap();
        let found = page(&path, u64::MAX, 0, 9).unwrap();
        assert_eq!(
            found.map(|page| page.count),
            (length >= 32).then(|| length as u64 / 32 - 1),
            "{length} bytes"
        );
    }
}
