//! Sends parts.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::future::OptionFuture;
use futures_util::stream::FuturesOrdered;
use object_store::PutPayload;
use ring::digest::{Context, SHA256};
use satcast_plugin_api::{Class, Error};

use super::attempts::Attempts;
use super::blocks::{BLOCK_BYTES, Blocks};
use super::fault::{Fault, Kind};
use super::permits::Client;
use super::restart::unknown_upload;
use super::store::{Sending, Store, bare};
use super::sums::{is_md5, md5_hex};
use super::wire::Payload;
use crate::core::Core;
use crate::crc::{Crc, Summing};
use crate::disk::blocking;
use crate::limits::{ETAG_BYTES_MAX, PARTS_OF_ONE};
use crate::parts::Part;
use crate::table::Item;

/// Sends the parts that are complete, and those that become complete meanwhile, some at a time. While the journal is
/// written, others are on their way. Parts that arrived in order are in the journal before this returns, also when a
/// later one failed; a crash before that sends them again.
pub(super) async fn send(core: &Arc<Core>, item: &Arc<Item>, attempts: &mut Attempts) -> Result<(), Fault> {
    let Some(to) = To::of(core, item).await? else { return Ok(()) };
    let mut next = item.data().entry.parts();
    let (mut flight, mut arrived, mut fault) = (FuturesOrdered::new(), Vec::new(), None);
    let mut noting = pin!(OptionFuture::default());
    let mut is_noting = false;
    loop {
        while fault.is_none()
            && flight.len() < PARTS_OF_ONE
            && let Some((part, written)) = to.ready(next)
        {
            flight.push_back(to.send(part, written));
            next += 1;
        }
        if !is_noting && !arrived.is_empty() {
            let note = note(core, item, std::mem::take(&mut arrived));
            noting.set(OptionFuture::from(Some(note)));
            is_noting = true;
        }
        tokio::select! {
            Some(outcome) = flight.next() => match outcome {
                Ok(sent) if fault.is_none() => arrived.push(sent),
                // It is behind one that failed.
                Ok(_) => {}
                Err(failed) => {
                    fault.get_or_insert(failed);
                }
            },
            Some(noted) = &mut noting, if is_noting => {
                is_noting = false;
                match noted {
                    Ok(()) => attempts.progressed(),
                    Err(error) => {
                        fault.get_or_insert(Fault::from(error));
                    }
                }
            }
            else => break,
        }
    }
    match fault {
        None => Ok(()),
        Some(fault) => Err(unknown_upload(core, item, &to.store, &to.key, fault).await),
    }
}

/// A part that the store has.
#[derive(Debug)]
struct Sent {
    index: usize,
    /// As the store wrote it.
    etag: String,
    /// The ETag is the MD5 of the part.
    is_sum: bool,
    crc: Crc,
}

/// Notes parts that arrived, in order.
async fn note(core: &Arc<Core>, item: &Arc<Item>, arrived: Vec<Sent>) -> Result<(), Error> {
    core.table
        .change(item, |data| {
            let entry = &mut data.entry;
            let Some(upload) = entry.at_store.as_mut().and_then(|at_store| at_store.upload.as_mut()) else {
                return;
            };
            for sent in arrived {
                upload.has_sums &= sent.is_sum;
                upload.parts.push(sent.etag);
                if entry.crcs.len() == sent.index {
                    entry.crcs.push(sent.crc);
                }
            }
            data.progressed();
            data.refusals = 0;
        })
        .await
}

/// Source and target of the parts of one upload.
struct To<'a> {
    core: &'a Core,
    item: &'a Item,
    client: Client,
    store: Store,
    key: String,
    upload: String,
    takes_crcs: bool,
    /// The store has repeated a checksum since the parts of this call are sent.
    repeats: AtomicBool,
    local: Arc<Local>,
}

