//! Admission: from a publish request to a publisher, or a refusal with a reason.

use std::future::Future;
use std::net::IpAddr;

use satcast_media::Packet;
use satcast_media::flv::ForeignCodec;

use crate::{EncoderRole, LinkHealth, Live, Publisher, Via};
use satcast_core::ids::{AccountId, SessionId, StreamId};
use satcast_core::secret::{BACKUP_KEY_PREFIX, Redacted, STREAM_KEY_PREFIX, key_hash, mask_key};
use satcast_store::{Store, StreamRecord};

/// Random characters of a stream key after its prefix.
const STREAM_KEY_BODY_CHARS: usize = 32;

/// RTMP status: the stream key is already in use.
pub(super) const CODE_BAD_NAME: &str = "NetStream.Publish.BadName";
/// RTMP status: this encoder may not publish. Also for wrong keys: OBS and ffmpeg treat it like [`CODE_BAD_NAME`], but forwarding
/// services read that code as "still publishing" and return within seconds.
pub(super) const CODE_DENIED: &str = "NetStream.Publish.Denied";
/// RTMP status: the server failed; a retry may help.
pub(super) const CODE_FAILED: &str = "NetStream.Failed";

/// The passphrase of an SRT caller is wrong; not an RTMP status.
pub(super) const CODE_BAD_SECRET: &str = "SRT.BadSecret";
/// Of an SRT caller and its stream, one has a passphrase and the other has none.
pub(super) const CODE_UNSECURE: &str = "SRT.Unsecure";

/// The offer of a WHIP sender cannot be read.
pub(super) const CODE_OFFER: &str = "WHIP.Offer";
/// The offer of a WHIP sender has no codec that is taken.
pub(super) const CODE_NO_CODEC: &str = "WHIP.NoCodec";

/// Starts or continues the session of a stream after its key was accepted. Implemented by the live sessions.
pub trait Admission: Send + Sync + 'static {
    /// Takes the packets of an accepted encoder.
    type Publisher: PacketSink;

    /// A publisher for the stream, or the status for its encoder: already published, stopped, no credit. `role`: by the key of the
    /// encoder; `via`: the streams that its media has passed through; `address`: that of the encoder. Completes even when the
    /// encoder has left; the publisher is dropped
    /// then.
    fn publish(
        &self,
        stream: StreamRecord,
        role: EncoderRole,
        via: Via,
        address: IpAddr,
    ) -> impl Future<Output = Result<Self::Publisher, Status>> + Send;

    /// An encoder with the key of the stream was refused with this status: at its publish request, or because it sends nothing usable.
    fn refused(&self, stream: StreamId, status: &Status);
}

/// Takes the packets of one encoder. Dropping it means that the encoder has left.
pub trait PacketSink: Send + Sync + 'static {
    /// The session that gets the packets, for log lines.
    fn session(&self) -> Option<&SessionId> {
        None
    }

    /// Drains the vector in order. Never waits.
    fn push(&mut self, packets: &mut Vec<Packet>);

    /// A track has an unsupported codec; called once for each kind of track.
    fn foreign(&mut self, codec: ForeignCodec);

    /// The encoder ended its publish; the drop follows.
    fn unpublished(&mut self) {}

    /// The media has passed through these streams; called before the first media.
    ///
    /// # Errors
    /// The encoder has to leave: the media comes from the stream itself, or from too many.
    fn came_through(&mut self, _: Via) -> Result<(), Status> {
        Ok(())
    }

    /// Numbers of a connection by SRT or WHIP, about once a second.
    fn link(&mut self, _: LinkHealth) {}

    /// Resolves when the encoder has to leave. May be called and dropped any number of times.
    fn closed(&self) -> impl Future<Output = Status> + Send;
}

impl Admission for Live {
    type Publisher = Publisher;

    async fn publish(
        &self,
        stream: StreamRecord,
        role: EncoderRole,
        via: Via,
        address: IpAddr,
    ) -> Result<Publisher, Status> {
        let refused = Live::publish_from(self, stream, role, via, Some(address)).await;
        refused.map_err(|refused| Status { code: refused.code, reason: refused.reason })
    }

    fn refused(&self, stream: StreamId, status: &Status) {
        self.note_refusal(stream, status.code, &status.reason);
    }
}

impl PacketSink for Publisher {
    fn session(&self) -> Option<&SessionId> {
        Some(self.session_id())
    }

    fn push(&mut self, packets: &mut Vec<Packet>) {
        Publisher::push(self, packets);
    }

    fn foreign(&mut self, codec: ForeignCodec) {
        Publisher::foreign(self, codec);
    }

    fn unpublished(&mut self) {
        Publisher::unpublished(self);
    }

    fn came_through(&mut self, via: Via) -> Result<(), Status> {
        Publisher::came_through(self, &via)
            .map_err(|closed| Status { code: closed.code, reason: closed.reason })
    }

    fn link(&mut self, link: LinkHealth) {
        Publisher::link(self, link);
    }

    async fn closed(&self) -> Status {
        let closed = Publisher::closed(self).await;
        Status { code: closed.code, reason: closed.reason }
    }
}

