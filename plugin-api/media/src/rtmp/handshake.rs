//! The simple handshake (RTMP 1.0, 5.2) in both roles.
//!
//! The "random" bytes only need to distinguish peers, so they are a fixed sequence. The digest handshake of the
//! Flash player is not offered; the zero version field announces this.

use bytes::{Buf, Bytes};

use super::chunk::ChunkOutput;

/// Bytes of C1, S1, C2 and S2.
pub const BLOCK_BYTES: usize = 1536;

const VERSION: u8 = 3;

/// Reasons for which the handshake fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    /// The first byte is not 3: not RTMP, or RTMPE.
    #[error("peer speaks version {0}, not plain rtmp (3)")]
    Version(u8),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Server,
    Client,
}

/// One side's handshake.
#[derive(Debug)]
pub struct Handshake {
    role: Role,
    /// Received bytes of the peer's version byte and first block.
    first: Vec<u8>,
    /// Missing bytes of the peer's second block. Its content is not checked, because servers differ in it.
    second_left: usize,
}

impl Handshake {
    /// The server's side; waits for C0.
    pub fn server() -> Self {
        Handshake { role: Role::Server, first: Vec::new(), second_left: BLOCK_BYTES }
    }

    /// The client's side; appends C0 and C1.
    pub fn client(output: &mut ChunkOutput) -> Self {
        output.push(own_first());
        Handshake { role: Role::Client, first: Vec::new(), second_left: BLOCK_BYTES }
    }

    /// Takes handshake bytes from the front of `block` and appends the answers; true when done.
    ///
    /// # Errors
    /// [`HandshakeError::Version`], as soon as the first byte has arrived.
    pub fn read(&mut self, block: &mut Bytes, output: &mut ChunkOutput) -> Result<bool, HandshakeError> {
        let missing = 1 + BLOCK_BYTES - self.first.len();
        if missing > 0 && !block.is_empty() {
            let received = block.split_to(missing.min(block.len()));
            self.first.extend_from_slice(&received);
            if self.first[0] != VERSION {
                return Err(HandshakeError::Version(self.first[0]));
            }
            if received.len() == missing {
                if self.role == Role::Server {
                    output.push(own_first());
                }
                output.push(Bytes::copy_from_slice(&self.first[1..]));
            }
        }
        if self.first.len() > BLOCK_BYTES {
            let count = self.second_left.min(block.len());
            block.advance(count);
            self.second_left -= count;
        }
        Ok(self.second_left == 0)
    }
}

/// Version byte and first block: time 0, version 0, then a fixed sequence.
fn own_first() -> Bytes {
    let mut bytes = vec![0; 1 + BLOCK_BYTES];
    bytes[0] = VERSION;
    let mut state: u32 = 0x5a7c_a571;
    for byte in &mut bytes[9..] {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        *byte = (state >> 24) as u8;
    }
    Bytes::from(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_finish_with_any_read_size() {
        for step in [1, 7, 1536, 1537, 4000] {
            let (mut to_server, mut to_client) = (ChunkOutput::default(), ChunkOutput::default());
            let mut client = Handshake::client(&mut to_server);
            let mut server = Handshake::server();
            let (mut server_done, mut client_done) = (false, false);
            for _ in 0..3 {
                let bytes = to_server.take();
                for block in bytes.chunks(step) {
                    server_done |=
                        server.read(&mut Bytes::copy_from_slice(block), &mut to_client).expect("version 3");
                }
                let bytes = to_client.take();
                for block in bytes.chunks(step) {
                    client_done |=
                        client.read(&mut Bytes::copy_from_slice(block), &mut to_server).expect("version 3");
                }
            }
            assert!(server_done && client_done, "step {step}");
            assert_eq!(to_server.total_bytes(), 1 + 2 * BLOCK_BYTES as u64);
            assert_eq!(to_client.total_bytes(), 1 + 2 * BLOCK_BYTES as u64);
        }
    }

    #[test]
    fn bytes_after_the_handshake_stay_in_the_block() {
        let mut output = ChunkOutput::default();
        let mut bytes = vec![3; 1 + 2 * BLOCK_BYTES];
        bytes.extend_from_slice(b"rest");
        let mut block = Bytes::from(bytes);
        assert_eq!(Handshake::server().read(&mut block, &mut output), Ok(true));
        assert_eq!(block, "rest");
    }

    #[test]
    fn another_version_is_refused_at_the_first_byte() {
        let mut output = ChunkOutput::default();
        for version in [0, 6, b'G', 0x16] {
            let mut block = Bytes::copy_from_slice(&[version]);
            assert_eq!(
                Handshake::server().read(&mut block, &mut output),
                Err(HandshakeError::Version(version))
            );
        }
        assert!(output.is_empty());
    }
}
