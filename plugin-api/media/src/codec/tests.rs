//! Real records of x264 and x265, truncated and mutated.

use super::av1::Av1Config;
use super::avc::AvcConfig;
use super::hevc::HevcConfig;
use super::{CodecError, VideoSize, aac, avc, hevc, opus};
use crate::testing::{Random, hex};
use bytes::Bytes;

const AVC: [(&str, (u32, u32)); 4] = [
    (
        "0164001fffe1001a6764001facd9405005bb0110000003001000000303c0f183196001000668ebe3cb22c0fdf8f800",
        (1280, 720),
    ),
    // Cropped from 1,088 lines.
    (
        "01640028ffe1001b67640028acd940780227e5c044000003000400000300f03c60c65801000668ebe3cb22c0fdf8f800",
        (1920, 1080),
    ),
    // Baseline, cropped from 864 columns.
    ("0142c01effe100196742c01ed900d83de6f011000003000100000300320f162e4801000568cb83cb20", (854, 480)),
    // Interlaced 4:2:2.
    (
        "017a001effe10018677a001ebcd940b424d8088000000300800000190f8a14cb01000668fba3cb22c0fef8f800",
        (720, 576),
    ),
];

pub(crate) const HEVC: [(&str, (u32, u32)); 2] = [
    (
        concat!(
            "0101600000009000000000005df000fcfdf8f800000f03a00001001840010c01ffff01600000030090000003",
            "000003005d959809a10001002b42010101600000030090000003000003005da00280802d165959a4932bc05a",
            "020000030002000003003c10a2000100074401c172b46240"
        ),
        (1280, 720),
    ),
    (
        concat!(
            "01016000000090000000000078f000fcfdf8f800000f03a00001001840010c01ffff01600000030090000003",
            "0000030078959809a10001002a420101016000000300900000030000030078a003c08010e596566924caf016",
            "8080000003008000000f04a2000100074401c172b46240"
        ),
        (1920, 1080),
    ),
];

fn size((width, height): (u32, u32)) -> Result<VideoSize, CodecError> {
    Ok(VideoSize { width, height })
}

#[test]
fn avc_parameter_sets_follow_the_delimiter_once() {
    let record = hex(AVC[0].0);
    let sets = avc::in_band(&record).expect("lengths of four bytes");
    let config = AvcConfig::parse(&record).expect("valid");
    let (sps, pps) = (config.sps[0], config.pps[0]);
    let nal = |bytes: &[u8]| [&(bytes.len() as u32).to_be_bytes(), bytes].concat();
    assert_eq!(sets, [nal(sps), nal(pps)].concat());
    let (delimiter, slice) = (nal(&[0x09, 0xf0]), nal(&[0x65, 1, 2, 3]));
    let unit = |parts: &[&[u8]]| Bytes::from(parts.concat());
    let with = |parts: &[&[u8]]| avc::with_parameter_sets(&sets, &unit(parts));
    assert_eq!(with(&[&slice]), unit(&[&sets, &slice]));
    assert_eq!(with(&[&delimiter, &slice]), unit(&[&delimiter, &sets, &slice]));
    assert_eq!(with(&[&sets, &slice]), unit(&[&sets, &slice]), "it has its own");
    // A truncated access unit stays unchanged.
    assert_eq!(with(&[&[0, 0, 0, 9, 0x65]]), unit(&[&sets, &[0, 0, 0, 9, 0x65]]));
    assert_eq!(with(&[]), sets);
    let mut short = record.clone();
    short[4] = (short[4] & 0xfc) | 1;
    assert_eq!(avc::in_band(&short), None, "lengths of two bytes");
}

#[test]
fn avc_records_give_their_fields_and_video_size() {
    for (text, expected) in AVC {
        let record = hex(text);
        let config = AvcConfig::parse(&record).expect("valid");
        assert_eq!((config.sps.len(), config.pps.len(), config.nal_length_bytes), (1, 1, 4));
        assert_eq!(config.video_size(), size(expected));
        assert_eq!((config.profile, config.level), (record[1], record[3]));
    }
}

