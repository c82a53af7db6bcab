//! Retention: which recordings leave the store, and when.
//!
//! The rules of a destination (days, gigabytes) give each confirmed recording its time of deletion ([`plan`]). The host
//! tells the owner first and confirms the time (`announced`); without that nothing is deleted. A recording that is read
//! stays. A deletion is repeated until the store confirms it, and the journal keeps the recording until then.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use satcast_plugin_api::recording::EXPIRY_NOTICE_MS;
use satcast_plugin_api::{Class, Error};

use crate::core::Core;
use crate::entry::{Bucket, Entry, State};
use crate::limits::{READ_LONGEST, READ_PAUSE, RETENTION_AT_ONCE, millis};
use crate::rules::{Bounds, Rules};
use crate::table::{Data, Item};

const DAY_MS: i64 = 24 * 3600 * 1000;
const GIGABYTE: u64 = 1_000_000_000;

/// The rules that apply to a recording.
pub(crate) fn rules(core: &Core, entry: &Entry) -> Rules {
    bound(&core.limits.bounds, entry, entry.rules())
}

fn bound(bounds: &Bounds, entry: &Entry, own: Rules) -> Rules {
    if is_operators(entry) { bounds.bind(own) } else { own }
}

fn is_operators(entry: &Entry) -> bool {
    matches!(entry.bucket, Bucket::Operators(_))
}

/// Gives a recording the current rules of its destination.
///
/// # Errors
/// `Internal` when the journal cannot be written.
pub(crate) async fn follow(core: &Arc<Core>, item: &Arc<Item>, rules: Rules) -> Result<(), Error> {
    let bounds = &core.limits.bounds;
    let next = {
        let data = item.data();
        let next = followed(bounds, &data.entry, rules);
        (next != data.entry.rules()).then_some(next)
    };
    match next {
        None => Ok(()),
        Some(next) => core.table.change(item, |data| data.entry.set_rules(next)).await,
    }
}

/// The size applies to all recordings, and days only if they are more: nothing is deleted earlier than at the time of
/// recording was said.
fn followed(bounds: &Bounds, entry: &Entry, rules: Rules) -> Rules {
    let own = entry.rules();
    let days = |rules: Rules| bound(bounds, entry, rules).days.unwrap_or(u32::MAX);
    let is_longer = days(rules) > days(own);
    Rules { days: if is_longer { rules.days } else { own.days }, ..rules }
}

/// What the plan needs to know of a recording.
#[derive(Debug, Clone, Copy)]
struct Kept {
    started_at_ms: i64,
    bytes: u64,
    stage: Stage,
    days: Option<u32>,
    expires_at_ms: Option<i64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The store has it.
    Confirmed,
    /// It is recorded or uploaded.
    Coming,
    /// It does not count: it failed, is deleted, or only its owner deletes it.
    Other,
}

/// The future of a recording.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Planned {
    /// When it is to be deleted.
    expires_at_ms: Option<i64>,
    /// A rule is broken if it stays. A recording that is only coming breaks none yet.
    may_go: bool,
}

/// Decides for the recordings of one destination in one store, the oldest first. No I/O, no clock.
///
/// For their size, recordings are planned for deletion as soon as those that are coming leave them no room; the owner
/// has the time of the notice from then on.
fn plan(kept: &[Kept], bytes_max: Option<u64>, now_ms: i64) -> Vec<Planned> {
    let bytes_max = bytes_max.unwrap_or(u64::MAX);
    let sum = |counts: fn(Stage) -> bool| {
        kept.iter().filter(|one| counts(one.stage)).fold(0_u64, |sum, one| sum.saturating_add(one.bytes))
    };
    let mut expected = sum(|stage| stage != Stage::Other);
    let mut confirmed = sum(|stage| stage == Stage::Confirmed);
    let decide = |one: &Kept| {
        if one.stage != Stage::Confirmed {
            return Planned::default();
        }
        let by_days = one.days.map(|days| one.started_at_ms.saturating_add(i64::from(days) * DAY_MS));
        let soon = now_ms.saturating_add(EXPIRY_NOTICE_MS);
        let by_size = (expected > bytes_max).then(|| one.expires_at_ms.map_or(soon, |known| known.min(soon)));
        let planned = Planned {
            expires_at_ms: by_days.into_iter().chain(by_size).min(),
            may_go: by_days.is_some_and(|at| at <= now_ms) || confirmed > bytes_max,
        };
        (expected, confirmed) = (expected.saturating_sub(one.bytes), confirmed.saturating_sub(one.bytes));
        planned
    };
    kept.iter().map(decide).collect()
}

/// Recordings of one destination in one kind of store.
type Group = Vec<(i64, Arc<Item>)>;

