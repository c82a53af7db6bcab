use super::*;
use crate::login::{Question, proofs};

fn target() -> Target {
    Target::parse("rtmp://u:hunter2@a.example/live/sesame-open?sig=0123456789", None).unwrap()
}

#[test]
fn codes_have_their_class() {
    let seconds = Duration::from_secs;
    for (code, class, floor) in [
        ("NetConnection.Connect.Rejected", Class::Auth, Some(seconds(60))),
        ("NetConnection.Connect.InvalidApp", Class::Auth, Some(seconds(60))),
        ("NetStream.Publish.Denied", Class::Auth, Some(seconds(60))),
        ("", Class::Auth, Some(seconds(60))),
        ("NetStream.Publish.BadName", Class::Remote, Some(seconds(10))),
        ("NetConnection.Connect.AppShutdown", Class::Remote, None),
        ("NetConnection.Connect.Closed", Class::Remote, None),
        ("NetStream.Publish.Failed", Class::Remote, None),
    ] {
        let error = refused(&target(), &[], code, "");
        assert_eq!((error.class, error.retry_after), (class, floor), "{code}");
    }
}

#[test]
fn a_close_right_after_accepting_counts_as_a_refusal() {
    let soon = |after| soon(&target(), closed(&target()), after);
    let refused = soon(SECOND_THOUGHT_MAX - Duration::from_millis(1));
    assert_eq!((refused.class, refused.retry_after), (Class::Remote, Some(NAME_TAKEN_RETRY_FLOOR)));
    assert_ne!(refused.message, closed(&target()).message);
    assert_eq!(soon(SECOND_THOUGHT_MAX), closed(&target()), "later it is an ordinary disconnect");
    let other = Error::remote("something else");
    assert_eq!(super::soon(&target(), other.clone(), Duration::ZERO), other);
}

#[test]
fn other_protocols_are_recognised_by_their_first_bytes() {
    let secure = Target::parse("rtmps://a.example/live/k", None).unwrap();
    let alert = [21, 3, 1, 0, 2, 2, 70];
    assert!(foreign(&target(), &alert).is_some());
    assert_eq!(foreign(&secure, &alert), None, "TLS is already in use");
    for target in [&target(), &secure] {
        let web = foreign(target, b"HTTP/1.0 400 Bad Request");
        assert!(web.is_some() && web != foreign(target, &alert), "{target}");
        for first in [&[3, 0, 0, 0, 0][..], &[], &[21], &[21, 3], &[21, 3, 9], b"HTTP"] {
            assert_eq!(foreign(target, first), None, "{first:?}");
        }
    }
}

#[test]
fn refusals_texts() {
    let plain = Target::parse("rtmp://a.example/live/sesame-open", None).unwrap();
    let asks = "[ AccessManager.Reject ] : [ code=403 need auth; authmod=adobe ] : ";
    let (rejected, failed) = ("NetConnection.Connect.Rejected", "NetStream.Publish.Failed");
    for (error, text) in [
        (
            refused(&plain, &[], BAD_NAME, ""),
            "a.example:1935 refused the stream: NetStream.Publish.BadName; it may still be publishing at the server, from \
             before a break or from another encoder; if this goes on, check url and key",
        ),
        (
            refused(&target(), &[], BAD_NAME, ""),
            "a.example:1935 refused the stream: NetStream.Publish.BadName; it may still be publishing at the server, from \
             before a break or from another encoder; if this goes on, check url, key and login",
        ),
        (
            refused(&plain, &[], rejected, asks),
            "a.example:1935 refused the stream: NetConnection.Connect.Rejected ([ AccessManager.Reject ] : [ code=403 \
             need auth; authmod=adobe ] : ); it asks for a login; give rtmp://user:password@host/app",
        ),
        (
            refused(&target(), &[], "", "go away"),
            "a.example:1935 refused the stream: go away; check url, key and login",
        ),
        (
            refused(&plain, &[], failed, ""),
            "a.example:1935 could not take the stream: NetStream.Publish.Failed",
        ),
        (ended(&plain, &[], "", ""), "a.example:1935 ended the stream: it gave no reason"),
    ] {
        assert_eq!(error.message, text);
    }
}

