//! The codes of all errors of this API, each with its cause and what to do about it.
//!
//! `cargo xtask docs` reads this declaration and the texts at its uses, and makes `docs/errors.md` from them.

/// Declares the codes: name in the code, name in the response (which never changes), cause, fix.
macro_rules! codes {
    ($($code:ident $name:literal: $cause:literal, $fix:literal;)+) => {
        /// The code of an error, for programs.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Code {
            $(
                #[doc = $cause]
                #[doc = ""]
                #[doc = $fix]
                $code,
            )+
        }

        impl Code {
            #[cfg(test)]
            const ALL: &[Self] = &[$(Self::$code),+];

            /// The code of this name.
            pub(super) fn of(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$code),)+
                    _ => None,
                }
            }

            /// The name in the response.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$code => $name,)+
                }
            }
        }
    };
}

codes! {
    // Every request.
    KeyRequired "key_required":
        "The request has no API key.",
        "Send the key in the header `X-API-Key`.";
    InvalidKey "invalid_key":
        "The key is unknown, was revoked or replaced, or its destination is disabled or deleted; or the address of a recording or clip is older than a day.",
        "Check that you copied the whole key, or create a new one; read the address of the recording or clip again.";
    InvalidSession "invalid_session":
        "The login session has ended.",
        "Log in again.";
    KeyTypeNotAllowed "key_type_not_allowed":
        "The operation needs another kind of key or login.",
        "Use the kind that the text names.";
    ScopeNotAllowed "scope_not_allowed":
        "The key lacks a scope that the request needs.",
        "Use a key with this scope, or create one by `POST /api/keys` or `satcast key create`.";
    SessionRequired "session_required":
        "The operation is for people who have logged in, not for keys.",
        "Log in by `POST /api/auth/login`.";
    CsrfHeaderMissing "csrf_header_missing":
        "A page changed something with the login cookie, but without the header that protects against foreign pages.",
        "Send the header `X-Requested-With` with any value.";
    NotOperator "not_operator":
        "The account is not an operator of this service.",
        "Ask the operator, or use a key of an operator account.";
    RateLimited "rate_limited":
        "The key, account or network has sent too many requests.",
        "Wait as many seconds as `retryAfter` says, then try again.";
    NotFound "not_found":
        "The path or the resource does not exist, or it belongs to another account.",
        "Check the path and the id; the list of the resources has the ids.";
    MethodNotAllowed "method_not_allowed":
        "The path does not support this HTTP method.",
        "Use a method from the `Allow` header.";
    Internal "internal":
        "The service has a fault.",
        "Give the `requestId` to the operator, who finds the cause in the log.";
    StoreFailed "store_failed":
        "The database of the service failed or did not answer.",
        "Try again; if it fails again, give the `requestId` to the operator.";
    NotReady "not_ready":
        "A part of the service is not ready; `reasons` names it.",
        "Wait until `/readyz` answers with 200.";
    PagesNotBuilt "pages_not_built":
        "The folder `web` beside the binary lacks the pages or the manual.",
        "The operator builds them or installs a release, then restarts the service.";

    // Bodies and parameters.
    Malformed "malformed":
        "The service cannot read the request.",
        "Compare the request with the API reference at `/docs`.";
    MalformedBody "malformed_body":
        "The request body is not JSON, is incomplete, or came too slowly.",
        "Send a complete JSON object.";
    MalformedField "malformed_field":
        "A field is missing or has the wrong type.",
        "Correct the field that the text names.";
    UnknownField "unknown_field":
        "The request body has a field that the operation does not know.",
        "Check the spelling, or leave the field out.";
    UnexpectedBody "unexpected_body":
        "The operation takes no request body, but the request has one.",
        "Send no body, or `{}`.";
    NothingToChange "nothing_to_change":
        "The request has none of the fields that can be changed.",
        "Send at least one of the fields that the text names.";
    MalformedParameter "malformed_parameter":
        "A query parameter has a value that cannot be used.",
        "Correct the parameter that the text names.";
    MalformedPath "malformed_path":
        "An id in the path is not a number.",
        "Take the id from the list of the resources.";
    BodyTooLarge "body_too_large":
        "The request body is larger than the limit in the text.",
        "Send less in one request.";
    ContentTypeNotSupported "content_type_not_supported":
        "The request body was not announced as JSON, a slate as MP4, or an offer of WHIP as SDP.",
        "Send the header `Content-Type` that the text names.";
    MalformedIdempotencyKey "malformed_idempotency_key":
        "The header `Idempotency-Key` is empty, too long, sent twice, or has other characters than ASCII.",
        "Send one short random text, such as a UUID.";
    IdempotencyInProgress "idempotency_in_progress":
        "The first request with this `Idempotency-Key` has not ended.",
        "Send the same request again in a second.";
    IdempotencyKeyReused "idempotency_key_reused":
        "Another request with a different body had this `Idempotency-Key`.",
        "Make a new key for each new request.";
    IdempotencyFull "idempotency_full":
        "The account has used too many values of `Idempotency-Key` within a day.",
        "Send the request without the header, or wait a day.";

    // Accounts and keys.
    InvalidLogin "invalid_login":
        "The account name or the password is wrong.",
        "Check both; without the password the operator can still make a key with `satcast key create`.";
    Busy "busy":
        "Too many logins, webhook tests or uploads run at the same time.",
        "Try again in a few seconds.";
    AccountDisabled "account_disabled":
        "An operator of the service has disabled the account.",
        "Ask the operator.";
    OwnAccount "own_account":
        "An operator has tried to disable its own account.",
        "Use another operator account.";
    RegistrationClosed "registration_closed":
        "New accounts need an invite link on this service.",
        "Ask the operator for a link.";
    NameRefused "name_refused":
        "The account name is empty, too long, or has characters that cannot be printed.",
        "Choose another name.";
    NameTaken "name_taken":
        "Another account has this name.",
        "Choose another name.";
    PasswordRefused "password_refused":
        "The new password is too short or too long, or the current password is wrong.",
        "Correct the field that the text names.";
    KeyRefused "key_refused":
        "The fields of the new key do not fit together.",
        "Follow the text: a public key has a destination, and a permanent key has scopes.";
    LabelRefused "label_refused":
        "The label has a wrong length, or a line break or another control character.",
        "Choose another label.";
    AddressesRefused "addresses_refused":
        "The list of addresses has an entry that is not an address or network, or too many entries.",
        "Correct the entry that the text names.";
    CapReached "cap_reached":
        "The account has as many of these resources as the service allows.",
        "Delete one first, or ask the operator for a higher limit.";
    TooManyStreams "too_many_streams":
        "The account or the service has as many open event streams as it allows.",
        "Close pages and programs that follow events, then try again.";

    // Streams and destinations.
    LimitRefused "limit_refused":
        "A limit of the stream is not a number in its range, or none was sent.",
        "Send a number in the range of the text, or null to remove the limit.";
    PassphraseRefused "passphrase_refused":
        "The SRT passphrase of the stream is too short, too long, or holds other characters than ASCII.",
        "Send 10 to 79 ASCII characters, or null to remove the passphrase.";
    DelayRefused "delay_refused":
        "A delay is not a number of seconds in its range.",
        "Send a number in the range of the text.";
    UnknownDestinationType "unknown_destination_type":
        "No driver of this service has this destination type.",
        "Use a type that the text lists, or ask the operator to enable the driver.";
    AddressRefused "address_refused":
        "The destination's address is private, or no address at all.",
        "Check the address; the operator can allow private addresses.";
    ConfigRefused "config_refused":
        "The driver refused a setting of the destination, or its store refused the test.",
        "Correct the field that the text names.";
    DriverUnavailable "driver_unavailable":
        "The driver of this destination type fails, or has put the account in quarantine.",
        "Try again later, then tell the operator.";
    ActionRefused "action_refused":
        "The action on a driver is unknown.",
        "Use one of the actions in the text.";
    DriverRefused "driver_refused":
        "The driver could not be loaded or replaced.",
        "Mend what the text names, then try again.";
    NoPlayback "no_playback":
        "The destination has no playback, but public keys are for playback.",
        "Create the key for a destination of a type with playback, such as `self-hosted`.";

    SlateUnreadable "slate_unreadable":
        "The slate is not an ordinary MP4 that can be read, or its media is in fragments.",
        "Export the clip again as MP4; with ffmpeg, add `-movflags +faststart`.";
    SlateNoVideo "slate_no_video":
        "The slate has no video.",
        "Upload a clip with video.";
    SlateCodec "slate_codec":
        "The slate has a codec that the service does not relay, a pixel format that not every player takes, or more than one track of a kind.",
        "Encode the clip as H.264 with AAC, and keep one video and at most one audio track.";
    SlateFirstFrame "slate_first_frame":
        "The video of the slate does not begin with a keyframe.",
        "Encode the clip again, or cut it at a keyframe.";
    SlateEdits "slate_edits":
        "The slate has an edit list that cuts, repeats or delays media.",
        "Export the clip again without edits; with ffmpeg, encode it instead of copying.";
    SlateLength "slate_length":
        "The slate is too short or too long, has too many frames or a too high rate, or its audio and video differ in length.",
        "Send a clip of half a second to two minutes; with ffmpeg, add `-shortest`.";
    SlateDiffers "slate_mismatch":
        "The slate differs from the media of the live encoder.",
        "Make the clip with the settings of the encoder that the text names.";

    // Recordings.
    ArchiveRecording "archive_recording":
        "The recording cannot be deleted while it is being made.",
        "Stop the stream first.";
    ArchiveNotFailed "archive_not_failed":
        "Only a failed recording can be recovered, and this one has not failed.",
        "Wait until the upload ends; `state` of the recording has the outcome.";
    ArchiveNoCopy "archive_no_copy":
        "The service has deleted its local copy of the recording.",
        "Recover a recording sooner after it has failed; this one is lost.";
    ArchiveLost "archive_lost":
        "The driver no longer knows the recording.",
        "Delete it from the list.";
    ClipRangeRefused "clip_range_refused":
        "The range of a clip is missing, too long, or not a range.",
        "Send `lastSeconds`, or `from` and `to`, within the limit that the text names.";
    ClipNoMedia "clip_no_media":
        "The service has no media of this range: neither the DVR window of a live stream nor a recording reaches it.",
        "Choose a range that the DVR window or a recording has; the last seconds are those of a live stream with `dvrSeconds`.";
    ClipNoStore "clip_no_store":
        "The stream has no place for a clip.",
        "Add a destination of type `cloud-archive` to the stream, or ask the operator for a store for all.";
    ClipElsewhere "clip_elsewhere":
        "Another node has the DVR window of the live stream, or the recording.",
        "Send the request to that node.";
    ClipsBusy "clips_busy":
        "So many clips are being made that no other one can begin.",
        "Wait until some are ready, then try again.";
    ArchiveUnavailable "archive_unavailable":
        "The driver of the recording or its store does not respond.",
        "Try again later; check the store's address and keys.";

    // Credit and wallets.
    CreditRefused "credit_refused":
        "The credit of an account is not a number of sats in its range.",
        "Send an amount in the range of the text.";
    InsufficientFunds "insufficient_funds":
        "The account has less credit than the operation costs.",
        "Top up, then try again.";
    AmountRefused "amount_refused":
        "The amount of the top-up is not a number of sats in the range of the service.",
        "Send an amount in the range of the text.";
    WalletNotOffered "wallet_not_offered":
        "The service has no Lightning wallet that could receive payments.",
        "Ask the operator for credit.";
    ServiceWalletFailed "service_wallet_failed":
        "The wallet of the service did not create an invoice.",
        "Try again in a moment, then tell the operator.";
    WalletTypeRefused "wallet_type_refused":
        "The kind of wallet is unknown.",
        "Use one of the kinds in the text.";
    WalletRefused "wallet_refused":
        "The address or the secret of the wallet has the wrong form.",
        "Copy both from the wallet again.";
    WalletSecretRequired "wallet_secret_required":
        "The service has no stored secret for this wallet address.",
        "Send `secret` in full.";
    RefillRefused "refill_refused":
        "A rule for refills is not a number of sats in its range.",
        "Send a number in the range of the text.";
    WalletSilent "wallet_silent":
        "The connected wallet does not respond, and the last known balance is too old to show.",
        "Check that the wallet is online, then try again.";
    WalletAddressRefused "wallet_address_refused":
        "The address of the wallet is private or does not exist.",
        "Check the address; the operator can allow private addresses.";
    WalletUnreachable "wallet_unreachable":
        "The service cannot connect to the wallet.",
        "Check that the wallet is online and its address is right.";
    WalletTimeout "wallet_timeout":
        "The wallet did not answer in time.",
        "Check that the wallet is online, then try again.";
    WalletUnauthorized "wallet_unauthorized":
        "The wallet refused the key, password or connection text.",
        "Copy it from the wallet again.";
    WalletRestricted "wallet_restricted":
        "The key is valid, but the wallet does not let it pay or read the balance.",
        "Create a key in the wallet that may do both.";
    WalletInsufficientBalance "wallet_insufficient_balance":
        "The connected wallet holds too few sats.",
        "Put sats into the wallet.";
    WalletQuotaExceeded "wallet_quota_exceeded":
        "The wallet's own budget for this connection is used up.",
        "Raise the budget in the wallet, or wait until it starts again.";
    WalletRateLimited "wallet_rate_limited":
        "The wallet gets too many requests.",
        "Try again in a minute.";
    WalletPaymentFailed "wallet_payment_failed":
        "The wallet found no route for the payment, or the payment failed on the way.",
        "Try again later, or check the channels of the wallet.";
    WalletNotSupported "wallet_not_supported":
        "The wallet cannot do something that refills need.",
        "Connect another wallet, or update this one.";
    WalletInternal "wallet_internal":
        "The wallet answered with an error or with something that the service does not understand.",
        "Check the wallet, then try again.";

    // Webhooks.
    EventRefused "event_refused":
        "The list of events is empty, or has an unknown or repeated name.",
        "Use the names in the text.";
    UrlRefused "url_refused":
        "The webhook's URL has the wrong form or leads to a private address.",
        "Correct the URL; the operator can allow private addresses.";
    SecretRefused "secret_refused":
        "The signing secret has a wrong length or form.",
        "Send a longer secret, or `auto`.";
    WebhookDisabled "webhook_disabled":
        "The webhook is disabled, so nothing can be sent to it.",
        "Enable the webhook first.";

    // Playback.
    Offline "offline":
        "The stream is not live.",
        "Start the encoder; players may try again.";
    Starting "starting":
        "The stream has just started, and its first segment is not ready.",
        "Try again in a second.";
    OriginNotAllowed "origin_not_allowed":
        "The destination lists the websites that may play it, and this one is not in the list.",
        "The owner adds the origin to the allowed origins of the destination.";
    KeyRepeated "key_repeated":
        "The key stands in the URL a second time.",
        "Send the key once, as `apiKey`.";
    RequestTooLong "request_too_long":
        "The path or the query is too long for the driver.",
        "Send a shorter URL.";
    MalformedDirective "malformed_directive":
        "A parameter of the playlist request is no number, or asks for media far ahead of the stream.",
        "Players send these by themselves; request the playlist without them.";
    RangeNotSatisfiable "range_not_satisfiable":
        "The requested range starts after the end of the file.",
        "Request a range within the size in the `Content-Range` header.";
    AssetUnreadable "piece_unreadable":
        "The disk of the service, or the store of the recording or clip, failed to give a file.",
        "Try again; if it lasts, tell the operator.";
    TooManyWaiting "too_many_waiting":
        "Too many viewers wait for the newest media of this stream.",
        "Request the playlist without `_HLS_msn`; the delay is a little longer.";
    NotInTime "not_in_time":
        "The encoder is not sending, so the requested media did not appear.",
        "Check the encoder; players may try again.";
    NodeSilent "node_silent":
        "The stream or recording is at another node of the service, which does not answer.",
        "Try again; after the lease of a lost node the stream is offline until its encoder comes back.";
    RecordingElsewhere "recording_elsewhere":
        "Another node of the service keeps the recording, and does not run.",
        "Try again when that node is back; the operator sees it with `satcast node list`.";
    TooManyReaders "too_many_readers":
        "The service, or the account, reads recordings for as many viewers as it can at a time.",
        "Try again in a second, as players do by themselves.";
    RelayFull "relay_full":
        "This node plays too many streams and recordings of other nodes.",
        "Try again; if it lasts, tell the operator.";
    DriverFailed "driver_failed":
        "The driver of the destination has a fault.",
        "Try again; if it fails again, tell the operator.";
    DriverBusy "driver_busy":
        "Too many requests wait for the driver of the destination.",
        "Try again in a second.";
    DriverSilent "driver_silent":
        "The driver of the destination takes too long to answer.",
        "Try again; if it lasts, tell the operator.";

    // Encoders by WHIP.
    WhipOff "whip_off":
        "The service takes no encoders by WHIP.",
        "Use RTMP or SRT, or ask the operator to set `[ingest] webrtc_listen`.";
    PublishRefused "publish_refused":
        "The stream may not be published now, or not from this address; the text says why.",
        "Do what the text says; the page of the stream shows the refusal too.";
    AlreadyPublished "already_published":
        "Another encoder publishes with this stream key.",
        "Stop the other encoder, or use the key of another stream.";
    CodecRefused "codec_refused":
        "The offer has no codec that the service takes.",
        "Choose H.264, HEVC or AV1 for video, and Opus for audio.";
    TooManyEncoders "too_many_encoders":
        "Too many encoders are connected, or too many wrong stream keys came from this address.",
        "Wait as many seconds as `retryAfter` says, then try again.";
    PublishUnavailable "publish_unavailable":
        "The service cannot take encoders at the moment: its database does not answer, or it shuts down.",
        "Try again after some seconds.";
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique_and_in_snake_case() {
        let names: BTreeSet<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(names.len(), Code::ALL.len());
        for name in names {
            let is_word = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase());
            assert!(name.split('_').all(is_word), "{name}");
        }
    }
}
