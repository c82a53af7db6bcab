//! Charges: minutes of destinations, playback above the allowance, and single ones; each posting and everything that
//! follows from it in one transaction.

use satcast_core::ids::{AccountId, DestinationId, EndReason, Msat, SessionId, UnixMillis};

/// The prices a session begins with. The default costs nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// Of a paid destination and minute, zero or more.
    pub price: Msat,
    /// Destinations that cost nothing.
    pub free: u32,
}

/// A destination that pays for a slot of a minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The slot; together with the session and the minute it is charged once for ever.
    pub slot: u32,
    /// The destination that made the number of forwarding ones reach it.
    pub destination: DestinationId,
}

/// Slots of one minute, charged together or not at all.
#[derive(Clone, Debug)]
pub struct MinuteCharge {
    /// The session.
    pub session: SessionId,
    /// Number of the minute in the session, from 0.
    pub minute: u64,
    /// At least one.
    pub slots: Vec<Slot>,
    /// Of each slot, above zero.
    pub price: Msat,
    /// What the session may cost in all.
    pub budget: Option<Msat>,
    /// When.
    pub now: UnixMillis,
}

/// What is known after a charge was tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Totals {
    /// What the session has been charged.
    pub charged: Msat,
    /// What the account has left.
    pub balance: Msat,
}

/// How a charge went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Charged {
    /// It is posted, now or by an earlier try.
    Posted(Totals),
    /// The session would cost more than it may; nothing was posted.
    OverBudget(Totals),
    /// The account has too little; nothing was posted.
    Insufficient(Totals),
    /// The session does not exist, or another start of the service ended it as interrupted; nothing was posted.
    NotOurs,
}

/// A charge for one thing.
#[derive(Clone, Debug)]
pub struct SingleCharge {
    /// Who pays.
    pub account: AccountId,
    /// Millisats, above zero.
    pub amount: Msat,
    /// What for; one lower-case word.
    pub kind: &'static str,
    /// Unique for ever: charging the same name again changes nothing.
    pub idem: String,
    /// The destination it is about.
    pub destination: Option<DestinationId>,
    /// When.
    pub now: UnixMillis,
}

/// Price of playback above the allowance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HourTerms {
    /// Millisats per GB (10^9 bytes), zero or more.
    pub price_per_gb: Msat,
    /// Bytes of an account and clock hour that cost nothing.
    pub limit_bytes: u64,
}

/// An account's clock hour in the transaction that charges it.
#[derive(Clone, Debug)]
pub struct HourFacts {
    /// The price in force at the first pass over the hour.
    pub terms: HourTerms,
    /// Bytes of the hour.
    pub bytes: u64,
    /// Charged for the hour so far.
    pub charged: Msat,
    /// Waived of the hour so far.
    pub waived: Msat,
    /// What the account has left.
    pub balance: Msat,
    /// Who served since the last pass, lowest session first.
    pub served: Vec<Served>,
}

/// Bytes of one destination since the last pass.
#[derive(Clone, Debug)]
pub struct Served {
    /// The session they belong to: the newest one of the destination.
    pub session: Option<ServingSession>,
    /// The destination.
    pub destination: DestinationId,
    /// How many.
    pub bytes: u64,
}

/// The session that bytes belong to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServingSession {
    /// Its id.
    pub id: SessionId,
    /// What it was charged so far.
    pub charged: Msat,
    /// What it may cost in all, while it runs.
    pub budget: Option<Msat>,
    /// Whether it runs.
    pub running: bool,
}

/// What one destination's bytes come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OveragePart {
    /// The session.
    pub session: Option<SessionId>,
    /// The destination.
    pub destination: DestinationId,
    /// Taken from the balance.
    pub charge: Msat,
    /// Never taken.
    pub waive: Msat,
}

/// What a pass over an hour decides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HourDecision {
    /// At most one for each destination.
    pub parts: Vec<OveragePart>,
    /// Sessions that end because of it.
    pub ends: Vec<(SessionId, EndReason)>,
}

/// What a pass over an hour did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HourOutcome {
    /// The decision.
    pub decision: HourDecision,
    /// New totals of the sessions in it.
    pub totals: Vec<(SessionId, Totals)>,
}

/// Decides about an hour; no I/O, no clock.
pub type Decide<'a> = &'a (dyn Fn(&HourFacts) -> HourDecision + Send + Sync);

/// A line of an account's statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatementEntry {
    /// Its id.
    pub id: i64,
    /// When it was posted.
    pub at: UnixMillis,
    /// What it is for.
    pub kind: String,
    /// Above zero when the account got it, below when it paid.
    pub amount: Msat,
    /// The session.
    pub session: Option<SessionId>,
    /// The destination.
    pub destination: Option<DestinationId>,
    /// The session's minute, from 0.
    pub minute: Option<i64>,
    /// The clock hour of the bytes.
    pub hour: Option<UnixMillis>,
    /// The recording whose retry was paid or given back.
    pub file_name: Option<String>,
}
