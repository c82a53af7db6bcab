//! One row for each operation: its credential, its resource and a valid body.

use satcast_media::mp4::made::File;
use serde_json::{Value, json};

use super::world::Resource;
use crate::api::tests::LINKED_DRIVER;
use crate::api::tests::login::PASSWORD;

/// The required credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Takes {
    /// None; a credential is ignored.
    Nothing,
    /// A permanent key with the scope for reading or managing, or a login session.
    Account,
    /// A permanent key with the scope `webhooks`.
    Webhooks,
    /// A login session; keys are refused.
    Session,
    /// The public key of a destination.
    PublicKey,
    /// Any key or session.
    Anything,
}

/// The resource of an operation. A new one is created for each request, in the account of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum About {
    /// None, or the account as a whole.
    All,
    Stream,
    /// A stream with a slate.
    Slate,
    /// A destination by its own id.
    Destination,
    /// A destination and its stream.
    DestinationOfStream,
    /// A self-hosted destination.
    Hosted,
    Key,
    Webhook,
    Delivery,
    Login,
    /// The account's password.
    Password,
    /// An invite link.
    Invite,
    /// A recording whose upload failed.
    Archive,
    Clip,
    /// A live stream with a DVR window.
    Live,
    /// An invoice that buys credit.
    TopUp,
    /// A resource of the service, for operators.
    Operated,
    /// Another account, for operators.
    Account,
}

/// Creates a body for a resource.
type Make = fn(&Resource) -> Value;

/// One operation.
pub(super) struct Row {
    pub(super) id: &'static str,
    pub(super) takes: Takes,
    pub(super) about: About,
    /// A valid body.
    pub(super) body: Option<Make>,
    /// A readable body with a refused value.
    pub(super) refused: Option<Make>,
    /// A file as the body, in place of `body`.
    pub(super) file: Option<fn() -> Vec<u8>>,
}

impl Row {
    const fn of(id: &'static str, takes: Takes, about: About) -> Self {
        Self { id, takes, about, body: None, refused: None, file: None }
    }

    const fn body(self, body: Make) -> Self {
        Self { body: Some(body), ..self }
    }

    const fn file(self, file: fn() -> Vec<u8>) -> Self {
        Self { file: Some(file), ..self }
    }

    const fn refused(self, refused: Make) -> Self {
        Self { refused: Some(refused), ..self }
    }
}

use About::{
    All, Archive, Clip, Delivery, Destination, DestinationOfStream, Hosted, Invite, Key, Login, Password,
};
use About::{Live, Operated, Stream, TopUp, Webhook};
use Takes::{Account, Anything, Nothing, PublicKey, Session, Webhooks};

