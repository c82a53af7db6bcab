//! Addresses for encoders.

use std::net::SocketAddr;

use url::Url;

/// The RTMP application that encoders publish to.
const RTMP_APP: &str = "live";

/// Where WHIP encoders send their offers.
pub const WHIP_PATH: &str = "/whip";

/// Servers for encoders: their addresses without a stream key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IngestAddresses {
    pub rtmp: String,
    /// RTMP over TLS; `None` when it is not served.
    pub rtmps: Option<String>,
    /// SRT; `None` when it is not served.
    pub srt: Option<String>,
    /// WHIP, on the HTTP port; `None` when it is not served.
    pub whip: Option<String>,
}

impl IngestAddresses {
    /// Addresses of the listeners of a service with this `public_url`.
    ///
    /// Encoders connect to the host of `public_url`, at the port of the listener. If that host is this machine only, they connect to
    /// the address of the listener, unless it accepts on every address. WHIP encoders begin at `public_url` itself.
    pub fn new(
        public_url: &Url,
        rtmp: SocketAddr,
        rtmps: Option<SocketAddr>,
        srt: Option<SocketAddr>,
        whip: bool,
    ) -> Self {
        let address = |scheme: &str, listener: SocketAddr| match public_url.host_str() {
            Some(host) if !is_local(public_url) || listener.ip().is_unspecified() => {
                format!("{scheme}://{host}:{}", listener.port())
            }
            _ => format!("{scheme}://{listener}"),
        };
        let with_app =
            |scheme: &str, listener: SocketAddr| format!("{}/{RTMP_APP}", address(scheme, listener));
        Self {
            rtmp: with_app("rtmp", rtmp),
            rtmps: rtmps.map(|listener| with_app("rtmps", listener)),
            srt: srt.map(|listener| address("srt", listener)),
            whip: whip.then(|| format!("{}{WHIP_PATH}", public_url.as_str().trim_end_matches('/'))),
        }
    }
}

/// Whether a URL reaches this machine only.
pub(super) fn is_local(url: &Url) -> bool {
    matches!(url.host_str(), Some("127.0.0.1" | "localhost" | "[::1]"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rtmp(public_url: &str, listener: &str) -> String {
        IngestAddresses::new(&public_url.parse().unwrap(), listener.parse().unwrap(), None, None, false).rtmp
    }

    #[test]
    fn encoders_get_the_address_that_they_can_reach() {
        for (public_url, listener, expected) in [
            ("http://127.0.0.1:8080", "127.0.0.1:1935", "rtmp://127.0.0.1:1935/live"),
            ("http://127.0.0.1:8080", "192.0.2.7:1940", "rtmp://192.0.2.7:1940/live"),
            ("http://localhost:8080", "0.0.0.0:1935", "rtmp://localhost:1935/live"),
            ("http://[::1]:8080", "[::]:1935", "rtmp://[::1]:1935/live"),
            ("https://live.example.com", "0.0.0.0:1935", "rtmp://live.example.com:1935/live"),
            ("https://live.example.com", "10.0.0.5:1940", "rtmp://live.example.com:1940/live"),
            ("https://[2001:db8::7]:8443", "[::]:1935", "rtmp://[2001:db8::7]:1935/live"),
        ] {
            assert_eq!(rtmp(public_url, listener), expected, "{public_url} with {listener}");
        }
    }

    #[test]
    fn rtmps_and_srt_have_their_own_ports_and_whip_has_that_of_http() {
        let public_url = "https://live.example.com".parse().unwrap();
        let [rtmp, rtmps, srt] =
            ["0.0.0.0:1935", "0.0.0.0:1936", "0.0.0.0:8890"].map(|listener| listener.parse().unwrap());
        let addresses = IngestAddresses::new(&public_url, rtmp, Some(rtmps), Some(srt), true);
        assert_eq!(addresses.whip.as_deref(), Some("https://live.example.com/whip"));
        assert_eq!(addresses.srt.as_deref(), Some("srt://live.example.com:8890"));
        assert_eq!(addresses.rtmps.as_deref(), Some("rtmps://live.example.com:1936/live"));
        let none = IngestAddresses::new(&public_url, rtmp, None, None, false);
        assert_eq!((none.rtmps, none.srt, none.whip), (None, None, None));
    }
}
