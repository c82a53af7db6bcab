//! Chunk streams written by hand with known answers, limits, and the writer against the reader.

use std::io::IoSlice;

use bytes::{Bytes, BytesMut};

use super::*;
use crate::rtmp::limits::*;
use crate::testing::Random;

/// Basic and message header of a chunk, one-byte stream id, then the bytes given.
fn chunk(format: u8, id: u8, time: u32, length: usize, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![format << 6 | id];
    let short = time.min(EXTENDED_TIME).to_be_bytes();
    if format <= 2 {
        bytes.extend_from_slice(&short[1..]);
    }
    if format <= 1 {
        bytes.extend_from_slice(&(length as u32).to_be_bytes()[1..]);
        bytes.push(9);
    }
    if format == 0 {
        bytes.extend_from_slice(&1u32.to_le_bytes());
    }
    if format <= 2 && time >= EXTENDED_TIME {
        bytes.extend_from_slice(&time.to_be_bytes());
    }
    bytes.extend_from_slice(payload);
    bytes
}

type Read = Result<Vec<(u32, u32, Bytes)>, ChunkError>;

/// Chunk stream, time and payload of every message, the bytes being fed in blocks of `step`.
fn feed(reader: &mut ChunkReader, bytes: &[u8], step: usize) -> Read {
    let mut messages = Vec::new();
    for block in bytes.chunks(step) {
        let mut block = Bytes::copy_from_slice(block);
        while let Some(message) = reader.read(&mut block)? {
            messages.push((message.header.chunk_stream, message.header.timestamp, message.payload));
        }
        assert!(block.is_empty());
    }
    Ok(messages)
}

/// Reads at several block sizes, which must not matter.
fn read_with(chunk_size: usize, bytes: &[u8]) -> Read {
    let fed = |step| {
        let mut reader = ChunkReader::default();
        reader.set_chunk_size(chunk_size);
        feed(&mut reader, bytes, step)
    };
    let whole = fed(bytes.len().max(1));
    for step in 1..=19 {
        assert_eq!(fed(step), whole, "blocks of {step}");
    }
    whole
}

fn read(bytes: &[Vec<u8>]) -> Read {
    read_with(CHUNK_SIZE_INITIAL, &bytes.concat())
}

fn times(bytes: &[Vec<u8>]) -> Vec<u32> {
    read(bytes).expect("valid").into_iter().map(|(_, time, _)| time).collect()
}

#[test]
fn a_type_3_header_that_starts_a_message_adds_the_last_delta() {
    let start = [chunk(0, 4, 1000, 2, b"ab"), chunk(1, 4, 20, 2, b"cd"), chunk(3, 4, 0, 0, b"ef")];
    assert_eq!(times(&start), [1000, 1020, 1040]);
    let type_2 = [chunk(0, 4, 1000, 2, b"ab"), chunk(2, 4, 7, 0, b"cd"), chunk(3, 4, 0, 0, b"ef")];
    assert_eq!(times(&type_2), [1000, 1007, 1014]);
    // After type 0 its own time is the delta (RTMP 1.0, 5.3.1.2.4).
    assert_eq!(times(&[chunk(0, 4, 23, 2, b"ab"), chunk(3, 4, 0, 0, b"cd")]), [23, 46]);
}

#[test]
fn a_type_3_header_that_continues_a_message_adds_nothing() {
    let long = vec![7; 300];
    let bytes = [
        chunk(0, 6, 50, 300, &long[..128]),
        chunk(3, 6, 0, 0, &long[128..256]),
        chunk(3, 6, 0, 0, &long[256..]),
        chunk(1, 6, 33, 1, b"x"),
    ];
    assert_eq!(read(&bytes), Ok(vec![(6, 50, Bytes::from(long)), (6, 83, Bytes::from_static(b"x"))]));
}

#[test]
fn audio_may_come_between_the_chunks_of_a_video_message() {
    let video = vec![9; 200];
    let bytes = [
        chunk(0, 6, 40, 200, &video[..128]),
        chunk(0, 4, 41, 3, b"abc"),
        chunk(3, 6, 0, 0, &video[128..]),
        chunk(1, 4, 21, 3, b"def"),
    ];
    let expected =
        vec![(4, 41, Bytes::from_static(b"abc")), (6, 40, Bytes::from(video)), (4, 62, "def".into())];
    assert_eq!(read(&bytes), Ok(expected));
}

