//! Keeps a destination's secrets out of everything its driver says.

/// Shorter secrets are not replaced: they would blank ordinary words.
const SECRET_BYTES_MIN: usize = 4;
/// What stands in place of a secret.
const MASK: &str = "***";

/// The secret values of one destination.
#[derive(Default)]
pub(super) struct Redactor {
    // Longest first, so that a secret inside another one does not leave the rest of it.
    secrets: Vec<String>,
}

impl Redactor {
    /// Hides `secrets`.
    pub(super) fn new(secrets: impl IntoIterator<Item = String>) -> Self {
        let mut secrets: Vec<String> =
            secrets.into_iter().filter(|secret| secret.len() >= SECRET_BYTES_MIN).collect();
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        secrets.dedup();
        Self { secrets }
    }

    /// `text` without the secrets.
    pub(super) fn clean(&self, text: &str) -> String {
        self.secrets.iter().fold(text.to_string(), |text, secret| {
            if text.contains(secret.as_str()) { text.replace(secret.as_str(), MASK) } else { text }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaces_every_secret_longest_first_and_leaves_short_ones() {
        let redactor = Redactor::new(["key1".into(), "key1-long".into(), "abc".into()]);
        assert_eq!(redactor.clean("a key1-long b key1 c abc"), "a *** b *** c abc");
    }
}
