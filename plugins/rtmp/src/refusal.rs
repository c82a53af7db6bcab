//! What a server's refusal or an I/O error means for the destination.

use std::io;
use std::time::Duration;

use satcast_plugin_api::redact::redact;
use satcast_plugin_api::{Class, Error};

use crate::login::Kind;
use crate::target::Target;

/// Floor before the next try after the server refused the stream.
pub(crate) const REFUSED_RETRY_FLOOR: Duration = Duration::from_secs(60);

/// Floor before the next try after the server said that the stream's name is in use. Most often it is our own connection
/// from before a break that the server has not given up yet.
pub(crate) const NAME_TAKEN_RETRY_FLOOR: Duration = Duration::from_secs(10);

/// A server that closes the connection so soon after it has accepted the stream has judged the key only then.
pub(crate) const SECOND_THOUGHT_MAX: Duration = Duration::from_secs(2);

/// Status code of a name that is in use; some servers say it of a wrong key, too.
const BAD_NAME: &str = "NetStream.Publish.BadName";

/// Endings of status codes that say "not now" and not "not you".
const PASSING: [&str; 3] = [".Failed", ".AppShutdown", ".Closed"];

/// The server answered with an error status. `proofs` of the password were given to it, as in [`crate::login::proofs`].
pub(crate) fn refused(target: &Target, proofs: &[String], code: &str, description: &str) -> Error {
    let said = said(target, proofs, code, description);
    if PASSING.iter().any(|ending| code.ends_with(ending)) {
        return Error::remote(format!("{target} could not take the stream: {said}"));
    }
    let hint = match (target.has_login(), Kind::find(description).is_some()) {
        (true, _) => "check url, key and login",
        (false, true) => "it asks for a login; give rtmp://user:password@host/app",
        (false, false) => "check url and key",
    };
    if code == BAD_NAME {
        return Error::remote(format!(
            "{target} refused the stream: {said}; it may still be publishing at the server, from before a break or \
             from another encoder; if this goes on, {hint}"
        ))
        .retry_after(NAME_TAKEN_RETRY_FLOOR);
    }
    Error::auth(format!("{target} refused the stream: {said}; {hint}")).retry_after(REFUSED_RETRY_FLOOR)
}

/// What the first bytes of a server say that speaks another protocol, if they do.
pub(crate) fn foreign(target: &Target, first: &[u8]) -> Option<Error> {
    // Records of TLS (RFC 8446, section 5.1): an alert or a handshake, of any version 3.x.
    let is_tls = matches!(first, [21 | 22, 3, 0..=4, ..]);
    let what = match (first, target.is_tls()) {
        (_, false) if is_tls => "speaks TLS at this port; use rtmps:// instead of rtmp://",
        (first, _) if first.starts_with(b"HTTP/") => {
            "is a web server at this port; RTMP is mostly at port 1935, with TLS at 443"
        }
        _ => return None,
    };
    Some(Error::remote(format!("{target} {what}")))
}

/// The server ended the stream without an error status.
pub(crate) fn ended(target: &Target, proofs: &[String], code: &str, description: &str) -> Error {
    Error::remote(format!("{target} ended the stream: {}", said(target, proofs, code, description)))
}

/// Reading or writing failed.
pub(crate) fn io(target: &Target, error: &io::Error) -> Error {
    if is_close(error) {
        return closed(target);
    }
    Error::network(format!("the connection to {target} failed: {error}"))
}

/// The error only says that the server closed the connection.
pub(crate) fn is_close(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
}

/// The server closed the connection.
pub(crate) fn closed(target: &Target) -> Error {
    Error::remote(format!("{target} closed the connection; if it goes on, look there for the reason"))
}

/// The same error, said to be a refusal where the server closed so soon `after` it had accepted the stream. It may as well
/// have been a restart, so that the floor is the lower one.
pub(crate) fn soon(target: &Target, mut error: Error, after: Duration) -> Error {
    if after < SECOND_THOUGHT_MAX && error.class == Class::Remote && error.message == closed(target).message {
        error.message = format!(
            "{target} closed the connection right after it had accepted the stream, as servers do that refuse a key; check url and key"
        );
        return error.retry_after(NAME_TAKEN_RETRY_FLOOR);
    }
    error
}

