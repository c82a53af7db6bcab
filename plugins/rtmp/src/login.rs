//! User and password for servers that use Adobe's scheme (`authmod=adobe`) or Limelight's (`authmod=llnw`, the digest
//! of RFC 2617): they refuse `connect` with a question in the description, and accept a new connection whose app
//! holds the answer. The password itself is never sent.

use std::hash::{BuildHasher as _, RandomState};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use md5::{Digest as _, Md5};

/// Most connections for one login: the question for the scheme, the challenge, the answer.
pub(crate) const ROUNDS_MAX: usize = 3;
/// Parts of Limelight's digest besides user, password and app.
const REALM: &str = "live";
const METHOD: &str = "publish";
/// The instance of an app without one.
const INSTANCE_DEFAULT: &str = "_definst_";
/// Names of the values in an answer that are derived from the password.
const PROOFS: [&str; 3] = ["challenge", "cnonce", "response"];
/// Use count of a server's nonce: each is used once.
const NONCE_COUNT: &str = "00000001";

pub(crate) struct Login {
    pub(crate) user: String,
    pub(crate) password: String,
}

/// The authentication scheme.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Adobe,
    Limelight,
}

impl Kind {
    const ALL: [Self; 2] = [Self::Adobe, Self::Limelight];

    fn words(self) -> &'static str {
        match self {
            Self::Adobe => "authmod=adobe",
            Self::Limelight => "authmod=llnw",
        }
    }

    /// The scheme that the description of a refusal names.
    pub(crate) fn find(description: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| description.contains(kind.words()))
    }
}

/// The question in a server's refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Question {
    /// Which user: the server wants a login.
    User(Kind),
    /// Proof of the password, in Adobe's scheme.
    Proof {
        salt: String,
        /// `opaque`, or `challenge` for servers without it.
        challenge: String,
        opaque: String,
    },
    /// Proof of the password, in Limelight's scheme.
    Digest { nonce: String },
}

impl Question {
    /// The question in the description of a refusal. `None`: the server asks nothing, or it refuses the answer.
    pub(crate) fn find(description: &str) -> Option<Self> {
        let kind = Kind::find(description)?;
        if description.contains("authfailed") || description.contains("nosuchuser") {
            return None;
        }
        if !description.contains("reason=needauth") {
            return description.contains("need auth").then_some(Question::User(kind));
        }
        let value = |name: &str| {
            let parts = description.split(['?', '&', ' ']);
            let found = parts.filter_map(|part| part.split_once('=')).find(|(known, _)| *known == name);
            found.map(|(_, value)| value.to_owned()).unwrap_or_default()
        };
        Some(match kind {
            Kind::Adobe => Question::Proof {
                salt: value("salt"),
                challenge: value("challenge"),
                opaque: value("opaque"),
            },
            Kind::Limelight => Question::Digest { nonce: value("nonce") },
        })
    }

    /// The suffix of the next connection's app; `app` is the app of the connection.
    pub(crate) fn answer(&self, login: &Login, app: &str) -> String {
        // Differs every time; it need not be hard to guess.
        let nonce = RandomState::new().hash_one(&login.user) as u32;
        self.answer_with(login, app, &format!("{nonce:08x}"))
    }

    fn answer_with(&self, login: &Login, app: &str, own: &str) -> String {
        let Login { user, password } = login;
        match self {
            Question::User(kind) => format!("{}&user={user}", kind.words()),
            Question::Proof { salt, challenge, opaque } => {
                let secret = digest(&[user, salt, password]);
                let asked = if opaque.is_empty() { challenge } else { opaque };
                let response = digest(&[&secret, asked, own]);
                let opaque = if opaque.is_empty() { String::new() } else { format!("&opaque={opaque}") };
                let kind = Kind::Adobe.words();
                format!("{kind}&user={user}&challenge={own}&response={response}{opaque}")
            }
            Question::Digest { nonce } => {
                let instance = if app.contains('/') { String::new() } else { format!("/{INSTANCE_DEFAULT}") };
                let secret = hexadecimal(&format!("{user}:{REALM}:{password}"));
                let place = hexadecimal(&format!("{METHOD}:/{app}{instance}"));
                let response = hexadecimal(&format!("{secret}:{nonce}:{NONCE_COUNT}:{own}:auth:{place}"));
                let kind = Kind::Limelight.words();
                format!("{kind}&user={user}&nonce={nonce}&cnonce={own}&nc={NONCE_COUNT}&response={response}")
            }
        }
    }
}

