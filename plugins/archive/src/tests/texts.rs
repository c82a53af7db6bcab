//! Texts of failed recordings and uploads for users. No other test repeats them.

use std::io;

use http::StatusCode;
use satcast_plugin_api::{Class, Error};

use crate::disk::disk_failed;
use crate::keeper::{COPIES_TOO_LARGE, COPY_EXPIRED, copy_deleted};
use crate::parts::part;
use crate::table::item::{AGAIN, DELETED, STAYS};
use crate::upload::fault::{Fault, Kind};
use crate::upload::send::{changed, damaged, lost, unproved};
use crate::upload::sockets::{half_answer, silent};
use crate::upload::tls::{no_handshake, not_believed};

#[test]
fn recordings_texts() {
    assert_eq!(DELETED, "the recording was deleted");
    assert_eq!(AGAIN, "; the upload is tried again");
    assert_eq!(
        STAYS,
        ". The upload began before the destination was given another store, and must end at the first store: set the \
         destination back to that store, with keys that work, or delete the recording"
    );
    assert_eq!(
        copy_deleted("no route", COPY_EXPIRED),
        "no route. Its local copy was deleted: its retention time is over (failedDays)"
    );
    assert_eq!(
        copy_deleted("no route", COPIES_TOO_LARGE),
        "no route. Its local copy was deleted: failed recordings use more disk space than failedQuotaBytes allows"
    );
    assert_eq!(disk_failed(io::Error::other("no space")), Error::internal("the local disk failed: no space"));
}

#[test]
fn uploads_texts() {
    let second = std::time::Duration::from_secs(1);
    let (local, remote) = (Class::Internal, Class::Remote);
    for (fault, kind, class, text) in [
        (
            Fault::taken("a/b.mp4"),
            Kind::Final,
            remote,
            "the store already has another object with the name a/b.mp4, which is not overwritten",
        ),
        (
            lost(Error::internal("no file")),
            Kind::Final,
            local,
            "the local copy of the recording cannot be read: no file",
        ),
        (
            damaged(part(2).unwrap()),
            Kind::Final,
            local,
            "part 3 of the local copy is not as it was recorded: the disk or another program has changed it; ask the operator to \
             check the disk",
        ),
        (changed(), Kind::Other, remote, "the store received other bytes than were sent"),
        (
            unproved(),
            Kind::Other,
            remote,
            "the store stopped confirming the checksums of parts, so a part is sent again",
        ),
        (
            silent("a.example", second),
            Kind::Network,
            Class::Network,
            "a.example accepted and sent no data for 1 s",
        ),
        (
            half_answer("a.example"),
            Kind::Network,
            Class::Network,
            "a.example sent an incomplete or too long answer",
        ),
        (
            not_believed("a.example"),
            Kind::Other,
            remote,
            "the certificate of a.example is not trusted; check that it is valid for this name and signed by a known \
             authority",
        ),
        (
            no_handshake("a.example"),
            Kind::Network,
            Class::Network,
            "a.example did not complete the TLS handshake; check that it takes https:// at this port",
        ),
    ] {
        assert_eq!(fault, Fault::new(kind, class, text));
    }
}

#[test]
fn answers_texts() {
    for (status, code, text) in [
        (
            403,
            "AccessDenied",
            "S refused the request (403 AccessDenied); check accessKey, secretKey and what they may do in this bucket",
        ),
        (404, "NoSuchBucket", "S does not exist (404 NoSuchBucket); check endpoint and bucket"),
        (404, "NoSuchKey", "S has no such object or upload (404 NoSuchKey)"),
        (412, "", "S already has another object of this name (412), which is not overwritten"),
        (501, "", "S does not know this kind of request (501)"),
        (503, "SlowDown", "S cannot take the request now (503 SlowDown)"),
        (301, "", "S redirects to another address (301); check endpoint, region and forcePathStyle"),
        (400, "", "S did not accept the request (400)"),
    ] {
        let body = format!("<Error><Code>{code}</Code></Error>");
        let status = StatusCode::from_u16(status).unwrap();
        assert_eq!(Fault::answer(status, body.as_bytes(), "S").to_string(), text);
    }
}