#[test]
fn connections_texts() {
    let target = target();
    let alert = foreign(&target, &[21, 3, 1, 0, 2, 2, 70]).unwrap();
    let web = foreign(&target, b"HTTP/1.0 400 Bad Request").unwrap();
    let (remote, network) = (Class::Remote, Class::Network);
    for (error, class, text) in [
        (alert, remote, "a.example:1935 speaks TLS at this port; use rtmps:// instead of rtmp://"),
        (
            web,
            remote,
            "a.example:1935 is a web server at this port; RTMP usually uses port 1935, with TLS 443",
        ),
        (
            closed(&target),
            remote,
            "a.example:1935 closed the connection; if this repeats, look for the reason at the server",
        ),
        (
            closed_early(&target),
            remote,
            "a.example:1935 closed the connection before it accepted the stream; check url and key",
        ),
        (
            soon(&target, closed(&target), Duration::ZERO),
            remote,
            "a.example:1935 closed the connection right after it accepted the stream, which often means a wrong \
             key; check url and key",
        ),
        (
            late(&target, Duration::from_secs(10)),
            network,
            "a.example:1935 did not accept the stream within 10s; check that it is an RTMP server",
        ),
        (
            asks_again(&target),
            Class::Auth,
            "a.example:1935 asks for the login again and again; check the login in the url",
        ),
        (floods(&target), remote, "a.example:1935 sends far more than a publisher needs"),
        (
            io(&target, &io::Error::other("no route")),
            network,
            "the connection to a.example:1935 failed: no route",
        ),
    ] {
        assert_eq!((error.class, error.message.as_str()), (class, text));
    }
    assert_eq!(BACKUP_TOO, "; its backup cannot be reached either");
}

#[test]
fn waits_texts() {
    let target = target();
    for (error, text) in [
        (stalled(&target, false), "a.example:1935 takes no data at the moment"),
        (stalled(&target, true), "a.example:1935 no longer acknowledges data and may hang"),
        (
            slow(&target),
            "a.example:1935 takes less than the stream sends, and nothing for seconds at a time; send at a lower bit \
             rate, or check the network path",
        ),
        (no_media(), "no media from the encoder"),
        (
            does_not_read(&target, false),
            "a.example:1935 does not read: it accepted the stream and has taken no data for too long; it may hang or be \
             overloaded",
        ),
        (
            does_not_read(&target, true),
            "a.example:1935 does not read: it accepted the stream and has not acknowledged data for too long; it may hang \
             or be overloaded",
        ),
        (not_taken(&target, 7), "a.example:1935 did not take the last 7 bytes in time"),
    ] {
        assert_eq!(error, Error::network(text));
    }
}

#[test]
fn no_secret_of_the_target_is_repeated() {
    for description in
        ["stream sesame-open is taken", "SESAME-OPEN?SIG=0123456789", "hunter2", "bad sig 123456789"]
    {
        for error in
            [refused(&target(), &[], "x.Denied", description), ended(&target(), &[], "x", description)]
        {
            for secret in ["sesame", "SESAME", "hunter2", "12345678"] {
                assert!(!error.message.contains(secret), "{error}");
            }
            assert!(error.message.contains("***") && error.message.contains("a.example:1935"), "{error}");
        }
    }
}

#[test]
fn values_derived_from_the_password_are_not_repeated() {
    for asked in [
        "[ authmod=adobe ] : ?reason=needauth&user=u&salt=c2FsdA==&challenge=Y2g=&opaque=b3A=",
        "[ authmod=llnw ] : ?reason=needauth&user=u&nonce=bm9uY2U=",
    ] {
        let login = target().login().unwrap();
        let answer = Question::find(asked).unwrap().answer(&login, "live");
        let proofs: Vec<String> = proofs(&answer).map(str::to_owned).collect();
        let escaped = answer.replace('+', "%2B").replace('/', "%2F").replace('=', "%3d");
        for said in [&answer, &escaped] {
            let said = format!("no application live?{said}!");
            for error in [
                refused(&target(), &proofs, "NetConnection.Connect.Rejected", &said),
                ended(&target(), &proofs, "x", &said),
            ] {
                let shown = error.message.replace("%3d", "=");
                assert!(shown.contains("user=u&") && shown.contains("response=***"), "{error}");
                assert!(shown.contains("challenge=***&") || shown.contains("cnonce=***&"), "{error}");
                assert!(!proofs.iter().any(|proof| error.message.contains(&proof[..8])), "{error}");
            }
        }
    }
}

#[test]
fn a_key_with_escapes_between_short_parts_is_not_repeated() {
    for (key, echo) in [
        ("uniqueC with space inside", "uniqueC%20with%20space%20inside"),
        ("uniqueE'<script>", "uniqueE%27%3Cscript%3E"),
        ("uniqueE'<script>", "uniqueE&#x27;&lt;script&gt;"),
        ("uniqueG#frag", "uniqueG%23frag"),
        ("uniqueA\u{e9}\\back", "uniqueA\\u00e9\\\\back"),
    ] {
        let target = Target::parse("rtmp://a.example/live", Some(key)).unwrap();
        let error = refused(&target, &[], "x.Denied", &format!("stream=\"{echo}\""));
        assert!(error.message.contains("x.Denied (stream=\"***\")"), "{error}");
    }
}

#[test]
fn io_errors_have_their_class() {
    for (kind, class) in [
        (io::ErrorKind::ConnectionReset, Class::Remote),
        (io::ErrorKind::BrokenPipe, Class::Remote),
        (io::ErrorKind::TimedOut, Class::Network),
        (io::ErrorKind::HostUnreachable, Class::Network),
    ] {
        assert_eq!(io(&target(), &kind.into()).class, class, "{kind}");
    }
}