impl<'a> To<'a> {
    /// `None`: there is no upload.
    async fn of(core: &'a Arc<Core>, item: &'a Arc<Item>) -> Result<Option<Self>, Fault> {
        let (store, key) = core.store(item)?;
        let upload = item.data().entry.upload().map(|upload| (upload.id.clone(), upload.takes_crcs));
        let Some((upload, takes_crcs)) = upload else { return Ok(None) };
        let path = core.table.path(&item.file_name);
        let local = blocking(move || {
            let file = File::open(path)?;
            Ok(Arc::new(Local { file, synced: AtomicU64::new(0) }))
        });
        let local = local.await.map_err(lost)?;
        let (client, repeats) = (core.client(item), AtomicBool::new(false));
        Ok(Some(To { core, item, client, store, key, upload, takes_crcs, repeats, local }))
    }

    /// The part `index` if it is complete, and the size of the file.
    fn ready(&self, index: usize) -> Option<(Part, u64)> {
        let data = self.item.data();
        data.part(index).map(|part| (part, data.entry.bytes))
    }

    /// Sends a part of a file of `written` bytes.
    async fn send(&self, part: Part, written: u64) -> Result<Sent, Fault> {
        let _memory = self.core.memory.take(&self.client, part.bytes.div_ceil(1024 * 1024)).await;
        let _request = self.core.requests.take(&self.client, 1).await;
        let is_signed = self.is_signed();
        let (local, blocks) = (self.local.clone(), self.core.blocks.clone());
        let read = blocking(move || {
            local.sync(part, written)?;
            read_part(&local.file, part, &blocks, is_signed)
        });
        let Loaded { bytes, crc, sha256 } = read.await.map_err(lost)?;
        if self.item.data().entry.crcs.get(part.index).is_some_and(|known| *known != crc) {
            return Err(damaged(part));
        }
        let payload = sha256.map_or(Payload::Unsigned, Payload::Sha256);
        let sending = Sending { bytes: bytes.clone(), payload, crc: self.takes_crcs.then_some(crc) };
        let (etag, repeated) = self.store.part(&self.key, &self.upload, part.index, sending).await?;
        if etag.len() > ETAG_BYTES_MAX {
            return Err(Fault::remote("the store gave a part an ETag that is too long"));
        }
        let is_sum = match repeated {
            Some(repeated) if repeated == crc.text() => {
                self.repeats.store(true, Ordering::Relaxed);
                false
            }
            Some(_) => return Err(changed()),
            None if !is_signed => return Err(unproved()),
            None => self.is_md5(part, &etag, bytes).await?,
        };
        Ok(Sent { index: part.index, etag, is_sum, crc })
    }

    /// Whether the signature of the next part covers its bytes: it need not over TLS when the store compares checksums.
    fn is_signed(&self) -> bool {
        let repeats = self.takes_crcs && self.repeats.load(Ordering::Relaxed);
        !(repeats && self.store.is_tls())
    }

    /// Whether the ETag of a part is its MD5, for a store that has repeated no checksum.
    async fn is_md5(&self, part: Part, etag: &str, bytes: PutPayload) -> Result<bool, Fault> {
        let sum = blocking(move || Ok(md5_hex(bytes.iter().map(Bytes::as_ref)))).await.map_err(lost)?;
        let etag = bare(etag);
        let is_sum = etag.eq_ignore_ascii_case(&sum);
        // A store whose ETags have been MD5s so far received other bytes than were sent.
        let data = self.item.data();
        let had_sums = data.entry.upload().is_some_and(|upload| upload.has_sums && !upload.parts.is_empty());
        if !is_sum && part.index > 0 && had_sums && is_md5(etag) {
            return Err(changed());
        }
        Ok(is_sum)
    }
}

/// The local copy.
#[derive(Debug)]
struct Local {
    file: File,
    /// Bytes that survive a crash of the machine.
    synced: AtomicU64,
}

