//! Allowed imports between modules: one table, applied to each line of the shipped code.

use super::source::{has_word, shipped_lines};
use crate::workspace;

/// One rule: none of `words` may appear in the files below `scope`, except in those below `home`.
struct Rule {
    /// The rule in words, printed with each breach.
    says: &'static str,
    /// Folders that the rule covers.
    scope: &'static [&'static str],
    /// The only folders or files (without ending) in which these words are allowed.
    home: &'static [&'static str],
    /// Texts that show a breach.
    words: &'static [&'static str],
}

const RULES: &[Rule] = &[
    Rule {
        says: "media is sans I/O: no socket, file, clock or runtime",
        scope: &["plugin-api/media/src"],
        home: &[],
        words: &["tokio", "std::net", "std::fs", "std::thread", "SystemTime", "Instant"],
    },
    Rule {
        says: "SQL only in host/store",
        scope: &["host", "plugin-api", "plugins"],
        home: &["host/store", "host/xtask"],
        words: &["SELECT", "INSERT INTO", "DELETE FROM", "UPDATE"],
    },
    Rule {
        says: "unsafe only in the driver loader, the driver contract and host/src/allocator.rs",
        scope: &["host", "plugin-api", "plugins", "tests"],
        home: &[
            "host/drivers/src/load/loader",
            "host/drivers/src/load/probe",
            "host/src/allocator",
            "plugin-api/src",
            "plugin-api/tests",
            "plugin-api/benches",
            "host/xtask/src/check",
        ],
        words: &["unsafe"],
    },
    Rule {
        says: "the clock is read in host/core/src/clock.rs only (deadlines of I/O: tokio's; systemd and the dates of an authority want the time of the system; str0m takes that of std)",
        scope: &["host"],
        home: &[
            "host/core/src/clock",
            "host/src/notify",
            "host/net/src/acme/authority",
            "host/net/src/acme/testing",
            "host/live/src/ingest/whip",
            "host/xtask",
            "host/benches",
            "host/model",
        ],
        words: &[
            "SystemTime",
            "std::time::Instant",
            "UNIX_EPOCH",
            "OffsetDateTime::now_utc",
            "Utc::now",
            "clock_gettime",
        ],
    },
    Rule { says: "live knows no money", scope: &["host/live/src"], home: &[], words: &["Msat", "Sats"] },
    Rule {
        says: "of host/net only http knows the framework of host/web, and the tests of acme, which serve at a real port",
        scope: &["host/net/src"],
        home: &["host/net/src/http", "host/net/src/acme/tests"],
        words: &["poem"],
    },
    Rule {
        says: "described JSON only in host/web/src/api; base turns the framework's errors into ours",
        scope: &["host/web/src"],
        home: &["host/web/src/api", "host/web/src/base"],
        words: &["poem_openapi"],
    },
];

/// Fails with every breach, one a line.
pub(crate) fn check() -> Result<(), String> {
    let mut breaches = Vec::new();
    for rule in RULES {
        for scope in rule.scope {
            for path in below(scope)? {
                breaches.extend(breaches_in(rule, &path, &workspace::read(&path)?));
            }
        }
    }
    if breaches.is_empty() { Ok(()) } else { Err(breaches.join("\n")) }
}

/// The Rust files of a scope, which is a folder or a module (`x.rs` beside or instead of `x/`).
fn below(scope: &str) -> Result<Vec<String>, String> {
    let mut files = workspace::files(scope, "rs")?;
    let file = format!("{scope}.rs");
    if workspace::root().join(&file).is_file() {
        files.push(file);
    }
    Ok(files)
}

fn breaches_in(rule: &Rule, path: &str, text: &str) -> Vec<String> {
    if rule.home.iter().any(|home| is_below(path, home)) {
        return Vec::new();
    }
    let broken = |line: &str| rule.words.iter().find(|word| has_word(line, word));
    shipped_lines(text)
        .into_iter()
        .filter_map(|(number, line)| {
            let line = spelled_out(line);
            broken(&line).map(|word| format!("   {path}:{number}: \"{word}\": {}", rule.says))
        })
        .collect()
}

fn is_below(path: &str, home: &str) -> bool {
    path.strip_prefix(home).is_some_and(|rest| rest.starts_with('/') || rest == ".rs")
}

/// Adds the full path to an import list that hides it: `use std::time::{Duration, Instant}`.
fn spelled_out(line: &str) -> String {
    let Some((prefix, list)) = line.split_once("::{") else { return line.to_owned() };
    let prefix = prefix.trim_start().trim_start_matches("pub ").trim_start_matches("use ");
    let names = list.split(['{', '}', ',', ';']).map(str::trim).filter(|name| !name.is_empty());
    names.fold(line.to_owned(), |line, name| format!("{line} {prefix}::{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn breaches(path: &str, text: &str) -> usize {
        RULES
            .iter()
            .filter(|rule| rule.scope.iter().any(|scope| is_below(path, scope)))
            .map(|rule| breaches_in(rule, path, text).len())
            .sum()
    }

    #[test]
    fn each_rule_finds_a_breach() {
        let examples = [
            ("plugin-api/media/src/flv.rs", "use std::net::TcpStream;\n"),
            ("host/web/src/api/streams.rs", "let rows = query(\"SELECT 1\");\n"),
            ("host/drivers/src/load/mod.rs", "    unsafe { read(pointer) }\n"),
            ("host/live/src/lib.rs", "use std::time::{Duration, Instant};\n"),
            ("host/live/src/lib.rs", "use satcast_core::ids::Msat;\n"),
            ("host/net/src/outbound/mod.rs", "use poem::Endpoint;\n"),
            ("host/web/src/auth/mod.rs", "use poem_openapi::Object;\n"),
        ];
        assert_eq!(examples.len(), RULES.len());
        for (path, text) in examples {
            assert_eq!(breaches(path, text), 1, "{path}");
        }
    }

    #[test]
    fn what_is_allowed_passes() {
        assert_eq!(breaches("host/store/src/streams.rs", "query(\"SELECT 1\")\n"), 0);
        assert_eq!(breaches("host/drivers/src/load/loader.rs", "unsafe { library.get(name) }\n"), 0);
        assert_eq!(breaches("host/core/src/clock.rs", "SystemTime::now()\n"), 0);
        assert_eq!(breaches("host/live/src/ingest/conn.rs", "use tokio::time::{Duration, Instant};\n"), 0);
        assert_eq!(breaches("host/live/src/lib.rs", "// SELECT is a word in a comment\n"), 0);
    }
}
