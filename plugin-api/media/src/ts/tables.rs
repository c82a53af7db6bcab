//! Program association and program map table (tables 2-30 and 2-33).

use super::limits::STREAMS_MAX;
use super::packet::pid;
use super::{PID_MIN, PID_NULL, opus, section};
use crate::flv::ForeignCodec;
use crate::{Codec, Kind};

/// table_id of both tables (table 2-31).
const TABLE_PAT: u8 = 0;
const TABLE_PMT: u8 = 2;
/// The only program and stream that are written.
const PROGRAM: u16 = 1;
/// stream_type (table 2-34).
const TYPE_PRIVATE: u8 = 0x06;
const TYPE_ADTS: u8 = 0x0f;
const TYPE_LATM: u8 = 0x11;
const TYPE_H264: u8 = 0x1b;
const TYPE_HEVC: u8 = 0x24;
/// Descriptor tags (table 2-45), and the extension tag of Opus.
const TAG_REGISTRATION: u8 = 0x05;
const TAG_EXTENSION: u8 = 0x7f;
const TAG_EXTENSION_OPUS: u8 = 0x80;

/// Format identifier of our notes (2.6.9); other programs leave such a descriptor alone.
const NOTE: [u8; 4] = *b"SATC";

/// How a stream carries its codec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    H264,
    Hevc,
    Adts,
    Latm,
    /// Opus with its channel_config_code.
    Opus(u8),
}

impl Format {
    pub(super) fn codec(self) -> Codec {
        match self {
            Format::H264 => Codec::H264,
            Format::Hevc => Codec::Hevc,
            Format::Adts | Format::Latm => Codec::Aac,
            Format::Opus(_) => Codec::Opus,
        }
    }
}

/// A stream of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stream {
    pub(super) pid: u16,
    pub(super) format: Format,
}

/// The program that the PAT names first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pat {
    program: u16,
    pub(super) pmt_pid: u16,
}

/// The streams of the program that are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Pmt {
    /// The stream whose packets have the clock reference.
    pub(super) pcr_pid: u16,
    pub(super) video: Option<Stream>,
    pub(super) audio: Option<Stream>,
    /// The first stream of each kind whose codec is not supported.
    pub(super) foreign: [Option<ForeignCodec>; 2],
}

impl Pat {
    /// Reads the first program of a section; entry 0 is the network.
    pub(super) fn parse(section: &[u8]) -> Option<Self> {
        let entries = body(section, TABLE_PAT)?;
        entries.as_chunks::<4>().0.iter().find_map(|[program_high, program_low, high, low]| {
            let program = u16::from_be_bytes([*program_high, *program_low]);
            let pmt_pid = pid(*high, *low);
            (program != 0 && is_stream(pmt_pid)).then_some(Pat { program, pmt_pid })
        })
    }

    /// Appends the section of the one program that is written.
    pub(super) fn write(out: &mut Vec<u8>, pmt_pid: u16) {
        let [program, pid] = [PROGRAM, 0xe000 | pmt_pid].map(u16::to_be_bytes);
        section::write(out, TABLE_PAT, PROGRAM, 0, &[program, pid].concat());
    }
}

impl Pmt {
    /// Reads the section of the program that `pat` names.
    pub(super) fn parse(section: &[u8], pat: Pat) -> Option<Self> {
        let body = body(section, TABLE_PMT)?;
        if section[3..5] != pat.program.to_be_bytes() {
            return None;
        }
        let (head, rest) = body.split_first_chunk::<4>()?;
        let mut pmt = Pmt { pcr_pid: pid(head[0], head[1]), ..Pmt::default() };
        let mut rest = rest.get(length(head[2], head[3])..)?;
        for _ in 0..STREAMS_MAX {
            let Some((head, behind)) = rest.split_first_chunk::<5>() else { break };
            let (descriptors, behind) = behind.split_at_checked(length(head[3], head[4]))?;
            rest = behind;
            let pid = pid(head[1], head[2]);
            if is_stream(pid) && pid != pat.pmt_pid {
                pmt.add(pid, head[0], descriptors);
            }
        }
        Some(pmt)
    }

