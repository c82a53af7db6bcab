//! Error texts for the owner of the destination: why a push fails or waits. Each reason has its function here.

use std::io;
use std::time::Duration;

use satcast_plugin_api::redact::redact;
use satcast_plugin_api::{Class, Error};

use crate::login::Kind;
use crate::target::Target;

/// Floor before the next attempt after the server refused the stream.
pub(crate) const REFUSED_RETRY_FLOOR: Duration = Duration::from_secs(60);

/// Floor before the next attempt after the server said that the stream's name is in use. Usually the server has not
/// given up our own connection from before a break.
pub(crate) const NAME_TAKEN_RETRY_FLOOR: Duration = Duration::from_secs(10);

/// A server that closes the connection this soon after accepting the stream has probably refused the key.
pub(crate) const SECOND_THOUGHT_MAX: Duration = Duration::from_secs(2);

/// Status code of a name that is in use; some servers also use it for a wrong key.
const BAD_NAME: &str = "NetStream.Publish.BadName";

/// Suffix of the reason where the backup cannot be reached either.
pub const BACKUP_TOO: &str = "; its backup cannot be reached either";

/// Endings of status codes for temporary failures.
const PASSING: [&str; 3] = [".Failed", ".AppShutdown", ".Closed"];

/// The server answered with an error status. `proofs` are values derived from the password that the server got.
pub fn refused(target: &Target, proofs: &[String], code: &str, description: &str) -> Error {
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

/// The protocol of a server that does not speak the expected one, by its first bytes; `None` when they do not show
/// it.
pub fn foreign(target: &Target, first: &[u8]) -> Option<Error> {
    // Records of TLS (RFC 8446, section 5.1): an alert or a handshake, of any version 3.x.
    let is_tls = matches!(first, [21 | 22, 3, 0..=4, ..]);
    let problem = match (first, target.is_tls()) {
        (_, false) if is_tls => "speaks TLS at this port; use rtmps:// instead of rtmp://",
        (first, _) if first.starts_with(b"HTTP/") => {
            "is a web server at this port; RTMP usually uses port 1935, with TLS 443"
        }
        _ => return None,
    };
    Some(Error::remote(format!("{target} {problem}")))
}

pub(crate) fn ended(target: &Target, proofs: &[String], code: &str, description: &str) -> Error {
    Error::remote(format!("{target} ended the stream: {}", said(target, proofs, code, description)))
}

pub(crate) fn io(target: &Target, error: &io::Error) -> Error {
    if is_close(error) {
        return closed(target);
    }
    Error::network(format!("the connection to {target} failed: {error}"))
}

/// The error only means that the server closed the connection.
pub(crate) fn is_close(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
}

pub fn closed(target: &Target) -> Error {
    Error::remote(format!(
        "{target} closed the connection; if this repeats, look for the reason at the server"
    ))
}

pub fn closed_early(target: &Target) -> Error {
    Error::remote(format!("{target} closed the connection before it accepted the stream; check url and key"))
}

pub fn late(target: &Target, setup: Duration) -> Error {
    Error::network(format!(
        "{target} did not accept the stream within {setup:?}; check that it is an RTMP server"
    ))
}

/// The server repeats its login question after every answer.
pub fn asks_again(target: &Target) -> Error {
    Error::auth(format!("{target} asks for the login again and again; check the login in the url"))
}

pub fn floods(target: &Target) -> Error {
    Error::remote(format!("{target} sends far more than a publisher needs"))
}

/// The destination waits: the server takes nothing, or, if `is_silent`, its system takes data and it acknowledges
/// nothing.
pub fn stalled(target: &Target, is_silent: bool) -> Error {
    let problem = match is_silent {
        true => "no longer acknowledges data and may hang",
        false => "takes no data at the moment",
    };
    Error::network(format!("{target} {problem}"))
}

pub fn slow(target: &Target) -> Error {
    Error::network(format!(
        "{target} takes less than the stream sends, and nothing for seconds at a time; send at a lower bit rate, or check \
         the network path"
    ))
}

pub fn no_media() -> Error {
    Error::network("no media from the encoder")
}

/// The server was [`stalled`] for too long.
pub fn does_not_read(target: &Target, is_silent: bool) -> Error {
    let problem = match is_silent {
        true => "has not acknowledged data for too long",
        false => "has taken no data for too long",
    };
    Error::network(format!(
        "{target} does not read: it accepted the stream and {problem}; it may hang or be overloaded"
    ))
}

/// The destination had to end before the server took the last `left` bytes.
pub fn not_taken(target: &Target, left: usize) -> Error {
    Error::network(format!("{target} did not take the last {left} bytes in time"))
}

/// Marks the error as a refusal where the server closed within [`SECOND_THOUGHT_MAX`] after accepting the stream. A
/// server restart looks the same, so the lower floor applies.
pub fn soon(target: &Target, mut error: Error, after: Duration) -> Error {
    if after < SECOND_THOUGHT_MAX && error.class == Class::Remote && error.message == closed(target).message {
        error.message = format!(
            "{target} closed the connection right after it accepted the stream, which often means a wrong key; check url and key"
        );
        return error.retry_after(NAME_TAKEN_RETRY_FLOOR);
    }
    error
}

/// Code and description without secrets. The session has limited both and removed control characters.
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
mod tests;
