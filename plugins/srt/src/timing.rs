//! Time limits of a destination.

use std::time::Duration;

/// Time limits; tests shorten them.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// Looking up the name, and both handshakes.
    pub setup: Duration,
    /// Media was sent and the receiver acknowledges none of it: the connection is given up.
    pub stalled: Duration,
    /// No media arrives: the destination counts as not live; the connection stays.
    pub media_silent: Duration,
    /// From the request to stop until the receiver has the last packets, and its program too.
    pub flush: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Timing {
            setup: Duration::from_secs(10),
            // SRT ends a connection without any answer after the same time.
            stalled: Duration::from_secs(5),
            media_silent: Duration::from_secs(5),
            // The host gives a destination two seconds to stop. The default latency fits into it.
            flush: Duration::from_millis(1_600),
        }
    }
}
