//! Which recordings take a new configuration of their destination, with or without a stream.
//!
//! New keys for the same place apply to all of its recordings: waiting uploads use them at once, and so do addresses,
//! deletions and retries. A recording whose upload has not begun moves to the new store of its destination, so a wrong
//! bucket, endpoint or prefix does not bind it. "Not begun" means that the store opened no upload of it. A recording
//! whose upload began stays at its store, because parts or even the object may be there, and its next failure says so.
//! An uploaded recording stays where it is. A longer retention time applies to all, a shorter one to new recordings only;
//! the largest size applies to all.

use std::sync::Arc;

use satcast_plugin_api::Error;
use satcast_plugin_api::driver;
use tokio::time::timeout;

use crate::config::{Config, Own, Target};
use crate::core::{Core, Said};
use crate::entry::{Bucket, Entry, State};
use crate::limits::GIVE_UP_ENDING_MAX;
use crate::retention;
use crate::table::Item;
use crate::upload;
use crate::upload::ending::end_unknown;
use crate::upload::store::Store;

/// Effect of a new configuration on a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Nothing,
    /// It takes the new keys.
    Keys,
    /// It moves to the new place.
    Moves,
    /// It stays, and its failure says so.
    Stays,
}

/// Decides for a recording whose store is `old`. No I/O, no clock.
fn step(entry: &Entry, old: &Target, new: &Target, is_operators: bool) -> Step {
    let was_operators = matches!(entry.bucket, Bucket::Operators(_));
    let is_same = old.is_same_place(new) && was_operators == is_operators;
    let is_waiting = matches!(
        entry.state,
        State::Recording { .. } | State::Uploading { .. } | State::Failed { has_copy: true, .. }
    );
    match (is_same, is_waiting) {
        (true, _) if (old != new && !is_operators) || entry.stays() => Step::Keys,
        (true, _) | (false, false) => Step::Nothing,
        (false, true) if !entry.has_begun() => Step::Moves,
        (false, true) if !entry.stays() => Step::Stays,
        (false, true) => Step::Nothing,
    }
}

/// Handles the host's notification of a destination's configuration.
///
/// # Errors
/// `Config` for an unusable configuration, `Internal` when its keys cannot be encrypted.
pub(crate) fn configured(
    core: &Arc<Core>,
    destination_id: i64,
    config: Option<driver::Config<'_>>,
) -> Result<(), Error> {
    let Some(config) = config else {
        // Recordings of a deleted destination keep their configuration.
        core.wanted.said.lock().remove(&destination_id);
        return Ok(());
    };
    let config = config.parse::<Config>()?;
    if config.target()?.is_none() && core.operator().is_err() {
        // There is no store to move to.
        return Ok(());
    }
    let said = said(core, &config)?;
    core.wanted.said.lock().insert(destination_id, said);
    let core = core.clone();
    tokio::spawn(async move { follow(&core, destination_id).await });
    Ok(())
}

/// The store that a configuration names, and its rules.
///
/// # Errors
/// As [`configured`].
pub(crate) fn said(core: &Core, config: &Config) -> Result<Said, Error> {
    let own = match config.target()? {
        None => core.operator().map(|_| None)?,
        Some(target) => {
            let sealed = target.sealed(&*core.outside)?;
            Some((target, sealed))
        }
    };
    Ok(Said { own, rules: config.rules() })
}

/// A destination is opened with this configuration.
pub(crate) async fn opened(core: &Arc<Core>, destination_id: i64, said: Said) {
    core.wanted.said.lock().insert(destination_id, said);
    follow(core, destination_id).await;
}

/// Applies the latest configurations to the recordings of all destinations.
pub(crate) async fn follow_all(core: &Arc<Core>) {
    let destinations: Vec<i64> = core.wanted.said.lock().keys().copied().collect();
    for destination_id in destinations {
        follow(core, destination_id).await;
    }
}

/// Applies the latest configuration of a destination to its recordings.
async fn follow(core: &Arc<Core>, destination_id: i64) {
    let _one_at_a_time = core.wanted.following.lock().await;
    let Some(Said { own, rules }) = core.wanted.said.lock().get(&destination_id).cloned() else { return };
    for item in core.table.all() {
        let is_its = {
            let data = item.data();
            data.entry.about.destination_id == destination_id
                && !matches!(data.entry.state, State::Gone { .. })
        };
        if !is_its {
            continue;
        }
        let kept = retention::follow(core, &item, rules).await;
        if let Err(error) = kept.and(follow_one(core, &item, &own).await) {
            tracing::warn!(recording = item.file_name, %error, "a recording cannot take the new configuration of its destination");
        }
    }
}

