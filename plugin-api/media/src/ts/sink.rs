//! What all streams of the program share.

use super::TsError;
use super::pes::Stamps;
use super::time::{TimeLine, distance, to_nanos};
use crate::Packet;
use crate::video::Times;

/// What a demultiplexer has read and left out. Numbers only grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DemuxStats {
    /// Transport stream packets that were read.
    pub packets: u64,
    /// Packets that were damaged, scrambled or impossible.
    pub packets_refused: u64,
    /// Places at which the position of the packets was lost.
    pub resyncs: u64,
    /// Places at which packets of a used stream were missing, by their continuity counter.
    pub gaps: u64,
    /// Sections of tables with a wrong checksum, length or position.
    pub sections_refused: u64,
    /// PES packets that were cut off, too long, or without a valid header.
    pub pes_dropped: u64,
    /// Frames that were left out: video before a keyframe, and audio without a time or that could not be read.
    pub frames_dropped: u64,
}

/// Where a stream puts its packets.
#[derive(Debug)]
pub(super) struct Sink<'a> {
    pub(super) timeline: &'a mut TimeLine,
    pub(super) stats: &'a mut DemuxStats,
    pub(super) packets: &'a mut Vec<Packet>,
}

impl Sink<'_> {
    /// Unwraps the timestamps of a PES packet.
    ///
    /// # Errors
    /// [`TsError::TimestampRange`].
    pub(super) fn times(&mut self, stamps: Stamps) -> Result<Times, TsError> {
        let dts = self.timeline.place(stamps.dts)?;
        let pts = dts + distance(stamps.dts as i64, stamps.pts as i64);
        Ok(Times { pts_ns: to_nanos(pts), dts_ns: to_nanos(dts) })
    }
}
