//! Room for recordings: on the local disk, in the journal, and how often files may begin. Each is shared by all accounts.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use satcast_plugin_api::Error;
use tokio::time::Instant;

use crate::entry::Entry;
use crate::item::Item;
use crate::limits::FULL_RETRY;
use crate::names;
use crate::recorder::Order;
use crate::share::{Owner, admits};
use crate::state::{Core, free_bytes};

/// How old a count of local copies may be.
const COUNT_AGE_MAX: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// Local copies take all the room they may: see [`no_room`].
pub(crate) const SPOOL_FULL: &str = "recordings that wait for their store take all the room they may (spoolQuotaBytes), of which one account has three \
     quarters at most";
/// The journal has no place for another recording: see [`no_room`].
pub(crate) const TOO_MANY: &str =
    "there are too many recordings; delete some that have failed or are not needed";

/// What is taken of it.
#[derive(Debug, Default)]
pub(crate) struct Room {
    spooled: Mutex<Spooled>,
}

/// Bytes of local copies, and when they were counted.
#[derive(Debug, Default)]
struct Spooled {
    counted: Option<Instant>,
    all: u64,
    own: HashMap<Owner, u64>,
}

impl Core {
    /// Takes `more` bytes of what local copies may have. Counted anew now and then, as going through all recordings for every
    /// fragment would cost more than writing it.
    ///
    /// # Errors
    /// `Internal` when that is too much.
    pub(crate) fn reserve(&self, owner: Owner, more: u64) -> Result<(), Error> {
        let mut spooled = self.room.spooled.lock();
        if spooled.counted.is_none_or(|at| at.elapsed() >= COUNT_AGE_MAX) {
            *spooled = Spooled { counted: Some(Instant::now()), ..Spooled::default() };
            for item in self.all() {
                let data = item.data();
                let (owner, bytes) = (data.entry.owner(), data.local_bytes());
                spooled.all += bytes;
                *spooled.own.entry(owner).or_default() += bytes;
            }
        }
        let own = spooled.own.get(&owner).copied().unwrap_or_default();
        if !admits(self.limits.spool_quota, spooled.all, own, more) {
            return Err(no_room(SPOOL_FULL));
        }
        spooled.all += more;
        *spooled.own.entry(owner).or_default() += more;
        Ok(())
    }

    /// A new recording in the list, under a name nobody had, that began at `started_ms`.
    ///
    /// # Errors
    /// `Internal`: there is no room for another one; `Remote`: the encoder made too many of late.
    pub(crate) fn enter(&self, order: &Order, started_ms: i64) -> Result<Arc<Item>, Error> {
        let about = &order.about;
        let owner = Owner::new(about.account_id, about.destination_id);
        let mut items = self.items();
        let (mut own, mut number) = (0, 0);
        // Ages of the destination's files of the last minute.
        let mut young = Vec::new();
        for item in items.values() {
            let data = item.data();
            if data.entry.about.destination_id == about.destination_id {
                let age = item.begun.map(|begun| begun.elapsed());
                young.extend(age.filter(|age| *age < MINUTE));
            }
            own += u64::from(data.entry.owner() == owner);
            if data.entry.about.session_id == about.session_id {
                number = number.max(data.entry.number);
            }
        }
        if !admits(self.limits.known as u64, items.len() as u64, own, 1) {
            return Err(no_room(TOO_MANY));
        }
        // An encoder that changes its configuration all the time begins one each time.
        let most = self.limits.files_per_minute;
        if let Some(oldest) = young.iter().max().filter(|_| young.len() >= most) {
            return Err(too_often(most, MINUTE.saturating_sub(*oldest).max(Duration::from_secs(1))));
        }
        number = number.saturating_add(1);
        let mut name = names::file_name(&about.label, started_ms, &about.session_id, number);
        // Sessions whose ids differ only in letters that names do not have.
        while items.contains_key(&name) || self.path(&name).exists() {
            number = number.saturating_add(1);
            name = names::file_name(&about.label, started_ms, &about.session_id, number);
        }
        let mut entry = Entry::new(name.clone(), started_ms);
        entry.about.clone_from(about);
        entry.number = number;
        entry.retention_days = order.retention_days;
        entry.bucket = self.bucket(&order.own);
        let item = Arc::new(Item::new(entry, true));
        items.insert(name, item.clone());
        Ok(item)
    }
}

/// Fails when the disk has not `more` bytes and what must stay free, if anything must.
///
/// # Errors
/// `StorageFull`, or the system cannot tell.
pub(crate) fn check_disk(core: &Core, more: u64) -> io::Result<()> {
    // Where nothing must stay free, the disk itself says when it is full; some tell of no free bytes at all.
    if core.limits.free_min > 0 && free_bytes(core.spool())? < core.limits.free_min.saturating_add(more) {
        return Err(too_little_free());
    }
    Ok(())
}

/// The disk has not what must stay free.
pub(crate) fn too_little_free() -> io::Error {
    io::Error::new(io::ErrorKind::StorageFull, "less is free than must stay free (freeBytesMin)")
}

/// The encoder began `most` files within a minute; it may begin another one in `left`.
pub(crate) fn too_often(most: usize, left: Duration) -> Error {
    Error::remote(format!(
        "recording stopped: the encoder changed its configuration so often that {most} files began within a minute; check it. \
         What was recorded will be uploaded, and recording begins anew in {} s",
        left.as_secs()
    ))
    .retry_after(left)
}

/// Recording stops because of `why`, and begins anew later.
pub(crate) fn no_room(why: &str) -> Error {
    let text = format!(
        "recording stopped: {why}. What was recorded will be uploaded; recording begins anew when there is room"
    );
    Error::internal(text).retry_after(FULL_RETRY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stops_texts() {
        let spool = "recordings that wait for their store take all the room they may (spoolQuotaBytes), of which one \
                     account has three quarters at most";
        let many = "there are too many recordings; delete some that have failed or are not needed";
        let free = too_little_free().to_string();
        let free = (free.as_str(), "less is free than must stay free (freeBytesMin)");
        for (why, text) in [(SPOOL_FULL, spool), (TOO_MANY, many), free] {
            let text = format!(
                "recording stopped: {text}. What was recorded will be uploaded; recording begins anew when there is room"
            );
            assert_eq!(no_room(why), Error::internal(text).retry_after(FULL_RETRY));
        }
        let text = "recording stopped: the encoder changed its configuration so often that 3 files began within a \
                    minute; check it. What was recorded will be uploaded, and recording begins anew in 9 s";
        let left = Duration::from_millis(9400);
        assert_eq!(too_often(3, left), Error::remote(text).retry_after(left));
    }
}