/// Code and description without secrets. The session has bounded both and taken control characters out.
fn said(target: &Target, proofs: &[String], code: &str, description: &str) -> String {
    let said = match (code, description) {
        ("", "") => return "it gave no reason".to_owned(),
        (code, "") => code.to_owned(),
        ("", description) => description.to_owned(),
        (code, description) => format!("{code} ({description})"),
    };
    redact(&said, target.secrets().chain(proofs.iter().map(String::as_str)))
}

#[cfg(test)]
mod tests {
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
    fn a_server_that_closes_right_after_accepting_has_refused() {
        let soon = |after| soon(&target(), closed(&target()), after);
        let refused = soon(SECOND_THOUGHT_MAX - Duration::from_millis(1));
        assert!(refused.message.ends_with("refuse a key; check url and key"), "{refused}");
        assert_eq!(refused.retry_after, Some(NAME_TAKEN_RETRY_FLOOR));
        assert_eq!(soon(SECOND_THOUGHT_MAX).retry_after, None, "later it is a break like another");
        let other = super::soon(&target(), Error::remote("something else"), Duration::ZERO);
        assert_eq!((other.message.as_str(), other.retry_after), ("something else", None));
    }

    #[test]
    fn servers_of_other_protocols_are_told_by_their_first_bytes() {
        let secure = Target::parse("rtmps://a.example/live/k", None).unwrap();
        let alert = [21, 3, 1, 0, 2, 2, 70];
        let said = |target: &Target, first: &[u8]| foreign(target, first).map(|error| error.message);
        assert!(
            said(&target(), &alert).unwrap().contains("a.example:1935 speaks TLS at this port; use rtmps://")
        );
        assert_eq!(said(&secure, &alert), None, "it is spoken already");
        for target in [&target(), &secure] {
            assert!(
                said(target, b"HTTP/1.0 400 Bad Request").unwrap().contains("is a web server"),
                "{target}"
            );
            for first in [&[3, 0, 0, 0, 0][..], &[], &[21], &[21, 3], &[21, 3, 9], b"HTTP"] {
                assert_eq!(said(target, first), None, "{first:?}");
            }
        }
    }

    #[test]
    fn a_name_in_use_is_said_to_be_one() {
        let plain = Target::parse("rtmp://a.example/live/sesame-open", None).unwrap();
        let error = refused(&plain, &[], BAD_NAME, "");
        let text = "a.example:1935 refused the stream: NetStream.Publish.BadName; it may still be publishing at \
                    the server, from before a break or from another encoder; if this goes on, check url and key";
        assert_eq!(error.message, text);
        assert!(refused(&target(), &[], BAD_NAME, "").message.contains("check url, key and login"));
        let asks = "[ AccessManager.Reject ] : [ code=403 need auth; authmod=adobe ] : ";
        assert!(
            refused(&plain, &[], "NetConnection.Connect.Rejected", asks)
                .message
                .contains("user:password@host")
        );
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
        assert!(ended(&target(), &[], "", "").message.contains("no reason"));
        assert!(refused(&target(), &[], "", "go away").message.contains("go away"));
    }

    #[test]
    fn what_was_made_of_the_password_is_not_repeated() {
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
    fn a_key_that_is_escaped_between_short_pieces_is_not_repeated() {
        for (key, echo) in [
            ("uniqueC with space inside", "uniqueC%20with%20space%20inside"),
            ("uniqueE'<script>", "uniqueE%27%3Cscript%3E"),
            ("uniqueE'<script>", "uniqueE&#x27;&lt;script&gt;"),
            ("uniqueG#frag", "uniqueG%23frag"),
            ("uniqueA\u{e9}\\back", "uniqueA\\u00e9\\\\back"),
        ] {
            let target = Target::parse("rtmp://a.example/live", Some(key)).unwrap();
            let error = refused(&target, &[], "x.Denied", &format!("no stream \"{echo}\""));
            assert!(error.message.contains("x.Denied (no stream \"***\")"), "{error}");
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
}
