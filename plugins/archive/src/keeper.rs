//! Periodic work: deletes failed local copies that are too old or too many, and forgets old journal entries.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

use satcast_plugin_api::Error;
use tokio::time::{sleep, timeout};

use crate::config::Settings;
use crate::core::Core;
use crate::disk::{blocking, unusable};
use crate::entry::{Entry, Owner, State};
use crate::limits::{self, GIVE_UP_ENDING_MAX, GONE_LIFE_MIN, GONE_LISTED, Limits, millis};
use crate::outside::Outside;
use crate::retention;
use crate::rules::Rules;
use crate::table::Item;
use crate::{follow, upload};

/// The copy of a failed recording was kept long enough: see [`copy_deleted`].
pub(crate) const COPY_EXPIRED: &str = "its retention time is over (failedDays)";
/// The copies of failed recordings use too much of the disk: see [`copy_deleted`].
pub(crate) const COPIES_TOO_LARGE: &str =
    "failed recordings use more disk space than failedQuotaBytes allows";

/// How often it is checked whether an earlier instance has ended.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Takes over the recordings in the driver's folder as soon as possible, then runs the periodic work for the life of
/// the driver, in tasks of the running runtime. A store that hangs blocks no local work.
///
/// # Errors
/// `Config` for a bad store in the settings, `Internal` when the folders below `data` cannot be used.
pub(crate) fn start(
    data: &Path,
    settings: &Settings,
    limits: Limits,
    outside: Arc<dyn Outside>,
) -> Result<Arc<Core>, Error> {
    let core = Arc::new(Core::new(data, settings, limits, outside)?);
    if !take_up(&core).map_err(|error| unusable(data, &error))? {
        tracing::info!(
            "an earlier instance of the driver is still running; this one takes over its recordings when it ends"
        );
    }
    let weak = Arc::downgrade(&core);
    tokio::spawn(async move {
        take_up_later(&weak).await;
        tokio::spawn(run(weak.clone(), |core| async move { keep(&core).await }));
        run(weak, |core| async move { retention::keep(&core).await }).await;
    });
    Ok(core)
}

/// Takes over the journal once no other instance uses it; true from then on.
fn take_up(core: &Arc<Core>) -> io::Result<bool> {
    let Some(unfinished) = core.table.take_up()? else { return Ok(false) };
    tracing::info!(
        recordings = core.table.all().len(),
        unfinished = unfinished.len(),
        "the journal of recordings was read"
    );
    unfinished.iter().for_each(|item| upload::spawn(core, item));
    Ok(true)
}

async fn take_up_later(weak: &Weak<Core>) {
    while let Some(core) = weak.upgrade().filter(|core| !core.table.is_alone()) {
        let looked = blocking({
            let core = core.clone();
            move || take_up(&core)
        });
        match looked.await {
            // Configurations that arrived meanwhile apply to the earlier instance's recordings, too.
            Ok(true) => return follow::follow_all(&core).await,
            Ok(false) => {}
            Err(error) => {
                tracing::error!(%error, "the journal of recordings cannot be read; the driver tries again")
            }
        }
        drop(core);
        sleep(LOOK_EVERY).await;
    }
}

async fn run<L: Future<Output = ()> + Send>(core: Weak<Core>, look: impl Fn(Arc<Core>) -> L) {
    loop {
        let Some(strong) = core.upgrade() else { return };
        let pause = strong.limits.keep_every;
        look(strong).await;
        sleep(pause).await;
    }
}

/// One round of the periodic work.
pub(crate) async fn keep(core: &Arc<Core>) {
    give_up_copies(core).await;
    forget_old(core).await;
    core.table.keep_reserve();
    core.blocks.trim();
}

/// All recordings with the facts that `facts` takes from them, sorted by them.
fn sorted<F: Ord>(core: &Core, facts: impl Fn(&Entry) -> F) -> Vec<(F, Arc<Item>)> {
    let with_facts = |item: Arc<Item>| {
        let facts = facts(&item.data().entry);
        (facts, item)
    };
    let mut all: Vec<(F, Arc<Item>)> = core.table.all().into_iter().map(with_facts).collect();
    all.sort_by(|(one, _), (other, _)| one.cmp(other));
    all
}

/// Deletes failed copies: expired ones, and beyond the quota the oldest of the owner with most.
async fn give_up_copies(core: &Arc<Core>) {
    let oldest = core.outside.now_ms() - millis(core.limits.failed_age);
    let is_failed = |entry: &Entry| matches!(entry.state, State::Failed { has_copy: true, .. });
    let mut kept = Vec::new();
    for ((at, bytes, is_failed), item) in
        sorted(core, |entry| (entry.changed_at_ms, entry.bytes, is_failed(entry)))
    {
        let owner = item.data().entry.owner();
        match is_failed {
            true if at <= oldest => give_up(core, &item, COPY_EXPIRED).await,
            true => kept.push((owner, bytes, Some(item))),
            false => {}
        }
    }
    for item in surplus(kept, core.limits.failed_quota) {
        give_up(core, &item, COPIES_TOO_LARGE).await;
    }
}

