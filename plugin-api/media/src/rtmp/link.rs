//! Shared by both roles: handshake, chunk layer, protocol control messages, acknowledgements.

use bytes::Bytes;

use super::RtmpError;
use super::chunk::{ChunkOutput, ChunkReader, ChunkWriter, Message, MessageHeader};
use super::handshake::Handshake;
use super::limits::{CHUNK_SIZE_MAX, CHUNK_SIZE_MIN, OUTPUT_BYTES_MAX, WINDOW_BYTES_MIN};
use super::message::{Command, Control, EVENT_PING_RESPONSE, kind, user_control};

/// Chunk stream of protocol control messages (RTMP 1.0, 5.4).
const CONTROL_CHUNK_STREAM: u32 = 2;
/// Chunk stream of commands.
const COMMAND_CHUNK_STREAM: u32 = 3;
/// Window assumed until the peer announces one, in bytes.
const WINDOW_BYTES_DEFAULT: u32 = 2_500_000;
/// Bytes of answers that may be queued above [`OUTPUT_BYTES_MAX`], so that media leaves capacity for them.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// Input that the session must handle.
#[derive(Debug)]
pub(crate) enum Incoming {
    /// The handshake is done; comes once and first.
    HandshakeDone,
    /// The peer acknowledged bytes, low 32 bits.
    Acknowledged(u32),
    /// Any message that is not protocol control.
    Message(Message),
}

/// The layers of one connection below the commands.
#[derive(Debug)]
pub(crate) struct Link {
    handshake: Option<Handshake>,
    reader: ChunkReader,
    writer: ChunkWriter,
    pub(crate) output: ChunkOutput,
    bytes_in: u64,
    acknowledged: u64,
    peer_window: u32,
    pub(crate) window_sent: u32,
}

impl Link {
    pub(crate) fn server() -> Self {
        Self::with(Handshake::server(), ChunkOutput::default())
    }

    pub(crate) fn client() -> Self {
        let mut output = ChunkOutput::default();
        Self::with(Handshake::client(&mut output), output)
    }

    fn with(handshake: Handshake, output: ChunkOutput) -> Self {
        Link {
            handshake: Some(handshake),
            reader: ChunkReader::default(),
            writer: ChunkWriter::default(),
            output,
            bytes_in: 0,
            acknowledged: 0,
            peer_window: WINDOW_BYTES_DEFAULT,
            window_sent: 0,
        }
    }

    /// Bytes read from the peer.
    pub(crate) fn bytes_in(&self) -> u64 {
        self.bytes_in
    }

    /// Bytes of unfinished messages in memory.
    pub(crate) fn unfinished_bytes(&self) -> usize {
        self.reader.unfinished_bytes()
    }

    /// See [`ChunkReader::set_block_bytes`].
    pub(crate) fn set_block_bytes(&mut self, bytes: usize) {
        self.reader.set_block_bytes(bytes);
    }

    /// Counts a block that is about to be read with [`Self::next`].
    pub(crate) fn count(&mut self, bytes: usize) {
        self.bytes_in = self.bytes_in.saturating_add(bytes as u64);
    }

    /// Next item in the block; `None` once the block is empty.
    pub(crate) fn next(&mut self, block: &mut Bytes) -> Result<Option<Incoming>, RtmpError> {
        if let Some(handshake) = &mut self.handshake {
            if !handshake.read(block, &mut self.output)? {
                return Ok(None);
            }
            self.handshake = None;
            return Ok(Some(Incoming::HandshakeDone));
        }
        while let Some(message) = self.reader.read(block)? {
            match Control::parse(message.header.kind, &message.payload)? {
                None => return Ok(Some(Incoming::Message(message))),
                Some(Control::Acknowledgement(bytes)) => return Ok(Some(Incoming::Acknowledged(bytes))),
                Some(control) => self.control(control)?,
            }
        }
        Ok(None)
    }