    fn add(&mut self, pid: u16, stream_type: u8, descriptors: &[u8]) {
        match content(stream_type, descriptors) {
            Content::Used(format) => {
                let slot =
                    if format.codec().kind() == Kind::Video { &mut self.video } else { &mut self.audio };
                slot.get_or_insert(Stream { pid, format });
            }
            Content::Foreign(kind, name) => {
                self.foreign[usize::from(kind == Kind::Audio)]
                    .get_or_insert_with(|| ForeignCodec::named(kind, name));
            }
            Content::Other => {}
        }
    }

    /// The note about the program in a section: empty without one.
    pub(super) fn note(section: &[u8]) -> &[u8] {
        let descriptors = body(section, TABLE_PMT).and_then(|body| {
            let (head, rest) = body.split_first_chunk::<4>()?;
            rest.get(..length(head[2], head[3]))
        });
        let mut notes = descriptors_of(descriptors.unwrap_or_default());
        notes
            .find_map(|(tag, body)| body.strip_prefix(&NOTE).filter(|_| tag == TAG_REGISTRATION))
            .unwrap_or_default()
    }

    /// Appends the section, with a note about the program of at most [`super::limits::NOTE_BYTES_MAX`] bytes.
    pub(super) fn write(&self, out: &mut Vec<u8>, version: u8, note: &[u8]) {
        let note = match note {
            [] => vec![],
            note => [&[TAG_REGISTRATION, (NOTE.len() + note.len()) as u8], &NOTE[..], note].concat(),
        };
        let mut body = [0xe000 | self.pcr_pid, 0xf000 | note.len() as u16].map(u16::to_be_bytes).concat();
        body.extend_from_slice(&note);
        for Stream { pid, format } in [self.video, self.audio].into_iter().flatten() {
            let (stream_type, descriptors) = match format {
                Format::H264 => (TYPE_H264, vec![]),
                Format::Hevc => (TYPE_HEVC, vec![]),
                Format::Adts => (TYPE_ADTS, vec![]),
                Format::Latm => (TYPE_LATM, vec![]),
                Format::Opus(code) => (TYPE_PRIVATE, opus_descriptors(code)),
            };
            body.push(stream_type);
            body.extend_from_slice(&(0xe000 | pid).to_be_bytes());
            body.extend_from_slice(&[0xf0, descriptors.len() as u8]);
            body.extend_from_slice(&descriptors);
        }
        section::write(out, TABLE_PMT, PROGRAM, version, &body);
    }
}

/// The registration and the extension descriptor of Opus.
fn opus_descriptors(code: u8) -> Vec<u8> {
    let registration = [&[TAG_REGISTRATION, 4], &b"Opus"[..]].concat();
    [&registration[..], &[TAG_EXTENSION, 2, TAG_EXTENSION_OPUS, code]].concat()
}

/// Bytes after the head of a section, if it is the first and only one of a current table.
fn body(section: &[u8], table_id: u8) -> Option<&[u8]> {
    let (head, body) = section.split_first_chunk::<8>()?;
    let is_current = head[5] & 1 != 0;
    (head[0] == table_id && is_current && head[6] == 0).then_some(body)
}

/// A length of 12 bits.
fn length(high: u8, low: u8) -> usize {
    usize::from(u16::from_be_bytes([high & 0x0f, low]))
}

fn is_stream(pid: u16) -> bool {
    (PID_MIN..PID_NULL).contains(&pid)
}

/// What a stream of the program is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    Used(Format),
    Foreign(Kind, &'static str),
    /// Neither video nor audio, or not known.
    Other,
}

fn content(stream_type: u8, descriptors: &[u8]) -> Content {
    match stream_type {
        TYPE_H264 => Content::Used(Format::H264),
        TYPE_HEVC => Content::Used(Format::Hevc),
        TYPE_ADTS => Content::Used(Format::Adts),
        TYPE_LATM => Content::Used(Format::Latm),
        TYPE_PRIVATE => private(descriptors),
        0x01 | 0x02 => Content::Foreign(Kind::Video, "MPEG-2 video"),
        0x10 => Content::Foreign(Kind::Video, "MPEG-4 part 2"),
        0x21 => Content::Foreign(Kind::Video, "JPEG 2000"),
        0x33 => Content::Foreign(Kind::Video, "VVC"),
        0x42 | 0xd2 => Content::Foreign(Kind::Video, "AVS"),
        0xea => Content::Foreign(Kind::Video, "VC-1"),
        0x03 | 0x04 => Content::Foreign(Kind::Audio, "MPEG audio layer 1 to 3"),
        0x2d | 0x2e => Content::Foreign(Kind::Audio, "MPEG-H"),
        // Not in the table, but common: ATSC A/53 part 3 and others.
        0x81 => Content::Foreign(Kind::Audio, "AC-3"),
        0x87 => Content::Foreign(Kind::Audio, "E-AC-3"),
        0x82 | 0x85 | 0x86 if registration(descriptors).is_some_and(|name| name.starts_with(b"DTS")) => {
            Content::Foreign(Kind::Audio, "DTS")
        }
        _ => Content::Other,
    }
}