/// One round: plans deletions, and deletes at the stores what is due, several destinations at a time.
pub(crate) async fn keep(core: &Arc<Core>) {
    let mut groups: HashMap<(i64, bool), Group> = HashMap::new();
    for item in core.table.all() {
        let (key, started_at_ms) = {
            let entry = &item.data().entry;
            ((entry.about.destination_id, is_operators(entry)), entry.started_at_ms)
        };
        groups.entry(key).or_default().push((started_at_ms, item));
    }
    stream::iter(groups.into_values())
        .for_each_concurrent(RETENTION_AT_ONCE, async |mut group| {
            // Those of one moment stay in the order of their names.
            group.sort_by_key(|(started_at_ms, _)| *started_at_ms);
            for item in due(core, &group).await {
                let ended = end_one(core, &item).await;
                if ended.is_err_and(|error| error.class == Class::Network) {
                    // The store would not answer for the destination's next recording either.
                    return;
                }
            }
        })
        .await;
}

/// Plans the deletions of a group, and returns the recordings that may be deleted now.
async fn due(core: &Arc<Core>, group: &Group) -> Vec<Arc<Item>> {
    let now_ms = core.outside.now_ms();
    let mut gigabytes = None;
    let kept: Vec<Kept> = group
        .iter()
        .map(|(started_at_ms, item)| {
            let entry = &item.data().entry;
            let rules = rules(core, entry);
            let stage = match entry.state {
                _ if entry.is_finished => Stage::Other,
                State::Done { .. } => Stage::Confirmed,
                State::Recording { .. } | State::Uploading { .. } => Stage::Coming,
                State::Failed { .. } | State::Deleting { .. } | State::Gone { .. } => Stage::Other,
            };
            if !entry.is_finished && !matches!(entry.state, State::Gone { .. }) {
                // The newest one has the newest configuration.
                gigabytes = rules.gigabytes;
            }
            let (bytes, expires_at_ms) = (entry.bytes, entry.expires_at_ms);
            Kept { started_at_ms: *started_at_ms, bytes, stage, days: rules.days, expires_at_ms }
        })
        .collect();
    let bytes_max = gigabytes.map(|gigabytes| u64::from(gigabytes) * GIGABYTE);
    let mut due = Vec::new();
    for ((before, planned), (_, item)) in kept.iter().zip(plan(&kept, bytes_max, now_ms)).zip(group) {
        let next = planned.expires_at_ms;
        if before.stage == Stage::Confirmed && before.expires_at_ms != next {
            let plans = |data: &mut Data| {
                data.entry.expires_at_ms = next;
                data.told_ms = data.told_ms.filter(|told_ms| is_told(*told_ms, next));
            };
            let changed = core.table.change(item, plans).await;
            if let Err(error) = changed {
                tracing::warn!(recording = item.file_name, %error, "the time of a recording's deletion cannot be saved");
            }
        }
        if planned.may_go {
            due.push(item.clone());
        }
    }
    due
}

/// Whether the notice of a deletion at `told_ms` is one of the deletion at `expires_at_ms`. One that was called off, or
/// moved by more than two days, gets a notice of its own. The host has the same rule.
fn is_told(told_ms: i64, expires_at_ms: Option<i64>) -> bool {
    expires_at_ms.is_some_and(|at_ms| at_ms <= told_ms.saturating_add(2 * EXPIRY_NOTICE_MS))
}

/// Whether its owner was told, its time is over, and nobody reads it.
fn is_due(data: &Data, now_ms: i64, elapsed: Duration) -> bool {
    let (Some(expires_at_ms), Some(told_ms)) = (data.entry.expires_at_ms, data.told_ms) else { return false };
    let at = expires_at_ms.max(told_ms);
    let is_read = data.read_at.is_some_and(|read_at| elapsed.saturating_sub(read_at) < READ_PAUSE);
    at <= now_ms && !(is_read && now_ms < at.saturating_add(millis(READ_LONGEST)))
}

/// Deletes a recording at its store if it is due.
///
/// # Errors
/// The store did not confirm it.
///
/// The state changes after the store's answer: a kill in between repeats the deletion, and the store confirms that of a
/// missing object.
async fn end_one(core: &Arc<Core>, item: &Arc<Item>) -> Result<(), Error> {
    let (now_ms, elapsed) = (core.outside.now_ms(), core.outside.elapsed());
    if !item.begin_expiry(|data| is_due(data, now_ms, elapsed)) {
        return Ok(());
    }
    let ended = delete(core, item).await;
    item.keep_after_all();
    match &ended {
        Ok(()) => tracing::info!(
            recording = item.file_name,
            "a recording was deleted at its store because its retention is over"
        ),
        Err(error) => {
            tracing::warn!(recording = item.file_name, %error, "a recording whose retention is over cannot be deleted at its store; the driver tries again");
        }
    }
    ended
}

