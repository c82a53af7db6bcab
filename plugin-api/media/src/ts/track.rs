//! One stream of the program: its PES packets become packets.

use super::TsError;
use super::audio::AudioReader;
use super::limits::{AUDIO_PES_BYTES_MAX, VIDEO_PES_BYTES_MAX};
use super::packet::{Counter, Step, TsPacket};
use super::pes::{Added, Assembler, Header};
use super::sink::Sink;
use super::tables::Stream;
use crate::Kind;
use crate::video::VideoReader;

#[derive(Debug)]
enum Reader {
    Video(VideoReader),
    Audio(AudioReader),
}

/// A stream that is used.
#[derive(Debug)]
pub(super) struct Track {
    pub(super) stream: Stream,
    counter: Counter,
    pes: Assembler,
    /// The newest packet had stuffing.
    was_stuffed: bool,
    reader: Reader,
}

impl Track {
    pub(super) fn new(stream: Stream) -> Self {
        let (reader, bytes_max) = match stream.format.codec().kind() {
            Kind::Video => (Reader::Video(VideoReader::new(stream.format.codec())), VIDEO_PES_BYTES_MAX),
            Kind::Audio => (Reader::Audio(AudioReader::new(stream.format)), AUDIO_PES_BYTES_MAX),
        };
        let (counter, pes) = (Counter::default(), Assembler::new(bytes_max));
        Track { stream, counter, pes, was_stuffed: false, reader }
    }

    /// Takes a packet of this stream.
    ///
    /// # Errors
    /// [`TsError::TimestampRange`].
    pub(super) fn packet(
        &mut self,
        packet: &TsPacket<'_>,
        payload: &[u8],
        sink: &mut Sink<'_>,
    ) -> Result<(), TsError> {
        match self.counter.step(packet) {
            Step::Follows => {}
            Step::Repeats if self.pes.is_repeat(payload) => return Ok(()),
            Step::Repeats | Step::Lost => {
                sink.stats.gaps += 1;
                self.lost();
            }
        }
        if packet.start {
            self.close(sink)?;
            self.pes.begin();
        }
        self.was_stuffed = packet.stuffed;
        match self.pes.add(payload) {
            Added::Open => Ok(()),
            Added::Complete => self.close(sink),
            Added::TooLong => {
                sink.stats.pes_dropped += 1;
                self.lost();
                Ok(())
            }
        }
    }

    /// Drops the open PES packet: bytes of this stream are missing.
    pub(super) fn lost(&mut self) {
        self.pes.clear();
        match &mut self.reader {
            Reader::Video(video) => video.lost(),
            Reader::Audio(audio) => audio.lost(),
        }
    }

    /// Ends the stream: the open PES packet is read if it came whole. Without a length that shows in its stuffing, which one of 184 PES
    /// packets does not need; that one is dropped.
    ///
    /// # Errors
    /// [`TsError::TimestampRange`].
    pub(super) fn finish(&mut self, sink: &mut Sink<'_>) -> Result<(), TsError> {
        if !self.was_stuffed && self.pes.is_begun() {
            sink.stats.pes_dropped += 1;
            self.lost();
        }
        self.close(sink)
    }

    /// Ends the open PES packet and reads it.
    ///
    /// # Errors
    /// [`TsError::TimestampRange`].
    pub(super) fn close(&mut self, sink: &mut Sink<'_>) -> Result<(), TsError> {
        if !self.pes.is_begun() {
            return Ok(());
        }
        let whole = self.pes.whole().and_then(|bytes| Some((Header::parse(bytes)?, bytes)));
        let Some((header, bytes)) = whole else {
            sink.stats.pes_dropped += 1;
            self.lost();
            return Ok(());
        };
        let times = header.stamps.map(|stamps| sink.times(stamps)).transpose()?;
        let payload = &bytes[header.payload_at..];
        match &mut self.reader {
            Reader::Video(video) => {
                if !video.read(times, payload, sink.packets) {
                    sink.stats.frames_dropped += 1;
                }
            }
            Reader::Audio(audio) => audio.read(times, payload, sink),
        }
        self.pes.clear();
        Ok(())
    }

    /// Bytes in memory.
    pub(super) fn held_bytes(&self) -> usize {
        let reader = match &self.reader {
            Reader::Video(video) => video.held_bytes(),
            Reader::Audio(audio) => audio.held_bytes(),
        };
        self.pes.held_bytes() + reader
    }
}
