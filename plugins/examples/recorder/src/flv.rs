//! FLV (Adobe Flash Video File Format 10.1, annex E): just enough for H.264 and AAC.

use satcast_plugin_api::{Codec, NANOS_PER_MILLI, Packet};

/// The start of every file: version 1, audio and video, a header of 9 bytes, no tag before the first.
pub(crate) const HEAD: [u8; 13] = *b"FLV\x01\x05\0\0\0\x09\0\0\0\0";
/// Sizes are written in three bytes.
const DATA_BYTES_MAX: usize = 0xff_ffff;
const TAG_HEAD_BYTES: u32 = 11;

/// Appends a packet, `since_ns` after the beginning of the file. Leaves out packets that FLV cannot hold.
pub(crate) fn put(out: &mut Vec<u8>, packet: &Packet, since_ns: i64) {
    let config = packet.is_config();
    let (kind, prefix) = match packet.codec {
        Codec::H264 => {
            let late = (packet.pts_ns - packet.dts_ns) / NANOS_PER_MILLI;
            let late = if config { 0 } else { late as u32 }.to_be_bytes();
            let frame = if config || packet.keyframe { 0x17 } else { 0x27 };
            (9, vec![frame, u8::from(!config), late[1], late[2], late[3]])
        }
        Codec::Aac => (8, vec![0xaf, u8::from(!config)]),
        _ => return,
    };
    let bytes = prefix.len() + packet.payload.len();
    if bytes > DATA_BYTES_MAX {
        return;
    }
    let (bytes, time) = (bytes as u32, (since_ns.max(0) / NANOS_PER_MILLI) as u32);
    let (size, [high, time @ ..]) = (bytes.to_be_bytes(), time.to_be_bytes());
    out.push(kind);
    out.extend(&size[1..]);
    out.extend(time);
    out.extend([high, 0, 0, 0]);
    out.extend(prefix);
    out.extend(&packet.payload);
    out.extend((TAG_HEAD_BYTES + bytes).to_be_bytes());
}
