//! User and password towards servers that ask for them the way Adobe's did (`authmod=adobe`): they refuse `connect` with a question
//! in the description, and take it when the app of a new connection holds the answer. The password itself is never sent.

use std::hash::{BuildHasher as _, RandomState};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use md5::{Digest as _, Md5};

/// Connections that one login takes at most: the question which kind, the question itself, the answer.
pub(crate) const ROUNDS_MAX: usize = 3;
/// The one kind of question that is understood.
const KIND: &str = "authmod=adobe";

/// A user and a password, as the server knows them.
pub(crate) struct Login {
    pub(crate) user: String,
    pub(crate) password: String,
}

/// What a server's refusal asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Question {
    /// Who it is.
    Who,
    /// Proof of the password.
    Proof {
        salt: String,
        /// `opaque`, or `challenge` of servers without it.
        challenge: String,
        opaque: String,
    },
}

impl Question {
    /// The question in the description of a refusal; `None`: it asks for nothing, or has had the answer and refuses it.
    pub(crate) fn find(description: &str) -> Option<Self> {
        if !description.contains(KIND) || description.contains("authfailed") {
            return None;
        }
        if !description.contains("reason=needauth") {
            return description.contains("need auth").then_some(Question::Who);
        }
        let value = |name: &str| {
            let parts = description.split(['?', '&', ' ']);
            let found = parts.filter_map(|part| part.split_once('=')).find(|(known, _)| *known == name);
            found.map(|(_, value)| value.to_owned()).unwrap_or_default()
        };
        Some(Question::Proof { salt: value("salt"), challenge: value("challenge"), opaque: value("opaque") })
    }

    /// What the app of the next connection ends with.
    pub(crate) fn answer(&self, login: &Login) -> String {
        // Differs every time; nothing depends on its being hard to guess.
        let nonce = RandomState::new().hash_one(&login.user) as u32;
        self.answer_with(login, &format!("{nonce:08x}"))
    }

    fn answer_with(&self, login: &Login, nonce: &str) -> String {
        let Login { user, password } = login;
        match self {
            Question::Who => format!("{KIND}&user={user}"),
            Question::Proof { salt, challenge, opaque } => {
                let secret = digest(&[user, salt, password]);
                let asked = if opaque.is_empty() { challenge } else { opaque };
                let response = digest(&[&secret, asked, nonce]);
                let opaque = if opaque.is_empty() { String::new() } else { format!("&opaque={opaque}") };
                format!("{KIND}&user={user}&challenge={nonce}&response={response}{opaque}")
            }
        }
    }
}

fn digest(parts: &[&str]) -> String {
    let mut digest = Md5::new();
    parts.iter().for_each(|part| digest.update(part));
    STANDARD.encode(digest.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bob() -> Login {
        Login { user: "bob".into(), password: "hunter2".into() }
    }

    #[test]
    fn questions_are_told_from_refusals() {
        let who = "[ AccessManager.Reject ] : [ code=403 need auth; authmod=adobe ] : ";
        assert_eq!(Question::find(who), Some(Question::Who));
        let proof = "[ AccessManager.Reject ] : [ authmod=adobe ] : \
                     ?reason=needauth&user=bob&salt=c2FsdA==&challenge=Y2g=&opaque=b3A=";
        let (salt, challenge, opaque) = ("c2FsdA==".into(), "Y2g=".into(), "b3A=".into());
        assert_eq!(Question::find(proof), Some(Question::Proof { salt, challenge, opaque }));
        for text in [
            "",
            "no such stream",
            "[ AccessManager.Reject ] : [ authmod=adobe ] : ?reason=authfailed&opaque=x",
            "[ code=403 need auth; authmod=llnw ]",
        ] {
            assert_eq!(Question::find(text), None, "{text}");
        }
    }

    #[test]
    fn the_proof_is_the_one_that_servers_compute() {
        let proof = |challenge: &str, opaque: &str| Question::Proof {
            salt: "salt".into(),
            challenge: challenge.into(),
            opaque: opaque.into(),
        };
        assert_eq!(Question::Who.answer_with(&bob(), "n"), "authmod=adobe&user=bob");
        // md5("bobsalthunter2"), then md5(that in base64, the question, the nonce), made with another tool.
        assert_eq!(
            proof("ch", "").answer_with(&bob(), "00000001"),
            "authmod=adobe&user=bob&challenge=00000001&response=iEfzW7p6dInn9Tw1SD8jPg=="
        );
        assert_eq!(
            proof("ch", "op").answer_with(&bob(), "00000001"),
            "authmod=adobe&user=bob&challenge=00000001&response=r/j7r+tJtjy7YndVXmGoTA==&opaque=op"
        );
        let drawn = proof("ch", "op").answer(&bob());
        assert!(drawn.len() > 60 && !drawn.contains("hunter2"), "{drawn}");
    }
}
