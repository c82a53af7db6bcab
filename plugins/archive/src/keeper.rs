//! What goes by itself: failed local copies that are too old or too many, and recordings whose time at the store is over.

use std::collections::HashSet;
use std::sync::Arc;

use tokio::time::{sleep, timeout};

use crate::item::Item;
use crate::journal::Stage;
use crate::limits::GIVE_UP_ENDING_MAX;
use crate::state::{Core, WeakCore};
use crate::upload;

const DAY_MS: i64 = 24 * 3600 * 1000;

/// Looks now and then, for as long as the driver lives.
pub(crate) async fn run(core: WeakCore) {
    loop {
        let Some(strong) = core.upgrade() else { return };
        let pause = strong.limits.keep_every;
        keep(&strong).await;
        drop(strong);
        sleep(pause).await;
    }
}

/// One look.
pub(crate) async fn keep(core: &Arc<Core>) {
    give_up_copies(core).await;
    end_retention(core).await;
    forget_surplus(core).await;
}

/// Failed copies, the oldest first: those past their time, and those beyond the quota.
async fn give_up_copies(core: &Arc<Core>) {
    let mut failed: Vec<(i64, u64, Arc<Item>)> = core
        .all()
        .into_iter()
        .filter_map(|item| {
            let data = item.data();
            let is_failed = data.entry.stage == Stage::Failed && data.entry.is_local;
            let facts = is_failed.then(|| (data.entry.changed_at_ms, data.entry.bytes));
            drop(data);
            facts.map(|(at, bytes)| (at, bytes, item))
        })
        .collect();
    failed.sort_by_key(|(at, ..)| *at);
    let mut bytes: u64 = failed.iter().map(|(_, bytes, _)| bytes).sum();
    let oldest =
        core.outside.now_ms() - i64::try_from(core.limits.failed_age.as_millis()).unwrap_or(i64::MAX);
    for (at, size, item) in failed {
        let why = match (at <= oldest, bytes > core.limits.failed_quota) {
            (true, _) => "its time was over (failedDays)",
            (_, true) => "failed recordings take more room than they may (failedQuotaBytes)",
            _ => return,
        };
        bytes -= size;
        give_up(core, &item, why).await;
    }
}

async fn give_up(core: &Arc<Core>, item: &Arc<Item>, why: &str) {
    tracing::warn!(recording = item.file_name, why, "the local copy of a failed recording is deleted");
    let mut is_given_up = false;
    let changed = core.change(item, |data| {
        // Somebody may have asked for another attempt meanwhile.
        is_given_up = data.entry.stage == Stage::Failed;
        if is_given_up {
            data.entry.is_local = false;
            let error = data.entry.error.take().unwrap_or_default();
            data.entry.error = Some(format!("{error}. Its local copy was deleted: {why}"));
        }
    });
    let outcome = match changed.await {
        Ok(()) if is_given_up => {
            let removed = core.remove_local(item).await;
            // The store may hang: nobody waits for it.
            let (core, item) = (core.clone(), item.clone());
            tokio::spawn(timeout(GIVE_UP_ENDING_MAX, async move { upload::end_uploads(&core, &item).await }));
            removed
        }
        outcome => outcome,
    };
    if let Err(error) = outcome {
        tracing::warn!(recording = item.file_name, %error, "a local copy cannot be given up");
    }
}

/// Objects whose days are over.
async fn end_retention(core: &Arc<Core>) {
    let now_ms = core.outside.now_ms();
    // Destinations whose store fails: it would for the next recording too.
    let mut failing = HashSet::new();
    for item in core.all() {
        let destination_id = item.data().entry.destination_id;
        let is_over = {
            let data = item.data();
            let days = data.entry.retention_days.filter(|_| data.entry.stage == Stage::Ready);
            days.is_some_and(|days| data.entry.started_at_ms + i64::from(days) * DAY_MS <= now_ms)
        };
        if !is_over || failing.contains(&destination_id) {
            continue;
        }
        let outcome = async {
            let (store, key) = core.store(&item)?;
            store.delete(&key).await?;
            core.forget(&item).await
        };
        match outcome.await {
            Ok(()) => tracing::info!(
                recording = item.file_name,
                "a recording was deleted at its store, as its days are over"
            ),
            Err(error) => {
                tracing::warn!(recording = item.file_name, %error, "a recording whose days are over cannot be deleted");
                failing.insert(destination_id);
            }
        }
    }
}

/// Keeps room in the journal: what the store has is forgotten first, then failed ones without a copy, the oldest first.
async fn forget_surplus(core: &Arc<Core>) {
    let all = core.all();
    // A tenth stays free for recordings that begin before the next look.
    let surplus = (all.len() + core.limits.known / 10).saturating_sub(core.limits.known);
    if surplus == 0 {
        return;
    }
    let mut old: Vec<(bool, i64, Arc<Item>)> = all
        .into_iter()
        .filter_map(|item| {
            let data = item.data();
            let is_ready = data.entry.stage == Stage::Ready;
            let goes = is_ready || (data.entry.stage == Stage::Failed && !data.entry.is_local);
            let facts = goes.then_some((!is_ready, data.entry.changed_at_ms));
            drop(data);
            facts.map(|(later, at)| (later, at, item))
        })
        .collect();
    old.sort_by_key(|(later, at, _)| (*later, *at));
    for (.., item) in old.into_iter().take(surplus) {
        if let Err(error) = core.forget(&item).await {
            tracing::warn!(recording = item.file_name, %error, "a recording cannot be forgotten");
        }
    }
}
