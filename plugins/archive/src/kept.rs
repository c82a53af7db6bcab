//! Finished files of the host, such as clips: taken over as recordings that are uploaded.
//!
//! The journal has the entry before the file is moved to the spool, so a kill leaves the file with the host or a recording
//! that the next start completes.

use std::fs::{self, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;

use satcast_plugin_api::Error;
use satcast_plugin_api::driver::{Answer, FinishedFile};

use crate::config::Config;
use crate::core::Core;
use crate::crc::{Crc, Growing};
use crate::disk::{blocking, sync_folder};
use crate::entry::{Entry, State};
use crate::parts::FILE_BYTES_MAX;
use crate::table::Item;
use crate::{follow, upload};

/// Bytes that are read at one time.
const BLOCK_BYTES: usize = 1024 * 1024;

pub(crate) fn keep(core: &Arc<Core>, file: FinishedFile, config: Config, answer: Answer) {
    let core = core.clone();
    tokio::spawn(async move { answer.give(keep_now(&core, file, &config).await) });
}

async fn keep_now(core: &Arc<Core>, file: FinishedFile, config: &Config) -> Result<(), Error> {
    if core.table.find(&file.file_name).is_some() {
        return Ok(());
    }
    let own = follow::said(core, config)?.own;
    let from = core.table.folder().join(&file.path);
    let read = from.clone();
    let (bytes, crcs) = blocking(move || sums(&read)).await?;
    let mut entry = Entry::new(file.file_name, file.started_at_ms);
    (entry.about, entry.duration_ms, entry.audio_only) = (file.about, file.duration_ms, file.audio_only);
    (entry.bytes, entry.crcs, entry.given) = (bytes, crcs, Some(file.path));
    (entry.bucket, entry.is_finished) = (core.bucket(&own), true);
    entry.state = State::Uploading { trouble: None, failing_ms: 0 };
    let Some(item) = core.table.enter_whole(entry)? else { return Ok(()) };
    if let Err(error) = take_over(core, &item, &from).await {
        // Only the name of the file in the spool and the entry: the file itself was not moved.
        let _ = core.table.forget(&item).await;
        return Err(error);
    }
    if let Err(error) = core.table.change(&item, |data| data.entry.given = None).await {
        // The next start finds the file in the spool.
        tracing::warn!(recording = item.file_name, %error, "the journal of a recording cannot be written");
    }
    tracing::info!(recording = item.file_name, bytes, "a finished file is kept");
    upload::spawn(core, &item);
    Ok(())
}

/// Writes the journal, then moves the file.
async fn take_over(core: &Arc<Core>, item: &Arc<Item>, from: &Path) -> Result<(), Error> {
    let (table, item, from) = (core.table.clone(), item.clone(), from.to_path_buf());
    let target = table.path(&item.file_name);
    blocking(move || {
        table.save_now(&item)?;
        fs::rename(&from, &target)?;
        // The rename is known to be done, and the next start finds it done or undone.
        if let Err(error) = sync_folder(table.spool()) {
            tracing::warn!(recording = item.file_name, %error, "the spool cannot be synced");
        }
        Ok(())
    })
    .await
}

/// Syncs a file, and returns its length and the checksums of its parts.
fn sums(path: &Path) -> io::Result<(u64, Vec<Crc>)> {
    let mut options = OpenOptions::new();
    let flags = nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK;
    let mut file = options.read(true).custom_flags(flags).open(path)?;
    let about = file.metadata()?;
    if !about.is_file() || about.len() == 0 || about.len() > FILE_BYTES_MAX {
        return Err(io::Error::other("the finished file is empty, too large, or no file"));
    }
    file.sync_all()?;
    let (mut growing, mut crcs, mut bytes) = (Growing::default(), Vec::new(), 0);
    let mut block = vec![0; BLOCK_BYTES];
    loop {
        let count = file.read(&mut block)?;
        if count == 0 {
            break;
        }
        crcs.extend(growing.add(&block[..count]));
        bytes += count as u64;
    }
    crcs.extend(growing.last());
    Ok((bytes, crcs))
}
