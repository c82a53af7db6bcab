//! What a server's refusal or an I/O error means for the destination.

use std::io;
use std::time::Duration;

use satcast_plugin_api::Error;

use crate::redact::redact;
use crate::target::Target;

/// Floor before the next try after the server refused the stream.
pub(crate) const REFUSED_RETRY_FLOOR: Duration = Duration::from_secs(60);

/// Endings of status codes that say "not now" and not "not you".
const PASSING: [&str; 3] = [".Failed", ".AppShutdown", ".Closed"];

/// The server answered with an error status.
pub(crate) fn refused(target: &Target, code: &str, description: &str) -> Error {
    let said = said(target, code, description);
    if PASSING.iter().any(|ending| code.ends_with(ending)) {
        return Error::remote(format!("{target} could not take the stream: {said}"));
    }
    let hint = if target.has_login() {
        "; check url and key (the login in the URL is not sent: this version has no RTMP login)"
    } else {
        "; check url and key"
    };
    Error::auth(format!("{target} refused the stream: {said}{hint}")).retry_after(REFUSED_RETRY_FLOOR)
}

/// The server ended the stream without an error status.
pub(crate) fn ended(target: &Target, code: &str, description: &str) -> Error {
    Error::remote(format!("{target} ended the stream: {}", said(target, code, description)))
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
    Error::remote(format!("{target} closed the connection"))
}

/// Code and description without secrets. The session has bounded both and taken control characters out.
fn said(target: &Target, code: &str, description: &str) -> String {
    let said = match (code, description) {
        ("", "") => return "it gave no reason".to_owned(),
        (code, "") => code.to_owned(),
        ("", description) => description.to_owned(),
        (code, description) => format!("{code} ({description})"),
    };
    redact(&said, target.secrets())
}

#[cfg(test)]
mod tests {
    use satcast_plugin_api::Class;

    use super::*;

    fn target() -> Target {
        Target::parse("rtmp://u:hunter2@a.example/live/sesame-open?sig=0123456789", None).unwrap()
    }

    #[test]
    fn codes_have_their_class() {
        for (code, class) in [
            ("NetConnection.Connect.Rejected", Class::Auth),
            ("NetConnection.Connect.InvalidApp", Class::Auth),
            ("NetStream.Publish.BadName", Class::Auth),
            ("NetStream.Publish.Denied", Class::Auth),
            ("", Class::Auth),
            ("NetConnection.Connect.AppShutdown", Class::Remote),
            ("NetConnection.Connect.Closed", Class::Remote),
            ("NetStream.Publish.Failed", Class::Remote),
        ] {
            let error = refused(&target(), code, "");
            assert_eq!(error.class, class, "{code}");
            assert_eq!(error.retry_after.is_some(), class == Class::Auth, "{code}");
        }
    }

    #[test]
    fn no_secret_of_the_target_is_repeated() {
        for description in
            ["stream sesame-open is taken", "SESAME-OPEN?SIG=0123456789", "hunter2", "bad sig 123456789"]
        {
            for error in [refused(&target(), "x.Denied", description), ended(&target(), "x", description)] {
                for secret in ["sesame", "SESAME", "hunter2", "12345678"] {
                    assert!(!error.message.contains(secret), "{error}");
                }
                assert!(error.message.contains("***") && error.message.contains("a.example:1935"), "{error}");
            }
        }
        assert!(ended(&target(), "", "").message.contains("no reason"));
        assert!(refused(&target(), "", "go away").message.contains("go away"));
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
