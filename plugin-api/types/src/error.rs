//! Errors of drivers, with the class that decides the retries.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Kind of failure; decides the host's retry policy. The numbers are those of the C table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// The configuration is wrong. Not tried again until it changes.
    Config = 1,
    /// The other side refused the login. Tried again, 60 s apart at least.
    Auth = 2,
    /// Name resolution, connection or transport failed. Tried again with back-off.
    Network = 3,
    /// The other side answered wrongly or closed. Tried again with back-off.
    Remote = 4,
    /// The driver panicked.
    Panic = 6,
    /// A fault of the driver or the host, and every class that this version does not know.
    #[serde(other)]
    Internal = 5,
}

impl Class {
    /// The class of a number of the C table; unknown numbers count as internal.
    pub fn from_number(number: u32) -> Self {
        let known = [Class::Config, Class::Auth, Class::Network, Class::Remote, Class::Panic];
        known.into_iter().find(|class| *class as u32 == number).unwrap_or(Class::Internal)
    }

    /// The name in JSON and in the database.
    pub fn name(self) -> &'static str {
        match self {
            Class::Config => "config",
            Class::Auth => "auth",
            Class::Network => "network",
            Class::Remote => "remote",
            Class::Internal => "internal",
            Class::Panic => "panic",
        }
    }
}

/// A failure with its class and one sentence for the destination's owner. The sentence must not hold secrets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Error {
    /// Kind of failure; decides the retries.
    pub class: Class,
    /// One sentence: the failure, its reason, and the next step.
    pub message: String,
    /// Minimum wait before the next try; `None` = the host decides.
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

    /// Sets the minimum wait before the next try.
    pub fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_keep_number_and_name_and_unknown_ones_are_internal() {
        let names = ["config", "auth", "network", "remote", "internal", "panic"];
        for (name, number) in names.into_iter().zip(1..) {
            let class = Class::from_number(number);
            assert_eq!((class as u32, class.name()), (number, name));
            let json = format!("\"{name}\"");
            assert_eq!(serde_json::to_string(&class).ok(), Some(json.clone()));
            assert_eq!(serde_json::from_str(&json).ok(), Some(class));
        }
        assert_eq!(Class::from_number(999), Class::Internal);
        assert_eq!(serde_json::from_str("\"newer\"").ok(), Some(Class::Internal));
    }
}
