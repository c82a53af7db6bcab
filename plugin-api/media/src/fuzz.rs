//! Bodies of the fuzz targets: each takes arbitrary bytes and panics only on a defect.
//!
//! The fuzz crate runs them under coverage guidance; the normal tests run them over the committed corpus.

use core::net::IpAddr;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};

use crate::codec::{aac, av1, avc, hevc, opus};
use crate::flv::{ForeignCodec, demux, mux};
use crate::fmp4::{BoxHeader, ClipSource, INIT_BYTES_MAX, Reader, SEGMENT_BYTES_MAX, first_frame};
use crate::mp4::{Movie, SAMPLES_MAX};
use crate::playlist::{
    Entry, MediaPlaylist, PartEntry, PartRules, PreviewPlaylist, init_name, part_name, segment_name,
};
use crate::rtmp::amf0::{decode_all, encode_all};
use crate::rtmp::chunk::{ChunkOutput, ChunkReader, ChunkWriter, Message};
use crate::rtmp::client::{ClientConfig, ClientEvent, ClientSession};
use crate::rtmp::handshake::BLOCK_BYTES;
use crate::rtmp::limits::{HELD_MEDIA_BYTES_MAX, MESSAGE_BYTES_MAX, UNFINISHED_BYTES_MAX};
use crate::rtmp::server::{ServerConfig, ServerEvent, ServerSession};
use crate::segment::{Event, HELD_BYTES_MAX, Segmenter};
use crate::srt::{self, Call, Called, Caller, Connection, Request, Seed, Sender, StreamId, calling};
use crate::ts::{self, Demuxer, Muxer};
use crate::video::{PARAMETER_SET_BYTES_MAX, Times, VideoReader};
use crate::{Codec, Kind, NANOS_PER_MILLI, Packet, Role};

/// Body of a target.
pub type Target = fn(&[u8]);

/// Name and body of every target.
pub const TARGETS: [(&str, Target); 12] = [
    ("amf0", amf0),
    ("chunk", chunk),
    ("server_session", server_session),
    ("client_session", client_session),
    ("flv", flv),
    ("codec", codec),
    ("segmenter", segmenter),
    ("read", read),
    ("clip", clip),
    ("ts", ts),
    ("srt", srt),
    ("mp4", mp4),
];

/// Codec configurations from which the segmenter target chooses.
pub const RECORDS: [(Codec, &[u8]); 5] = [
    (
        Codec::H264,
        b"\x01\x64\0\x1f\xff\xe1\0\x1a\x67\x64\0\x1f\xac\xd9\x40\x50\x05\xbb\x01\x10\0\0\x03\0\x10\0\0\x03\
          \x03\xc0\xf1\x83\x19\x60\x01\0\x06\x68\xeb\xe3\xcb\x22\xc0\xfd\xf8\xf8\0",
    ),
    (
        Codec::H264,
        b"\x01\x42\xc0\x1e\xff\xe1\0\x19\x67\x42\xc0\x1e\xd9\0\xd8\x3d\xe6\xf0\x11\0\0\x03\0\x01\0\0\x03\0\x32\
          \x0f\x16\x2e\x48\x01\0\x05\x68\xcb\x83\xcb\x20",
    ),
    (Codec::Aac, b"\x11\x90"),
    (Codec::Aac, b"\x12\x08"),
    (Codec::Opus, b"OpusHead\x01\x02\x38\x01\x80\xbb\0\0\0\0\0"),
];

/// AMF0: values that were read survive writing and reading again.
pub fn amf0(data: &[u8]) {
    if let Ok(values) = decode_all(data) {
        let written = encode_all(&values);
        // Compared as bytes: a number may be NaN.
        let again = decode_all(&written).map(|values| encode_all(&values));
        assert_eq!(again.as_ref(), Ok(&written));
    }
}

/// Chunks: byte 0 is the chunk size, byte 1 the block size. Messages survive writing and reading again.
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

/// Server: byte 0 is the block size; a handshake is sent before the remaining bytes. Most publish requests are
/// accepted, some are rejected.
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
                ServerEvent::Packet(packet) => assert!(!packet.payload.is_empty()),
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

