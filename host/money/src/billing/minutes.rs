//! Which minutes of a session are to be charged, slot by slot. Pure: times are arguments, nothing is posted here.
//!
//! Minute k runs from 60k to 60(k+1) seconds after the session's first media. Its slots are as many as destinations forwarded
//! at one time in it; the first ones are free. When a minute opens, all destinations that forward take slots, those that have
//! forwarded for longest first; each that comes inside it takes one more unless another has left. A slot is charged once,
//! for the destination that took it, whatever comes and goes after.
//!
//! Charges wait here until somebody posts them, oldest first and one at a time, so that a database which fails neither loses
//! nor repeats any: they are asked for again, under the same minute and slot, until they are posted or refused.

use std::collections::VecDeque;
use std::time::Duration;

use satcast_core::ids::DestinationId;
use satcast_store::Slot;

/// Length of a minute.
pub const MINUTE: Duration = Duration::from_secs(60);

/// Charges of a session that wait to be posted, at most: what some hours without a database come to. Over it the session has
/// to end, as nothing more can be kept.
pub const WAITING_MAX: usize = 10_000;

/// Slots to be charged together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    /// Number of the minute, from 0.
    pub minute: u64,
    /// The slots of its opening; otherwise the one of a destination that came inside the minute.
    pub opening: bool,
    /// At least one.
    pub slots: Vec<Slot>,
}

/// The minutes of one session.
#[derive(Debug)]
pub struct Minutes {
    /// Monotonic time of the first media.
    began: Duration,
    free: usize,
    /// Destinations that forward while media flows, those that have for longest first.
    forwarding: Vec<DestinationId>,
    flows: bool,
    /// Minutes with charges that wait, oldest first, and behind them the one that is open.
    open: VecDeque<Minute>,
}

#[derive(Debug, Default)]
struct Minute {
    number: u64,
    /// Who took each slot.
    slots: Vec<DestinationId>,
    /// So many of them when the minute opened.
    opened: usize,
    /// So many are done with, free ones included.
    done: usize,
}

impl Minute {
    fn waiting(&self) -> usize {
        self.slots.len().saturating_sub(self.done)
    }
}

impl Minutes {
    /// Minute 0 is open; nothing forwards yet. The first `free` slots of each minute cost nothing.
    pub fn new(began: Duration, free: u32) -> Self {
        let free = usize::try_from(free).unwrap_or(usize::MAX);
        let first = Minute { done: free, ..Minute::default() };
        Self { began, free, forwarding: Vec::new(), flows: true, open: VecDeque::from([first]) }
    }

    /// Number of the minute that is open.
    pub fn number(&self) -> u64 {
        self.open.back().map_or(0, |minute| minute.number)
    }

    /// When the next one opens.
    pub fn next_opening(&self) -> Duration {
        let secs = self.number().saturating_add(1).saturating_mul(MINUTE.as_secs());
        self.began.saturating_add(Duration::from_secs(secs))
    }

    /// Destinations that forward now.
    pub fn forwarding(&self) -> usize {
        if self.flows { self.forwarding.len() } else { 0 }
    }

    /// Slots that a minute would charge with the destinations that forward now.
    pub fn paid(&self) -> usize {
        self.forwarding().saturating_sub(self.free)
    }

    /// Slots of the open minute that are taken or free: so many may forward without a further charge.
    pub fn covered(&self) -> usize {
        self.open.back().map_or(0, |minute| minute.slots.len()).max(self.free)
    }

    /// Slots that wait to be charged.
    pub fn waiting(&self) -> usize {
        self.open.iter().map(Minute::waiting).sum()
    }

    /// Opens the next minute.
    pub fn open_next(&mut self) {
        let slots = if self.flows { self.forwarding.clone() } else { Vec::new() };
        let number = self.number().saturating_add(1);
        if self.open.back().is_some_and(|minute| minute.waiting() == 0) {
            self.open.pop_back();
        }
        self.open.push_back(Minute { number, opened: slots.len(), slots, done: self.free });
    }

    /// A destination forwards from now on.
    pub fn starts(&mut self, destination: DestinationId) {
        if !self.forwarding.contains(&destination) {
            self.forwarding.push(destination);
            self.grow();
        }
    }

    /// A destination no longer forwards.
    pub fn rests(&mut self, destination: DestinationId) {
        self.forwarding.retain(|id| *id != destination);
    }

    /// Media of the encoder comes, or not: without it nothing is forwarded.
    pub fn flows(&mut self, flows: bool) {
        self.flows = flows;
        self.grow();
    }

    /// Gives slots to those that forward beyond the slots taken.
    fn grow(&mut self) {
        let forwarding = self.forwarding();
        let Some(minute) = self.open.back_mut() else { return };
        for index in minute.slots.len()..forwarding {
            minute.slots.push(self.forwarding[index]);
        }
    }

    /// The charge that is to be posted now. The same until it is [`posted`](Self::posted) or refused.
    pub fn due(&self) -> Option<Due> {
        let minute = self.open.iter().find(|minute| minute.waiting() > 0)?;
        let opening = minute.done < minute.opened;
        let end = if opening { minute.opened } else { minute.done + 1 };
        let slot = |index: usize| Slot {
            slot: u32::try_from(index).unwrap_or(u32::MAX),
            destination: minute.slots[index],
        };
        Some(Due { minute: minute.number, opening, slots: (minute.done..end).map(slot).collect() })
    }

    /// The charge that was due is posted.
    pub fn posted(&mut self) {
        let Some(index) = self.open.iter().position(|minute| minute.waiting() > 0) else { return };
        let minute = &mut self.open[index];
        minute.done = if minute.done < minute.opened { minute.opened } else { minute.done + 1 };
        self.forget_done();
    }

    /// The charge that was due for a destination inside a minute is refused: it did not take part, and does not from now on.
    /// Others that took slots after it move up.
    pub fn refused(&mut self) -> Option<DestinationId> {
        let first = self.open.iter().position(|minute| minute.waiting() > 0)?;
        if self.open[first].done < self.open[first].opened {
            return None;
        }
        let done = self.open[first].done;
        let destination = self.open[first].slots.remove(done);
        for minute in self.open.iter_mut().skip(first + 1) {
            if let Some(index) = minute.slots.iter().position(|id| *id == destination) {
                minute.slots.remove(index);
                minute.opened -= usize::from(index < minute.opened);
            }
        }
        self.rests(destination);
        // One that came after it may have stood in its slot.
        self.grow();
        self.forget_done();
        Some(destination)
    }

    /// Nothing that waits will be posted any more.
    pub fn forgive(&mut self) {
        let number = self.number();
        self.open.clear();
        self.open.push_back(Minute { number, done: self.free, ..Minute::default() });
        self.forwarding.clear();
    }

    fn forget_done(&mut self) {
        while self.open.len() > 1 && self.open.front().is_some_and(|minute| minute.waiting() == 0) {
            self.open.pop_front();
        }
    }
}
