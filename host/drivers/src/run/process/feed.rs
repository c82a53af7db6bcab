//! The media of one destination of a child: packets that were sent, and those that the library has not read.

use std::sync::Arc;

use parking_lot::Mutex;
use satcast_plugin_api::host::MediaSource;

use super::limits::{UNREAD_BYTES_MAX, UNREAD_PACKETS_MAX};

pub(super) struct Feed {
    pub(super) account: i64,
    pub(super) source: Arc<dyn MediaSource>,
    pub(super) out: Mutex<Out>,
}

/// Packets that were sent.
#[derive(Default)]
pub(super) struct Out {
    /// Not read yet.
    pub(super) packets: usize,
    pub(super) bytes: usize,
    /// Bytes that were not released yet.
    pub(super) held: usize,
    /// Nothing more is sent.
    pub(super) is_over: bool,
}

impl Out {
    pub(super) fn free_packets(&self) -> usize {
        let is_full = self.is_over || self.bytes >= UNREAD_BYTES_MAX;
        if is_full { 0 } else { UNREAD_PACKETS_MAX.saturating_sub(self.packets) }
    }
}

impl Feed {
    pub(super) fn new(account: i64, source: Arc<dyn MediaSource>) -> Self {
        Self { account, source, out: Mutex::default() }
    }

    /// Gives the queue back, and the packets that were taken from it.
    pub(super) fn leave(&self) {
        let held = {
            let mut out = self.out.lock();
            out.is_over = true;
            std::mem::take(&mut out.held)
        };
        // Not under the lock: it may hand over more.
        self.source.released(held);
        self.source.abandoned();
    }
}
