//! Shared and copied payloads.

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
fn a_message_much_smaller_than_its_block_is_copied() {
    let block_bytes = 64 * 1024;
    let limit = block_bytes / SMALL_PAYLOAD_PART;
    for (bytes, shared) in [(limit - 1, false), (limit, true)] {
        let body = vec![1; bytes];
        let mut reader = ChunkReader::default();
        reader.set_chunk_size(60_000);
        reader.set_block_bytes(block_bytes);
        let block = Bytes::from(chunk(0, 6, 0, body.len(), &body));
        let payload = reader.read(&mut block.clone()).expect("valid").expect("whole").payload;
        assert_eq!((shares(&block, &payload), payload == body), (shared, true), "{bytes}");
    }
    let mut reader = ChunkReader::default();
    reader.set_chunk_size(60_000);
    reader.set_block_bytes(1);
    let small = Bytes::from(chunk(0, 6, 0, 2047, &[1; 2047]));
    let payload = reader.read(&mut small.clone()).expect("valid").expect("whole").payload;
    assert!(!shares(&small, &payload), "small payloads are copied from any block");
}

#[test]
fn a_message_in_two_chunks_is_reassembled() {
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
fn small_payloads_share_a_segment_with_their_header() {
    let mut writer = ChunkWriter::default();
    let mut output = ChunkOutput::default();
    let header = MessageHeader { chunk_stream: 4, timestamp: 0, kind: 8, stream: 1 };
    writer.write(&mut output, header, b"\xaf\x01", &Bytes::from(vec![5; 5000])).expect("short");
    assert_eq!(output.segments(), 1);
}
