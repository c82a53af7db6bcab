//! Bodies of the fuzz targets: each takes any bytes, and panics only at a defect.
//!
//! The fuzz crate runs them under coverage guidance; the normal tests run them over the committed corpus.

use bytes::{Buf, Bytes};

use crate::codec::{aac, av1, avc, hevc, opus};
use crate::flv::{demux, mux};
use crate::packet::{Codec, NANOS_PER_MILLI, Packet, Role, TrackKind};
use crate::rtmp::amf0::{decode_all, encode_all};
use crate::rtmp::chunk::{ChunkOutput, ChunkReader, ChunkWriter, Message};
use crate::rtmp::client::{ClientConfig, ClientEvent, ClientSession};
use crate::rtmp::handshake::BLOCK_BYTES;
use crate::rtmp::limits::{HELD_MEDIA_BYTES_MAX, MESSAGE_BYTES_MAX, UNFINISHED_BYTES_MAX};
use crate::rtmp::server::{ServerConfig, ServerEvent, ServerSession};

/// Body of a target.
pub type Target = fn(&[u8]);

/// Name and body of every target.
pub const TARGETS: [(&str, Target); 6] = [
    ("amf0", amf0),
    ("chunk", chunk),
    ("server_session", server_session),
    ("client_session", client_session),
    ("flv", flv),
    ("codec", codec),
];

/// AMF0: what was read is written and read the same.
pub fn amf0(data: &[u8]) {
    if let Ok(values) = decode_all(data) {
        let written = encode_all(&values);
        // Compared as bytes: a number may be NaN.
        let again = decode_all(&written).map(|values| encode_all(&values));
        assert_eq!(again.as_ref(), Ok(&written));
    }
}

/// Chunks: byte 0 is the chunk size, byte 1 the block size. Messages are written and read the same.
pub fn chunk(data: &[u8]) {
    let [size, step, rest @ ..] = data else { return };
    let size = 1usize << (size % 17);
    let mut reader = ChunkReader::default();
    reader.set_chunk_size(size);
    let mut messages: Vec<Message> = Vec::new();
    for block in rest.chunks(usize::from(*step) + 1) {
        let mut block = Bytes::copy_from_slice(block);
        loop {
            match reader.read(&mut block) {
                Ok(Some(message)) => messages.push(message),
                Ok(None) => break,
                Err(_) => return,
            }
        }
        assert!(block.is_empty() && reader.unfinished_bytes() <= UNFINISHED_BYTES_MAX);
    }
    let mut writer = ChunkWriter::default();
    writer.set_chunk_size(size);
    let mut output = ChunkOutput::default();
    for message in &messages {
        assert_eq!(writer.write(&mut output, message.header, &[], &message.payload), Ok(()));
    }
    let mut reader = ChunkReader::default();
    reader.set_chunk_size(size);
    let mut bytes = output.take();
    for message in messages {
        let read = reader.read(&mut bytes);
        assert!(read == Ok(Some(message)), "written differently");
    }
}

/// Server: byte 0 is the block size; a handshake goes before the rest. Requests are accepted and, now and
/// then, rejected.
pub fn server_session(data: &[u8]) {
    let [step, rest @ ..] = data else { return };
    let mut session = ServerSession::new(ServerConfig::default());
    let mut decisions = 0u8;
    let handshake = vec![3; 1 + 2 * BLOCK_BYTES];
    for block in std::iter::once(&handshake[..]).chain(rest.chunks(usize::from(*step) * 8 + 1)) {
        let result = session.input(Bytes::copy_from_slice(block));
        while let Some(event) = session.poll_event() {
            match event {
                ServerEvent::PublishRequested { id, .. } if step % 4 == decisions => {
                    session.reject_publish(id, "NetStream.Publish.BadName", "no");
                }
                ServerEvent::PublishRequested { id, .. } => {
                    decisions = decisions.wrapping_add(1);
                    let _ = session.accept_publish(id);
                }
                ServerEvent::Packet(packet) => assert_eq!(packet.kind, packet.codec.kind()),
                _ => {}
            }
        }
        assert!(session.held_bytes() <= UNFINISHED_BYTES_MAX + HELD_MEDIA_BYTES_MAX + MESSAGE_BYTES_MAX);
        session.take_output();
        if result.is_err() {
            return;
        }
    }
}

/// Client: byte 0 is the block size; a handshake goes before the rest. Media is sent while publishing.
pub fn client_session(data: &[u8]) {
    let [step, rest @ ..] = data else { return };
    let config = ClientConfig { stream_key: "key".to_owned(), ..ClientConfig::default() };
    let mut session = ClientSession::new(config);
    let handshake = vec![3; 1 + 2 * BLOCK_BYTES];
    let payload = Bytes::from_static(&[7; 700]);
    let codec = Codec::H264;
    for block in std::iter::once(&handshake[..]).chain(rest.chunks(usize::from(*step) * 8 + 1)) {
        let result = session.input(Bytes::copy_from_slice(block));
        while let Some(event) = session.poll_event() {
            if let ClientEvent::Acknowledged { bytes } = event {
                assert!(bytes <= session.output().total_bytes());
            }
        }
        assert!(session.held_bytes() <= UNFINISHED_BYTES_MAX);
        let packet = Packet {
            kind: codec.kind(),
            codec,
            role: Role::Data,
            keyframe: true,
            dts_ns: 0,
            pts_ns: 0,
            payload: payload.clone(),
        };
        let _ = session.send(&packet);
        let waiting = session.output().len_bytes();
        session.output().advance(waiting / 2);
        if result.is_err() {
            return;
        }
    }
    session.end();
}

/// FLV: byte 0 is the kind, the rest the tag body. What was read is written and read the same.
pub fn flv(data: &[u8]) {
    let [kind, rest @ ..] = data else { return };
    let kind = if kind % 2 == 0 { TrackKind::Video } else { TrackKind::Audio };
    let body = Bytes::copy_from_slice(rest);
    let Ok(Some(mut packet)) = demux(kind, 40, &body) else { return };
    // The writer has no nanosecond offsets.
    let offset = packet.dts_ns.rem_euclid(NANOS_PER_MILLI);
    packet.dts_ns -= offset;
    packet.pts_ns -= offset;
    let header = mux(&packet).map(|header| header.as_slice().to_vec());
    let written = header.map(|header| Bytes::from([&header[..], &packet.payload].concat()));
    let again = written.map(|body| demux(kind, 40, &body));
    assert_eq!(again, Ok(Ok(Some(packet))));
}

/// Codec configuration records and what is read inside them.
pub fn codec(data: &[u8]) {
    if let Ok(config) = avc::AvcConfig::parse(data) {
        let _ = config.picture_size();
    }
    if let Ok(config) = hevc::HevcConfig::parse(data) {
        let _ = config.picture_size();
    }
    let sizes = [avc::picture_size(data), hevc::picture_size(data)];
    assert!(sizes.iter().flatten().all(|size| size.width.min(size.height) > 0));
    let _ = av1::Av1Config::parse(data);
    let _ = opus::OpusConfig::parse(data);
    if let Ok(config) = aac::AacConfig::parse(data) {
        assert!(config.sample_rate > 0);
    }
    let unit = Bytes::copy_from_slice(data);
    let stripped = av1::strip_temporal_delimiter(unit.clone());
    assert_eq!(stripped, unit.slice(unit.len() - stripped.remaining()..));
}
