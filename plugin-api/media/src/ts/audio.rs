//! Audio PES packets: frames of AAC in ADTS or LATM, and Opus packets.

use bytes::Bytes;

use super::adts::{self, Framed};
use super::latm;
use super::limits::AUDIO_FRAMES_MAX;
use super::opus::{self, Control};
use super::sink::Sink;
use super::tables::Format;
use crate::Packet;
use crate::codec::aac::AacConfig;
use crate::codec::opus::SAMPLE_RATE;
use crate::fmp4::{opus_samples, ticks_to_nanos};
use crate::video::Times;

/// Reads the PES packets of an audio stream.
#[derive(Debug)]
pub(super) struct AudioReader {
    format: Format,
    /// The codec configuration that was given last, with the duration of a frame in nanoseconds (0 for Opus).
    record: Option<(Bytes, i64)>,
    /// The beginning of a frame that ends in the next PES packet.
    carry: Vec<u8>,
    /// Time of the next frame.
    next_ns: Option<i64>,
    /// Frames before the next one are missing.
    is_cut: bool,
    mux: Option<latm::StreamMux>,
    /// Frames of the newest PES packet.
    frames: usize,
}

impl AudioReader {
    pub(super) fn new(format: Format) -> Self {
        let (record, carry, next_ns, is_cut, mux, frames) = (None, Vec::new(), None, false, None, 0);
        AudioReader { format, record, carry, next_ns, is_cut, mux, frames }
    }

    pub(super) fn lost(&mut self) {
        self.carry.clear();
        self.next_ns = None;
        self.is_cut = true;
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.carry.len()
    }

    /// Reads the payload of a PES packet. Without times its frames follow those before.
    pub(super) fn read(&mut self, times: Option<Times>, payload: &[u8], sink: &mut Sink<'_>) {
        // One copy for all frames of the PES packet: they are slices of it.
        let block = Bytes::from([&self.carry[..], payload].concat());
        // The time is the one of the first frame that begins in this PES packet (2.4.3.7).
        let begins_at = std::mem::take(&mut self.carry).len();
        let mut pts_ns = times.map(|times| times.pts_ns);
        let mut at = 0;
        self.frames = 0;
        while at < block.len() {
            if at >= begins_at {
                self.next_ns = pts_ns.take().or(self.next_ns);
            }
            match self.framed(&block[at..]) {
                Framed::Whole(bytes) => {
                    self.frame(block.slice(at..at + bytes), sink);
                    at += bytes;
                }
                Framed::Short => {
                    self.carry = block[at..].to_vec();
                    return;
                }
                Framed::Not => {
                    sink.stats.frames_dropped += u64::from(!self.is_cut);
                    self.is_cut = true;
                    at = self.next_start(&block, at + 1);
                }
            }
        }
    }

    fn framed(&self, bytes: &[u8]) -> Framed {
        match self.format {
            Format::Latm => latm::framed(bytes),
            Format::Opus(_) => {
                let total = Control::parse(bytes).map(|control| control.payload_at + control.payload_bytes);
                total.filter(|total| *total <= bytes.len()).map_or(Framed::Not, Framed::Whole)
            }
            _ => adts::framed(bytes),
        }
    }

    /// Where the next frame may begin; a PES packet of Opus is given up.
    fn next_start(&self, block: &[u8], from: usize) -> usize {
        let first = match self.format {
            Format::Opus(_) => None,
            Format::Latm => Some(latm::FIRST_BYTE),
            _ => Some(adts::FIRST_BYTE),
        };
        let found = block[from..].iter().position(|byte| Some(*byte) == first);
        found.map_or(block.len(), |skipped| from + skipped)
    }

    fn frame(&mut self, frame: Bytes, sink: &mut Sink<'_>) {
        match self.format {
            Format::Latm => self.latm(&frame, sink),
            Format::Opus(code) => self.opus(code, &frame, sink),
            _ => match adts::parse(&frame) {
                Some((record, payload_at)) => self.aac(&record, frame.slice(payload_at..), sink),
                None => self.refuse(sink),
            },
        }
    }

    fn latm(&mut self, frame: &[u8], sink: &mut Sink<'_>) {
        let Ok(frames) = latm::element(&mut self.mux, frame) else { return self.refuse(sink) };
        let Some(mux) = self.mux.take() else { return };
        for payload in frames {
            self.aac(&mux.record, Bytes::from(payload), sink);
        }
        self.mux = Some(mux);
    }

    fn aac(&mut self, record: &[u8], payload: Bytes, sink: &mut Sink<'_>) {
        if self.is_over() {
            return self.refuse(sink);
        }
        let is_same = self.record.as_ref().is_some_and(|(last, _)| last == record);
        if !is_same {
            let Ok(config) = AacConfig::parse(record) else { return self.refuse(sink) };
            let frame_ns = ticks_to_nanos(config.frame_samples.into(), config.sample_rate);
            self.configure(record, frame_ns, sink);
        }
        let frame_ns = self.record.as_ref().map_or(0, |(_, frame_ns)| *frame_ns);
        self.push(payload, frame_ns, sink);
    }

    fn opus(&mut self, code: u8, frame: &Bytes, sink: &mut Sink<'_>) {
        let Some(control) = Control::parse(frame).filter(|_| !self.is_over()) else {
            return self.refuse(sink);
        };
        if self.record.is_none() {
            // Only the first packets of a stream have a trim; in the middle of a stream it is not known.
            let Some(record) = opus::head(code, control.start_trim) else { return self.refuse(sink) };
            self.configure(&record, 0, sink);
        }
        let payload = frame.slice(control.payload_at..);
        let samples = opus_samples(&payload).unwrap_or(0);
        self.push(payload, ticks_to_nanos(samples.into(), SAMPLE_RATE), sink);
    }

    /// Counts a frame, whether it is given or not: each can bring a codec configuration.
    fn is_over(&mut self) -> bool {
        self.frames += 1;
        self.frames > AUDIO_FRAMES_MAX
    }

    fn configure(&mut self, record: &[u8], frame_ns: i64, sink: &mut Sink<'_>) {
        let record = Bytes::copy_from_slice(record);
        sink.packets.push(Packet::configuration(self.format.codec(), record.clone()));
        self.record = Some((record, frame_ns));
    }

    /// Gives a frame. Empty ones, and those before the first time, are left out.
    fn push(&mut self, payload: Bytes, frame_ns: i64, sink: &mut Sink<'_>) {
        let Some(time_ns) = self.next_ns.filter(|_| !payload.is_empty()) else { return self.refuse(sink) };
        self.next_ns = Some(time_ns.saturating_add(frame_ns));
        let discontinuity = std::mem::take(&mut self.is_cut);
        let packet = Packet::media(self.format.codec(), false, time_ns, time_ns, payload);
        sink.packets.push(Packet { discontinuity, ..packet });
    }

    fn refuse(&mut self, sink: &mut Sink<'_>) {
        sink.stats.frames_dropped += 1;
        self.is_cut = true;
    }
}
