//! Which codecs a server accepts, and the refusal of others: a stream must not be sent to a server that drops it
//! silently.

use satcast_media::rtmp::client::ClientSession;
use satcast_plugin_api::{Codec, Error, Packet};

use crate::target::Target;

/// Codecs that a server accepts.
#[derive(Debug, Clone)]
pub(crate) enum CodecPolicy {
    /// H.264 and AAC, and the codecs of Enhanced RTMP that it announces.
    AsAnnounced,
    Known {
        codecs: Vec<String>,
        /// Name of the service in the refusal.
        service: String,
    },
    /// All codecs; the owner has set this.
    All,
}

impl CodecPolicy {
    pub(crate) fn is_known(&self) -> bool {
        matches!(self, CodecPolicy::Known { .. })
    }

    /// As [`CodecPolicy::check`] for the configurations in `packets`, before there is a session, where the codecs are
    /// known.
    pub(crate) fn check_known(&self, packets: &[Packet]) -> Result<(), Error> {
        let CodecPolicy::Known { codecs, service } = self else { return Ok(()) };
        let configs = packets.iter().filter(|packet| packet.is_config());
        configs.map(|config| config.codec).try_for_each(|codec| known(codecs, service, codec))
    }

    /// Whether media of `codec` may be sent.
    ///
    /// # Errors
    /// Class `Config`: only another encoder setting or another server helps.
    pub(crate) fn check(&self, codec: Codec, session: &ClientSession, target: &Target) -> Result<(), Error> {
        match self {
            CodecPolicy::Known { codecs, service } => known(codecs, service, codec),
            _ if self.takes(codec, session) => Ok(()),
            _ => Err(not_announced(target, codec)),
        }
    }

    pub(crate) fn takes(&self, codec: Codec, session: &ClientSession) -> bool {
        match self {
            CodecPolicy::All => true,
            CodecPolicy::AsAnnounced => session.takes(codec),
            CodecPolicy::Known { codecs, service } => known(codecs, service, codec).is_ok(),
        }
    }
}

fn not_announced(target: &Target, codec: Codec) -> Error {
    let (sent, instead) = (shown(codec), instead(codec));
    Error::config(format!(
        "destination {target} does not accept {sent}; send {instead}, or set forceEnhanced if it takes Enhanced RTMP \
         without saying so"
    ))
}

fn known(codecs: &[String], service: &str, codec: Codec) -> Result<(), Error> {
    if codecs.iter().any(|known| known == codec.name()) {
        return Ok(());
    }
    let (sent, instead) = (shown(codec), instead(codec));
    Err(Error::config(format!("destination {service} does not accept {sent}; send {instead}")))
}

fn shown(codec: Codec) -> &'static str {
    match codec {
        Codec::H264 => "H.264",
        Codec::Hevc => "HEVC",
        Codec::Av1 => "AV1",
        Codec::Aac => "AAC",
        Codec::Opus => "Opus",
    }
}

/// The codec that every server accepts instead.
fn instead(codec: Codec) -> &'static str {
    match codec {
        Codec::H264 | Codec::Hevc | Codec::Av1 => "H.264",
        Codec::Aac | Codec::Opus => "AAC",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_texts() {
        let target = Target::parse("rtmp://a.example/live/sesame", None).unwrap();
        let text = "destination a.example:1935 does not accept AV1; send H.264, or set forceEnhanced if it takes Enhanced \
                    RTMP without saying so";
        assert_eq!(not_announced(&target, Codec::Av1), Error::config(text));
        let refused = known(&["h264".to_owned()], "Twitch", Codec::Opus).unwrap_err();
        assert_eq!(refused, Error::config("destination Twitch does not accept Opus; send AAC"));
    }
}
