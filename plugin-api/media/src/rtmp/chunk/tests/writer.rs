//! Writer output, byte by byte and read back.

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
    // A small delta across the boundary needs no extended time; a long gap does.
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
fn written_messages_are_read_back() {
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
            let header = MessageHeader { chunk_stream, timestamp, kind: 9, stream: random.below(2) as u32 };
            writer.write(&mut output, header, prefix, &payload).expect("short");
            let joined = Bytes::from([prefix, &payload].concat());
            sent.push(Message { header, payload: joined });
        }
        let mut bytes = BytesMut::from(&output.take()[..]);
        let mut got = Vec::new();
        while !bytes.is_empty() {
            let count = (1 + random.below(2 * chunk_size + 30)).min(bytes.len());
            let mut block = bytes.split_to(count).freeze();
            while let Some(message) = reader.read(&mut block).expect("valid") {
                got.push(message);
            }
        }
        assert!(got == sent, "chunk size {chunk_size}");
    }
}
