//! Mutated sessions: no panic, bounded memory.

use crate::common::{Random, programme, run};
use bytes::Bytes;
use satcast_media::fuzz;

const SESSIONS: u64 = 4000;
const SEED: u64 = 0x5a7c_0bad_cafe_0001;
/// Bound on the resident memory of the whole test process, in bytes.
const RESIDENT_BYTES_MAX: u64 = 128 * 1024 * 1024;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Changes a recorded session as a broken or hostile peer would.
fn mutate(bytes: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len());
        let length = random.below(64).min(bytes.len() - at);
        match random.below(7) {
            0 => bytes[at] = random.next() as u8,
            1 => bytes[at] ^= 1 << random.below(8),
            2 => bytes[at..at + length].fill([0, 0xff][random.below(2)]),
            3 => drop(bytes.drain(at..at + length)),
            4 => {
                let copy = bytes[at..at + length].to_vec();
                let to = random.below(bytes.len());
                bytes.splice(to..to, copy);
            }
            5 => {
                let noise: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
                bytes.splice(at..at, noise);
            }
            _ => bytes.truncate(at.max(1)),
        }
        if bytes.is_empty() {
            return vec![0];
        }
    }
    bytes
}

/// Largest resident size of this process so far, in bytes, if the system reports it.
fn peak_resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}

#[test]
fn mutated_sessions_do_not_panic_and_stay_small() {
    let seed = number("SATCAST_SEED", SEED);
    let rounds = SESSIONS * number("SATCAST_SOAK_ITERATIONS", 1);
    println!("seed {seed} (SATCAST_SEED), {rounds} sessions");
    let mut random = Random::new(seed);
    let mut recordings = Vec::new();
    for chunk_size in [128, 4096, 60_000] {
        let packets = programme(0x00ff_ff00, 6, 4000, &mut random);
        recordings.push(run(chunk_size, &packets, |left| left));
    }
    // The targets send their own handshake before the data.
    let handshake = 3073;
    for round in 0..rounds {
        let recording = &recordings[random.below(recordings.len())];
        let (bytes, target): (_, fn(&[u8])) = match round % 2 {
            0 => (&recording.client_bytes[handshake..], fuzz::server_session),
            _ => (&recording.server_bytes[handshake..], fuzz::client_session),
        };
        let mut data = vec![random.next() as u8];
        data.extend(mutate(bytes, &mut random));
        target(&data);
    }
    if let Some(peak) = peak_resident_bytes() {
        println!("peak resident {} MiB", peak >> 20);
        assert!(peak < RESIDENT_BYTES_MAX, "peak resident memory is {peak} bytes");
    }
}

#[test]
fn a_mutated_handshake_does_not_panic() {
    use satcast_media::rtmp::server::{ServerConfig, ServerSession};
    let mut random = Random::new(SEED);
    let recording = run(128, &programme(0, 1, 100, &mut random), |left| left);
    let mut refused = 0;
    for _ in 0..2000 {
        let bytes = mutate(&recording.client_bytes[..recording.media_starts], &mut random);
        let mut session = ServerSession::new(ServerConfig::default());
        for block in bytes.chunks(1 + random.below(5000)) {
            refused += usize::from(session.input(Bytes::copy_from_slice(block)).is_err());
        }
    }
    assert!(refused > 20, "mutation changes nothing: {refused}");
}

#[test]
fn noise_does_not_panic() {
    let mut random = Random::new(SEED ^ 1);
    for _ in 0..3000 {
        let length = random.below(3000);
        let noise: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
        for (_, target) in fuzz::TARGETS {
            target(&noise);
        }
    }
}
