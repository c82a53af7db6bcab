//! Initialization segments: `ftyp` and `moov` with `mvex` (ISO/IEC 14496-12, 8.8; RFC 8216, 3.3).

use bytes::Bytes;
use mp4_atom::{
    Dinf, Dref, DrefEntry, Encode, FourCC, Ftyp, Hdlr, Mdhd, Mdia, Minf, Moov, Mvex, Mvhd, Smhd, Stbl, Stco,
    Stsd, Tkhd, Trak, Trex, Url, Vmhd,
};

use super::{AUDIO_TRACK_ID, Fmp4Error, TRACKS_MAX, TrackConfig, TrackDetails, VIDEO_TRACK_ID};
use crate::Kind;

/// Writes the initialization segment of a rendition with one or two tracks of different kinds.
///
/// # Errors
/// [`Fmp4Error::Tracks`], or [`Fmp4Error::Box`] when a box cannot hold its values.
pub fn init_segment(tracks: &[&TrackConfig]) -> Result<Bytes, Fmp4Error> {
    let kinds = |kind: Kind| tracks.iter().filter(|track| track.codec().kind() == kind).count();
    if tracks.is_empty() || tracks.len() > TRACKS_MAX || kinds(Kind::Video) > 1 || kinds(Kind::Audio) > 1 {
        return Err(Fmp4Error::Tracks);
    }
    let mut init = Vec::with_capacity(1024);
    Ftyp {
        major_brand: FourCC::new(b"iso6"),
        minor_version: 0,
        compatible_brands: [b"iso6", b"cmfc", b"mp41"].map(FourCC::new).to_vec(),
    }
    .encode(&mut init)?;
    let trex = |track: &&TrackConfig| Trex {
        track_id: track_id(track),
        default_sample_description_index: 1,
        ..Trex::default()
    };
    let moov = Moov {
        mvhd: Mvhd { rate: 1.into(), volume: 1.into(), next_track_id: AUDIO_TRACK_ID + 1, ..Mvhd::default() },
        trak: tracks.iter().map(|track| trak(track)).collect(),
        mvex: Some(Mvex { mehd: None, trex: tracks.iter().map(trex).collect() }),
        ..Moov::default()
    };
    moov.encode(&mut init)?;
    Ok(Bytes::from(init))
}

fn track_id(track: &TrackConfig) -> u32 {
    match track.codec().kind() {
        Kind::Video => VIDEO_TRACK_ID,
        Kind::Audio => AUDIO_TRACK_ID,
    }
}

fn trak(track: &TrackConfig) -> Trak {
    let mut tkhd = Tkhd { track_id: track_id(track), enabled: true, in_movie: true, ..Tkhd::default() };
    let mut minf = Minf {
        dinf: Dinf { dref: Dref { entries: vec![DrefEntry::Url(Url::default())] } },
        stbl: Stbl {
            stsd: Stsd { codecs: vec![track.sample_entry().clone()] },
            stco: Some(Stco::default()),
            ..Stbl::default()
        },
        ..Minf::default()
    };
    let (handler, name) = match track.details() {
        TrackDetails::Video { size, .. } => {
            tkhd.width = (size.width as u16).into();
            tkhd.height = (size.height as u16).into();
            minf.vmhd = Some(Vmhd::default());
            (b"vide", "video")
        }
        TrackDetails::Audio { .. } => {
            tkhd.volume = 1.into();
            minf.smhd = Some(Smhd::default());
            (b"soun", "audio")
        }
    };
    Trak {
        tkhd,
        mdia: Mdia {
            mdhd: Mdhd { timescale: track.timescale(), language: "und".to_owned(), ..Mdhd::default() },
            hdlr: Hdlr { handler: FourCC::new(handler), name: name.to_owned() },
            minf,
        },
        ..Trak::default()
    }
}
