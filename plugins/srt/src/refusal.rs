//! Error texts for the owner of the destination: why it fails or waits. Each reason has its function here.

use std::fmt::Display;
use std::io;
use std::time::Duration;

use satcast_media::srt::{Over, Reason};
use satcast_media::ts::MuxError;
use satcast_plugin_api::Error;

/// Floor before the next attempt after a refusal that a change at one side must end.
const REFUSED_RETRY_FLOOR: Duration = Duration::from_secs(60);
/// Floor before the next attempt after the receiver said that the stream is there already, which may be our own
/// connection from before a break.
const TAKEN_RETRY_FLOOR: Duration = Duration::from_secs(10);

/// Numbers of libsrt for refusals that our own listener does not use (`SRT_REJ_PEER`, `SRT_REJ_RESOURCE`,
/// `SRT_REJ_BACKLOG`, `SRT_REJ_CLOSE`, `SRT_REJX_NOTFOUND`, `SRT_REJX_UNACCEPTABLE`).
const BY_PROGRAM: u32 = 2;
const NO_RESOURCE: u32 = 3;
const BACKLOG: u32 = 5;
const CLOSING: u32 = 7;
const NOT_FOUND: u32 = 1_404;
const UNACCEPTABLE: u32 = 1_406;

/// The receiver refused the call for the reason `code`.
pub fn refused(target: impl Display, code: u32) -> Error {
    let reason = Reason::ALL.into_iter().find(|reason| reason.code() == code);
    let auth = |why: &str| {
        let error = Error::auth(format!("{target} refused the stream (SRT reason {code}): {why}"));
        error.retry_after(REFUSED_RETRY_FLOOR)
    };
    let remote = |why: &str| Error::remote(format!("{target} refused the stream (SRT reason {code}): {why}"));
    match (reason, code) {
        (Some(Reason::BadSecret), _) => auth("the passphrase is wrong; check passphrase"),
        (Some(Reason::Unsecure), _) => {
            auth("one side has a passphrase and the other has none; set or remove passphrase")
        }
        (Some(Reason::Unauthorized | Reason::Forbidden | Reason::BadRequest | Reason::BadMode), _)
        | (None, NOT_FOUND | UNACCEPTABLE) => auth("it does not take this stream id; check streamid"),
        (Some(Reason::Conflict), _) => {
            remote("the stream is there already, from before a break or from another sender; if this goes on, check streamid")
                .retry_after(TAKEN_RETRY_FLOOR)
        }
        (Some(Reason::Overload | Reason::Down), _) | (None, NO_RESOURCE | BACKLOG | CLOSING) => {
            remote("it is full or going down")
        }
        (Some(Reason::Version | Reason::Congestion | Reason::Filter | Reason::Group | Reason::Crypto | Reason::Rogue), _) => {
            remote("it asks for something that is not supported, such as file mode, FEC or bonding; receive in live mode")
                .retry_after(REFUSED_RETRY_FLOOR)
        }
        (None, BY_PROGRAM) => remote("its program gave no reason; check streamid and its configuration"),
        (None, _) => remote("look for the reason at the receiver"),
    }
}

/// No answer to the handshake.
pub fn no_answer(target: impl Display, after: Duration) -> Error {
    Error::network(format!(
        "{target} did not answer within {after:?}; check that an SRT listener runs there and that UDP reaches it"
    ))
}

/// The receiver's system says that the port is closed.
pub fn nothing_listens(target: impl Display) -> Error {
    Error::network(format!(
        "nothing listens at UDP {target}; check url, and start the receiver as a listener"
    ))
}

/// The connection ended by itself.
pub fn over(target: impl Display, over: Over) -> Error {
    match over {
        Over::Closed => Error::remote(format!(
            "{target} closed the connection; if this repeats, look for the reason at the receiver"
        )),
        Over::Silent => Error::network(format!("{target} sends no answers any more; check the network path")),
        Over::Worn => Error::network(format!("{target} needs a new key, which a new connection has")),
    }
}

/// Media leaves, and the receiver acknowledges none of it.
pub fn stalled(target: impl Display) -> Error {
    Error::network(format!(
        "{target} answers, but takes no media; it may hang, or the network loses everything"
    ))
}

/// The destination had to end before the receiver had everything.
pub fn not_taken(target: impl Display) -> Error {
    Error::network(format!("{target} did not take the last packets in time"))
}

/// The encoder sends nothing.
pub fn no_media() -> Error {
    Error::network("no media from the encoder")
}

/// The stream cannot be written as MPEG-TS.
pub fn not_carried(error: &MuxError) -> Error {
    Error::config(error.to_string())
}

/// No receiver is connected to the port.
pub fn no_caller(target: impl Display) -> Error {
    Error::network(format!("no receiver is connected to {target}; start one as a caller"))
}

/// The operator does not list the port.
pub fn closed_port(port: u16) -> Error {
    Error::config(format!(
        "url: port {port} is not open to listeners of this service; use mode caller, or ask the operator to add the port to \
         listener_ports in [driver.srt]"
    ))
}

/// The port cannot be opened.
pub fn not_opened(port: u16, error: &io::Error) -> Error {
    if error.kind() == io::ErrorKind::AddrInUse {
        return Error::network(format!(
            "port {port} is in use, by another destination or program; choose another port"
        ));
    }
    Error::network(format!("port {port} cannot be opened: {error}; ask the operator"))
}

/// A socket failed.
pub fn io(error: &io::Error) -> Error {
    Error::network(format!("the socket failed: {error}"))
}

#[cfg(test)]
mod tests {
    use satcast_plugin_api::Class;

    use super::*;

    #[test]
    fn a_refusal_that_only_a_change_ends_is_tried_again_slowly() {
        for (codes, class, floor) in [
            (&[10, 11, 1_400, 1_401, 1_403, 1_404, 1_405, 1_406][..], Class::Auth, Some(REFUSED_RETRY_FLOOR)),
            (&[1_409], Class::Remote, Some(TAKEN_RETRY_FLOOR)),
            (&[4, 8, 13, 14, 15, 17], Class::Remote, Some(REFUSED_RETRY_FLOOR)),
            (&[0, 2, 3, 5, 7, 1_402, 1_500, 1_503, 9_999], Class::Remote, None),
        ] {
            for code in codes {
                let error = refused("a.example:9", *code);
                assert_eq!((error.class, error.retry_after), (class, floor), "{error}");
            }
        }
    }
}