/// The content of a private stream, which its descriptors name.
fn private(descriptors: &[u8]) -> Content {
    match registration(descriptors) {
        Some(b"Opus") => {
            let extension = descriptors_of(descriptors).find(|(tag, _)| *tag == TAG_EXTENSION);
            return match extension {
                Some((_, [TAG_EXTENSION_OPUS, code, ..])) if opus::is_known(*code) => {
                    Content::Used(Format::Opus(*code))
                }
                _ => Content::Foreign(Kind::Audio, "Opus with another order of channels"),
            };
        }
        Some(b"HEVC") => return Content::Used(Format::Hevc),
        Some(b"AV01") => return Content::Foreign(Kind::Video, "AV1 in MPEG-TS"),
        Some(b"BSSD") => return Content::Foreign(Kind::Audio, "SMPTE 302M"),
        _ => {}
    }
    // Descriptor tags of DVB (ETSI EN 300 468, table 12).
    let dvb = descriptors_of(descriptors).find_map(|(tag, _)| match tag {
        0x6a => Some("AC-3"),
        0x7a => Some("E-AC-3"),
        0x7b => Some("DTS"),
        _ => None,
    });
    dvb.map_or(Content::Other, |name| Content::Foreign(Kind::Audio, name))
}

/// The format of a registration descriptor (2.6.8).
fn registration(descriptors: &[u8]) -> Option<&[u8; 4]> {
    descriptors_of(descriptors).find(|(tag, _)| *tag == TAG_REGISTRATION)?.1.first_chunk()
}

