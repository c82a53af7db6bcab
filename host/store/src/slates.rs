//! Slates: the clip of a stream that plays while its encoder is away. The media is in the database, so that every node has it.

use serde_json::json;

use crate::audit::{Actor, Change, record};
use crate::commands::{CommandTarget, NodeCommand};
use crate::engine::{self, Row, Tx};
use crate::error::{Result, StoreError, db};
use crate::store::{Lock, Store};
use satcast_core::ids::{StreamId, UnixMillis};

/// Most that the slates of an account take in the database, in MiB.
pub(crate) const SLATES_MIB_MAX: i64 = 512;

/// What is known of a slate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlateRecord {
    /// Seconds that it plays at most.
    pub max_seconds: u32,
    /// Length of the clip in milliseconds.
    pub length_ms: i64,
    /// Bytes of the file.
    pub bytes: i64,
    /// Name of the video codec, such as `h264`.
    pub video_codec: String,
    /// Width and height in pixels.
    pub size: (u32, u32),
    /// Frames in a thousand seconds.
    pub frame_rate_milli: u32,
    /// `None`: the clip has no audio.
    pub audio: Option<SlateAudio>,
    pub uploaded_at: UnixMillis,
}

/// The audio of a slate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlateAudio {
    /// Name of the codec, such as `aac`.
    pub codec: String,
    /// Samples per second.
    pub sample_rate: u32,
    pub channels: u8,
}

macro_rules! facts {
    () => {
        "max_seconds, length_ms, media_bytes, video_codec, width, height, frame_rate, audio_codec, sample_rate,
        channels, uploaded_ms"
    };
}
const SELECT_FACTS: &str = concat!("SELECT ", facts!(), " FROM slates WHERE stream_id = $1");
const SELECT_MEDIA: &str = concat!("SELECT ", facts!(), ", media FROM slates WHERE stream_id = $1");
const PUT: &str =
    "INSERT INTO slates (stream_id, max_seconds, length_ms, media_bytes, video_codec, width, height,
    frame_rate, audio_codec, sample_rate, channels, uploaded_ms, media)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
    ON CONFLICT (stream_id) DO UPDATE SET max_seconds = excluded.max_seconds, length_ms = excluded.length_ms,
    media_bytes = excluded.media_bytes, video_codec = excluded.video_codec, width = excluded.width,
    height = excluded.height, frame_rate = excluded.frame_rate, audio_codec = excluded.audio_codec,
    sample_rate = excluded.sample_rate, channels = excluded.channels, uploaded_ms = excluded.uploaded_ms,
    media = excluded.media";
const DELETE: &str = "DELETE FROM slates WHERE stream_id = $1";
const OTHERS_BYTES: &str = "SELECT CAST(COALESCE(SUM(l.media_bytes), 0) AS BIGINT) FROM slates l
    JOIN streams s ON s.id = l.stream_id WHERE s.account_id = $1 AND l.stream_id <> $2";
const OWNED_STREAM: &str = "SELECT id FROM streams WHERE id = $1 AND account_id = $2 AND deleted_ms IS NULL";

impl Store {
    /// Sets or replaces the slate of a stream; `slate.uploaded_at` and `slate.bytes` are those of `actor` and `media`.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::CapReached`] when all slates of the account would take more than 512 MiB.
    pub async fn set_slate(
        &self,
        actor: &Actor,
        stream: StreamId,
        slate: SlateRecord,
        media: Vec<u8>,
    ) -> Result<SlateRecord> {
        let bytes = i64::try_from(media.len()).unwrap_or(i64::MAX);
        let slate = SlateRecord { bytes, uploaded_at: actor.now, ..slate };
        let mut tx = self.begin_holding(Lock::Account(actor.account)).await?;
        find(&mut tx, actor, stream).await?;
        let others = engine::query_scalar(OTHERS_BYTES).bind(actor.account.0).bind(stream.0);
        let others: i64 = others.fetch_one(&mut tx).await.map_err(db("add up the slates"))?;
        if others.saturating_add(bytes) > SLATES_MIB_MAX << 20 {
            return Err(StoreError::CapReached { what: "MiB of slates", limit: SLATES_MIB_MAX });
        }
        let audio = slate.audio.as_ref();
        engine::query(PUT)
            .bind(stream.0)
            .bind(i64::from(slate.max_seconds))
            .bind(slate.length_ms)
            .bind(bytes)
            .bind(&slate.video_codec)
            .bind(i64::from(slate.size.0))
            .bind(i64::from(slate.size.1))
            .bind(i64::from(slate.frame_rate_milli))
            .bind(audio.map(|audio| audio.codec.clone()))
            .bind(audio.map(|audio| i64::from(audio.sample_rate)))
            .bind(audio.map(|audio| i64::from(audio.channels)))
            .bind(actor.now.0)
            .bind(media)
            .execute(&mut tx)
            .await
            .map_err(db("store the slate"))?;
        let detail =
            json!({"bytes": bytes, "seconds": slate.length_ms / 1_000, "maxSeconds": slate.max_seconds});
        let change = Change::new("stream.slate_set", "stream", stream.0, detail);
        let noted = record(&mut tx, actor, change).await?;
        self.command_in(&mut tx, CommandTarget::Stream(stream), NodeCommand::Reload, actor.now).await?;
        self.commit_noted(tx, noted).await?;
        Ok(slate)
    }