/// A type 3 header that repeats an extended time.
fn repeated(id: u8, time: u32, payload: &[u8]) -> Vec<u8> {
    [&[3 << 6 | id], &time.to_be_bytes()[..], payload].concat()
}

#[test]
fn extended_times_are_read_where_they_are_repeated_and_where_not() {
    for time in [EXTENDED_TIME, EXTENDED_TIME + 1, 0x8000_0000, u32::MAX] {
        let body: Vec<u8> = (0..=255).collect();
        let message = Bytes::from(body.clone());
        let with = [chunk(0, 6, time, 256, &body[..128]), repeated(6, time, &body[128..])];
        assert_eq!(read(&with), Ok(vec![(6, time, message.clone())]), "repeated {time:#x}");
        // As old librtmp writes it.
        let without = [chunk(0, 6, time, 256, &body[..128]), chunk(3, 6, 0, 0, &body[128..])];
        assert_eq!(read(&without), Ok(vec![(6, time, message)]), "absent {time:#x}");
    }
}

#[test]
fn an_absent_extended_time_before_a_short_tail_does_not_wait() {
    for tail in 1..4 {
        let body = vec![0x55; 128 + tail];
        let bytes = [chunk(0, 6, 0x0100_0000, body.len(), &body[..128]), chunk(3, 6, 0, 0, &body[128..])];
        assert_eq!(read(&bytes), Ok(vec![(6, 0x0100_0000, Bytes::from(body))]), "tail of {tail}");
    }
}

#[test]
fn a_tail_that_begins_like_the_extended_time_goes_back_to_the_payload() {
    // The time's first byte is the whole tail; the next header tells them apart.
    let body = [vec![0x55; 128], vec![0x01]].concat();
    let bytes = [
        chunk(0, 6, 0x0100_0000, body.len(), &body[..128]),
        chunk(3, 6, 0, 0, &body[128..]),
        chunk(0, 4, 5, 2, b"ab"),
    ];
    assert_eq!(read(&bytes), Ok(vec![(6, 0x0100_0000, Bytes::from(body)), (4, 5, "ab".into())]));
}

#[test]
fn an_extended_delta_is_a_delta() {
    let bytes = [
        chunk(0, 6, 10, 1, b"a"),
        chunk(1, 6, 0x0100_0000, 1, b"b"),
        repeated(6, 0x0100_0000, b"c"),
        chunk(1, 6, 5, 1, b"d"),
        chunk(3, 6, 0, 0, b"e"),
    ];
    assert_eq!(times(&bytes), [10, 0x0100_000a, 0x0200_000a, 0x0200_000f, 0x0200_0014]);
}

#[test]
fn time_wraps_at_32_bits() {
    let bytes = [chunk(0, 6, 0xffff_fff0, 1, b"a"), chunk(1, 6, 0x20, 1, b"b"), chunk(0, 6, 0x30, 1, b"c")];
    assert_eq!(times(&bytes), [0xffff_fff0, 0x10, 0x30]);
}

#[test]
fn a_type_1_header_may_come_first_on_a_chunk_stream() {
    assert_eq!(read(&[chunk(1, 6, 12, 2, b"ab")]), Ok(vec![(6, 12, "ab".into())]));
    for format in [2, 3] {
        assert_eq!(read(&[chunk(format, 6, 12, 0, b"ab")]), Err(ChunkError::NoPreviousHeader));
    }
}

#[test]
fn chunk_stream_ids_have_one_two_or_three_bytes() {
    let fields = [0, 0, 9, 0, 0, 2, 9, 1, 0, 0, 0, b'a', b'b'];
    let table: [(&[u8], u32); 8] = [
        (&[2], 2),
        (&[63], 63),
        (&[0, 0], 64),
        (&[0, 255], 319),
        (&[1, 0, 0], 64),
        (&[1, 0, 1], 320),
        (&[1, 255, 0], 319),
        (&[1, 255, 255], 65_599),
    ];
    for (basic, id) in table {
        let bytes = [basic, &fields].concat();
        assert_eq!(read(&[bytes]), Ok(vec![(id, 9, "ab".into())]), "{basic:?}");
    }
}