#[test]
fn hevc_records_give_their_fields_and_video_size() {
    for (text, expected) in HEVC {
        let record = hex(text);
        let config = HevcConfig::parse(&record).expect("valid");
        let types: Vec<u8> = config.parameter_sets.iter().map(|set| set.nal_type).collect();
        assert_eq!(types, [32, 33, 34]);
        assert_eq!((config.profile, config.nal_length_bytes, config.high_tier), (1, 4, false));
        assert_eq!(config.video_size(), size(expected));
    }
}

#[test]
fn records_written_from_their_parameter_sets_are_the_same() {
    let owned = |sets: &[&[u8]]| sets.iter().map(|set| set.to_vec()).collect::<Vec<_>>();
    for (text, _) in AVC {
        let record = hex(text);
        let config = AvcConfig::parse(&record).expect("valid");
        let (sps, pps) = (owned(&config.sps), owned(&config.pps));
        assert_eq!(avc::record(&sps, &pps), Ok(record));
        assert_eq!(avc::record(&[], &pps), Err(CodecError::Field("empty parameter set list")));
        assert_eq!(avc::record(&sps, &[]), Err(CodecError::Field("empty parameter set list")));
        assert_eq!(avc::record(&[vec![0x67, 100]], &pps), Err(CodecError::Truncated));
        assert_eq!(avc::record(&vec![sps[0].clone(); 32], &pps), Err(CodecError::TooMany));
        let long = [vec![0x68; 1 << 16]];
        assert_eq!(avc::record(&sps, &long), Err(CodecError::Field("parameter set length")));
        assert_eq!(avc::pps_id(&pps[0]), Some(0));
    }
    for (text, _) in HEVC {
        let record = hex(text);
        let config = HevcConfig::parse(&record).expect("valid");
        let [vps, sps, pps] = [0, 1, 2].map(|index: usize| owned(&[config.parameter_sets[index].nal]));
        assert_eq!(hevc::record(&vps, &sps, &pps), Ok(record));
        assert_eq!(hevc::record(&[], &sps, &pps), Err(CodecError::Field("empty parameter set list")));
        assert_eq!(hevc::record(&vps, &sps[..0], &pps), Err(CodecError::Field("empty parameter set list")));
        assert_eq!(hevc::record(&vps, &[sps[0][..9].to_vec()], &pps), Err(CodecError::Truncated));
        let many = vec![pps[0].clone(); super::PARAMETER_SETS_MAX - 1];
        assert_eq!(hevc::record(&vps, &sps, &many), Err(CodecError::TooMany));
        assert_eq!((hevc::vps_id(&vps[0]), hevc::pps_id(&pps[0])), (Some(0), Some(0)));
    }
}

#[test]
fn recovery_points_are_found_behind_other_messages() {
    let table: [(&[u8], bool); 7] = [
        // Type 6, one byte: count 0, exact match, not a broken link.
        (&[6, 6, 1, 0xc4, 0x80], true),
        (&[6, 1, 2, 9, 9, 6, 1, 0xc4, 0x80], true),
        // A type of 255 + 1 before it.
        (&[6, 255, 1, 0, 6, 1, 0xc4, 0x80], true),
        // Count 1.
        (&[6, 6, 1, 0x4c, 0x80], false),
        (&[6, 5, 200, 0, 0x80], false),
        (&[6, 255, 255, 255], false),
        (&[6], false),
    ];
    for (sei, expected) in table {
        assert_eq!(avc::is_recovery_point(sei), expected, "{sei:?}");
    }
}

#[test]
fn truncation_at_any_byte_is_an_error() {
    for (text, _) in AVC {
        let record = hex(text);
        // The fields after the picture parameter sets (4 bytes for high profiles) are optional.
        let needed = if record[1] >= 100 { record.len() - 4 } else { record.len() };
        for end in 0..needed {
            assert_eq!(AvcConfig::parse(&record[..end]), Err(CodecError::Truncated), "cut at {end}");
        }
    }
    for (text, _) in HEVC {
        let record = hex(text);
        for end in 0..record.len() {
            assert_eq!(HevcConfig::parse(&record[..end]), Err(CodecError::Truncated), "cut at {end}");
        }
    }
}

