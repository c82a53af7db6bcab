//! The fixed form of what is sent for every few packets: media to the child, what it wants and lets go of to the host.

use satcast_plugin_api::host::Delivery;
use satcast_plugin_api::{Codec, Packet, Role};

use super::message::Malformed;

/// Most packets in one message.
pub(super) const BATCH_PACKETS_MAX: usize = 64;
/// Most packets let go of in one message.
pub(super) const RELEASES_MAX: usize = 1024;
/// First byte of media.
pub(super) const FORM_MEDIA: u8 = 2;
/// First byte of a demand.
pub(super) const FORM_DEMAND: u8 = 3;

const MARK_KEYFRAME: u32 = 1;
const MARK_CONFIG: u32 = 1 << 1;
const MARK_DISCONTINUITY: u32 = 1 << 2;

/// What a child wants and lets go of.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Demand {
    /// Destination that waits for media; 0 = none.
    pub(super) wanted: u64,
    /// Destination that gave its queue back; 0 = none.
    pub(super) abandoned: u64,
    /// Leases.
    pub(super) released: Vec<u64>,
}

impl Demand {
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(17 + 8 * self.released.len());
        bytes.push(FORM_DEMAND);
        for number in [self.wanted, self.abandoned].iter().chain(&self.released) {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    pub(super) fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        if !bytes.len().is_multiple_of(8) || bytes.len() > 8 * (2 + RELEASES_MAX) {
            return Err(Malformed);
        }
        let mut fields = Fields(bytes);
        let (wanted, abandoned) = (fields.u64()?, fields.u64()?);
        let released = (0..fields.0.len() / 8).map(|_| fields.u64()).collect::<Result<_, _>>()?;
        Ok(Self { wanted, abandoned, released })
    }
}

/// Packets for one destination.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) dest: u64,
    pub(super) packets: Vec<Note>,
}

/// One packet: everything but its payload, and where that is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) lease: u64,
    pub(super) offset: u64,
    pub(super) len: u64,
    pub(super) source: u64,
    pub(super) sequence: u64,
    pub(super) dts_ns: i64,
    pub(super) pts_ns: i64,
    pub(super) marks: u32,
    pub(super) kind: u32,
    pub(super) codec: u32,
    pub(super) track: u32,
}

impl Note {
    pub(super) fn of(delivery: &Delivery, lease: u64, offset: usize) -> Self {
        let packet = &delivery.packet;
        let mark = |is: bool, mark: u32| if is { mark } else { 0 };
        Self {
            lease,
            offset: offset as u64,
            len: packet.payload.len() as u64,
            source: packet.source,
            sequence: packet.sequence,
            dts_ns: packet.dts_ns,
            pts_ns: packet.pts_ns,
            marks: mark(packet.keyframe, MARK_KEYFRAME)
                | mark(packet.is_config(), MARK_CONFIG)
                | mark(packet.discontinuity || delivery.discontinuity, MARK_DISCONTINUITY),
            kind: packet.kind() as u32,
            codec: packet.codec as u32,
            track: packet.track,
        }
    }

    /// The packet with its payload; `None` for a codec this version does not know.
    pub(super) fn packet(&self, payload: bytes::Bytes) -> Option<Packet> {
        Some(Packet {
            codec: Codec::from_number(self.codec)?,
            role: if self.marks & MARK_CONFIG == 0 { Role::Data } else { Role::Config },
            keyframe: self.marks & MARK_KEYFRAME != 0,
            discontinuity: self.marks & MARK_DISCONTINUITY != 0,
            track: self.track,
            source: self.source,
            sequence: self.sequence,
            dts_ns: self.dts_ns,
            pts_ns: self.pts_ns,
            payload,
        })
    }
}

impl Batch {
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(9 + 72 * self.packets.len());
        bytes.push(FORM_MEDIA);
        bytes.extend_from_slice(&self.dest.to_le_bytes());
        for note in &self.packets {
            for number in [note.lease, note.offset, note.len, note.source, note.sequence] {
                bytes.extend_from_slice(&number.to_le_bytes());
            }
            for time in [note.dts_ns, note.pts_ns] {
                bytes.extend_from_slice(&time.to_le_bytes());
            }
            for number in [note.marks, note.kind, note.codec, note.track] {
                bytes.extend_from_slice(&number.to_le_bytes());
            }
        }
        bytes
    }

    pub(super) fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut fields = Fields(bytes);
        let mut batch = Batch { dest: fields.u64()?, packets: Vec::new() };
        while !fields.0.is_empty() && batch.packets.len() < BATCH_PACKETS_MAX {
            batch.packets.push(Note {
                lease: fields.u64()?,
                offset: fields.u64()?,
                len: fields.u64()?,
                source: fields.u64()?,
                sequence: fields.u64()?,
                dts_ns: fields.u64()?.cast_signed(),
                pts_ns: fields.u64()?.cast_signed(),
                marks: fields.u32()?,
                kind: fields.u32()?,
                codec: fields.u32()?,
                track: fields.u32()?,
            });
        }
        if fields.0.is_empty() { Ok(batch) } else { Err(Malformed) }
    }
}

struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn u64(&mut self) -> Result<u64, Malformed> {
        let (field, rest) = self.0.split_first_chunk().ok_or(Malformed)?;
        self.0 = rest;
        Ok(u64::from_le_bytes(*field))
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        let (field, rest) = self.0.split_first_chunk().ok_or(Malformed)?;
        self.0 = rest;
        Ok(u32::from_le_bytes(*field))
    }
}