#[test]
fn a_new_header_inside_a_message_drops_the_unfinished_one() {
    for format in [0, 1] {
        let bytes = [chunk(0, 6, 10, 5000, &[1; 128]), chunk(format, 6, 30, 2, b"ab")];
        let time = if format == 0 { 30 } else { 40 };
        assert_eq!(read(&bytes), Ok(vec![(6, time, "ab".into())]), "type {format}");
    }
    // Type 2 keeps the length: the message begins anew.
    let bytes = [chunk(0, 6, 10, 130, &[1; 128]), chunk(2, 6, 5, 0, &[2; 128]), chunk(3, 6, 0, 0, &[3; 2])];
    let expected = [vec![2; 128], vec![3; 2]].concat();
    assert_eq!(read(&bytes), Ok(vec![(6, 15, Bytes::from(expected))]));
}

#[test]
fn an_aborted_message_is_dropped_and_its_bytes_are_given_back() {
    let mut reader = ChunkReader::default();
    assert_eq!(feed(&mut reader, &chunk(0, 6, 10, 130, &[1; 128]), 64), Ok(vec![]));
    assert_eq!(reader.unfinished_bytes(), 128);
    reader.abort(99);
    reader.abort(6);
    assert_eq!(reader.unfinished_bytes(), 0);
    assert_eq!(feed(&mut reader, &chunk(1, 6, 10, 1, b"x"), 64), Ok(vec![(6, 20, "x".into())]));
}

#[test]
fn empty_messages_are_messages() {
    let bytes = [chunk(0, 4, 7, 0, b""), chunk(3, 4, 0, 0, b""), chunk(0, 6, 1, 1, b"a")];
    let empty = Bytes::new();
    assert_eq!(read(&bytes), Ok(vec![(4, 7, empty.clone()), (4, 14, empty), (6, 1, "a".into())]));
}

#[test]
fn one_byte_chunks_of_a_long_message_are_read() {
    let body: Vec<u8> = (0..200_000u32).map(|index| index as u8).collect();
    let mut bytes = chunk(0, 6, 10, body.len(), &body[..1]);
    for byte in &body[1..] {
        bytes.extend_from_slice(&[0xc6, *byte]);
    }
    let mut reader = ChunkReader::default();
    reader.set_chunk_size(1);
    assert_eq!(feed(&mut reader, &bytes, 4096), Ok(vec![(6, 10, Bytes::from(body))]));
}

mod limits {
    use super::*;

    #[test]
    fn message_length_is_limited() {
        assert_eq!(read(&[chunk(0, 6, 0, MESSAGE_BYTES_MAX, b"a")]), Ok(vec![]));
        let over = MESSAGE_BYTES_MAX + 1;
        assert_eq!(read(&[chunk(0, 6, 0, over, b"a")]), Err(ChunkError::MessageTooLong(over)));
    }

    #[test]
    fn the_number_of_chunk_streams_is_limited() {
        let streams = |count: usize| {
            let bytes: Vec<Vec<u8>> = (0..count).map(|index| chunk(0, 2 + index as u8, 0, 1, b"a")).collect();
            read(&bytes).map(|messages| messages.len())
        };
        assert_eq!(streams(CHUNK_STREAMS_MAX), Ok(CHUNK_STREAMS_MAX));
        assert_eq!(streams(CHUNK_STREAMS_MAX + 1), Err(ChunkError::TooManyStreams));
    }

