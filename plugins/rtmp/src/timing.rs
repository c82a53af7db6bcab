//! Time limits of a push.

use std::time::Duration;

/// Time limits of one push; tests shorten them.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// Connecting, handshake, connect and publish together.
    pub setup: Duration,
    /// Bytes are waiting and the server acknowledges none: the destination counts as not live. It is live again after
    /// the server has taken data for this long.
    pub stalled: Duration,
    /// Bytes are waiting and the server acknowledges none: the connection is given up. Above `stalled`.
    pub unread_max: Duration,
    /// No media arrives: the destination counts as not live; the connection stays.
    pub media_silent: Duration,
    /// From the request to stop until the last bytes are written and the server has closed its side.
    pub flush: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Timing {
            setup: Duration::from_secs(10),
            stalled: Duration::from_secs(5),
            unread_max: Duration::from_secs(15),
            media_silent: Duration::from_secs(5),
            // Half of the time that the host gives a destination to stop.
            flush: Duration::from_secs(1),
        }
    }
}