/// Client: byte 0 is the block size; a handshake is sent before the remaining bytes. Media is sent while publishing.
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
        let packet = Packet::media(codec, true, 0, 0, payload.clone());
        let _ = session.send(&packet);
        let waiting = session.output().len_bytes();
        session.output().advance(waiting / 2);
        if result.is_err() {
            return;
        }
    }
    session.end();
}

/// FLV: byte 0 is the kind, the rest is the tag body. A packet survives writing and reading again.
pub fn flv(data: &[u8]) {
    let [kind, rest @ ..] = data else { return };
    let kind = if kind % 2 == 0 { Kind::Video } else { Kind::Audio };
    let body = Bytes::copy_from_slice(rest);
    let foreign = ForeignCodec::of(kind, &body).map(|codec| codec.to_string());
    assert!(foreign.is_none_or(|name| name.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ')));
    let Ok(Some(mut packet)) = demux(kind, 40, &body) else { return };
    // The writer has no nanosecond offsets.
    let offset = packet.dts_ns.rem_euclid(NANOS_PER_MILLI);
    packet.dts_ns -= offset;
    packet.pts_ns -= offset;
    let written = Bytes::from([mux(&packet).as_slice(), &packet.payload].concat());
    assert_eq!(demux(kind, 40, &written), Ok(Some(packet)));
}

/// Codec configurations and the fields parsed from them.
pub fn codec(data: &[u8]) {
    if let Ok(config) = avc::AvcConfig::parse(data) {
        let _ = config.video_size();
    }
    if let Ok(config) = hevc::HevcConfig::parse(data) {
        let _ = config.video_size();
    }
    let sizes = [avc::video_size(data), hevc::video_size(data)];
    assert!(sizes.iter().flatten().all(|size| size.width.min(size.height) > 0));
    let _ = av1::Av1Config::parse(data);
    let _ = opus::OpusConfig::parse(data);
    if let Ok(config) = aac::AacConfig::parse(data) {
        assert!(config.sample_rate > 0);
    }
    let mut reader = VideoReader::new(Codec::Av1);
    let mut packets = Vec::new();
    for _ in 0..2 {
        reader.read(Some(Times { pts_ns: 0, dts_ns: 0 }), data, &mut packets);
    }
    let configured = packets.iter().filter(|packet| packet.is_config());
    assert!(configured.clone().all(|packet| av1::Av1Config::parse(&packet.payload).is_ok()));
    assert!(configured.count() <= 1 && packets.first().is_none_or(Packet::is_config));
    assert!(reader.held_bytes() <= PARAMETER_SET_BYTES_MAX);
    let unit = Bytes::copy_from_slice(data);
    let stripped = av1::strip_temporal_delimiter(unit.clone());
    assert_eq!(stripped, unit.slice(unit.len() - stripped.remaining()..));
}

/// Fragmented MP4: the same bytes are read as initialization segment and as media segment. Payloads lie within the
/// bytes, and decode times never decrease.
pub fn read(data: &[u8]) {
    let Ok(mut reader) = Reader::new(&data[..data.len().min(INIT_BYTES_MAX)]) else { return };
    for (codec, record) in RECORDS {
        reader.set_record(codec, &Bytes::from_static(record));
    }
    let bytes = Bytes::copy_from_slice(data);
    let Ok(segment) = reader.segment(&bytes, 0) else { return };
    assert!(segment.packets.is_sorted_by_key(|packet| packet.dts_ns));
    let largest: usize = segment.packets.iter().map(|packet| packet.payload.len()).max().unwrap_or(0);
    assert!(largest <= bytes.len() && segment.start_ns <= segment.end_ns);
}

/// Clips: byte 0 chooses the range; the rest is an initialization segment with fragments. The ranges of a clip lie within the
/// bytes, and the samples of its tables are those bytes. The same bytes are read as the start of a clip.
pub fn clip(data: &[u8]) {
    let [range, rest @ ..] = data else { return };
    let _ = first_frame(rest);
    let Ok(mut source) = ClipSource::new(&rest[..rest.len().min(INIT_BYTES_MAX)]) else { return };
    let mut at = 0;
    while let Some(header) = rest.get(at..).and_then(BoxHeader::parse) {
        let end = usize::try_from(header.bytes).ok().and_then(|bytes| at.checked_add(bytes));
        let Some(atom) = end.and_then(|end| rest.get(at..end)) else { break };
        if &header.kind == b"moof" && source.push(atom, 0, at as u64, rest.len() as u64).is_err() {
            return;
        }
        at += atom.len();
    }
    let first_ns = source.first_ns().unwrap_or(0);
    let from_ns = first_ns.saturating_add(i64::from(range & 15) * 10 * NANOS_PER_MILLI);
    let Ok(clip) = source.cut(from_ns, from_ns.saturating_add(i64::from(range >> 4) * 20 * NANOS_PER_MILLI))
    else {
        return;
    };
    assert!(clip.ranges.iter().all(|range| range.offset + range.bytes <= rest.len() as u64));
    assert!(clip.bytes() <= u64::from(u32::MAX) && clip.duration_ns >= 0);
    if let Ok(Some(frame)) = first_frame(&clip.head) {
        let is_media = frame.offset >= clip.head.len() as u64;
        assert!(is_media && frame.offset + u64::from(frame.bytes) <= clip.bytes());
    }
}

/// Ordinary MP4: payloads lie within the bytes, and the media can begin again after its length without going back.
pub fn mp4(data: &[u8]) {
    let Ok(movie) = Movie::read(&Bytes::copy_from_slice(data)) else { return };
    assert!(movie.packets.len() <= SAMPLES_MAX && movie.packets.is_sorted_by_key(|packet| packet.dts_ns));
    assert!(movie.packets.iter().all(|packet| (1..=data.len()).contains(&packet.payload.len())));
    for kind in [Kind::Video, Kind::Audio] {
        let mut of_kind = movie.packets.iter().filter(|packet| packet.kind() == kind);
        let Some(first) = of_kind.next() else { continue };
        assert!(kind == Kind::Audio || first.keyframe);
        let last = of_kind.next_back().unwrap_or(first);
        assert!(last.dts_ns - first.dts_ns <= movie.length_ns);
    }
    assert!(movie.frame_rate.is_finite());
}

/// Transport stream: byte 0 is the block size. Media that was read survives writing and reading again.
pub fn ts(data: &[u8]) {
    let [step, rest @ ..] = data else { return };
    let (mut demuxer, mut packets) = (Demuxer::default(), Vec::new());
    for block in rest.chunks(usize::from(*step) * 8 + 1) {
        let pushed = demuxer.push(block, &mut packets);
        assert!(demuxer.held_bytes() <= ts::limits::HELD_BYTES_MAX);
        if pushed.is_err() {
            break;
        }
    }
    let _ = demuxer.finish(&mut packets);
    assert!(packets.iter().all(|packet| !packet.payload.is_empty()));
    let (mut muxer, mut bytes) = (Muxer::default(), Vec::new());
    // What the writer refuses, such as AAC with 960 samples, is left out.
    packets.retain(|packet| muxer.push(packet, &mut bytes).is_ok());
    let (mut again, mut read) = (Demuxer::default(), Vec::new());
    assert_eq!(again.push(&bytes, &mut read), Ok(()));
    assert_eq!(again.finish(&mut read), Ok(()));
    for kind in [Kind::Video, Kind::Audio] {
        let media = |packets: &[Packet]| -> Vec<(Codec, bool, Bytes)> {
            let of_kind = packets.iter().filter(|packet| packet.kind() == kind && !packet.is_config());
            of_kind.map(|packet| (packet.codec, packet.keyframe, packet.payload.clone())).collect()
        };
        assert!(media(&read) == media(&packets), "written differently");
    }
}

/// SRT: a time step in milliseconds, a length, and a datagram, again and again. Each is read as a handshake, and taken by a connection.
pub fn srt(data: &[u8]) {
    let peer = IpAddr::from([192, 0, 2, 7]);
    let begin = |datagram: &[u8], now: Duration| match Request::parse(datagram) {
        Some(Request::Conclusion(asked)) => {
            let _ =
                (StreamId::parse(asked.stream_id()), asked.fault().map(|fault| asked.refuse(fault, peer)));
            Some(Connection::accept(&asked, 1, peer, None, now, now).connection)
        }
        Some(Request::Induction(hello)) => {
            // What is sent to an address that nobody has proved is no longer than what came from it.
            assert!(hello.answer(7, peer).len() <= datagram.len());
            None
        }
        None => None,
    };
    let (mut now, mut rest) = (Duration::ZERO, data);
    let Some(mut connection) = begin(&calling::conclusion(9, 7, 5, 120, &[]), now) else { return };
    while let [step, length, behind @ ..] = rest {
        let (datagram, more) = behind.split_at(usize::from(*length).min(behind.len()));
        (now, rest) = (now + Duration::from_millis(u64::from(*step)), more);
        let _ = begin(datagram, now);
        connection.input(BytesMut::from(datagram), now);
        connection.poll(now);
        while connection.give(now).is_some() {}
        assert!(connection.held_bytes() <= srt::limits::HELD_BYTES_MAX);
        assert!(
            connection.take_output().iter().all(|sent| sent.len() <= 16 + srt::limits::PAYLOAD_BYTES_MAX)
        );
        let _ = connection.next_at();
    }
    while connection.give(Duration::MAX).is_some() {}
    assert_eq!(connection.held_bytes(), 0);
    srt_sending(data);
}

/// A caller and its sender, then one that was called: each gets the datagrams, and sends a packet between them.
fn srt_sending(data: &[u8]) {
    let peer = IpAddr::from([192, 0, 2, 7]);
    let (mut now, mut rest) = (Duration::ZERO, data);
    let secret = (data.first().is_some_and(|first| first % 16 == 1)).then(|| ("a passphrase".to_owned(), 16));
    let call = Call { secret, ..Call::default() };
    let Some(mut caller) = Caller::new(call, Seed { socket: 9, ..Seed::default() }, peer, now) else {
        return;
    };
    let mut sender = match Request::parse(&calling::conclusion(9, 7, 5, 120, &[])) {
        Some(Request::Conclusion(asked)) => Sender::accept(&asked, 9, peer, None, 120, now).1,
        _ => return,
    };
    while let [step, length, behind @ ..] = rest {
        let (datagram, more) = behind.split_at(usize::from(*length).min(behind.len()));
        (now, rest) = (now + Duration::from_millis(u64::from(*step)), more);
        let _ = (caller.poll(now), caller.next_at());
        if let Some(Called::Accepted(accepted)) = caller.input(datagram, now) {
            sender = *accepted;
        }
        sender.input(datagram, now);
        let _ = sender.push(&[7; srt::limits::SEND_BYTES], now);
        sender.poll(now);
        sender.transmit(now, |sent| {
            assert!(sent.len() <= 16 + srt::limits::SEND_BYTES);
            *step != 7
        });
        assert!(sender.held_bytes() <= srt::limits::HELD_BYTES_MAX);
        let _ = (sender.next_at(), sender.take_overrun());
    }
}

/// Requested duration of parts.
const PART_NANOS: i64 = 500 * NANOS_PER_MILLI;
/// Bytes of the instruction for one packet of the segmenter's target.
const STEP_BYTES: usize = 4;

/// Segmenter: every four bytes are a packet (selector, time step, composition, length) or a gap. The playlists must
/// accept all events.
pub fn segmenter(data: &[u8]) {
    let mut segmenter = Segmenter::new(7);
    if data.first().is_some_and(|first| first & 1 == 1) {
        segmenter = segmenter.with_parts(PART_NANOS);
    }
    let mut lists = None;
    let mut next = 7;
    let mut times = [0i64; 2];
    for step in data.chunks_exact(STEP_BYTES) {
        push_step(&mut segmenter, &mut times, step);
        assert!(segmenter.held_bytes() <= HELD_BYTES_MAX + SEGMENT_BYTES_MAX);
        list_events(&mut segmenter, &mut lists, &mut next);
    }
    segmenter.finish();
    list_events(&mut segmenter, &mut lists, &mut next);
    let stats = segmenter.stats();
    assert_eq!(stats.samples_in, stats.samples_out + stats.samples_dropped);
    assert_eq!(segmenter.held_bytes(), 0);
}

fn push_step(segmenter: &mut Segmenter, times: &mut [i64; 2], step: &[u8]) {
    let [selector, time, composition, length] = *step else { return };
    if selector == u8::MAX {
        return segmenter.gap();
    }
    let (codec, record) = RECORDS[usize::from(selector) % RECORDS.len()];
    let video = codec.kind() == Kind::Video;
    let role = if selector & 0x60 == 0x60 { Role::Config } else { Role::Data };
    let at = &mut times[usize::from(!video)];
    // Mostly milliseconds, sometimes a jump of minutes forwards or backwards.
    let unit = if time & 0xe0 == 0xe0 { 10_000 } else { 1 };
    let step_ms = (i64::from(time & 0x7f) - if unit > 1 { 112 } else { 0 }) * unit;
    *at = at.saturating_add(step_ms * NANOS_PER_MILLI);
    let payload = match role {
        Role::Config if length == 1 => Bytes::from_static(b"garbage"),
        Role::Config => Bytes::from_static(record),
        Role::Data => Bytes::from(vec![selector; usize::from(length)]),
    };
    let composition_ns = i64::from(composition as i8) * NANOS_PER_MILLI;
    let (dts_ns, pts_ns) = (*at, at.saturating_add(if video { composition_ns } else { 0 }));
    let keyframe = video && role == Role::Data && selector & 0x80 != 0;
    let packet = Packet { role, ..Packet::media(codec, keyframe, dts_ns, pts_ns, payload) };
    segmenter.push(&packet, i64::from(time));
}

fn list_events(
    segmenter: &mut Segmenter,
    lists: &mut Option<(MediaPlaylist, PreviewPlaylist)>,
    next: &mut u64,
) {
    while let Some(event) = segmenter.poll_event() {
        match event {
            Event::Started { target_seconds } => {
                let preview = PreviewPlaylist::new(target_seconds);
                let mut media = MediaPlaylist::new(target_seconds, 60);
                if let Some(target_ns) = segmenter.part_target_ns() {
                    media = media.with_parts(PartRules { target_ns, hold_back_ns: 0 });
                }
                assert!(lists.replace((media, preview)).is_none());
            }
            Event::TargetRaised { target_seconds } => {
                let Some((media, preview)) = lists else { panic!("raised before the start") };
                assert!(media.target_seconds() < target_seconds);
                media.raise_target(target_seconds);
                preview.raise_target(target_seconds);
            }
            Event::Segment(segment) => {
                assert_eq!(segment.sequence, *next);
                *next += 1;
                let Some((media, preview)) = lists else { panic!("segment before the start") };
                let entry = Entry {
                    sequence: segment.sequence,
                    duration_ns: segment.duration_ns,
                    program_date_time_ms: segment.program_date_time_ms,
                    discontinuity: segment.discontinuity,
                    independent: segment.independent,
                    init: &init_name(1, segment.init_id),
                    name: &segment_name(segment.sequence),
                };
                assert!(media.push(entry).is_ok(), "{entry:?}");
                assert!(preview.push(&segment, entry.init).is_ok(), "{segment:?}");
            }
            Event::Part(part) => {
                assert_eq!(part.sequence, *next);
                let Some((media, _)) = lists else { panic!("part before the start") };
                let (name, following) =
                    (part_name(1, part.index.into()), part_name(1, u64::from(part.index) + 1));
                let entry = PartEntry {
                    sequence: part.sequence,
                    duration_ns: part.duration_ns,
                    independent: part.independent,
                    program_date_time_ms: part.program_date_time_ms,
                    discontinuity: part.discontinuity,
                    init: &init_name(1, part.init_id),
                    name: &name,
                    next: &following,
                };
                assert!(media.push_part(entry).is_ok(), "{entry:?}");
                assert!(media.is_empty() || media.render().is_some_and(|text| text.contains(&name)));
            }
            Event::Init(_) | Event::TrackRefused { .. } => {}
        }
    }
}