    /// Call after reading a block: sends an acknowledgement if due, and checks that the peer reads our answers.
    pub(crate) fn finish(&mut self) -> Result<(), RtmpError> {
        let due = u64::from(self.peer_window / 2);
        if self.handshake.is_none() && self.bytes_in - self.acknowledged >= due {
            self.acknowledged = self.bytes_in;
            // The field has 32 bits; peers expect it to wrap.
            self.send_control(Control::Acknowledgement(self.bytes_in as u32))?;
        }
        if self.output.len_bytes() > OUTPUT_BYTES_MAX + ANSWER_BYTES_MAX {
            return Err(RtmpError::OutputFull);
        }
        Ok(())
    }

    fn control(&mut self, control: Control) -> Result<(), RtmpError> {
        match control {
            Control::SetChunkSize(bytes) => self.reader.set_chunk_size(bytes),
            Control::Abort(chunk_stream) => self.reader.abort(chunk_stream),
            Control::WindowSize(bytes) => self.peer_window = bytes.max(WINDOW_BYTES_MIN),
            Control::PeerBandwidth(bytes) if bytes != self.window_sent => self.announce_window(bytes)?,
            Control::Ping(time) => self.send_encoded(user_control(EVENT_PING_RESPONSE, time))?,
            Control::PeerBandwidth(_) | Control::Acknowledgement(_) | Control::OtherEvent(_) => {}
        }
        Ok(())
    }

    /// Sends Window Acknowledgement Size.
    pub(crate) fn announce_window(&mut self, bytes: u32) -> Result<(), RtmpError> {
        self.window_sent = bytes;
        self.send_control(Control::WindowSize(bytes))
    }

    /// Sends Set Chunk Size in chunks of the old size, and uses the new size from the next message on.
    pub(crate) fn announce_chunk_size(&mut self, bytes: u32) -> Result<(), RtmpError> {
        let bytes = (bytes as usize).clamp(CHUNK_SIZE_MIN, CHUNK_SIZE_MAX);
        self.send_control(Control::SetChunkSize(bytes))?;
        self.writer.set_chunk_size(bytes);
        Ok(())
    }

    /// Sends a protocol control message.
    pub(crate) fn send_control(&mut self, control: Control) -> Result<(), RtmpError> {
        self.send_encoded(control.encode())
    }

    /// Sends an encoded protocol or user control message.
    pub(crate) fn send_encoded(&mut self, (kind, body): (u8, Vec<u8>)) -> Result<(), RtmpError> {
        let header = MessageHeader { chunk_stream: CONTROL_CHUNK_STREAM, timestamp: 0, kind, stream: 0 };
        Ok(self.writer.write(&mut self.output, header, &[], &Bytes::from(body))?)
    }

    /// Sends a command on a message stream.
    pub(crate) fn send_command(&mut self, stream: u32, command: &Command) -> Result<(), RtmpError> {
        let chunk_stream = COMMAND_CHUNK_STREAM;
        let header = MessageHeader { chunk_stream, timestamp: 0, kind: kind::COMMAND, stream };
        Ok(self.writer.write(&mut self.output, header, &[], &Bytes::from(command.encode()))?)
    }