async fn delete(core: &Arc<Core>, item: &Arc<Item>) -> Result<(), Error> {
    let (store, key) = core.store(item)?;
    store.delete(&key).await?;
    let is_gone = core.table.change(item, |data| {
        // Its owner may have deleted it meanwhile.
        let is_gone = matches!(data.entry.state, State::Done { .. });
        if is_gone {
            data.entry.state = State::Gone { is_deleted: false };
        }
        is_gone
    });
    if is_gone.await? { core.table.remove_index(item).await } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 100 * DAY_MS;
    const SOON: i64 = NOW + EXPIRY_NOTICE_MS;

    fn kept(stage: Stage, bytes: u64) -> Kept {
        Kept { started_at_ms: NOW, bytes, stage, days: None, expires_at_ms: None }
    }

    #[test]
    fn what_comes_gives_notice_and_only_what_is_confirmed_takes_room() {
        let (first, second) = (kept(Stage::Confirmed, 40), kept(Stage::Confirmed, 40));
        let planned = |kept: &[Kept], most: u64| -> Vec<(Option<i64>, bool)> {
            let planned = plan(kept, Some(most), NOW);
            planned.into_iter().map(|one| (one.expires_at_ms, one.may_go)).collect()
        };
        let stays = (None, false);
        assert_eq!(planned(&[first, second], 80), [stays, stays]);
        assert_eq!(planned(&[first, second, kept(Stage::Other, 40)], 80), [stays; 3]);
        let coming = kept(Stage::Coming, 1);
        assert_eq!(planned(&[first, second, coming], 80), [(Some(SOON), false), stays, stays]);
        assert_eq!(
            planned(&[first, second, kept(Stage::Confirmed, 1)], 80),
            [(Some(SOON), true), stays, stays]
        );
        // The time of the first notice stays.
        let told = Kept { expires_at_ms: Some(NOW - 5), ..first };
        assert_eq!(planned(&[told, second, coming], 80), [(Some(NOW - 5), false), stays, stays]);
        assert_eq!(planned(&[told, second], 80), [stays, stays], "it did not come");
        assert_eq!(planned(&[first, second], 39), [(Some(SOON), true); 2], "none of them fits");
        let huge = kept(Stage::Confirmed, u64::MAX);
        assert_eq!(planned(&[huge, huge], 80), [(Some(SOON), true), stays], "sums do not overflow");
    }

    #[test]
    fn the_earlier_of_two_rules_counts() {
        let by_days = |days: u32| Kept { days: Some(days), ..kept(Stage::Confirmed, 40) };
        let of = |one: Kept, most| plan(&[one], most, NOW + DAY_MS)[0];
        let at = |expires_at_ms: i64, may_go| Planned { expires_at_ms: Some(expires_at_ms), may_go };
        assert_eq!(of(by_days(1), None), at(NOW + DAY_MS, true));
        assert_eq!(of(by_days(2), None), at(NOW + 2 * DAY_MS, false));
        assert_eq!(of(by_days(9), Some(1)), at(SOON + DAY_MS, true));
        assert_eq!(of(by_days(1), Some(1)), at(NOW + DAY_MS, true));
        let far = Kept { started_at_ms: i64::MAX, ..by_days(u32::MAX) };
        assert_eq!(of(far, None), at(i64::MAX, false));
    }

    #[test]
    fn fewer_days_are_for_new_recordings() {
        let entry = |days| Entry { retention_days: days, ..Entry::new("a/b.mp4".into(), 0) };
        let bounds = Bounds { usual: Rules { days: Some(5), gigabytes: None }, ..Bounds::default() };
        let follow =
            |bounds: &Bounds, had, days| followed(bounds, &entry(had), Rules { days, gigabytes: Some(2) });
        for (had, gets, expected) in [
            (Some(9), Some(8), Some(9)),
            (Some(9), Some(10), Some(10)),
            (Some(9), None, None),
            (None, Some(1), None),
        ] {
            let next = follow(&Bounds::default(), had, gets);
            assert_eq!(next, Rules { days: expected, gigabytes: Some(2) }, "{had:?} {gets:?}");
        }
        // Without days it is the operator's usual time.
        assert_eq!(follow(&bounds, Some(9), None).days, Some(9));
        assert_eq!(follow(&bounds, Some(4), None).days, None);
        assert_eq!(follow(&bounds, None, Some(6)).days, Some(6));
    }
}