/// The status for an encoder that may not publish or has to leave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// RTMP status code, e.g. `NetStream.Publish.BadName`.
    pub code: &'static str,
    /// One sentence for the user of the encoder, without secrets.
    pub reason: String,
}

pub(super) const UNKNOWN_KEY: &str = "unknown stream key; it may have been replaced, copy it again";

impl Status {
    pub(super) fn new(code: &'static str, reason: impl Into<String>) -> Self {
        Self { code, reason: reason.into() }
    }

    /// The request holds no text with the form of a stream key.
    pub(super) fn no_key() -> Self {
        Self::new(
            CODE_DENIED,
            "no valid stream key was sent; copy the whole key of your stream into the encoder",
        )
    }

    pub(super) fn unknown_key() -> Self {
        Self::new(CODE_DENIED, UNKNOWN_KEY)
    }

    /// The owner of the stream allows other addresses only.
    pub(super) fn wrong_address() -> Self {
        Self::new(
            CODE_DENIED,
            "this stream key may not be used from your address; add the address to allowedAddresses of the stream",
        )
    }

    /// No track can be used.
    pub(super) fn unusable(text: &str) -> Self {
        Self::new(CODE_DENIED, text)
    }

    /// The service failed, not the encoder. The cause goes to the operator's log only.
    pub(super) fn unavailable() -> Self {
        Self::new(CODE_FAILED, "the server cannot check the stream key at the moment; try again shortly")
    }
}

/// An accepted encoder.
#[derive(Debug)]
pub(super) struct Admitted<P> {
    pub(super) account: AccountId,
    pub(super) stream: StreamId,
    pub(super) publisher: P,
}

/// Why an encoder may not publish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Denied {
    /// No stream has this key. Counts against the encoder's address.
    UnknownKey,
    /// The key is valid, but its owner allows other addresses only. Counts against the encoder's address.
    WrongAddress(StreamId),
    /// The key is valid, but its stream cannot be published now.
    Refused(StreamId, Status),
    /// The service could not decide; the text is for the operator's log.
    Unavailable(String),
}

/// Looks up the key, checks that it may be used from `address`, and requests a publisher. `fits` checks what only the
/// protocol of the encoder has.
pub(super) async fn admit<A: Admission, T>(
    store: &Store,
    admission: &A,
    key: &StreamKey,
    via: Via,
    address: IpAddr,
    fits: impl FnOnce(&StreamRecord) -> Result<T, Denied>,
) -> Result<(Admitted<A::Publisher>, T), Denied> {
    let found = store.stream_by_key_hash(&key.hash()).await;
    let stream = found.map_err(|error| Denied::Unavailable(error.to_string()))?.ok_or(Denied::UnknownKey)?;
    let (account, id) = (stream.account_id, stream.id);
    if !stream.allowed.allow(address) {
        return Err(Denied::WrongAddress(id));
    }
    let fitting = fits(&stream)?;
    let publisher = admission.publish(stream, key.role(), via, address).await;
    let publisher = publisher.map_err(|status| Denied::Refused(id, status))?;
    // A replaced key ends the session of that moment. The second look-up refuses an encoder that entered with the old key after that.
    let current = store.stream_by_key_hash(&key.hash()).await;
    let current =
        current.map_err(|error| Denied::Unavailable(error.to_string()))?.ok_or(Denied::UnknownKey)?;
    if !current.allowed.allow(address) {
        return Err(Denied::WrongAddress(id));
    }
    Ok((Admitted { account, stream: id, publisher }, fitting))
}

/// A well-formed stream key or backup key that was not looked up yet. `Debug` does not show it.
#[derive(Debug, Clone)]
pub(super) struct StreamKey(Redacted<String>);

impl StreamKey {
    /// The key in a publish request, in any place where users paste it: as the publish name (`rtmp://host/live` and the key),
    /// as `?key=` behind it, or as the last part of the app (`rtmp://host/live/KEY` and nothing, or `?key=` there).
    /// The first text with the form of a stream key wins, so a file name or a default name does not hide it.
    pub(super) fn find(app: &str, name: &str, query: Option<&str>) -> Option<Self> {
        let (app_path, app_query) = split_query(app);
        let (name_path, name_query) = split_query(name);
        [
            Some(last_part(name_path)),
            query.and_then(key_parameter),
            name_query.and_then(key_parameter),
            Some(last_part(app_path)),
            app_query.and_then(key_parameter),
        ]
        .into_iter()
        .flatten()
        .map(str::trim)
        .find(|text| has_key_form(text))
        .map(|text| Self(Redacted::new(text.to_owned())))
    }

    /// The hash of the stream key in the database, also for a backup key.
    pub(super) fn hash(&self) -> [u8; 32] {
        match self.0.expose().strip_prefix(BACKUP_KEY_PREFIX) {
            Some(body) => key_hash(&format!("{STREAM_KEY_PREFIX}{body}")),
            None => key_hash(self.0.expose()),
        }
    }

