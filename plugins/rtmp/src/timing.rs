//! How long a push waits for what.

use std::time::Duration;

/// Time limits of one push; tests shorten them.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// Connecting, handshake, connect and publish together.
    pub setup: Duration,
    /// Bytes wait and the server acknowledges none: the destination counts as not live. It is again when it has gone on for as long.
    pub stalled: Duration,
    /// Bytes wait and the server acknowledges none: the connection is given up. Above `stalled`.
    pub unread_max: Duration,
    /// No media comes: the destination counts as not live; the connection stays.
    pub media_silent: Duration,
    /// From the request to end until the last bytes are written and the server has closed its side.
    pub flush: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Timing {
            setup: Duration::from_secs(10),
            stalled: Duration::from_secs(5),
            unread_max: Duration::from_secs(15),
            media_silent: Duration::from_secs(5),
            // Half of what the host grants a destination to end.
            flush: Duration::from_secs(1),
        }
    }
}