/// Tags and bodies of descriptors, up to the first that is cut off.
fn descriptors_of(mut rest: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let ([tag, bytes], behind) = rest.split_first_chunk()?;
        let (body, behind) = behind.split_at_checked(usize::from(*bytes))?;
        rest = behind;
        Some((*tag, body))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAT: Pat = Pat { program: PROGRAM, pmt_pid: 0x1000 };

    fn without_crc(section: &[u8]) -> &[u8] {
        &section[..section.len() - 4]
    }

    fn read(pmt_body: &[u8]) -> Option<Pmt> {
        let mut section = Vec::new();
        section::write(&mut section, TABLE_PMT, PROGRAM, 0, pmt_body);
        Pmt::parse(without_crc(&section), PAT)
    }

    #[test]
    fn written_tables_are_read() {
        let mut section = Vec::new();
        Pat::write(&mut section, 0x1000);
        assert_eq!(Pat::parse(without_crc(&section)), Some(PAT));
        let formats = [Format::H264, Format::Hevc].map(Some).into_iter().chain([None]);
        for video in formats.map(|format| format.map(|format| Stream { pid: 0x100, format })) {
            for audio in [Format::Adts, Format::Latm, Format::Opus(0), Format::Opus(8)] {
                let audio = Some(Stream { pid: 0x101, format: audio });
                let pmt = Pmt { pcr_pid: 0x101, video, audio, foreign: [None; 2] };
                let mut section = Vec::new();
                pmt.write(&mut section, 31, &[]);
                assert_eq!(Pmt::parse(without_crc(&section), PAT), Some(pmt));
                let other = Pat { program: 2, ..PAT };
                assert_eq!(Pmt::parse(without_crc(&section), other), None);
            }
        }
    }

    #[test]
    fn the_first_program_counts_and_the_network_does_not() {
        let parse = |body: &[u8]| {
            let mut section = Vec::new();
            section::write(&mut section, TABLE_PAT, 1, 0, body);
            Pat::parse(without_crc(&section))
        };
        let network = [0, 0, 0xe0, 0x10];
        let programs = [[0, 7, 0xe1, 0], [0, 8, 0xe2, 0]].concat();
        let body = [&network[..], &programs].concat();
        assert_eq!(parse(&body), Some(Pat { program: 7, pmt_pid: 0x100 }));
        assert_eq!(parse(&network), None);
        assert_eq!(parse(&[0, 1, 0xe0, 0]), None, "the identifier of the table itself");
        assert_eq!(parse(&[0, 1, 0xff, 0xff]), None, "the identifier of empty packets");
        assert_eq!(parse(&[0, 1, 0xe1]), None);
    }

    #[test]
    fn the_first_stream_of_each_kind_counts_and_others_are_named() {
        let body = [
            &[0xe1, 0x00, 0xf0, 2, 0x0e, 0][..],
            &[0x02, 0xe1, 0x10, 0xf0, 0],
            &[0x1b, 0xe1, 0x11, 0xf0, 0],
            &[0x24, 0xe1, 0x12, 0xf0, 0],
            &[0x06, 0xe1, 0x13, 0xf0, 3, 0x6a, 1, 0],
            &[0x0f, 0xf0, 0x00, 0xf0, 0],
            &[0x0f, 0xe1, 0x14, 0xf0, 0],
            &[0x86, 0xe1, 0x15, 0xf0, 0],
        ]
        .concat();
        let pmt = read(&body).expect("a table");
        assert_eq!(pmt.pcr_pid, 0x100);
        assert_eq!(pmt.video, Some(Stream { pid: 0x111, format: Format::H264 }));
        // The stream at the identifier of the table itself is left out.
        assert_eq!(pmt.audio, Some(Stream { pid: 0x114, format: Format::Adts }));
        let names = pmt.foreign.map(|codec| codec.map(|codec| codec.to_string()));
        assert_eq!(names, [Some("MPEG-2 video".to_owned()), Some("AC-3".to_owned())]);
        // A table that ends within a stream's descriptors, or within the descriptors of the program.
        assert_eq!(read(&body[..body.len() - 16]), None);
        assert_eq!(read(&[0xe1, 0, 0xf0, 1]), None);
        assert_eq!(read(&[0xe1, 0, 0xf0]), None);
    }

    #[test]
    fn private_streams_are_known_by_their_descriptors() {
        let opus = opus_descriptors(2);
        let table: [(&[u8], Content); 8] = [
            (&opus, Content::Used(Format::Opus(2))),
            (&opus[..6], Content::Foreign(Kind::Audio, "Opus with another order of channels")),
            (&opus_descriptors(9), Content::Foreign(Kind::Audio, "Opus with another order of channels")),
            (b"\x05\x04HEVC", Content::Used(Format::Hevc)),
            (b"\x05\x04AV01", Content::Foreign(Kind::Video, "AV1 in MPEG-TS")),
            (&[0x7b, 0], Content::Foreign(Kind::Audio, "DTS")),
            (&[0x05, 4, b'O'], Content::Other),
            (&[], Content::Other),
        ];
        for (descriptors, expected) in table {
            assert_eq!(content(TYPE_PRIVATE, descriptors), expected, "{descriptors:?}");
        }
        assert_eq!(content(0x86, b"\x05\x04DTS3"), Content::Foreign(Kind::Audio, "DTS"));
        assert_eq!(content(0x86, b"\x05\x04CUEI"), Content::Other);
    }

    #[test]
    fn streams_beyond_the_limit_are_not_read() {
        let mut body = vec![0xe1, 0x00, 0xf0, 0];
        for number in 0..STREAMS_MAX as u8 - 1 {
            body.extend_from_slice(&[0x15, 0xe2, number, 0xf0, 0]);
        }
        let video = [0x1b, 0xe1, 0x11, 0xf0, 0];
        assert!(read(&[&body[..], &video].concat()).is_some_and(|pmt| pmt.video.is_some()));
        body.extend_from_slice(&[0x15, 0xe2, 0xff, 0xf0, 0]);
        assert!(read(&[&body[..], &video].concat()).is_some_and(|pmt| pmt.video.is_none()));
    }
}
