//! The assets for viewers: the file as far as it is written, and a playlist with it.

use std::time::{SystemTime, UNIX_EPOCH};

use satcast_plugin_api::driver::Ctx;
use satcast_plugin_api::playback::PLAYLIST_TYPE;
use satcast_plugin_api::{Asset, AssetBody, Audience, Error, Playback};

use crate::file::Recording;

/// Name of the playlist where viewers start.
const ENTRY: &str = "index.m3u8";
/// Name of the recording for viewers.
const ASSET: &str = "recording.flv";
/// How long the playback counts as ready after the last packet, in milliseconds.
const FRESH_MS: u32 = 30_000;

/// Publishes the recording as it is now, or retracts it when it is not `listed`.
pub(crate) fn show(ctx: &Ctx, recording: &Recording, listed: bool, ended: bool) -> Result<(), Error> {
    if !listed {
        ctx.retract(ASSET);
        ctx.retract(ENTRY);
        return Ok(());
    }
    // Written bytes never change, so the host may read them while more are appended.
    let body = AssetBody::File { path: recording.name().into(), offset: 0, len: recording.len(), keep: None };
    publish(ctx, ASSET, "video/x-flv", body)?;
    let list = format!("#EXTM3U\n#EXTINF:-1,{}\n{ASSET}\n", recording.name());
    publish(ctx, ENTRY, PLAYLIST_TYPE, AssetBody::Memory(list.into_bytes().into()))?;
    let span_ms = recording.span_ms();
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_millis() as i64);
    ctx.playback(&Playback {
        entry: ENTRY.to_owned(),
        preview: None,
        first_ms: now_ms.saturating_sub_unsigned(span_ms),
        window_ms: span_ms,
        window_max_ms: 0,
        fresh_ms: FRESH_MS,
        ended,
    })
}

fn publish(ctx: &Ctx, name: &str, content_type: &str, body: AssetBody) -> Result<(), Error> {
    // The same name is published again with more bytes, so caches must not keep it.
    ctx.publish(Asset::new(name, content_type, Audience::Hosted, body))
}