    /// Sends a message whose body is `prefix` and then `payload`, which is shared.
    ///
    /// # Errors
    /// [`RtmpError::OutputFull`] or a chunk error; nothing is appended.
    pub(crate) fn send_media(
        &mut self,
        header: MessageHeader,
        prefix: &[u8],
        payload: &Bytes,
    ) -> Result<(), RtmpError> {
        if self.output.len_bytes() + prefix.len() + payload.len() > OUTPUT_BYTES_MAX {
            return Err(RtmpError::OutputFull);
        }
        Ok(self.writer.write(&mut self.output, header, prefix, payload)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rtmp::handshake::BLOCK_BYTES;

    /// A server's link after its handshake, with empty output.
    fn ready() -> Link {
        let mut link = Link::server();
        let mut block = Bytes::from(vec![3; 1 + 2 * BLOCK_BYTES]);
        assert!(matches!(link.next(&mut block), Ok(Some(Incoming::HandshakeDone))));
        link.output.take();
        link
    }

    fn encoded(controls: &[Control]) -> Bytes {
        let mut peer = Link::server();
        for control in controls {
            peer.send_control(*control).expect("short");
        }
        peer.output.take()
    }

    /// Feeds a block and reads the control messages that were sent back.
    fn answers(link: &mut Link, mut block: Bytes) -> Vec<Control> {
        link.count(block.len());
        while link.next(&mut block).expect("valid").is_some() {}
        link.finish().expect("within limits");
        let mut reader = ChunkReader::default();
        let mut output = link.output.take();
        let mut controls = Vec::new();
        while let Some(message) = reader.read(&mut output).expect("valid") {
            controls.extend(Control::parse(message.header.kind, &message.payload).expect("valid"));
        }
        controls
    }

    #[test]
    fn pings_are_answered_with_their_time() {
        let mut link = ready();
        let output = {
            let mut block = encoded(&[Control::Ping(0x0a0b_0c0d)]);
            assert!(link.next(&mut block).expect("valid").is_none());
            link.output.take()
        };
        assert_eq!(output[12..], [0, 7, 0x0a, 0x0b, 0x0c, 0x0d]);
    }

    #[test]
    fn peer_bandwidth_is_answered_with_a_window_once() {
        let mut link = ready();
        let block = encoded(&[Control::PeerBandwidth(5000), Control::PeerBandwidth(5000)]);
        assert_eq!(answers(&mut link, block), [Control::WindowSize(5000)]);
    }

    #[test]
    fn every_half_window_is_acknowledged() {
        let mut link = ready();
        answers(&mut link, encoded(&[Control::WindowSize(10_000)]));
        let start = link.bytes_in;
        let event = encoded(&[Control::OtherEvent(3)]);
        let mut sums = Vec::new();
        for _ in 0..2000 {
            for control in answers(&mut link, event.clone()) {
                sums.push(control);
            }
        }
        let total = link.bytes_in - start;
        assert_eq!(sums.len() as u64, total / (5000_u64.next_multiple_of(event.len() as u64)));
        assert_eq!(sums.last(), Some(&Control::Acknowledgement(link.acknowledged as u32)));
    }

    #[test]
    fn acknowledgements_wrap_at_32_bits() {
        let mut link = ready();
        (link.bytes_in, link.acknowledged) = ((1 << 32) - 1, (1 << 32) - 2_000_000);
        let block = encoded(&[Control::OtherEvent(3)]);
        let expected = block.len() as u32 - 1;
        assert_eq!(answers(&mut link, block), [Control::Acknowledgement(expected)]);
    }

    #[test]
    fn a_tiny_window_is_raised_to_the_minimum() {
        let mut link = ready();
        answers(&mut link, encoded(&[Control::WindowSize(0)]));
        assert_eq!(link.peer_window, WINDOW_BYTES_MIN);
        let event = encoded(&[Control::OtherEvent(3)]);
        let acknowledged: usize = (0..100).map(|_| answers(&mut link, event.clone()).len()).sum();
        assert!(acknowledged <= 1, "{acknowledged} answers to {} bytes", 100 * event.len());
    }

    #[test]
    fn a_peer_that_never_reads_our_answers_is_an_error() {
        let mut link = ready();
        let pings = encoded(&vec![Control::Ping(1); 60_000]);
        let error = loop {
            let mut block = pings.clone();
            link.count(block.len());
            assert!(link.next(&mut block).expect("valid").is_none());
            if let Err(error) = link.finish() {
                break error;
            }
        };
        assert_eq!(error, RtmpError::OutputFull);
        assert!(link.output.len_bytes() < OUTPUT_BYTES_MAX + 4 * ANSWER_BYTES_MAX);
    }

    #[test]
    fn media_leaves_capacity_for_answers() {
        let mut link = ready();
        let header = MessageHeader { chunk_stream: 6, timestamp: 0, kind: kind::VIDEO, stream: 1 };
        let payload = Bytes::from(vec![0; 4 * 1024 * 1024]);
        link.announce_chunk_size(60_000).expect("short");
        let error = (0..9).find_map(|_| link.send_media(header, &[], &payload).err());
        assert_eq!(error, Some(RtmpError::OutputFull));
        assert!(link.output.len_bytes() <= OUTPUT_BYTES_MAX);
        let mut block = encoded(&[Control::Ping(1)]);
        assert!(link.next(&mut block).expect("valid").is_none());
        assert_eq!(link.finish(), Ok(()));
    }
}