/// Error text of a recording that failed with `error` and whose local copy was deleted because of `why`.
pub(crate) fn copy_deleted(error: &str, why: &str) -> String {
    format!("{error}. Its local copy was deleted: {why}")
}

async fn give_up(core: &Arc<Core>, item: &Arc<Item>, why: &str) {
    tracing::warn!(recording = item.file_name, why, "the local copy of a failed recording is deleted");
    let mut is_given_up = false;
    let changed = core.table.change(item, |data| {
        // A retry may have been requested meanwhile.
        if let State::Failed { trouble, has_copy } = &mut data.entry.state {
            is_given_up = true;
            *has_copy = false;
            trouble.error = copy_deleted(&trouble.error, why);
        }
    });
    let outcome = match changed.await {
        Ok(()) if is_given_up => {
            let removed = core.table.remove_local(item).await.and(core.table.remove_index(item).await);
            // The store may hang, so this runs in the background.
            let (core, item) = (core.clone(), item.clone());
            tokio::spawn(timeout(GIVE_UP_ENDING_MAX, async move { upload::end_uploads(&core, &item).await }));
            removed
        }
        outcome => outcome,
    };
    if let Err(error) = outcome {
        tracing::warn!(recording = item.file_name, %error, "a local copy cannot be deleted");
    }
}

/// Order in which entries are forgotten when there are too many; `None` for those that must stay. Those with a
/// retention time come last: once forgotten, their objects are never deleted at the store.
fn rank(core: &Core, entry: &Entry) -> Option<u8> {
    match entry.state {
        State::Gone { .. } => Some(0),
        State::Done { .. } if retention::rules(core, entry) == Rules::default() => Some(1),
        State::Failed { has_copy: false, .. } => Some(2),
        State::Done { .. } => Some(3),
        _ => None,
    }
}

/// Keeps space in the journal: removes entries that the host has known for long, and beyond a number those that are
/// safe to forget.
async fn forget_old(core: &Arc<Core>) {
    let reported = core.outside.now_ms() - millis(GONE_LISTED);
    let is_reported = core.started.elapsed() >= GONE_LIFE_MIN;
    let mut old = Vec::new();
    let mut kept = Vec::new();
    for ((rank, at), item) in sorted(core, |entry| (rank(core, entry), entry.changed_at_ms)) {
        if rank == Some(0) && is_reported && at <= reported {
            old.push(item);
        } else {
            let owner = item.data().entry.owner();
            kept.push((owner, 1, rank.map(|_| item)));
        }
    }
    old.extend(surplus(kept, limits::kept(core.limits.known)));
    for item in old {
        if let Err(error) = core.table.forget(&item).await {
            tracing::warn!(recording = item.file_name, %error, "a recording cannot be removed from the journal");
        }
    }
}

/// Selects the entries of `all` to remove until at most `limit` is left. Each has an owner, a size and, if it may be
/// removed, a value. It is always the first one of the owner with most, so that no owner loses entries because of
/// another one with more.
fn surplus<T>(all: Vec<(Owner, u64, Option<T>)>, limit: u64) -> Vec<T> {
    let (mut total, mut gone) = (0_u64, Vec::new());
    let mut piles: HashMap<Owner, (u64, VecDeque<(u64, T)>)> = HashMap::new();
    for (owner, size, it) in all {
        let (has, goes) = piles.entry(owner).or_default();
        (total, *has) = (total.saturating_add(size), has.saturating_add(size));
        goes.extend(it.map(|it| (size, it)));
    }
    while total > limit {
        let with_some = piles.values_mut().filter(|(_, goes)| !goes.is_empty());
        let Some((has, goes)) = with_some.max_by_key(|(has, _)| *has) else { break };
        let Some((size, it)) = goes.pop_front() else { break };
        (total, *has) = (total.saturating_sub(size), has.saturating_sub(size));
        gone.push(it);
    }
    gone
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_of_the_largest_owner_is_removed() {
        let small = [(1, 10, "a1"), (2, 60, "b1"), (2, 60, "b2"), (1, 10, "a2"), (2, 60, "b3")];
        let mut all: Vec<_> =
            small.map(|(account, size, name)| (Owner::new(account, 0), size, Some(name))).into();
        all.push((Owner::new(0, 7), 500, None));
        assert_eq!(surplus(all, 570), ["b1", "b2", "b3"]);
        assert!(surplus(vec![(Owner::Account(1), 9, Some("x"))], 9).is_empty());
    }
}
