//! Chunk reader and writer over a synthetic 6 Mbps stream: 30 frames and about 47 AAC packets per second.

use std::hint::black_box;

use bytes::Bytes;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use satcast_media::rtmp::chunk::{ChunkOutput, ChunkReader, ChunkWriter, MessageHeader};

const SECONDS: u32 = 10;
/// Block sizes for the reader, as from socket reads.
const BLOCK_BYTES: [usize; 3] = [64 * 1024, 128 * 1024, 256 * 1024];
const VIDEO: u8 = 9;
const AUDIO: u8 = 8;

/// Headers and payloads by time: keyframes of 100 kB every two seconds, other frames of 23.6 kB, audio packets of
/// 427 bytes.
fn messages() -> Vec<(MessageHeader, Bytes)> {
    let payload = Bytes::from(vec![0x5a; 100_000]);
    let mut messages = Vec::new();
    for frame in 0..SECONDS * 30 {
        let bytes = if frame % 60 == 0 { 100_000 } else { 23_600 };
        let header = MessageHeader { chunk_stream: 6, timestamp: frame * 100 / 3, kind: VIDEO, stream: 1 };
        messages.push((header, payload.slice(..bytes)));
    }
    for packet in 0..SECONDS * 48_000 / 1024 {
        let timestamp = packet * 1024 / 48;
        messages.push((
            MessageHeader { chunk_stream: 4, timestamp, kind: AUDIO, stream: 1 },
            payload.slice(..427),
        ));
    }
    messages.sort_by_key(|(header, _)| header.timestamp);
    messages
}

/// Messages between two writes to the socket.
const BATCH_MESSAGES: usize = 8;

/// Writes all messages; `drain` takes the output of each batch.
fn write(messages: &[(MessageHeader, Bytes)], chunk_size: usize, mut drain: impl FnMut(&mut ChunkOutput)) {
    let mut writer = ChunkWriter::default();
    writer.set_chunk_size(chunk_size);
    let mut output = ChunkOutput::default();
    for batch in messages.chunks(BATCH_MESSAGES) {
        for (header, payload) in batch {
            writer.write(&mut output, *header, &[0x27, 1, 0, 0, 0], payload).expect("within limits");
        }
        drain(&mut output);
    }
}

fn read(blocks: &[Bytes], chunk_size: usize, block_bytes: usize) -> usize {
    let mut reader = ChunkReader::default();
    reader.set_chunk_size(chunk_size);
    reader.set_block_bytes(block_bytes);
    let mut count = 0;
    for block in blocks {
        let mut block = block.clone();
        while let Some(message) = reader.read(&mut block).expect("valid") {
            black_box(message);
            count += 1;
        }
    }
    count
}

fn chunk(criterion: &mut Criterion) {
    let messages = messages();
    let payload_bytes: usize = messages.iter().map(|(_, payload)| payload.len()).sum();
    let mut group = criterion.benchmark_group("chunk");
    group.throughput(Throughput::Bytes(payload_bytes as u64));
    for chunk_size in [128, 4096, 60_000] {
        group.bench_function(BenchmarkId::new("write", chunk_size), |bencher| {
            bencher.iter(|| {
                write(&messages, chunk_size, |output| output.advance(black_box(output.len_bytes())));
            });
        });
        let mut bytes = Vec::new();
        write(&messages, chunk_size, |output| bytes.extend_from_slice(&output.take()));
        // Separate blocks, as from socket reads.
        for block_bytes in BLOCK_BYTES {
            let blocks: Vec<Bytes> = bytes.chunks(block_bytes).map(Bytes::copy_from_slice).collect();
            assert_eq!(read(&blocks, chunk_size, block_bytes), messages.len());
            let id = BenchmarkId::new("read", format!("{chunk_size} blocks of {block_bytes}"));
            group.bench_function(id, |bencher| {
                bencher.iter(|| black_box(read(&blocks, chunk_size, block_bytes)));
            });
        }
    }
    group.finish();
}

criterion_group!(benches, chunk);
criterion_main!(benches);
