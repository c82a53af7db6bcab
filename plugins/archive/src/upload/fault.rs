//! Failures of a store, as texts for the owner of the recording. They contain no secret and no address with a query.

use http::StatusCode;
use satcast_plugin_api::{Class, Error};

/// Longest error code of a store that is shown.
const CODE_BYTES_MAX: usize = 48;

/// Kind of a failure, which decides the reaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Connection, time-out, TLS.
    Network,
    /// 401 or 403: keys or rights are wrong; some stores also answer this for an upload that they do not know.
    Refused,
    /// 404: no such object or upload.
    Missing,
    /// 404 of the bucket itself.
    NoBucket,
    /// 409 or 412: there is an object of this name.
    Exists,
    /// The store is in trouble, or requests come too fast.
    Busy,
    /// 501: the store does not support this kind of request.
    Unknown,
    /// No further try can help.
    Final,
    /// Anything else.
    Other,
}

/// A failed exchange with a store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .error.message)]
pub(crate) struct Fault {
    pub(crate) kind: Kind,
    pub(crate) error: Error,
}

impl Fault {
    pub(crate) fn new(kind: Kind, class: Class, message: impl Into<String>) -> Self {
        Fault { kind, error: Error::new(class, message) }
    }

    /// Another object has the name.
    pub(crate) fn taken(key: &str) -> Self {
        let text =
            format!("the store already has another object with the name {key}, which is not overwritten");
        Fault::new(Kind::Final, Class::Remote, text)
    }

    pub(crate) fn network(message: impl Into<String>) -> Self {
        Fault::new(Kind::Network, Class::Network, message)
    }

    pub(crate) fn remote(message: impl Into<String>) -> Self {
        Fault::new(Kind::Other, Class::Remote, message)
    }

    pub(crate) fn config(message: impl Into<String>) -> Self {
        Fault::new(Kind::Other, Class::Config, message)
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Fault::new(Kind::Other, Class::Internal, message)
    }

    /// Converts a connection error of the host. The class stays, because the owner can correct a refused address.
    pub(crate) fn from_host(error: Error) -> Self {
        Fault { kind: Kind::Network, error }
    }

    /// The meaning of an unsuccessful answer. `place` names store and bucket.
    pub(crate) fn answer(status: StatusCode, body: &[u8], place: &str) -> Self {
        let code = code(body);
        let said = match &code {
            Some(code) => format!("{} {code}", status.as_u16()),
            None => status.as_u16().to_string(),
        };
        match (status.as_u16(), code.as_deref()) {
            (401 | 403, _) => Fault::new(
                Kind::Refused,
                Class::Auth,
                format!(
                    "{place} refused the request ({said}); check accessKey, secretKey and what they may do in this bucket"
                ),
            ),
            (404, Some("NoSuchBucket")) => Fault::new(
                Kind::NoBucket,
                Class::Config,
                format!("{place} does not exist ({said}); check endpoint and bucket"),
            ),
            (404, _) => Fault::new(
                Kind::Missing,
                Class::Remote,
                format!("{place} has no such object or upload ({said})"),
            ),
            (409 | 412, _) => Fault::new(
                Kind::Exists,
                Class::Remote,
                format!("{place} already has another object of this name ({said}), which is not overwritten"),
            ),
            (501, _) => Fault::new(
                Kind::Unknown,
                Class::Remote,
                format!("{place} does not know this kind of request ({said})"),
            ),
            (408 | 429 | 500..=599, _) => {
                Fault::new(Kind::Busy, Class::Remote, format!("{place} cannot take the request now ({said})"))
            }
            (300..=399, _) | (400, Some("AuthorizationHeaderMalformed" | "InvalidRegion")) => {
                Fault::config(format!(
                    "{place} redirects to another address ({said}); check endpoint, region and forcePathStyle"
                ))
            }
            _ => Fault::remote(format!("{place} did not accept the request ({said})")),
        }
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        fault.error
    }
}

/// `<Code>` of a store's error document, when it is a plain word.
fn code(body: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(body).ok()?;
    let (_, rest) = text.split_once("<Code>")?;
    let (code, _) = rest.split_once("</Code>")?;
    let is_plain =
        (1..=CODE_BYTES_MAX).contains(&code.len()) && code.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_plain.then(|| code.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_become_faults_of_the_right_class() {
        let document =
            |code: &str| format!("<?xml?><Error><Code>{code}</Code><Message>hunter2</Message></Error>");
        let table = [
            (403, "SignatureDoesNotMatch", Kind::Refused, Class::Auth),
            (401, "x y", Kind::Refused, Class::Auth),
            (404, "NoSuchBucket", Kind::NoBucket, Class::Config),
            (404, "NoSuchUpload", Kind::Missing, Class::Remote),
            (412, "PreconditionFailed", Kind::Exists, Class::Remote),
            (503, "SlowDown", Kind::Busy, Class::Remote),
            (501, "NotImplemented", Kind::Unknown, Class::Remote),
            (301, "PermanentRedirect", Kind::Other, Class::Config),
            (400, "AuthorizationHeaderMalformed", Kind::Other, Class::Config),
            (400, "InvalidPart", Kind::Other, Class::Remote),
        ];
        for (status, code, kind, class) in table {
            let status = StatusCode::from_u16(status).unwrap();
            let fault = Fault::answer(status, document(code).as_bytes(), "bucket b at s3.example.org");
            assert_eq!((fault.kind, fault.error.class), (kind, class), "{fault}");
            assert!(fault.to_string().starts_with("bucket b at s3.example.org "), "{fault}");
            assert!(!fault.to_string().contains("hunter2"), "{fault}");
            assert_eq!(fault.to_string().contains(code), !code.contains(' '), "{fault}");
        }
    }
}
