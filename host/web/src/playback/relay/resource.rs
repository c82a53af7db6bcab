//! What a node asks the owner of a session for: the address below `/node/hls/`, which both sides write and read here.

use std::fmt::Write as _;
use std::time::Duration;

use satcast_plugin_api::Audience;
use url::form_urlencoded;

use satcast_core::ids::{DestinationId, StreamId};

/// Prefix of these addresses.
pub(crate) const PREFIX: &str = "/node/hls/";
/// Directives of a player that the owner answers, in the order of the address.
const DIRECTIVES: [&str; 3] = ["_HLS_msn", "_HLS_part", "_HLS_skip"];
/// Longest value of a directive that is passed on as it is.
const WORD_BYTES_MAX: usize = 3;
/// Stands for the session that is live.
const LIVE: &str = "-";

/// The content of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::playback) enum What<'a> {
    /// The playlist that viewers load first.
    Entry,
    Poster,
    /// A published asset, as the directives in `query` ask for it; `player`: for a media player, which waits for whole segments.
    Asset {
        name: &'a str,
        query: &'a str,
        player: bool,
    },
    /// The answer of the driver.
    Driver {
        path: &'a str,
        query: &'a str,
    },
}

/// Content of a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::playback) struct Resource<'a> {
    pub(in crate::playback) stream: StreamId,
    pub(in crate::playback) destination: DestinationId,
    /// `None`: the session that is live.
    pub(in crate::playback) session: Option<&'a str>,
    /// Hosted or preview.
    pub(in crate::playback) audience: Audience,
    pub(in crate::playback) what: What<'a>,
}

impl<'a> Resource<'a> {
    /// The address, which is the same for all viewers that get the same answer.
    pub(super) fn address(&self) -> String {
        let audience = if self.audience == Audience::Preview { "preview" } else { "hosted" };
        let (stream, destination) = (self.stream.0, self.destination.0);
        let mut text = format!("{PREFIX}{stream}/{destination}/{}/{audience}/", self.session.unwrap_or(LIVE));
        match self.what {
            What::Entry => text.push_str("entry?"),
            What::Poster => text.push_str("poster?"),
            What::Driver { path, query } => {
                let _ = write!(text, "driver/{path}?{query}");
            }
            What::Asset { name, query, player } => {
                let _ = write!(text, "asset/{name}?");
                let mut pairs = form_urlencoded::Serializer::new(String::new());
                for directive in DIRECTIVES {
                    let mut all = form_urlencoded::parse(query.as_bytes());
                    if let Some((name, value)) = all.find(|(name, _)| name == directive) {
                        pairs.append_pair(&name, &plain(&value));
                    }
                }
                if player {
                    pairs.append_pair("player", "1");
                }
                text.push_str(&pairs.finish());
            }
        }
        text
    }

    /// The resource at an address, without and with its query.
    pub(in crate::playback) fn parse(path: &'a str, query: &'a str) -> Option<Self> {
        let mut parts = path.strip_prefix(PREFIX)?.splitn(6, '/');
        let stream = StreamId(parts.next()?.parse().ok()?);
        let destination = DestinationId(parts.next()?.parse().ok()?);
        let session = parts.next().filter(|session| !session.is_empty())?;
        let audience = match parts.next()? {
            "hosted" => Audience::Hosted,
            "preview" => Audience::Preview,
            _ => return None,
        };
        let what = match (parts.next()?, parts.next()) {
            ("entry", None) => What::Entry,
            ("poster", None) => What::Poster,
            ("asset", Some(name)) if !name.is_empty() => {
                let player = form_urlencoded::parse(query.as_bytes()).any(|(name, _)| name == "player");
                What::Asset { name, query, player }
            }
            ("driver", Some(path)) => What::Driver { path, query },
            _ => return None,
        };
        let session = Some(session).filter(|session| *session != LIVE);
        Some(Self { stream, destination, session, audience, what })
    }
}