impl Local {
    /// Syncs `part` of a file of `written` bytes: the store must never have more than survives a crash here.
    fn sync(&self, part: Part, written: u64) -> io::Result<()> {
        if self.synced.load(Ordering::Relaxed) < part.offset + part.bytes {
            self.file.sync_data()?;
            self.synced.fetch_max(written, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// A part in memory.
#[derive(Debug)]
struct Loaded {
    bytes: PutPayload,
    crc: Crc,
    sha256: Option<[u8; 32]>,
}

/// Reads a part; its checksums are computed while a block of it is in the processor's cache.
fn read_part(file: &File, part: Part, blocks: &Arc<Blocks>, is_signed: bool) -> io::Result<Loaded> {
    let (mut crc, mut sha256) = (Summing::default(), is_signed.then(|| Context::new(&SHA256)));
    let (mut chunks, mut at, end) = (Vec::new(), part.offset, part.offset + part.bytes);
    while at < end {
        let bytes = usize::try_from(end - at).unwrap_or(usize::MAX).min(BLOCK_BYTES);
        let mut block = blocks.take(bytes);
        file.read_exact_at(block.as_mut(), at)?;
        crc.add(block.as_ref());
        if let Some(sha256) = &mut sha256 {
            sha256.update(block.as_ref());
        }
        chunks.push(block.freeze());
        at += bytes as u64;
    }
    let sha256 = sha256.map(|sha256| {
        let mut sum = [0; 32];
        sum.copy_from_slice(sha256.finish().as_ref());
        sum
    });
    Ok(Loaded { bytes: PutPayload::from_iter(chunks), crc: crc.sum(), sha256 })
}

/// The local copy cannot be read: no further try helps.
pub(crate) fn lost(error: Error) -> Fault {
    let text = format!("the local copy of the recording cannot be read: {}", error.message);
    Fault::new(Kind::Final, Class::Internal, text)
}

/// The local copy has other bytes than were recorded: no further try helps.
pub(crate) fn damaged(part: Part) -> Fault {
    let text = format!(
        "part {} of the local copy is not as it was recorded: the disk or another program has changed it; ask the operator to \
         check the disk",
        part.index + 1
    );
    Fault::new(Kind::Final, Class::Internal, text)
}

/// What arrived is not what was sent.
pub(crate) fn changed() -> Fault {
    Fault::remote("the store received other bytes than were sent")
}

/// The signature of the part did not cover its bytes. The next try signs them.
pub(crate) fn unproved() -> Fault {
    Fault::remote("the store stopped confirming the checksums of parts, so a part is sent again")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Target;
    use crate::entry::Opened;
    use crate::recorder::Order;
    use crate::tests::kit::Kit;
    use crate::tests::media::{AVC, video_of};

    #[test]
    fn bytes_are_unsigned_only_over_tls_and_after_a_repeated_checksum() {
        for (scheme, takes_crcs, repeats, is_signed) in [
            ("http", true, true, true),
            ("https", true, false, true),
            ("https", false, true, true),
            ("https", true, true, false),
        ] {
            let kit = Kit::new();
            kit.host.is_down.store(true, Ordering::SeqCst);
            let target = Target { endpoint: format!("{scheme}://s3.test"), ..kit.own("secret").0 };
            let sealed = target.sealed(&*kit.host).unwrap();
            let order = Order { own: Some((target, sealed)), ..kit.order("s1") };
            kit.record_for(order, video_of(AVC, 0, 30, 25, 100));
            let item = kit.core().table.all().remove(0);
            kit.run(async {
                item.cut().await;
                let opened = Opened { id: "u".into(), takes_crcs };
                kit.core().table.touch(&item, false, |data| data.entry.open_upload("k", opened));
                let to = To::of(kit.core(), &item).await.unwrap().unwrap();
                to.repeats.store(repeats, Ordering::Relaxed);
                assert_eq!(to.is_signed(), is_signed, "{scheme} {takes_crcs} {repeats}");
            });
        }
    }
}