    #[test]
    fn unfinished_bytes_are_limited_over_all_streams() {
        let mut reader = ChunkReader::default();
        reader.set_chunk_size(CHUNK_SIZE_MAX);
        let part = MESSAGE_BYTES_MAX - 1;
        let filler = vec![0; part];
        for id in [4, 5] {
            // The chunk size is lowered in between so that the next header may come early.
            reader.set_chunk_size(part);
            assert_eq!(feed(&mut reader, &chunk(0, id, 0, part + 1, &filler), 65_536), Ok(vec![]));
        }
        assert_eq!(reader.unfinished_bytes(), UNFINISHED_BYTES_MAX - 2);
        let result = feed(&mut reader, &chunk(0, 6, 0, 100, &[0; 3]), 65_536);
        assert_eq!(result, Err(ChunkError::TooMuchUnfinished));
    }

    #[test]
    fn announced_lengths_reserve_little() {
        let mut reader = ChunkReader::default();
        for id in 2..2 + CHUNK_STREAMS_MAX as u8 {
            let begun = chunk(0, id, 0, MESSAGE_BYTES_MAX, &[0; 128]);
            assert_eq!(feed(&mut reader, &begun, 1000), Ok(vec![]));
        }
        assert_eq!(reader.unfinished_bytes(), CHUNK_STREAMS_MAX * 128);
        assert!(reader.reserved_bytes() <= CHUNK_STREAMS_MAX * ALLOCATION_AHEAD_BYTES_MAX);
    }

    #[test]
    fn reserved_memory_follows_what_came() {
        let mut reader = ChunkReader::default();
        reader.set_chunk_size(CHUNK_SIZE_MAX);
        let mut bytes = chunk(0, 6, 0, MESSAGE_BYTES_MAX, &[]);
        for _ in 0..MESSAGE_BYTES_MAX / 100_000 {
            bytes.resize(bytes.len() + 100_000, 0);
            assert_eq!(feed(&mut reader, &std::mem::take(&mut bytes), 65_536), Ok(vec![]));
            let most = 2 * reader.unfinished_bytes() + ALLOCATION_AHEAD_BYTES_MAX;
            assert!(reader.reserved_bytes() <= most.min(MESSAGE_BYTES_MAX));
        }
    }

    #[test]
    fn twenty_thousand_streams_that_announce_much_are_refused() {
        let mut bytes = Vec::new();
        for id in 0..20_000u16 {
            bytes.push(1);
            bytes.extend_from_slice(&id.to_le_bytes());
            bytes.extend_from_slice(&[0, 0, 0, 0xff, 0xff, 0xff, 9, 1, 0, 0, 0]);
            bytes.extend_from_slice(&[0; 128]);
        }
        let mut reader = ChunkReader::default();
        assert_eq!(feed(&mut reader, &bytes, 65_536), Err(ChunkError::MessageTooLong(0x00ff_ffff)));
        // The same with lengths that are allowed.
        for at in (0..bytes.len()).step_by(142) {
            bytes[at + 6] = 0x7f;
        }
        let mut reader = ChunkReader::default();
        assert_eq!(feed(&mut reader, &bytes, 65_536), Err(ChunkError::TooManyStreams));
        assert!(reader.reserved_bytes() <= CHUNK_STREAMS_MAX * ALLOCATION_AHEAD_BYTES_MAX);
    }

    #[test]
    fn outgoing_messages_are_limited() {
        let mut output = ChunkOutput::default();
        let header = MessageHeader { chunk_stream: 6, timestamp: 0, kind: 9, stream: 1 };
        let payload = Bytes::from(vec![0; MESSAGE_BYTES_MAX]);
        let mut writer = ChunkWriter::default();
        writer.set_chunk_size(CHUNK_SIZE_MAX);
        let result = writer.write(&mut output, header, b"x", &payload);
        assert_eq!(result, Err(ChunkError::OutgoingTooLong(MESSAGE_BYTES_MAX + 1)));
        assert!(output.is_empty());
        assert_eq!(writer.write(&mut output, header, b"", &payload), Ok(()));
    }

    #[test]
    fn chunk_sizes_are_brought_into_range() {
        let (mut reader, mut writer) = (ChunkReader::default(), ChunkWriter::default());
        for (asked, used) in [(0, CHUNK_SIZE_MIN), (usize::MAX, CHUNK_SIZE_MAX), (4096, 4096)] {
            reader.set_chunk_size(asked);
            writer.set_chunk_size(asked);
            assert_eq!((reader.chunk_size(), writer.chunk_size()), (used, used));
        }
    }
}