    /// Deletes the slate of a stream.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] for the stream, or for a stream without a slate.
    pub async fn delete_slate(&self, actor: &Actor, stream: StreamId) -> Result<()> {
        let mut tx = self.begin_holding(Lock::Account(actor.account)).await?;
        find(&mut tx, actor, stream).await?;
        if !delete_in(&mut tx, stream).await? {
            return Err(StoreError::NotFound("slate"));
        }
        let change = Change::new("stream.slate_deleted", "stream", stream.0, json!({}));
        let noted = record(&mut tx, actor, change).await?;
        self.command_in(&mut tx, CommandTarget::Stream(stream), NodeCommand::Reload, actor.now).await?;
        self.commit_noted(tx, noted).await
    }

    /// What is known of the slate of a stream, without its media.
    pub async fn slate(&self, stream: StreamId) -> Result<Option<SlateRecord>> {
        let failed = db("read the slate");
        let row = engine::query(SELECT_FACTS).bind(stream.0).fetch_optional(&self.0.readers).await;
        row.map_err(&failed)?.map(|row| slate(&row)).transpose().map_err(&failed)
    }

    /// The slate of a stream and its file.
    pub async fn slate_media(&self, stream: StreamId) -> Result<Option<(SlateRecord, Vec<u8>)>> {
        let failed = db("read the slate");
        let row = engine::query(SELECT_MEDIA).bind(stream.0).fetch_optional(&self.0.readers).await;
        let read = |row: Row| Ok((slate(&row)?, row.try_get("media")?));
        row.map_err(&failed)?.map(read).transpose().map_err(&failed)
    }
}

/// Deletes the slate of a stream, if there is one.
pub(crate) async fn delete_in(tx: &mut Tx, stream: StreamId) -> Result<bool> {
    let deleted = engine::query(DELETE).bind(stream.0).execute(tx).await.map_err(db("delete the slate"))?;
    Ok(deleted > 0)
}

/// The stream is one of the account.
async fn find(tx: &mut Tx, actor: &Actor, stream: StreamId) -> Result<()> {
    let found =
        engine::query_scalar(OWNED_STREAM).bind(stream.0).bind(actor.account.0).fetch_optional(tx).await;
    let found: Option<i64> = found.map_err(db("find the stream"))?;
    found.map(drop).ok_or(StoreError::NotFound("stream"))
}

fn slate(row: &Row) -> sqlx::Result<SlateRecord> {
    let number =
        |column: &str| -> sqlx::Result<u32> { Ok(row.try_get::<i64>(column)?.try_into().unwrap_or(0)) };
    let audio: Option<String> = row.try_get("audio_codec")?;
    let audio = audio.map(|codec| {
        let (sample_rate, channels) = (number("sample_rate")?, number("channels")?);
        Ok::<_, sqlx::Error>(SlateAudio { codec, sample_rate, channels: channels.try_into().unwrap_or(0) })
    });
    Ok(SlateRecord {
        max_seconds: number("max_seconds")?,
        length_ms: row.try_get("length_ms")?,
        bytes: row.try_get("media_bytes")?,
        video_codec: row.try_get("video_codec")?,
        size: (number("width")?, number("height")?),
        frame_rate_milli: number("frame_rate")?,
        audio: audio.transpose()?,
        uploaded_at: UnixMillis(row.try_get("uploaded_ms")?),
    })
}
