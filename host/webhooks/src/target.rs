//! Allowed targets of webhooks: https to public addresses, and hosts that the operator lists.

use url::Url;

use satcast_core::config::Config;
use satcast_net::outbound::{AllowError, Guard, Refused};

/// Longest url of a webhook in bytes.
pub const URL_BYTES_MAX: usize = 2_048;
/// The setting that refusals mention.
pub(super) const SETTING: &str = "[webhooks] allow_targets";

/// Reason why a url cannot be a webhook; completes a sentence that begins with the field. Repeats no part of the url
/// except an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// Longer than [`URL_BYTES_MAX`].
    #[error("must have at most {URL_BYTES_MAX} bytes")]
    TooLong,
    /// Not a URL with a host.
    #[error("must be a complete URL such as https://example.com/hook, without spaces")]
    Malformed,
    /// User or password in the url.
    #[error("must not hold a user or password; put a token into the path or query, and use `secret` to sign")]
    UserInfo,
    /// Another scheme, or `http` to a host that is not listed.
    #[error("must begin with https://; for http ask the operator to add its host to {SETTING}")]
    NotHttps,
    /// The guard refuses the host.
    #[error(transparent)]
    Refused(#[from] Refused),
}

/// A checked url, with its host in normalized spelling. Never printed: its path and query may hold a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Target(Url);

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Target").field(&self.host()).finish()
    }
}

impl Target {
    /// Host name or address.
    pub fn host(&self) -> &str {
        self.0.host_str().unwrap_or_default()
    }

    pub fn into_url(self) -> Url {
        self.0
    }
}

/// Decides which urls may be webhooks; cheap to clone.
#[derive(Clone, Debug)]
pub struct Targets {
    guard: Guard,
}

impl Targets {
    /// Reads the operator's `[webhooks] allow_targets`.
    ///
    /// # Errors
    /// The first entry that cannot be read.
    pub fn new(config: &Config) -> Result<Self, AllowError> {
        let allow = Config::allow_texts(&config.webhooks.allow_targets);
        Ok(Self { guard: Guard::with_setting(&allow, SETTING)? })
    }

    /// Checks everything that needs no name lookup; called when a webhook is created and before each attempt.
    ///
    /// # Errors
    /// The first reason against it.
    pub fn check(&self, text: &str) -> Result<Target, TargetError> {
        if text.len() > URL_BYTES_MAX {
            return Err(TargetError::TooLong);
        }
        // The URL parser would silently remove these characters.
        if text.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err(TargetError::Malformed);
        }
        let mut url = Url::parse(text).map_err(|_| TargetError::Malformed)?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(TargetError::UserInfo);
        }
        let host = url.host_str().filter(|host| !host.is_empty()).ok_or(TargetError::Malformed)?;
        match url.scheme() {
            "https" => {}
            "http" if self.guard.is_listed(host) => {}
            _ => return Err(TargetError::NotHttps),
        }
        self.guard.check_literal(host)?;
        if let Some(bare) = host.strip_suffix('.').map(str::to_owned) {
            url.set_host(Some(&bare)).map_err(|_| TargetError::Malformed)?;
        }
        Ok(Target(url))
    }

    #[cfg(test)]
    pub(super) fn with_guard(guard: Guard) -> Self {
        Self { guard }
    }

    /// The guard of the connections.
    pub fn guard(&self) -> &Guard {
        &self.guard
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets(allow: &[&str]) -> Targets {
        let allow: Vec<String> = allow.iter().map(|entry| (*entry).to_owned()).collect();
        Targets { guard: Guard::with_setting(&allow, SETTING).unwrap() }
    }

    #[test]
    fn public_https_is_allowed() {
        for (text, host) in [
            ("https://Hooks.Example.com./a?token=x", "hooks.example.com"),
            ("https://1.1.1.1:8443/", "1.1.1.1"),
            ("https://[2606:4700::1111]/", "[2606:4700::1111]"),
            ("HTTPS://example.com", "example.com"),
        ] {
            assert_eq!(targets(&[]).check(text).unwrap().host(), host, "{text}");
        }
    }

    #[test]
    fn targets_other_than_public_https_are_refused() {
        let refused = |text: &str| targets(&[]).check(text).unwrap_err();
        let long = format!("https://example.com/{}", "x".repeat(URL_BYTES_MAX));
        assert_eq!(refused(&long), TargetError::TooLong);
        for text in
            ["", "example.com/hook", "https://", "https:// example.com", "https://exa\tmple.com", "//a"]
        {
            assert_eq!(refused(text), TargetError::Malformed, "{text:?}");
        }
        for text in ["https://me@example.com", "https://:pw@example.com"] {
            assert_eq!(refused(text), TargetError::UserInfo, "{text}");
        }
        for text in ["http://example.com", "ftp://example.com", "http://127.0.0.1"] {
            assert_eq!(refused(text), TargetError::NotHttps, "{text}");
        }
        for text in [
            "https://127.0.0.1/",
            "https://2130706433",
            "https://0x7f.1",
            "https://0177.0.0.1",
            "https://[::1]/",
            "https://[::ffff:10.0.0.1]",
            "https://[64:ff9b::a00:1]",
            "https://10.1.2.3",
            "https://100.64.0.1",
            "https://169.254.169.254/latest/meta-data",
            "https://[fd00:ec2::254]",
            "https://192.168.1.1",
            "https://0.0.0.0",
            "https://localhost",
            "https://a.LocalHost.",
        ] {
            assert!(matches!(refused(text), TargetError::Refused(_)), "{text}");
        }
        let TargetError::Refused(reason) = refused("https://10.1.2.3/hunter2") else { panic!("not refused") };
        let address = "10.1.2.3".parse().unwrap();
        assert_eq!(reason, Refused::Address { address, why: "private", setting: SETTING });
    }

    #[test]
    fn listed_hosts_may_be_private_and_use_http() {
        let targets = targets(&["10.0.0.0/8", "nas.lan"]);
        for text in ["http://10.1.2.3:8080/a", "https://10.1.2.3/a", "http://nas.lan/a"] {
            assert!(targets.check(text).is_ok(), "{text}");
        }
        for text in
            ["http://x.nas.lan/a", "http://example.com/a", "http://u@nas.lan/a", "https://127.0.0.1/a"]
        {
            assert!(targets.check(text).is_err(), "{text}");
        }
    }
}