mod zero_copy {
    use super::*;

    /// Whether `part` lies in the memory of `block`.
    fn shares(block: &Bytes, part: &Bytes) -> bool {
        block.as_ptr_range().contains(&part.as_ptr())
    }

    fn first_payload(chunk_size: usize, bytes: Vec<u8>) -> (Bytes, Bytes) {
        let mut reader = ChunkReader::default();
        reader.set_chunk_size(chunk_size);
        let block = Bytes::from(bytes);
        let message = reader.read(&mut block.clone()).expect("valid").expect("whole");
        (block, message.payload)
    }

    #[test]
    fn a_message_in_one_chunk_and_block_is_a_slice_of_it() {
        let body = vec![1; SMALL_PAYLOAD_BYTES];
        let (block, payload) = first_payload(60_000, chunk(0, 6, 0, body.len(), &body));
        assert!(shares(&block, &payload) && payload == body);
    }

    #[test]
    fn a_small_message_is_copied_out_of_the_block() {
        let body = vec![1; SMALL_PAYLOAD_BYTES - 1];
        let (block, payload) = first_payload(60_000, chunk(0, 6, 0, body.len(), &body));
        assert!(!shares(&block, &payload) && payload == body);
    }

    #[test]
    fn a_message_in_two_chunks_is_put_together() {
        let body = vec![1; 5000];
        let bytes = [chunk(0, 6, 0, 5000, &body[..4096]), chunk(3, 6, 0, 0, &body[4096..])].concat();
        let (block, payload) = first_payload(4096, bytes);
        assert!(!shares(&block, &payload) && payload == body);
    }

    #[test]
    fn the_writer_shares_payloads_and_carves_headers() {
        let mut writer = ChunkWriter::default();
        writer.set_chunk_size(60_000);
        let mut output = ChunkOutput::default();
        let payload = Bytes::from(vec![5; 25_000]);
        for frame in 0..10 {
            let header = MessageHeader { chunk_stream: 6, timestamp: frame * 33, kind: 9, stream: 1 };
            writer.write(&mut output, header, b"\x17\x01\0\0\0", &payload).expect("short");
        }
        let mut slices = [IoSlice::new(&[]); 32];
        let count = output.slices(&mut slices);
        assert_eq!(count, 20);
        for pair in slices[..count].chunks(2) {
            assert!(pair[0].len() <= 18 + 5);
            assert_eq!(pair[1].as_ptr(), payload.as_ptr());
        }
    }

    #[test]
    fn small_pieces_go_behind_their_header_in_one_segment() {
        let mut writer = ChunkWriter::default();
        let mut output = ChunkOutput::default();
        let header = MessageHeader { chunk_stream: 4, timestamp: 0, kind: 8, stream: 1 };
        writer.write(&mut output, header, b"\xaf\x01", &Bytes::from(vec![5; 5000])).expect("short");
        assert_eq!(output.segments(), 1);
    }
}

mod writer {
    use super::*;

    fn written(messages: &[(u32, u32)]) -> Vec<Vec<u8>> {
        let mut writer = ChunkWriter::default();
        let one = |(timestamp, stream): &(u32, u32)| {
            let mut output = ChunkOutput::default();
            let header = MessageHeader { chunk_stream: 6, timestamp: *timestamp, kind: 9, stream: *stream };
            writer.write(&mut output, header, b"", &Bytes::from_static(b"z")).expect("short");
            output.take().to_vec()
        };
        messages.iter().map(one).collect()
    }

    #[test]
    fn deltas_are_written_while_time_does_not_go_back() {
        let bytes = written(&[(100, 1), (133, 1), (133, 1), (120, 1), (130, 2), (140, 2)]);
        assert_eq!(bytes[0], b"\x06\0\0\x64\0\0\x01\x09\x01\0\0\0z");
        assert_eq!(bytes[1], b"\x46\0\0\x21\0\0\x01\x09z");
        assert_eq!(bytes[2], b"\x46\0\0\0\0\0\x01\x09z");
        // Back in time, and another message stream: absolute.
        assert_eq!(bytes[3], b"\x06\0\0\x78\0\0\x01\x09\x01\0\0\0z");
        assert_eq!(bytes[4], b"\x06\0\0\x82\0\0\x01\x09\x02\0\0\0z");
        assert_eq!(bytes[5], b"\x46\0\0\x0a\0\0\x01\x09z");
    }

