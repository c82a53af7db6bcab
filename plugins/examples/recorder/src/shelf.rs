//! What viewers may fetch: the file as far as it is written, and a playlist that names it.

use std::time::{SystemTime, UNIX_EPOCH};

use satcast_plugin_api::driver::Ctx;
use satcast_plugin_api::playback::PLAYLIST_TYPE;
use satcast_plugin_api::{Asset, AssetBody, Audience, Error, Playback};

use crate::file::Recording;

/// Name of the playlist viewers enter by.
const ENTRY: &str = "index.m3u8";
/// Name of the recording for viewers.
const PIECE: &str = "recording.flv";
/// How long the playback counts as ready after the last packet, in milliseconds.
const FRESH_MS: u32 = 30_000;

/// Shows viewers the recording as it is now, or takes it away when it is not `listed`.
pub(crate) fn show(ctx: &Ctx, recording: &Recording, listed: bool, ended: bool) -> Result<(), Error> {
    if !listed {
        ctx.retract(PIECE);
        ctx.retract(ENTRY);
        return Ok(());
    }
    // Bytes that are written never change, so the host may read them while more are appended.
    let body = AssetBody::File { path: recording.name().into(), offset: 0, len: recording.len(), keep: None };
    publish(ctx, PIECE, "video/x-flv", body)?;
    let list = format!("#EXTM3U\n#EXTINF:-1,{}\n{PIECE}\n", recording.name());
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
    // The same name comes back with more bytes: nobody may cache it.
    ctx.publish(Asset::new(name, content_type, Audience::Hosted, body))
}