    /// The place of an encoder with this key.
    pub(super) fn role(&self) -> EncoderRole {
        match self.0.expose().starts_with(BACKUP_KEY_PREFIX) {
            true => EncoderRole::Backup,
            false => EncoderRole::Primary,
        }
    }

    /// First and last characters, for the log.
    pub(super) fn mask(&self) -> String {
        mask_key(self.0.expose())
    }
}

/// Checks prefix, length and alphabet, so that a scanner's guess or a truncated key costs no database read.
fn has_key_form(text: &str) -> bool {
    let body = text.strip_prefix(STREAM_KEY_PREFIX).or_else(|| text.strip_prefix(BACKUP_KEY_PREFIX));
    body.is_some_and(|body| {
        body.len() == STREAM_KEY_BODY_CHARS && body.bytes().all(|byte| byte.is_ascii_alphanumeric())
    })
}

fn split_query(text: &str) -> (&str, Option<&str>) {
    text.split_once('?').map_or((text, None), |(path, query)| (path, Some(query)))
}

fn last_part(path: &str) -> &str {
    let path = path.trim_end_matches('/');
    path.rsplit('/').next().unwrap_or(path)
}

fn key_parameter(query: &str) -> Option<&str> {
    query.split('&').find_map(|pair| pair.strip_prefix("key="))
}

/// Whether the encoder uses the app of the documented ingest URL. Other apps work too, since only the key decides.
pub(super) fn is_documented_app(app: &str) -> bool {
    app.split(['/', '?']).next() == Some("live")
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "live_0123456789abcdefghijABCDEFGHIJ01";

    fn found(app: &str, name: &str, query: Option<&str>) -> Option<String> {
        StreamKey::find(app, name, query).map(|key| key.0.into_inner())
    }

    #[test]
    fn the_key_is_found_wherever_users_paste_it() {
        let with_key = format!("key={KEY}");
        let more = format!("x=1&key={KEY}&token=a%20b");
        for (app, name, query) in [
            ("live", KEY, None),
            ("live", KEY, Some("token=1")),
            ("anything", KEY, None),
            ("", KEY, None),
            ("live", &format!("  {KEY}\r\n"), None),
            ("live", &format!("/{KEY}"), None),
            ("live", &format!("{KEY}/"), None),
            ("live", &format!("inst/{KEY}"), None),
            (&format!("live/{KEY}"), "", None),
            (&format!("live/{KEY}/"), "", None),
            (&format!("live/inst/{KEY}"), "obs", None),
            (KEY, "", None),
            ("live", "", Some(&with_key)),
            ("live", "obs", Some(&more)),
            ("live", &format!("obs?{more}"), None),
            (&format!("live?{with_key}"), "", None),
            (&format!("live/?{more}"), "obs", None),
        ] {
            assert_eq!(found(app, name, query).as_deref(), Some(KEY), "{app} {name} {query:?}");
        }
    }

    #[test]
    fn the_publish_name_wins_over_other_places() {
        let other = KEY.replace('0', "z");
        assert_eq!(found(&format!("live/{other}"), KEY, Some(&format!("key={other}"))).as_deref(), Some(KEY));
        assert_eq!(found(&format!("live/{other}"), "", Some(&format!("key={KEY}"))).as_deref(), Some(KEY));
    }

    #[test]
    fn a_backup_key_has_the_hash_of_its_stream_key() {
        let role = |text: &str| {
            let key = StreamKey::find("live", text, None).unwrap();
            assert_eq!(key.hash(), key_hash(KEY));
            (key.role(), key.mask())
        };
        assert_eq!(role(KEY), (EncoderRole::Primary, "liv...J01".to_owned()));
        let backup = satcast_core::secret::backup_key(KEY);
        assert_eq!(role(backup.expose()), (EncoderRole::Backup, "bac...J01".to_owned()));
    }

    #[test]
    fn texts_of_another_form_are_no_keys() {
        for name in [
            "",
            "stream",
            "live_",
            &KEY[..KEY.len() - 1],
            &format!("{KEY}0"),
            &KEY.replace("live_", "LIVE_"),
            &KEY.replace("live_", "sk_"),
            &KEY.replace('0', "-"),
            &KEY.replace('0', "é"),
            &KEY.replace('0', "%30"),
            &KEY.replace('0', "\0"),
        ] {
            assert_eq!(found("live", name, None), None, "{name}");
        }
        assert_eq!(found("live", "x", Some(&format!("monkey={KEY}"))), None);
        assert_eq!(found("live", "x", Some(&format!("key=a&key={KEY}"))), None, "the first parameter counts");
    }

    #[test]
    fn a_key_shows_only_its_mask() {
        let key = StreamKey::find("live", KEY, None).unwrap();
        assert_eq!(key.mask(), "liv...J01");
        assert!(!format!("{key:?}").contains("0123"));
        assert_eq!(key.hash(), key_hash(KEY));
    }

    #[test]
    fn only_the_first_part_of_the_app_is_documented() {
        for app in ["live", "live/x", "live?x"] {
            assert!(is_documented_app(app), "{app}");
        }
        for app in ["", "app", "livestream", "x/live"] {
            assert!(!is_documented_app(app), "{app}");
        }
    }
}
