//! Handwritten chunk streams with known results, limits, and writer output read back.

mod limits;
mod writer;
mod zero_copy;

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

/// Reads with several block sizes; the result must be the same.
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
fn extended_times_are_read_with_and_without_repetition() {
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
fn a_short_tail_without_extended_time_is_read_at_once() {
    for tail in 1..4 {
        let body = vec![0x55; 128 + tail];
        let bytes = [chunk(0, 6, 0x0100_0000, body.len(), &body[..128]), chunk(3, 6, 0, 0, &body[128..])];
        assert_eq!(read(&bytes), Ok(vec![(6, 0x0100_0000, Bytes::from(body))]), "tail of {tail}");
    }
}

#[test]
fn a_tail_that_begins_like_the_extended_time_goes_back_to_the_payload() {
    // The tail is one byte and equals the first byte of the time; the next header shows which it is.
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
    // Type 2 keeps the length: the message restarts.
    let bytes = [chunk(0, 6, 10, 130, &[1; 128]), chunk(2, 6, 5, 0, &[2; 128]), chunk(3, 6, 0, 0, &[3; 2])];
    let expected = [vec![2; 128], vec![3; 2]].concat();
    assert_eq!(read(&bytes), Ok(vec![(6, 15, Bytes::from(expected))]));
}

#[test]
fn an_aborted_message_is_dropped_and_its_memory_released() {
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
