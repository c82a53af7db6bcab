//! Media in the child: packets that the host sent and the library has not read.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::thread::Thread;

use bytes::Bytes;
use parking_lot::Mutex;
use satcast_plugin_api::driver_state::{Reported, State as DriverState};
use satcast_plugin_api::host::{Delivery, DriverWaker, MediaSource, Recv};

use super::super::message::{Progress, Sent, UNREAD_BYTES_MAX, UNREAD_PACKETS_MAX};
use crate::run::pump::Pump;

/// Wakes the thread that sends the child's late reports; it may not run yet.
#[derive(Default)]
pub(super) struct Ticker(OnceLock<Thread>);

impl Ticker {
    /// Sets its thread.
    pub(super) fn runs_on(&self, thread: &Thread) {
        self.0.get_or_init(|| thread.clone());
    }

    /// Sends pending reports now.
    pub(super) fn report_soon(&self) {
        if let Some(ticker) = self.0.get() {
            ticker.unpark();
        }
    }
}

/// The queue of a destination for the library.
pub(super) struct RemoteQueue {
    pump: Arc<Pump>,
    ticker: Arc<Ticker>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    packets: VecDeque<Delivery>,
    waker: Option<DriverWaker>,
    is_over: bool,
    reported: Reported,
    /// Progress that was not reported to the host.
    progress: Progress,
}

impl State {
    /// Half of the unread packets were read, or many bytes were released: the report should not wait for the next
    /// tick.
    fn is_due(&self) -> bool {
        let Progress { packets, bytes, released, is_given_back, .. } = self.progress;
        is_given_back || packets >= UNREAD_PACKETS_MAX / 2 || bytes.max(released) >= UNREAD_BYTES_MAX / 2
    }
}

impl RemoteQueue {
    pub(super) fn new(pump: Arc<Pump>, ticker: Arc<Ticker>) -> Self {
        Self { pump, ticker, state: Mutex::default() }
    }

    pub(super) fn take(&self, packets: Vec<(Sent, Bytes)>) {
        let mut state = self.state.lock();
        if state.is_over {
            return;
        }
        for (Sent { mut packet, discontinuity, .. }, payload) in packets {
            // Not shared yet.
            if let Some(packet) = Arc::get_mut(&mut packet) {
                packet.payload = payload;
            }
            state.packets.push_back(Delivery { packet, discontinuity });
        }
        let waker = state.waker.take();
        drop(state);
        self.pump.wake(waker);
    }

    /// Whether a state of the library must be reported to the host.
    pub(super) fn is_news(&self, state: DriverState, has_reason: bool) -> bool {
        self.state.lock().reported.is_news(state, has_reason)
    }

    /// Media progress, if it was not reported to the host.
    pub(super) fn progress(&self, dest: u64) -> Option<Progress> {
        let progress = std::mem::take(&mut self.state.lock().progress);
        (progress != Progress::default()).then_some(Progress { dest, ..progress })
    }

    /// No more packets will come.
    pub(super) fn end(&self) {
        let mut state = self.state.lock();
        state.is_over = true;
        let waker = state.waker.take();
        drop(state);
        self.pump.wake(waker);
    }
}

impl MediaSource for RemoteQueue {
    fn recv(&self, max: usize, out: &mut Vec<Delivery>, waker: DriverWaker) -> Recv {
        let mut state = self.state.lock();
        if !state.packets.is_empty() {
            let count = state.packets.len().min(max);
            let from = out.len();
            out.extend(state.packets.drain(..count));
            state.progress.packets += count;
            state.progress.bytes += out[from..].iter().map(|it| it.packet.payload.len()).sum::<usize>();
            let is_due = state.is_due();
            drop(state);
            if is_due {
                self.ticker.report_soon();
            }
            return Recv::Ready;
        }
        if state.is_over {
            return Recv::Closed;
        }
        let old = state.waker.replace(waker);
        drop(state);
        // Foreign code: not under the lock.
        drop(old);
        Recv::Empty
    }

    fn released(&self, bytes: usize) {
        let mut state = self.state.lock();
        state.progress.released += bytes;
        let is_due = state.is_due();
        drop(state);
        if is_due {
            self.ticker.report_soon();
        }
    }

    fn abandoned(&self) {
        let mut state = self.state.lock();
        state.is_over = true;
        state.progress.is_given_back = true;
        let (packets, waker) = (std::mem::take(&mut state.packets), state.waker.take());
        drop(state);
        drop(packets);
        drop(waker);
        self.ticker.report_soon();
    }
}
