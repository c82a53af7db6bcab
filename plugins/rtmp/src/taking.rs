//! Which codecs a server takes, and what is said of one that it does not: a stream that goes out and arrives nowhere is the worst.

use satcast_media::rtmp::client::ClientSession;
use satcast_plugin_api::{Codec, Error, Packet};

use crate::target::Target;

/// Which codecs a server takes.
#[derive(Debug, Clone)]
pub(crate) enum Taking {
    /// H.264 and AAC, and what it announces of Enhanced RTMP.
    AsAnnounced,
    /// These, by name.
    Known {
        codecs: Vec<String>,
        /// Whom the refusal names.
        who: String,
    },
    /// All, as its owner says.
    All,
}

impl Taking {
    /// The codecs do not depend on what the server announces.
    pub(crate) fn is_known(&self) -> bool {
        matches!(self, Taking::Known { .. })
    }

    /// As [`Taking::check`] for the configurations in `packets`, before there is a session, where the codecs are known.
    pub(crate) fn check_known(&self, packets: &[Packet]) -> Result<(), Error> {
        let Taking::Known { codecs, who } = self else { return Ok(()) };
        let configs = packets.iter().filter(|packet| packet.is_config());
        configs.map(|config| config.codec).try_for_each(|codec| known(codecs, who, codec))
    }

    /// Whether media of `codec` may be sent.
    ///
    /// # Errors
    /// Class `Config`: nothing but another encoder setting or another server mends it.
    pub(crate) fn check(&self, codec: Codec, session: &ClientSession, target: &Target) -> Result<(), Error> {
        match self {
            Taking::All => Ok(()),
            Taking::AsAnnounced if session.takes(codec) => Ok(()),
            Taking::AsAnnounced => Err(not_announced(target, codec)),
            Taking::Known { codecs, who } => known(codecs, who, codec),
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

fn known(codecs: &[String], who: &str, codec: Codec) -> Result<(), Error> {
    if codecs.iter().any(|known| known == codec.name()) {
        return Ok(());
    }
    let (sent, instead) = (shown(codec), instead(codec));
    Err(Error::config(format!("destination {who} does not accept {sent}; send {instead}")))
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

/// What every server takes in its place.
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