pub(super) const ROWS: &[Row] = &[
    Row::of("listAccounts", Account, Operated),
    Row::of("createAccount", Account, Operated)
        .body(|it| json!({"name": it.name, "credit": 100}))
        .refused(|it| json!({"name": it.name, "credit": -1})),
    Row::of("changeAccount", Account, About::Account)
        .body(|_| json!({"credit": 100, "disabled": true, "loginLink": true}))
        .refused(|_| json!({"credit": 0})),
    Row::of("getOwnAccount", Account, All),
    Row::of("listArchives", Account, All),
    Row::of("recoverArchive", Account, Archive).body(|it| json!({"fileName": it.name})),
    Row::of("getArchive", Account, Archive),
    Row::of("changeArchive", Account, Archive).body(|_| json!({"public": true})),
    Row::of("deleteArchive", Account, Archive),
    Row::of("createClip", Account, Live)
        .body(|_| json!({"lastSeconds": 5, "title": "The goal"}))
        .refused(|_| json!({"lastSeconds": 0})),
    Row::of("listClips", Account, All),
    Row::of("getClip", Account, Clip),
    Row::of("changeClip", Account, Clip)
        .body(|_| json!({"title": "The save", "public": true}))
        .refused(|_| json!({"title": "x".repeat(129)})),
    Row::of("deleteClip", Account, Clip),
    Row::of("getAuditLog", Account, All),
    Row::of("logIn", Nothing, Password).body(|_| json!({"name": "owner", "password": PASSWORD})),
    Row::of("logOut", Session, All),
    Row::of("changePassword", Session, Password)
        .body(|_| json!({"currentPassword": PASSWORD, "newPassword": "another good one"}))
        .refused(|_| json!({"currentPassword": PASSWORD, "newPassword": "short"})),
    Row::of("listLoginSessions", Account, All),
    Row::of("endLoginSession", Account, Login),
    Row::of("setUp", Nothing, Invite)
        .body(|it| json!({"token": it.name, "name": format!("new{}", it.id), "password": PASSWORD}))
        .refused(|it| json!({"token": it.name, "name": " ", "password": PASSWORD})),
    Row::of("getBandwidthUsage", Account, All),
    Row::of("getDashboardStats", Account, All),
    Row::of("getStreamHistory", Account, All),
    Row::of("deleteDestination", Account, Destination),
    Row::of("listDrivers", Account, All),
    Row::of("changeDriver", Account, Operated)
        .body(|_| json!({"driver": LINKED_DRIVER, "action": "enable"}))
        .refused(|_| json!({"driver": LINKED_DRIVER, "action": "eject"})),
    Row::of("followEvents", Account, All),
    Row::of("listKeys", Account, All),
    Row::of("createKey", Account, Hosted)
        .body(|it| json!({"type": "public", "destinationId": it.id, "label": "site"}))
        .refused(|_| json!({"type": "public"})),
    Row::of("revokeKey", Account, Key),
    Row::of("rotateKey", Account, Key),
    Row::of("getPublicConfig", Nothing, All),
    Row::of("getStreamStatus", PublicKey, All),
    Row::of("getActiveCost", Anything, All),
    Row::of("listStreams", Account, All),
    Row::of("createStream", Account, All)
        .body(|_| json!({"label": "church", "destinations": [rtmp("rtmp://a.example/live")]}))
        .refused(|_| json!({"label": " "})),
    Row::of("deleteStream", Account, Stream),
    Row::of("getStream", Account, Stream),
    Row::of("changeStream", Account, Stream)
        .body(|_| json!({"label": "chapel"}))
        .refused(|_| json!({"label": ""})),
    Row::of("listDestinations", Account, Stream),
    Row::of("addDestination", Account, Stream)
        .body(|_| rtmp("rtmp://a.example/live"))
        .refused(|_| json!({"type": "carrier-pigeon", "config": {}})),
    Row::of("deleteStreamDestination", Account, DestinationOfStream),
    Row::of("changeDestination", Account, DestinationOfStream)
        .body(|_| json!({"enabled": false, "config": {"url": "rtmp://b.example/live"}}))
        .refused(|_| json!({"config": {"url": "http://b.example/live"}})),
    Row::of("setLimits", Account, Stream)
        .body(|_| json!({"maxSats": 100, "maxDurationMinutes": null}))
        .refused(|_| json!({"maxSats": 0})),
    Row::of("rotateStreamKey", Account, Stream),
    Row::of("setSlate", Account, Stream).file(|| File::default().bytes()),
    Row::of("deleteSlate", Account, About::Slate),
    Row::of("stopStream", Account, Stream),
    Row::of("getWalletBalance", Account, All),
    Row::of("getWalletConnection", Account, All),
    Row::of("connectWallet", Account, All)
        .body(|_| {
            json!({"type": "lnbits", "url": "https://ln.example/a", "secret": "0123456789abcdef",
                   "refill": {"thresholdSats": 100, "amountSats": 500, "dailyCapSats": 2000}})
        })
        .refused(|_| json!({"type": "lnbits", "url": "https://127.0.0.1", "secret": "0123456789abcdef"})),
    Row::of("disconnectWallet", Account, All),
    Row::of("createTopUp", Account, All)
        .body(|_| json!({"amountSats": 1000}))
        .refused(|_| json!({"amountSats": 99})),
    Row::of("getTopUp", Account, TopUp),
    Row::of("getWalletLedger", Account, All),
    Row::of("listWebhooks", Webhooks, All),
    Row::of("createWebhook", Webhooks, Stream)
        .body(|it| json!({"url": "https://a.example/in", "events": ["stream.ended"], "stream_key_id": it.id}))
        .refused(|_| json!({"url": "http://a.example/in", "events": ["stream.ended"]})),
    Row::of("deleteWebhook", Webhooks, Webhook),
    Row::of("listWebhookDeliveries", Webhooks, Webhook),
    Row::of("redeliverWebhookDelivery", Webhooks, Delivery),
    Row::of("enableWebhook", Webhooks, Webhook),
    Row::of("rotateWebhookSecret", Webhooks, Webhook),
    Row::of("testWebhook", Webhooks, Webhook),
];

/// A destination of the type `rtmp`.
pub(super) fn rtmp(url: &str) -> Value {
    json!({"type": "rtmp", "config": {"url": url}})
}