#[test]
fn truncated_parameter_sets_do_not_panic() {
    let avc_record = hex(AVC[1].0);
    let sps = AvcConfig::parse(&avc_record).expect("valid").sps[0].to_vec();
    for end in 0..sps.len() {
        // The fields after the cropping fields are not needed.
        let read = avc::video_size(&sps[..end]);
        assert!(read == Err(CodecError::Truncated) || read == size((1920, 1080)), "cut at {end}: {read:?}");
    }
    assert_eq!(avc::video_size(&sps[..8]), Err(CodecError::Truncated));
    let hevc_record = hex(HEVC[1].0);
    let sps = HevcConfig::parse(&hevc_record).expect("valid").parameter_sets[1].nal.to_vec();
    for end in 0..16 {
        assert_eq!(hevc::video_size(&sps[..end]), Err(CodecError::Truncated), "cut at {end}");
    }
}

#[test]
fn impossible_fields_are_refused() {
    assert_eq!(AvcConfig::parse(&[0, 0, 0, 0, 0, 0, 0]), Err(CodecError::Version(0)));
    assert_eq!(AvcConfig::parse(&[1, 0, 0, 0, 0xfe, 0xe0, 0]), Err(CodecError::Field("nal length size")));
    let empty = AvcConfig::parse(&[1, 0, 0, 0, 0xff, 0xe0, 0]).expect("valid");
    assert_eq!(empty.video_size(), Err(CodecError::Field("empty parameter set list")));
    let mut record = hex(HEVC[0].0);
    record[0] = 2;
    assert_eq!(HevcConfig::parse(&record), Err(CodecError::Version(2)));
    // A wrong NAL unit type instead of the parameter set.
    assert_eq!(avc::video_size(&[0x68, 1, 2, 3]), Err(CodecError::Field("nal unit type")));
    assert_eq!(hevc::video_size(&[0x44, 1, 2, 3]), Err(CodecError::Field("nal unit type")));
}

#[test]
fn the_number_of_parameter_sets_is_limited() {
    let mut record = hex(HEVC[0].0)[..22].to_vec();
    record.extend_from_slice(&[1, 33, 0, super::PARAMETER_SETS_MAX as u8]);
    record.extend_from_slice(&[0; 2 * super::PARAMETER_SETS_MAX]);
    assert_eq!(HevcConfig::parse(&record).map(|config| config.parameter_sets.len()), Ok(64));
    record[25] += 1;
    assert_eq!(HevcConfig::parse(&record), Err(CodecError::TooMany));
    let mut record = vec![1, 100, 0, 31, 0xff, 0xe0, 64];
    record.extend_from_slice(&[0; 2 * 64]);
    assert_eq!(AvcConfig::parse(&record).map(|config| config.pps.len()), Ok(64));
    record[6] = 65;
    assert_eq!(AvcConfig::parse(&record), Err(CodecError::TooMany));
}

#[test]
fn mutated_records_do_not_panic() {
    let mut random = Random::new(0x5eed_c0de);
    let records: Vec<Vec<u8>> = AVC.iter().chain(&HEVC).map(|(text, _)| hex(text)).collect();
    let mut refused = 0;
    for round in 0..60_000 {
        let mut record = records[round % records.len()].clone();
        for _ in 0..=random.below(4) {
            let index = random.below(record.len());
            record[index] = random.next() as u8;
        }
        refused += usize::from(AvcConfig::parse(&record).and_then(|config| config.video_size()).is_err());
        refused += usize::from(HevcConfig::parse(&record).and_then(|config| config.video_size()).is_err());
        refused += usize::from(Av1Config::parse(&record).is_err());
        refused += usize::from(aac::AacConfig::parse(&record).is_err());
        refused += usize::from(opus::OpusConfig::parse(&record).is_err());
    }
    assert!(refused > 60_000, "mutation changes nothing: {refused}");
}