    #[test]
    fn extended_times_are_written_from_the_first_value_that_does_not_fit() {
        let bytes = written(&[(0x00ff_fffe, 1)]);
        assert_eq!(bytes[0][1..4], [0xff, 0xff, 0xfe]);
        assert_eq!(bytes[0].len(), 13);
        let bytes = written(&[(0x00ff_ffff, 1)]);
        assert_eq!(bytes[0][1..4], [0xff, 0xff, 0xff]);
        assert_eq!(bytes[0][12..16], [0, 0xff, 0xff, 0xff]);
        // Crossing with a small delta needs none; a long silence does.
        let bytes = written(&[(0x00ff_fff0, 1), (0x0100_0010, 1), (0x0300_0000, 1)]);
        assert_eq!(bytes[1], b"\x46\0\0\x20\0\0\x01\x09z");
        assert_eq!(bytes[2], b"\x46\xff\xff\xff\0\0\x01\x09\x01\xff\xff\xf0z");
        // The 32-bit wrap is a small step forward.
        assert_eq!(written(&[(0xffff_fff0, 1), (0x10, 1)])[1], b"\x46\0\0\x20\0\0\x01\x09z");
    }

    #[test]
    fn extended_times_are_repeated_in_every_chunk_of_the_message() {
        let mut writer = ChunkWriter::default();
        let mut output = ChunkOutput::default();
        let header = MessageHeader { chunk_stream: 6, timestamp: 0x0102_0304, kind: 9, stream: 1 };
        writer.write(&mut output, header, b"", &Bytes::from(vec![0; 300])).expect("short");
        let bytes = output.take();
        for at in [16 + 128, 16 + 128 + 5 + 128] {
            assert_eq!(bytes[at..at + 5], [0xc6, 1, 2, 3, 4]);
        }
        assert_eq!(bytes.len(), 16 + 300 + 2 * 5);
    }

    #[test]
    fn what_is_written_is_read_back() {
        let mut random = Random::new(0xc0ff_ee00);
        for chunk_size in [1, 2, 127, 128, 255, 256, 257, 4096, 60_000] {
            let (mut reader, mut writer) = (ChunkReader::default(), ChunkWriter::default());
            reader.set_chunk_size(chunk_size);
            writer.set_chunk_size(chunk_size);
            let mut output = ChunkOutput::default();
            let mut sent = Vec::new();
            let mut timestamp = 0x00ff_ff00u32;
            for _ in 0..40 {
                let step = [0, 20, 33, 0x0100_0000, u32::MAX - 10][random.below(5)];
                timestamp = timestamp.wrapping_add(step);
                let chunk_stream = [2, 6, 63, 64, 319, 320, 65_599][random.below(7)];
                let payload: Vec<u8> = (0..random.below(3 * chunk_size + 20)).map(|at| at as u8).collect();
                let payload = Bytes::from(payload);
                let prefix = &b"\x17\x01\0\0\0"[..random.below(6)];
                let header =
                    MessageHeader { chunk_stream, timestamp, kind: 9, stream: random.below(2) as u32 };
                writer.write(&mut output, header, prefix, &payload).expect("short");
                let joined = Bytes::from([prefix, &payload].concat());
                sent.push(Message { header, payload: joined });
            }
            let mut bytes = BytesMut::from(&output.take()[..]);
            let mut got = Vec::new();
            while !bytes.is_empty() {
                let piece = (1 + random.below(2 * chunk_size + 30)).min(bytes.len());
                let mut block = bytes.split_to(piece).freeze();
                while let Some(message) = reader.read(&mut block).expect("valid") {
                    got.push(message);
                }
            }
            assert!(got == sent, "chunk size {chunk_size}");
        }
    }
}
