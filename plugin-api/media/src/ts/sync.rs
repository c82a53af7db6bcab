//! Finds packets in blocks of bytes that are cut anywhere.

use super::limits::{RESYNC_BYTES_MAX, SYNC_PACKETS};
use super::{PACKET_BYTES, SYNC_BYTE, TsError};

/// Bytes in which packets are searched.
const SEARCH_BYTES: usize = SYNC_PACKETS * PACKET_BYTES;

/// Position in the stream. Packets that lie within a block are given without a copy.
#[derive(Debug)]
pub(super) struct PacketFinder {
    /// A packet that is not complete, or the bytes to search.
    held: [u8; SEARCH_BYTES],
    len: usize,
    /// The position of the next packet is known.
    locked: bool,
    /// Bytes skipped since the last packet.
    skipped: usize,
}

impl Default for PacketFinder {
    fn default() -> Self {
        PacketFinder { held: [0; SEARCH_BYTES], len: 0, locked: true, skipped: 0 }
    }
}

impl PacketFinder {
    /// Gives each packet of `input` to `take`, and `None` where bytes are no packet.
    ///
    /// # Errors
    /// [`TsError::NoSync`] and the errors of `take`.
    pub(super) fn feed(
        &mut self,
        mut input: &[u8],
        take: &mut impl FnMut(Option<&[u8; PACKET_BYTES]>) -> Result<(), TsError>,
    ) -> Result<(), TsError> {
        loop {
            if self.locked && self.len == 0 {
                input = self.straight(input, take)?;
            }
            let wanted = if self.locked { PACKET_BYTES } else { SEARCH_BYTES };
            let (block, rest) = input.split_at((wanted - self.len).min(input.len()));
            self.held[self.len..self.len + block.len()].copy_from_slice(block);
            self.len += block.len();
            input = rest;
            if self.len < wanted {
                return Ok(());
            }
            if self.locked {
                self.held_packet(take)?;
            } else {
                self.search(take)?;
            }
        }
    }

    /// Gives the packets at the front of `input` and returns the bytes after them.
    fn straight<'a>(
        &mut self,
        mut input: &'a [u8],
        take: &mut impl FnMut(Option<&[u8; PACKET_BYTES]>) -> Result<(), TsError>,
    ) -> Result<&'a [u8], TsError> {
        while let Some((packet, rest)) = input.split_first_chunk::<PACKET_BYTES>() {
            if packet[0] != SYNC_BYTE {
                self.locked = false;
                take(None)?;
                break;
            }
            take(Some(packet))?;
            input = rest;
        }
        Ok(input)
    }

    /// Gives the packet that came in two blocks.
    fn held_packet(
        &mut self,
        take: &mut impl FnMut(Option<&[u8; PACKET_BYTES]>) -> Result<(), TsError>,
    ) -> Result<(), TsError> {
        if self.held[0] != SYNC_BYTE {
            self.locked = false;
            return take(None);
        }
        self.len = 0;
        take(self.held.first_chunk())
    }

    /// Searches packets in the held bytes, which are complete.
    fn search(
        &mut self,
        take: &mut impl FnMut(Option<&[u8; PACKET_BYTES]>) -> Result<(), TsError>,
    ) -> Result<(), TsError> {
        let is_start =
            |at: &usize| self.held[*at..].iter().step_by(PACKET_BYTES).all(|byte| *byte == SYNC_BYTE);
        let Some(mut at) = (0..PACKET_BYTES).find(is_start) else {
            self.skipped += PACKET_BYTES;
            self.keep_from(PACKET_BYTES);
            return if self.skipped > RESYNC_BYTES_MAX { Err(TsError::NoSync) } else { Ok(()) };
        };
        self.locked = true;
        self.skipped = 0;
        while let Some(packet) = self.held[at..].first_chunk::<PACKET_BYTES>() {
            take(Some(packet))?;
            at += PACKET_BYTES;
        }
        self.keep_from(at);
        Ok(())
    }

    fn keep_from(&mut self, at: usize) {
        self.held.copy_within(at..self.len, 0);
        self.len -= at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(number: u8) -> [u8; PACKET_BYTES] {
        let mut packet = [number; PACKET_BYTES];
        packet[0] = SYNC_BYTE;
        packet
    }

    /// Numbers of the packets that are found, with 0 where the position was lost.
    fn found(stream: &[u8], block: usize) -> Vec<u8> {
        let mut sync = PacketFinder::default();
        let mut found = Vec::new();
        for bytes in stream.chunks(block) {
            let fed = sync.feed(bytes, &mut |packet: Option<&[u8; PACKET_BYTES]>| {
                found.push(packet.map_or(0, |packet| packet[1]));
                Ok(())
            });
            assert_eq!(fed, Ok(()));
        }
        found
    }

    #[test]
    fn packets_are_found_in_blocks_of_any_size() {
        let stream: Vec<u8> = (1..=9).flat_map(packet).collect();
        for block in [1, 7, 187, 188, 189, 376, 563, 564, 565, 1316, 5000] {
            assert_eq!(found(&stream, block), (1..=9).collect::<Vec<_>>(), "{block}");
        }
    }

    #[test]
    fn packets_are_found_behind_garbage() {
        for garbage in [1, 187, 188, 300, 1000] {
            let strange = vec![0x11; garbage];
            let stream: Vec<u8> =
                (1..=3).flat_map(packet).chain(strange).chain((4..=9).flat_map(packet)).collect();
            for block in [1, 188, 1316, 5000] {
                assert_eq!(found(&stream, block), [1, 2, 3, 0, 4, 5, 6, 7, 8, 9], "{garbage}, {block}");
            }
        }
        // A damaged sync byte costs one packet.
        let mut stream: Vec<u8> = (1..=9).flat_map(packet).collect();
        stream[4 * PACKET_BYTES] = 0;
        assert_eq!(found(&stream, 1316), [1, 2, 3, 4, 0, 6, 7, 8, 9]);
    }

    #[test]
    fn garbage_without_end_is_given_up() {
        let mut sync = PacketFinder::default();
        let mut fed = 0;
        let error = loop {
            match sync.feed(&[0x11; PACKET_BYTES], &mut |_: Option<&[u8; PACKET_BYTES]>| Ok(())) {
                Ok(()) => fed += PACKET_BYTES,
                Err(error) => break error,
            }
        };
        assert_eq!(error, TsError::NoSync);
        assert!(fed <= RESYNC_BYTES_MAX + SEARCH_BYTES, "{fed}");
    }
}
