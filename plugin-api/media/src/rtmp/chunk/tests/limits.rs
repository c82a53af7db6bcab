//! Every limit of the chunk layer, at the limit and beyond.

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
fn reserved_memory_follows_received_bytes() {
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
fn twenty_thousand_streams_with_long_announced_messages_are_refused() {
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
fn chunk_sizes_are_clamped() {
    let (mut reader, mut writer) = (ChunkReader::default(), ChunkWriter::default());
    for (asked, used) in [(0, CHUNK_SIZE_MIN), (usize::MAX, CHUNK_SIZE_MAX), (4096, 4096)] {
        reader.set_chunk_size(asked);
        writer.set_chunk_size(asked);
        assert_eq!((reader.chunk_size(), writer.chunk_size()), (used, used));
    }
}
