//! Errors a driver reports: who must act, and whether trying again makes sense.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::abi;

/// Longest message that crosses the boundary, in bytes; the rest is cut. Well above what a host shows, which removes secrets
/// first and cuts then: a secret that this cut splits is not shown either.
pub const MESSAGE_BYTES_MAX: usize = 16 * 1024;

/// What kind of failure it is; decides the host's retry policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "&'static str", from = "String")]
pub enum Class {
    /// The configuration is wrong. Not tried again until it changes.
    Config,
    /// The other side refused the login. Tried again, 60 s apart at least.
    Auth,
    /// Name resolution, connection or transport failed. Tried again with back-off.
    Network,
    /// The other side answered wrongly or closed. Tried again with back-off.
    Remote,
    /// A fault of the driver or the host.
    Internal,
    /// The driver panicked.
    Panic,
}

impl Class {
    /// Number on the wire.
    pub fn to_abi(self) -> u32 {
        match self {
            Class::Config => abi::CLASS_CONFIG,
            Class::Auth => abi::CLASS_AUTH,
            Class::Network => abi::CLASS_NETWORK,
            Class::Remote => abi::CLASS_REMOTE,
            Class::Internal => abi::CLASS_INTERNAL,
            Class::Panic => abi::CLASS_PANIC,
        }
    }

    /// From the number on the wire; unknown numbers count as internal.
    pub fn from_abi(class: u32) -> Self {
        match class {
            abi::CLASS_CONFIG => Class::Config,
            abi::CLASS_AUTH => Class::Auth,
            abi::CLASS_NETWORK => Class::Network,
            abi::CLASS_REMOTE => Class::Remote,
            abi::CLASS_PANIC => Class::Panic,
            _ => Class::Internal,
        }
    }
}

impl From<Class> for &'static str {
    /// The name in JSON.
    fn from(class: Class) -> Self {
        match class {
            Class::Config => "config",
            Class::Auth => "auth",
            Class::Network => "network",
            Class::Remote => "remote",
            Class::Internal => "internal",
            Class::Panic => "panic",
        }
    }
}

impl From<String> for Class {
    /// From the name in JSON; unknown names count as internal.
    fn from(name: String) -> Self {
        match name.as_str() {
            "config" => Class::Config,
            "auth" => Class::Auth,
            "network" => Class::Network,
            "remote" => Class::Remote,
            "panic" => Class::Panic,
            _ => Class::Internal,
        }
    }
}

/// A failure with its class and one sentence for the destination's owner. The sentence must not hold secrets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// Decides whether and how it is tried again.
    pub class: Class,
    /// Who failed at what, and what to do next.
    pub message: String,
    /// Floor before the next try; `None` leaves it to the host.
    pub retry_after: Option<Duration>,
}

impl Error {
    /// An error of `class`.
    pub fn new(class: Class, message: impl Into<String>) -> Self {
        Self { class, message: message.into(), retry_after: None }
    }

    /// The configuration is wrong.
    pub fn config(message: impl Into<String>) -> Self {
        Self::new(Class::Config, message)
    }

    /// The other side refused the login.
    pub fn auth(message: impl Into<String>) -> Self {
        Self::new(Class::Auth, message)
    }

    /// The network failed.
    pub fn network(message: impl Into<String>) -> Self {
        Self::new(Class::Network, message)
    }

    /// The other side misbehaved or closed.
    pub fn remote(message: impl Into<String>) -> Self {
        Self::new(Class::Remote, message)
    }

    /// A fault of the driver.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(Class::Internal, message)
    }

    /// Sets the floor before the next try.
    pub fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// Calls `use_it` with the C form, which borrows from `self`.
    pub(crate) fn with_abi<R>(&self, use_it: impl FnOnce(&abi::SatcastError) -> R) -> R {
        let message = cut(&self.message, MESSAGE_BYTES_MAX);
        let retry_ms = self.retry_after.map_or(0, |wait| u32::try_from(wait.as_millis()).unwrap_or(u32::MAX));
        use_it(&abi::SatcastError {
            size: size_of::<abi::SatcastError>() as u32,
            error_class: self.class.to_abi(),
            retry_ms,
            reserved: 0,
            message: abi::SatcastStr::new(message),
        })
    }
}

/// The longest prefix of `text` of at most `bytes_max` bytes that ends at a character.
pub(crate) fn cut(text: &str, bytes_max: usize) -> &str {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cut_never_splits_a_character() {
        assert_eq!(cut("añb", 2), "a");
        assert_eq!(cut("añb", 3), "añ");
        assert_eq!(cut("abc", 10), "abc");
    }

    #[test]
    fn long_messages_are_cut_at_the_limit() {
        let error = Error::network("x".repeat(MESSAGE_BYTES_MAX + 1));
        assert_eq!(error.with_abi(|raw| raw.message.len), MESSAGE_BYTES_MAX);
    }

    #[test]
    fn classes_survive_the_wire() {
        for class in
            [Class::Config, Class::Auth, Class::Network, Class::Remote, Class::Internal, Class::Panic]
        {
            assert_eq!(Class::from_abi(class.to_abi()), class);
            let name: &str = class.into();
            assert_eq!(Class::from(name.to_owned()), class);
        }
        assert_eq!(Class::from_abi(999), Class::Internal);
        assert_eq!(Class::from("newer".to_owned()), Class::Internal);
    }
}
