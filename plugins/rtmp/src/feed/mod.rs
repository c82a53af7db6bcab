//! Feeds packets of the host into the RTMP session: timeline, codec configurations, metadata, and a limit on output
//! ahead of the socket.

use std::collections::VecDeque;

use satcast_media::codec::aac::AacConfig;
use satcast_media::codec::avc::AvcConfig;
use satcast_media::codec::hevc::HevcConfig;
use satcast_media::codec::opus::OpusConfig;
use satcast_media::rtmp::client::ClientSession;
use satcast_media::rtmp::{Metadata, RtmpError};
use satcast_media::{Codec, NANOS_PER_MILLI, Packet};

/// Bytes of chunks made ahead of the socket, beyond which no further packet becomes chunks. Data that the server does
/// not take stays with the host, which drops to a keyframe. One message may exceed the limit.
pub(crate) const OUTPUT_BYTES_MAX: usize = 1024 * 1024;

/// Packets whose memory is kept between batches: those of a usual batch. The first GOP of a connection comes in full ones.
pub(crate) const PACKETS_KEPT: usize = 16;

/// Sample rate at which every Opus stream is decoded (RFC 6716).
const OPUS_SAMPLE_RATE: u32 = 48_000;

/// One batch of packets on its way into the session of one connection.
#[derive(Debug, Default)]
pub(crate) struct Feed {
    batch: VecDeque<Packet>,
    /// At most one codec configuration of each kind; sent with the time of the next access unit.
    held: Vec<Packet>,
    /// Session time that is 0 on this connection.
    base_ns: Option<i64>,
    metadata: Metadata,
    metadata_sent: Option<Metadata>,
    counts: Counts,
}

/// Packets since the last [`Feed::take_counts`].
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Became chunks.
    pub(crate) sent: u64,
    /// Could not be sent: not the first track of its kind, or over a limit of the protocol.
    pub(crate) skipped: u64,
}

impl Feed {
    /// Takes over a batch of the host; payloads are shared.
    pub(crate) fn take(&mut self, batch: &mut Vec<Packet>) {
        for packet in batch.drain(..) {
            if packet.track == 0 {
                self.batch.push_back(packet);
            } else {
                self.counts.skipped += 1;
            }
        }
        self.begin();
    }

    /// Fixes the connection's zero with the first batch that has media: its earliest time, so that audio a little
    /// before its video is not moved. Whole milliseconds, as the source's times were.
    fn begin(&mut self) {
        if self.base_ns.is_none() {
            let media = self.batch.iter().filter(|packet| !packet.is_config());
            let first = media.map(|packet| packet.dts_ns).min();
            self.base_ns = first.map(|first| first.div_euclid(NANOS_PER_MILLI) * NANOS_PER_MILLI);
        }
    }

    /// Whether every packet taken over has become chunks.
    pub(crate) fn is_empty(&self) -> bool {
        self.batch.is_empty()
    }

    /// Makes chunks until the batch is empty or [`OUTPUT_BYTES_MAX`] bytes are waiting. Returns the output position
    /// after the first access unit of this call.
    ///
    /// # Errors
    /// [`RtmpError`] when the session cannot go on; a packet that cannot be written is skipped and counted.
    pub(crate) fn fill(&mut self, session: &mut ClientSession) -> Result<Option<u64>, RtmpError> {
        let mut first_end = None;
        while session.output().len_bytes() < OUTPUT_BYTES_MAX {
            let Some(mut packet) = self.batch.pop_front() else { break };
            let base = self.base_ns.unwrap_or(packet.dts_ns);
            packet.dts_ns = (packet.dts_ns - base).max(0);
            packet.pts_ns -= base;
            if packet.is_config() {
                self.hold(packet);
                continue;
            }
            self.flush_held(packet.dts_ns, session)?;
            self.send(&packet, session)?;
            first_end = first_end.or_else(|| Some(session.output().total_bytes()));
        }
        if self.batch.is_empty() {
            self.batch.shrink_to(PACKETS_KEPT);
        }
        Ok(first_end)
    }

    /// Returns and resets the counts.
    pub(crate) fn take_counts(&mut self) -> Counts {
        std::mem::take(&mut self.counts)
    }

    fn hold(&mut self, record: Packet) {
        describe(&mut self.metadata, &record);
        match self.held.iter_mut().find(|held| held.kind() == record.kind()) {
            Some(held) => *held = record,
            None => self.held.push(record),
        }
    }

    fn flush_held(&mut self, dts_ns: i64, session: &mut ClientSession) -> Result<(), RtmpError> {
        if self.held.is_empty() {
            return Ok(());
        }
        if self.metadata_sent != Some(self.metadata) {
            session.send_metadata(&self.metadata)?;
            self.metadata_sent = Some(self.metadata);
        }
        for mut record in std::mem::take(&mut self.held) {
            (record.dts_ns, record.pts_ns) = (dts_ns, dts_ns);
            self.send(&record, session)?;
        }
        Ok(())
    }

    fn send(&mut self, packet: &Packet, session: &mut ClientSession) -> Result<(), RtmpError> {
        match session.send(packet) {
            Ok(()) => self.counts.sent += 1,
            Err(RtmpError::Chunk(_)) => self.counts.skipped += 1,
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// Adds what a codec configuration says. A configuration that cannot be parsed is still forwarded.
fn describe(metadata: &mut Metadata, record: &Packet) {
    let payload = record.payload.as_ref();
    let size = match record.codec {
        Codec::H264 => AvcConfig::parse(payload).and_then(|config| config.video_size()).ok(),
        Codec::Hevc => HevcConfig::parse(payload).and_then(|config| config.video_size()).ok(),
        Codec::Av1 => None,
        Codec::Aac => {
            let config = AacConfig::parse(payload).ok();
            let rate = config.map(|config| config.extension_sample_rate.unwrap_or(config.sample_rate));
            describe_audio(metadata, Codec::Aac, rate, config.map(|config| config.channels));
            return;
        }
        Codec::Opus => {
            let channels = OpusConfig::parse(payload).ok().map(|config| config.channels);
            describe_audio(metadata, Codec::Opus, channels.map(|_| OPUS_SAMPLE_RATE), channels);
            return;
        }
    };
    metadata.video_codec = Some(record.codec);
    metadata.width = size.map(|size| size.width);
    metadata.height = size.map(|size| size.height);
}

fn describe_audio(metadata: &mut Metadata, codec: Codec, rate: Option<u32>, channels: Option<u8>) {
    metadata.audio_codec = Some(codec);
    metadata.audio_sample_rate = rate;
    // 0 channels: only the bitstream has the number.
    metadata.audio_channels = channels.filter(|channels| *channels > 0).map(u32::from);
}

#[cfg(test)]
mod tests;
