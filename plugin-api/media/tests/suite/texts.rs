//! The error texts of this crate, as operators and driver authors read them. No other test repeats them.

use satcast_media::Codec;
use satcast_media::codec::CodecError;
use satcast_media::flv::FlvError;
use satcast_media::fmp4::Fmp4Error;
use satcast_media::playlist::PlaylistError;
use satcast_media::rtmp::RtmpError;
use satcast_media::rtmp::amf0::Amf0Error;
use satcast_media::rtmp::chunk::ChunkError;
use satcast_media::rtmp::handshake::HandshakeError;
use satcast_media::rtmp::message::MessageError;
use satcast_media::ts::{MuxError, TsError};

fn check<const COUNT: usize>(errors: [(&dyn std::fmt::Display, &str); COUNT]) {
    for (error, text) in errors {
        assert_eq!(error.to_string(), text);
    }
}

#[test]
fn media_texts() {
    check([
        (&CodecError::Truncated, "codec configuration record is cut off"),
        (&CodecError::Version(9), "codec configuration record has version 9, which is not known"),
        (&CodecError::TooMany, "codec configuration record has too many parameter sets"),
        (&CodecError::Field("width"), "codec configuration record has an impossible width"),
        (&FlvError::Truncated, "tag is cut off"),
        (&FlvError::TooManyModEx, "tag has too many ModEx prefixes"),
        (&FlvError::ConfigTooLong(9), "codec configuration record of 9 bytes is over the limit"),
        (
            &Fmp4Error::Record(CodecError::Truncated),
            "track cannot be packaged: codec configuration record is cut off; the encoder must send a valid \
             configuration record",
        ),
        (
            &Fmp4Error::RecordTooLong(70_000),
            "codec configuration record of 70000 bytes is over the limit of 65536",
        ),
        (&Fmp4Error::Unsupported("x"), "track cannot be packaged: x; choose another setting in the encoder"),
        (&Fmp4Error::Tracks, "a segment needs one or two tracks of different kinds; fix the caller"),
        (
            &Fmp4Error::TooLarge { samples: 8, bytes: 9 },
            "segment of 8 samples and 9 bytes is over the limit; cut earlier",
        ),
        (&Fmp4Error::Box("x".into()), "mp4 box cannot be written or read: x"),
        (
            &PlaylistError::Sequence { last: 4, given: 6 },
            "segment 6 cannot follow segment 4; list every segment in order",
        ),
        (
            &PlaylistError::Duration { duration_ns: 9, target_seconds: 2 },
            "segment of 9 ns does not fit the target duration of 2 s",
        ),
        (
            &PlaylistError::Name,
            "file name cannot stand in a playlist; use letters, digits, dots, dashes and underscores",
        ),
        (&PlaylistError::Ended, "segment cannot be listed after the end of its playlist"),
    ]);
}

#[test]
fn rtmp_texts() {
    check([
        (
            &RtmpError::Handshake(HandshakeError::Version(6)),
            "rtmp handshake: peer speaks version 6, not plain rtmp (3)",
        ),
        (
            &RtmpError::Chunk(ChunkError::MessageTooLong(9)),
            "rtmp chunk stream: peer announced a message of 9 bytes, more than the limit of 8388608",
        ),
        (&ChunkError::TooManyStreams, "peer uses too many chunk streams"),
        (&ChunkError::TooMuchUnfinished, "peer has too many bytes of unfinished messages"),
        (&ChunkError::NoPreviousHeader, "peer sent a short chunk header on a new chunk stream"),
        (&ChunkError::OutgoingTooLong(9), "message to send has 9 bytes, more than the limit of 8388608"),
        (
            &RtmpError::Message(MessageError::Truncated(3)),
            "rtmp control message: control message of type 3 is cut off",
        ),
        (&MessageError::ChunkSize, "peer set an impossible chunk size"),
        (&RtmpError::Amf0(Amf0Error::Truncated), "rtmp command: amf0 value is cut off"),
        (&Amf0Error::TooDeep, "amf0 values are nested too deep"),
        (&Amf0Error::TooMany, "too many amf0 values in one message"),
        (&Amf0Error::Marker(17), "amf0 type marker 0x11 is not supported"),
        (
            &RtmpError::NameTooLong { what: "app", bytes: 9 },
            "peer sent app of 9 bytes, more than the limit of 1024; connection closed",
        ),
        (
            &RtmpError::CommandTooLong { bytes: 9 },
            "peer sent a command of 9 bytes, more than the limit of 262144; connection closed",
        ),
        (
            &RtmpError::Order { what: "media", before: "publish" },
            "peer sent media before publish; connection closed",
        ),
        (&RtmpError::NoStreamId, "peer answered createStream without a valid stream id; connection closed"),
        (
            &RtmpError::HeldMediaFull,
            "peer sent too much media before its publish was decided; connection closed",
        ),
        (&RtmpError::TooManyStreams, "peer created too many message streams; connection closed"),
        (&RtmpError::TimestampRange, "peer sent a timestamp out of range; connection closed"),
        (&RtmpError::EventsFull, "too many events wait; poll events after every input"),
        (&RtmpError::OutputFull, "too many bytes wait to be written; write or close before sending more"),
        (
            &RtmpError::NoSuchRequest,
            "no publish request with this id is pending; it was decided or withdrawn",
        ),
        (&RtmpError::NotPublishing, "not publishing; wait for the Publishing event before sending"),
        (&RtmpError::Failed, "session already failed; close the connection"),
    ]);
}

#[test]
fn transport_stream_texts() {
    check([
        (
            &TsError::NoSync,
            "the bytes are no MPEG transport stream with packets of 188 bytes; choose MPEG-TS in the encoder",
        ),
        (&TsError::TimestampRange, "timestamps of the transport stream jump too far; restart the encoder"),
        (
            &MuxError::Codec(Codec::Av1),
            "av1 has no place in MPEG-TS; choose H.264 or HEVC with AAC or Opus in the encoder",
        ),
        (
            &MuxError::Record(CodecError::Truncated),
            "track cannot be sent in MPEG-TS: codec configuration record is cut off; the encoder must send a \
             valid configuration record",
        ),
        (
            &MuxError::Unsupported("x"),
            "track cannot be sent in MPEG-TS: x; choose another setting in the encoder",
        ),
        (
            &MuxError::NoConfiguration(Codec::H264),
            "h264 has no codec configuration yet; send the configuration before the media",
        ),
        (&MuxError::AccessUnit, "access unit is cut off; the encoder must send whole access units"),
        (
            &MuxError::TooLong(9),
            "packet of 9 bytes is too long for MPEG-TS; lower the bitrate in the encoder",
        ),
    ]);
}
