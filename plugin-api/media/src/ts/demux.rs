//! Bytes in, packets out.

use super::limits::NOTE_BYTES_MAX;
use super::packet::TsPacket;
use super::section::Sections;
use super::sink::{DemuxStats, Sink};
use super::sync::PacketFinder;
use super::tables::{Pat, Pmt};
use super::time::{TimeLine, to_nanos};
use super::track::Track;
use super::{PACKET_BYTES, PID_PAT, TsError};
use crate::Packet;
use crate::flv::ForeignCodec;

/// Reads one transport stream. The policy stands in the documentation of the module.
#[derive(Debug, Default)]
pub struct Demuxer {
    sync: PacketFinder,
    program: Program,
}

/// State of the one program that is read.
#[derive(Debug, Default)]
struct Program {
    pat_sections: Sections,
    pmt_sections: Sections,
    pat: Option<Pat>,
    pmt: Option<Pmt>,
    note: Vec<u8>,
    /// Video and audio.
    tracks: [Option<Track>; 2],
    timeline: TimeLine,
    clock: Option<i64>,
    stats: DemuxStats,
}

impl Demuxer {
    /// Takes a block of bytes that is cut anywhere, and appends the packets that it completes. Times are in nanoseconds
    /// on the encoder's unwrapped timeline.
    ///
    /// # Errors
    /// Any [`TsError`]; the stream cannot be read any further then.
    pub fn push(&mut self, bytes: &[u8], packets: &mut Vec<Packet>) -> Result<(), TsError> {
        let Demuxer { sync, program } = self;
        let mut take = |packet: Option<&[u8; PACKET_BYTES]>| match packet {
            Some(packet) => program.packet(packet, packets),
            None => {
                program.lost();
                Ok(())
            }
        };
        sync.feed(bytes, &mut take)
    }

    /// Bytes before the next block are missing: what they would have completed is dropped, as after a lost packet.
    pub fn lost(&mut self) {
        self.sync = PacketFinder::default();
        self.program.lost();
    }

    /// Appends the packets that only the end of the stream completes: video has no length of its own. A frame of which the end is missing
    /// is left out.
    ///
    /// # Errors
    /// [`TsError::TimestampRange`].
    pub fn finish(&mut self, packets: &mut Vec<Packet>) -> Result<(), TsError> {
        let Program { tracks, timeline, stats, .. } = &mut self.program;
        let mut sink = Sink { timeline, stats, packets };
        tracks.iter_mut().flatten().try_for_each(|track| track.finish(&mut sink))
    }

    /// Newest program clock reference in nanoseconds, on the timeline of the packets.
    pub fn clock_ns(&self) -> Option<i64> {
        self.program.clock.map(to_nanos)
    }

    /// Codecs of the program that are not supported: at most one of video and one of audio.
    pub fn foreign(&self) -> impl Iterator<Item = ForeignCodec> {
        self.program.pmt.into_iter().flat_map(|pmt| pmt.foreign).flatten()
    }

    /// The note about the program ([`super::Muxer::set_note`]), as soon as its tables came; empty without one.
    pub fn note(&self) -> &[u8] {
        &self.program.note
    }

    /// A program map table was read and names at least one stream that is supported.
    pub fn has_streams(&self) -> bool {
        self.program.tracks.iter().any(Option::is_some)
    }

    /// Numbers of what was read and left out.
    pub fn stats(&self) -> DemuxStats {
        self.program.stats
    }

    /// Bytes of media and tables in memory; at most [`super::limits::HELD_BYTES_MAX`].
    pub fn held_bytes(&self) -> usize {
        let Program { pat_sections, pmt_sections, note, tracks, .. } = &self.program;
        let tracks: usize = tracks.iter().flatten().map(Track::held_bytes).sum();
        pat_sections.held_bytes() + pmt_sections.held_bytes() + note.len() + tracks
    }
}

impl Program {
    fn packet(&mut self, bytes: &[u8; PACKET_BYTES], packets: &mut Vec<Packet>) -> Result<(), TsError> {
        self.stats.packets += 1;
        let Some(packet) = TsPacket::parse(bytes) else {
            self.stats.packets_refused += 1;
            return Ok(());
        };
        if let Some(base) = packet.pcr
            && self.pmt.is_some_and(|pmt| pmt.pcr_pid == packet.pid)
        {
            self.clock = Some(self.timeline.place(base)?);
        }
        let Some(payload) = packet.payload else { return Ok(()) };
        if packet.pid == PID_PAT {
            self.pat(&packet, payload);
            return Ok(());
        }
        if let Some(pat) = self.pat.filter(|pat| pat.pmt_pid == packet.pid) {
            return self.pmt(pat, &packet, payload, packets);
        }
        let Program { tracks, timeline, stats, .. } = self;
        match tracks.iter_mut().flatten().find(|track| track.stream.pid == packet.pid) {
            Some(track) => track.packet(&packet, payload, &mut Sink { timeline, stats, packets }),
            None => Ok(()),
        }
    }

    /// Bytes are missing: each stream may have lost some.
    fn lost(&mut self) {
        self.stats.resyncs += 1;
        self.tracks.iter_mut().flatten().for_each(Track::lost);
    }

    fn pat(&mut self, packet: &TsPacket<'_>, payload: &[u8]) {
        let completed = self.pat_sections.push(packet, payload, Pat::parse);
        self.stats.sections_refused += completed.refused;
        if let Some(pat) = completed.table.filter(|pat| self.pat != Some(*pat)) {
            // The streams go on until the table of the new program is here.
            self.pat = Some(pat);
            self.pmt_sections = Sections::default();
        }
    }

    fn pmt(
        &mut self,
        pat: Pat,
        packet: &TsPacket<'_>,
        payload: &[u8],
        packets: &mut Vec<Packet>,
    ) -> Result<(), TsError> {
        let note = &mut self.note;
        let completed = self.pmt_sections.push(packet, payload, |section| {
            let pmt = Pmt::parse(section, pat)?;
            let told = Pmt::note(section);
            if told != note.as_slice() {
                *note = told[..told.len().min(NOTE_BYTES_MAX)].to_vec();
            }
            Some(pmt)
        });
        self.stats.sections_refused += completed.refused;
        let Some(pmt) = completed.table.filter(|pmt| self.pmt != Some(*pmt)) else { return Ok(()) };
        self.pmt = Some(pmt);
        let Program { tracks, timeline, stats, .. } = self;
        let mut sink = Sink { timeline, stats, packets };
        for (track, stream) in tracks.iter_mut().zip([pmt.video, pmt.audio]) {
            if track.as_ref().map(|track| track.stream) == stream {
                continue;
            }
            // Before its codec changes, a stream ends a frame.
            if let Some(track) = track {
                track.close(&mut sink)?;
            }
            *track = stream.map(Track::new);
        }
        Ok(())
    }
}
