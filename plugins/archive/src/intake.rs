//! Packets of the host as packets of the segmenter.

use bytes::Bytes;
use satcast_media::{Codec, Packet, Role};
use satcast_plugin_api::{driver, packet};

use crate::limits::SHARED_BYTES_MAX;

/// Takes packets over, and says once when it leaves some out.
#[derive(Debug, Default)]
pub(crate) struct Intake {
    ignored: u64,
}

impl Intake {
    /// The packet for a cutter that holds `held_bytes`; `None` for one that cannot be recorded: another track than the first
    /// of its kind, a codec this version does not know.
    pub(crate) fn take(&mut self, packet: driver::Packet, held_bytes: usize) -> Option<Packet> {
        let codec = packet.codec().map(codec).filter(|_| packet.track() == 0);
        let Some(codec) = codec else {
            self.ignored += 1;
            if self.ignored == 1 {
                let known = packet.codec().map(packet::Codec::name);
                tracing::warn!(track = packet.track(), codec = ?known, "packets without a place in a recording are left out");
            }
            return None;
        };
        let role = if packet.is_config() { Role::Config } else { Role::Data };
        let (keyframe, dts_ns, pts_ns) = (packet.is_keyframe(), packet.dts_ns(), packet.pts_ns());
        let payload = payload(packet, role, held_bytes);
        Some(Packet { kind: codec.kind(), codec, role, keyframe, dts_ns, pts_ns, payload })
    }
}

/// The payload, shared with the host while that is safe (see [`SHARED_BYTES_MAX`]). A record is always copied: it is kept for
/// as long as the encoder goes on, and would keep the host's packet for all that time.
fn payload(packet: driver::Packet, role: Role, held_bytes: usize) -> Bytes {
    let len = packet.payload().len();
    if role == Role::Config || held_bytes.saturating_add(len) > SHARED_BYTES_MAX {
        Bytes::copy_from_slice(packet.payload())
    } else {
        packet.into_bytes()
    }
}

fn codec(codec: packet::Codec) -> Codec {
    match codec {
        packet::Codec::H264 => Codec::H264,
        packet::Codec::Hevc => Codec::Hevc,
        packet::Codec::Av1 => Codec::Av1,
        packet::Codec::Aac => Codec::Aac,
        packet::Codec::Opus => Codec::Opus,
    }
}
