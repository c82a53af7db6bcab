//! A client session publishes to a server session: all packets arrive unchanged.

use crate::common::{Random, Recording, programme, run};
use bytes::Bytes;
use satcast_media::Packet;
use satcast_media::rtmp::server::{ServerConfig, ServerEvent, ServerSession};

fn same(sent: &[Packet], recording: &Recording, case: &str) {
    assert_eq!(recording.packets.len(), sent.len(), "{case}");
    for (index, (got, sent)) in recording.packets.iter().zip(sent).enumerate() {
        assert!(got == sent, "{case}: packet {index}: {got:?} instead of {sent:?}");
    }
}

#[test]
fn five_codecs_pass_at_every_chunk_size_with_random_splits() {
    let mut random = Random::new(0x5a7c_a57e);
    for (chunk_size, frames, largest) in
        [(1, 4, 900), (128, 40, 9000), (4096, 60, 40_000), (60_000, 60, 150_000)]
    {
        let packets = programme(0, frames, largest, &mut random);
        let mut splits = Random::new(u64::from(chunk_size));
        let recording = run(chunk_size, &packets, |left| match splits.below(3) {
            0 => 1 + splits.below(20),
            1 => 1 + splits.below(5000),
            _ => left,
        });
        same(&packets, &recording, &format!("chunk size {chunk_size}"));
    }
}

#[test]
fn times_pass_the_extended_field_and_the_32_bit_wrap() {
    let mut random = Random::new(7);
    for base in [0x00ff_ffff - 300, (1 << 31) - 300, (1 << 32) - 300] {
        for chunk_size in [128, 60_000] {
            let packets = programme(base, 40, 3000, &mut random);
            let mut splits = Random::new(3);
            let recording = run(chunk_size, &packets, |_| 1 + splits.below(300));
            same(&packets, &recording, &format!("from {base} ms, chunk size {chunk_size}"));
        }
    }
}

/// Feeds a client's output in two blocks to a server that accepts.
fn replay(first: &[u8], second: &[u8]) -> Vec<Packet> {
    let mut server = ServerSession::new(ServerConfig::default());
    let mut packets = Vec::new();
    for block in [first, second] {
        server.input(Bytes::copy_from_slice(block)).expect("valid");
        while let Some(event) = server.poll_event() {
            match event {
                ServerEvent::PublishRequested { id, .. } => server.accept_publish(id).expect("pending"),
                ServerEvent::Packet(packet) => packets.push(packet),
                _ => {}
            }
        }
    }
    packets
}

#[test]
fn a_short_session_passes_with_a_split_at_every_byte() {
    for chunk_size in [1, 128, 4096, 60_000] {
        let packets = programme(0x00ff_ffff, 2, 300, &mut Random::new(11));
        let recording = run(chunk_size, &packets, |left| left);
        same(&packets, &recording, "unsplit");
        let bytes = &recording.client_bytes;
        // The end of the publish is not replayed: it would withdraw a request still held.
        let end = bytes.len() - 90;
        let whole = replay(&bytes[..end], &[]).len();
        for split in 0..end {
            let got = replay(&bytes[..split], &bytes[split..end]);
            assert!(
                got.len() == whole && got[..] == packets[..whole],
                "chunk size {chunk_size}, split at {split}"
            );
        }
    }
}

#[test]
fn a_session_cut_off_at_every_byte_gives_a_prefix_of_its_packets() {
    let packets = programme(0, 2, 300, &mut Random::new(12));
    let recording = run(128, &packets, |left| left);
    let mut most = 0;
    for end in 0..recording.client_bytes.len() {
        let mut server = ServerSession::new(ServerConfig::default());
        server
            .input(Bytes::copy_from_slice(&recording.client_bytes[..recording.media_starts.min(end)]))
            .expect("valid");
        let mut got = Vec::new();
        while let Some(event) = server.poll_event() {
            if let ServerEvent::PublishRequested { id, .. } = event {
                server.accept_publish(id).expect("pending");
            }
        }
        server
            .input(Bytes::copy_from_slice(&recording.client_bytes[recording.media_starts.min(end)..end]))
            .expect("valid");
        while let Some(event) = server.poll_event() {
            if let ServerEvent::Packet(packet) = event {
                got.push(packet);
            }
        }
        assert!(got.len() >= most && got[..] == packets[..got.len()], "cut at {end}");
        most = got.len();
    }
    assert_eq!(most, packets.len());
}
