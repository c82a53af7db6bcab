//! The minutes of a session that are charged, slot by slot. Pure: times are arguments, nothing is posted here.
//!
//! Minute k runs from 60k to 60(k+1) seconds after the session's first media. It has as many slots as destinations that
//! forwarded at the same time in it; the first slots are free. When a minute opens, all destinations that forward take
//! slots, those that have forwarded longest first. Each destination that starts inside the minute takes one more slot,
//! unless another has stopped. A slot is charged once, for the destination that took it, whatever starts and stops
//! later.
//!
//! Charges are queued here until they are posted, oldest first and one at a time, so that a failing database neither
//! loses nor repeats any: the same charge, with its minute and slot, is returned until it is posted or refused.

use std::collections::VecDeque;
use std::time::Duration;

use satcast_core::ids::DestinationId;
use satcast_store::Slot;

pub const MINUTE: Duration = Duration::from_secs(60);

/// Most queued charges of a session: some hours without a database. Above this the session has to end, because no more
/// can be stored.
pub const WAITING_MAX: usize = 10_000;

/// Slots to be charged together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    /// Number of the minute, from 0.
    pub minute: u64,
    /// The slots of its opening, or the one slot of a destination that started inside the minute.
    pub opening: bool,
    /// At least one.
    pub slots: Vec<Slot>,
}

/// The minutes of one session.
#[derive(Debug)]
pub struct Minutes {
    /// Monotonic time of the first media, or of the return to this node.
    began: Duration,
    /// How long the session had lasted then.
    before: Duration,
    free: usize,
    /// Destinations that forward while media flows, those that have forwarded longest first.
    forwarding: Vec<DestinationId>,
    flows: bool,
    /// Minutes with queued charges, oldest first, and then the open minute.
    open: VecDeque<Minute>,
}

#[derive(Debug, Default)]
struct Minute {
    number: u64,
    /// The destination of each slot.
    slots: Vec<DestinationId>,
    /// Number of slots at the opening of the minute.
    opened: usize,
    /// Number of slots that are settled, free ones included.
    done: usize,
}

impl Minute {
    fn waiting(&self) -> usize {
        self.slots.len().saturating_sub(self.done)
    }
}

impl Minutes {
    /// Minute 0 is open and nothing forwards yet. The first `free` slots of each minute cost nothing.
    pub fn new(began: Duration, free: u32) -> Self {
        let free = usize::try_from(free).unwrap_or(usize::MAX);
        let first = Minute { done: free, ..Minute::default() };
        Self {
            began,
            before: Duration::ZERO,
            free,
            forwarding: Vec::new(),
            flows: true,
            open: VecDeque::from([first]),
        }
    }

    /// The same of a session that had lasted for `before` at another node. The minute that is open then begins again with
    /// its first slot: a slot that the other node has charged has the same name.
    pub fn resumed(began: Duration, before: Duration, free: u32) -> Self {
        Self { before, ..Self::new(began, free) }
    }

    /// Number of the open minute.
    pub fn number(&self) -> u64 {
        self.open.back().map_or(0, |minute| minute.number)
    }

    /// When the next one opens.
    pub fn next_opening(&self) -> Duration {
        let secs = self.number().saturating_add(1).saturating_mul(MINUTE.as_secs());
        self.began.saturating_add(Duration::from_secs(secs)).saturating_sub(self.before)
    }

    /// Destinations that forward now.
    pub fn forwarding(&self) -> usize {
        if self.flows { self.forwarding.len() } else { 0 }
    }

    /// Slots that a minute would charge with the destinations that forward now.
    pub fn paid(&self) -> usize {
        self.forwarding().saturating_sub(self.free)
    }

    /// Slots of the open minute that are taken or free: this many destinations may forward without a further charge.
    pub fn covered(&self) -> usize {
        self.open.back().map_or(0, |minute| minute.slots.len()).max(self.free)
    }

    /// Number of queued slots.
    pub fn waiting(&self) -> usize {
        self.open.iter().map(Minute::waiting).sum()
    }

    pub fn open_next(&mut self) {
        let slots = if self.flows { self.forwarding.clone() } else { Vec::new() };
        let number = self.number().saturating_add(1);
        if self.open.back().is_some_and(|minute| minute.waiting() == 0) {
            self.open.pop_back();
        }
        self.open.push_back(Minute { number, opened: slots.len(), slots, done: self.free });
    }

    pub fn starts(&mut self, destination: DestinationId) {
        if !self.forwarding.contains(&destination) {
            self.forwarding.push(destination);
            self.grow();
        }
    }

    pub fn pauses(&mut self, destination: DestinationId) {
        self.forwarding.retain(|id| *id != destination);
    }

    /// Media of the encoder flows or stops; without it nothing is forwarded.
    pub fn flows(&mut self, flows: bool) {
        self.flows = flows;
        self.grow();
    }

    /// Adds slots for destinations that forward beyond the slots taken.
    fn grow(&mut self) {
        let forwarding = self.forwarding();
        let Some(minute) = self.open.back_mut() else { return };
        for index in minute.slots.len()..forwarding {
            minute.slots.push(self.forwarding[index]);
        }
    }

    /// The charge to be posted now. It stays the same until it is [`posted`](Self::posted) or refused.
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

    pub fn posted(&mut self) {
        let Some(index) = self.open.iter().position(|minute| minute.waiting() > 0) else { return };
        let minute = &mut self.open[index];
        minute.done = if minute.done < minute.opened { minute.opened } else { minute.done + 1 };
        self.forget_done();
    }

    /// The due charge, of a destination that started inside a minute, is refused: the destination took no part and
    /// stops. Destinations that took later slots move up.
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
        self.pauses(destination);
        // A later destination may have used its slot.
        self.grow();
        self.forget_done();
        Some(destination)
    }

    /// Drops all queued charges.
    pub fn drop_queued(&mut self) {
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