/// One spelling of each value, because the address is the name of a copy: a number without zeros before it, or a short word. The owner
/// refuses all others as it refuses `-`.
fn plain(value: &str) -> String {
    let is_number = value.bytes().all(|byte| byte.is_ascii_digit());
    match value.parse::<u64>() {
        Ok(number) if is_number => number.to_string(),
        _ if value.len() <= WORD_BYTES_MAX => value.to_owned(),
        _ => "-".to_owned(),
    }
}

/// What a node says with its resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::playback) struct Report {
    /// Its name, and the players that it counts.
    pub(in crate::playback) viewers: Option<(String, u64)>,
    /// How long its viewers have waited for this answer.
    pub(in crate::playback) waited: Duration,
}

impl Report {
    /// The address with this in its query.
    pub(super) fn beside(&self, address: &str) -> String {
        let mut text = format!("{address}&waited={}", self.waited.as_millis());
        if let Some((node, viewers)) = &self.viewers {
            let _ = write!(text, "&viewers={viewers}&node={node}");
        }
        text
    }

    pub(in crate::playback) fn parse(query: &str) -> Self {
        let (mut node, mut viewers, mut report) = (None, None, Self::default());
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            match &*name {
                "node" => node = Some(value.into_owned()),
                "viewers" => viewers = value.parse().ok(),
                "waited" => report.waited = Duration::from_millis(value.parse().unwrap_or(0)),
                _ => {}
            }
        }
        Self { viewers: node.zip(viewers), ..report }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource<'a>(session: Option<&'a str>, audience: Audience, what: What<'a>) -> Resource<'a> {
        Resource { stream: StreamId(7), destination: DestinationId(9), session, audience, what }
    }

    #[test]
    fn an_address_is_read_as_it_was_written() {
        let query = "_HLS_msn=5&_HLS_part=2";
        for what in [
            What::Entry,
            What::Poster,
            What::Asset { name: "media.m3u8", query, player: false },
            What::Asset { name: "a/b.m4s", query: "player=1", player: true },
            What::Driver { path: "thumb/1.jpg", query: "a=1&b=%20" },
        ] {
            for session in [None, Some("ses_x")] {
                for audience in [Audience::Hosted, Audience::Preview] {
                    let address = resource(session, audience, what).address();
                    let (path, query) = address.split_once('?').unwrap();
                    assert_eq!(
                        Resource::parse(path, query),
                        Some(resource(session, audience, what)),
                        "{address}"
                    );
                }
            }
        }
        for other in ["", "x/9/-/hosted/entry", "7/9/-/all/entry", "7/9/-/hosted/asset", "7/9//hosted/entry"]
        {
            assert_eq!(Resource::parse(&format!("{PREFIX}{other}"), ""), None, "{other}");
        }
    }

    #[test]
    fn viewers_that_get_the_same_answer_have_one_address() {
        let of = |query| {
            let what = What::Asset { name: "media.m3u8", query, player: false };
            resource(Some("s"), Audience::Hosted, what).address()
        };
        assert_eq!(
            of("_HLS_part=2&x=1&_HLS_msn=5&_HLS_skip=YES"),
            of("_HLS_msn=5&_HLS_part=2&_HLS_skip=YES")
        );
        assert_eq!(of("x=1"), of(""));
        assert_ne!(of("_HLS_msn=5"), of("_HLS_msn=6"));
        assert_eq!(of("_HLS_msn=0005"), of("_HLS_msn=5"));
        let [digits, letters] = ["7", "x"].map(|text| format!("_HLS_msn={}", text.repeat(1_000)));
        assert_eq!(of(&digits), of(&letters), "one address for all that is refused");
    }

    #[test]
    fn a_node_says_its_viewers_and_its_wait() {
        let report = Report { viewers: Some(("b-1".into(), 20)), waited: Duration::from_millis(1_500) };
        let address = report.beside(&resource(None, Audience::Hosted, What::Entry).address());
        assert_eq!(Report::parse(address.split_once('?').unwrap().1), report);
        assert_eq!(Report::parse("node=a&waited=x"), Report::default(), "no count");
    }
}