async fn follow_one(core: &Arc<Core>, item: &Arc<Item>, own: &Own) -> Result<(), Error> {
    let new = match own {
        Some((target, _)) => target.clone(),
        None => core.operator()?.clone(),
    };
    let (old, key) = core.place(item)?;
    let next = step(&item.data().entry, &old, &new, own.is_none());
    match next {
        Step::Nothing => Ok(()),
        Step::Keys => {
            core.table
                .change(item, |data| {
                    if let Some((_, sealed)) = own {
                        data.entry.bucket = Bucket::Own(sealed.clone());
                    }
                    set_stays(&mut data.entry, false);
                    data.restarts_failing();
                })
                .await?;
            item.renewed.notify_one();
            Ok(())
        }
        Step::Stays => core.table.change(item, |data| set_stays(&mut data.entry, true)).await,
        Step::Moves => moves(core, item, own, Store::new(old, core.sockets.clone()), key).await,
    }
}

fn set_stays(entry: &mut Entry, stays: bool) {
    if let Some(at_store) = &mut entry.at_store {
        at_store.stays = stays;
    }
}

/// Moves the recording to another place, unless its upload is being opened at this moment.
async fn moves(
    core: &Arc<Core>,
    item: &Arc<Item>,
    own: &Own,
    old: Store,
    old_key: String,
) -> Result<(), Error> {
    item.cut().await;
    let bucket = core.bucket(own);
    let mut was_asked = false;
    let changed = core.table.change(item, |data| {
        if data.entry.has_begun() {
            set_stays(&mut data.entry, true);
            return false;
        }
        was_asked = data.entry.at_store.take().is_some();
        data.entry.bucket = bucket;
        data.restarts_failing();
        true
    });
    let changed = changed.await;
    upload::spawn_if_idle(core, item);
    if changed? {
        tracing::info!(
            recording = item.file_name,
            "a recording whose upload had not begun moves to the new store of its destination"
        );
    }
    if was_asked {
        // The store may have opened an upload whose answer was lost. It may hang, so this runs in the background.
        let item = item.clone();
        tokio::spawn(timeout(GIVE_UP_ENDING_MAX, async move { end_unknown(&item, &old, &old_key).await }));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{AtStore, Fate, Trouble};

    fn target(bucket: &str, secret: &str) -> Target {
        Target {
            endpoint: "https://s3.example.org".into(),
            region: "r".into(),
            bucket: bucket.into(),
            prefix: String::new(),
            access_key: "a".into(),
            secret_key: secret.into(),
            path_style: true,
        }
    }

    #[test]
    fn every_state_has_its_step() {
        let fresh = |state| {
            let bucket = Bucket::Own(String::new());
            Entry { state, bucket, ..Entry::new("a/b.mp4".into(), 0) }
        };
        let begun = |state| {
            let at_store = AtStore { has_begun: true, ..AtStore::new("k".into()) };
            Entry { at_store: Some(at_store), ..fresh(state) }
        };
        let recording = || State::Recording { trouble: None };
        let uploading = || State::Uploading { trouble: None, failing_ms: 0 };
        let trouble = Trouble::new(&Error::internal("no"));
        let failed = |has_copy| State::Failed { trouble: trouble.clone(), has_copy };
        let done = || State::Done { url: String::new() };
        let deleting = || State::Deleting { object: Fate::Stays, failing_ms: 0 };
        let stays = || {
            let mut entry = begun(uploading());
            set_stays(&mut entry, true);
            entry
        };
        let table = [
            (fresh(uploading()), "b", "old", Step::Nothing),
            (fresh(uploading()), "b", "new", Step::Keys),
            (begun(recording()), "b", "new", Step::Keys),
            (fresh(done()), "b", "new", Step::Keys),
            (fresh(deleting()), "b", "new", Step::Keys),
            (fresh(recording()), "c", "new", Step::Moves),
            (fresh(uploading()), "c", "old", Step::Moves),
            (fresh(failed(true)), "c", "new", Step::Moves),
            (begun(uploading()), "c", "new", Step::Stays),
            (begun(failed(true)), "c", "new", Step::Stays),
            (fresh(failed(false)), "c", "new", Step::Nothing),
            (stays(), "c", "new", Step::Nothing),
            (stays(), "b", "old", Step::Keys),
            (begun(deleting()), "c", "new", Step::Nothing),
            (fresh(done()), "c", "new", Step::Nothing),
            (fresh(deleting()), "c", "new", Step::Nothing),
        ];
        for (entry, bucket, secret, expected) in table {
            let next = step(&entry, &target("b", "old"), &target(bucket, secret), false);
            assert_eq!(next, expected, "{:?} {bucket} {secret}", entry.state);
        }
        // The operator's keys come with the settings.
        let of_operator = Entry { bucket: Bucket::Operators(None), ..fresh(uploading()) };
        assert_eq!(step(&of_operator, &target("b", "old"), &target("b", "new"), true), Step::Nothing);
        assert_eq!(step(&of_operator, &target("b", "old"), &target("b", "new"), false), Step::Moves);
        assert_eq!(step(&fresh(uploading()), &target("b", "old"), &target("b", "old"), true), Step::Moves);
    }
}