/// Parts of an answer that help to guess the password: together with the server's values they allow offline guessing.
pub(crate) fn proofs(answer: &str) -> impl Iterator<Item = &str> {
    let parts = answer.split('&').filter_map(|part| part.split_once('='));
    parts.filter(|(name, _)| PROOFS.contains(name)).map(|(_, value)| value)
}

fn hexadecimal(text: &str) -> String {
    Md5::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
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
    fn questions_are_distinguished_from_refusals() {
        let need_auth = "[ AccessManager.Reject ] : [ code=403 need auth; authmod=adobe ] : ";
        assert_eq!(Question::find(need_auth), Some(Question::User(Kind::Adobe)));
        let proof = "[ AccessManager.Reject ] : [ authmod=adobe ] : \
                     ?reason=needauth&user=bob&salt=c2FsdA==&challenge=Y2g=&opaque=b3A=";
        let (salt, challenge, opaque) = ("c2FsdA==".into(), "Y2g=".into(), "b3A=".into());
        assert_eq!(Question::find(proof), Some(Question::Proof { salt, challenge, opaque }));
        let need_auth = "[ AccessManager.Reject ] : [ code=403 need auth; authmod=llnw ] : ";
        assert_eq!(Question::find(need_auth), Some(Question::User(Kind::Limelight)));
        let digest = "[ AccessManager.Reject ] : [ authmod=llnw ] : ?reason=needauth&user=bob&nonce=bm9uY2U=";
        assert_eq!(Question::find(digest), Some(Question::Digest { nonce: "bm9uY2U=".into() }));
        for text in [
            "",
            "no such stream",
            "[ AccessManager.Reject ] : [ authmod=adobe ] : ?reason=authfailed&opaque=x",
            "[ AccessManager.Reject ] : [ authmod=llnw ] : ?reason=nosuchuser",
            "[ code=403 need auth; authmod=other ]",
        ] {
            assert_eq!(Question::find(text), None, "{text}");
        }
    }

    #[test]
    fn the_proof_matches_the_servers() {
        let proof = |challenge: &str, opaque: &str| Question::Proof {
            salt: "salt".into(),
            challenge: challenge.into(),
            opaque: opaque.into(),
        };
        assert_eq!(Question::User(Kind::Adobe).answer_with(&bob(), "live", "n"), "authmod=adobe&user=bob");
        // md5("bobsalthunter2"), then md5(that in base64, the question, the nonce), made with another tool.
        assert_eq!(
            proof("ch", "").answer_with(&bob(), "live", "00000001"),
            "authmod=adobe&user=bob&challenge=00000001&response=iEfzW7p6dInn9Tw1SD8jPg=="
        );
        assert_eq!(
            proof("ch", "op").answer_with(&bob(), "live", "00000001"),
            "authmod=adobe&user=bob&challenge=00000001&response=r/j7r+tJtjy7YndVXmGoTA==&opaque=op"
        );
        let drawn = proof("ch", "op").answer(&bob(), "live");
        assert!(drawn.len() > 60 && !drawn.contains("hunter2"), "{drawn}");
    }

    #[test]
    fn the_proofs_of_an_answer_are_its_derived_values() {
        let proof = Question::Proof { salt: "salt".into(), challenge: "ch".into(), opaque: "op".into() };
        let digest = Question::Digest { nonce: "bm9uY2U=".into() };
        for (question, expected) in [
            (Question::User(Kind::Adobe), &[][..]),
            (proof, &["00000001", "r/j7r+tJtjy7YndVXmGoTA=="]),
            (digest, &["00000001", "25e0dcda108045e9f22ad85b623fa267"]),
        ] {
            let answer = question.answer_with(&bob(), "live", "00000001");
            assert_eq!(proofs(&answer).collect::<Vec<_>>(), expected, "{answer}");
        }
    }

    #[test]
    fn the_digest_matches_another_encoder() {
        let question = Question::Digest { nonce: "bm9uY2U=".into() };
        for (app, own, response) in [
            ("live", "bccd35b3", "7a255b6d33c3ffb31f830ae8ea892b8c"),
            ("live/inst", "75e5db71", "2cebabe3e0662504913a8484e3ca38a2"),
        ] {
            let expected =
                format!("authmod=llnw&user=bob&nonce=bm9uY2U=&cnonce={own}&nc=00000001&response={response}");
            assert_eq!(question.answer_with(&bob(), app, own), expected);
        }
    }
}
