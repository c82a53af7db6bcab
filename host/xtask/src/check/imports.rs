//! Who may import whom: one table, looked up line by line in the shipped code.

use super::source::{has_word, shipped_lines};
use crate::workspace;

/// One rule: in the files below `scope`, except those below `home`, none of `words` may stand.
struct Rule {
    /// The rule in words, printed with each breach.
    says: &'static str,
    /// Folders the rule looks at.
    scope: &'static [&'static str],
    /// Folders or files (without ending) that are the one home of these words.
    home: &'static [&'static str],
    /// What betrays a breach.
    words: &'static [&'static str],
}

/// The sources of the host's crates.
const HOST: [&str; 10] = [
    "host/src",
    "host/core/src",
    "host/net/src",
    "host/store/src",
    "host/drivers/src",
    "host/live/src",
    "host/money/src",
    "host/archive/src",
    "host/webhooks/src",
    "host/web/src",
];
/// The same as packages.
const HOST_PACKAGES: [&str; 10] = [
    "satcast",
    "satcast-core",
    "satcast-net",
    "satcast-store",
    "satcast-drivers",
    "satcast-live",
    "satcast-money",
    "satcast-archive",
    "satcast-webhooks",
    "satcast-web",
];

const RULES: &[Rule] = &[
    Rule {
        says: "a plugin never imports the host",
        scope: &["plugins"],
        home: &[],
        words: &["satcast::", "extern crate satcast"],
    },
    Rule {
        says: "the host never imports a plugin: drivers are loaded, not linked",
        scope: &HOST,
        home: &[],
        words: &["satcast_driver_rtmp", "satcast_plugin_rtmp"],
    },
    Rule {
        says: "the driver contract and the media crate stand below host and plugins",
        scope: &["plugin-api/src", "plugin-api/media/src"],
        home: &[],
        words: &["satcast::", "satcast_driver_rtmp", "satcast_plugin_rtmp"],
    },
    Rule {
        says: "media is sans I/O: no socket, file, clock or runtime",
        scope: &["plugin-api/media/src"],
        home: &[],
        words: &["tokio", "std::net", "std::fs", "std::thread", "SystemTime", "Instant"],
    },
    Rule {
        says: "SQL only in host/store",
        scope: &["host/src", "host/web/src", "plugin-api", "plugins"],
        home: &[],
        words: &["sqlx::", "SELECT", "INSERT INTO", "DELETE FROM", "UPDATE"],
    },
    Rule {
        says: "unsafe only in the driver loader, the driver contract and host/src/allocator.rs",
        scope: &["host", "plugin-api", "plugins", "tests"],
        home: &[
            "host/drivers/src/load",
            "host/src/allocator",
            "plugin-api/src",
            "plugin-api/tests",
            "plugin-api/benches",
            "host/xtask/src/check",
        ],
        words: &["unsafe"],
    },
    Rule {
        says: "the clock is read in host/core/src/clock.rs only (deadlines of I/O: tokio's)",
        scope: &HOST,
        home: &["host/core/src/clock"],
        words: &["SystemTime", "std::time::Instant", "UNIX_EPOCH", "OffsetDateTime::now_utc", "Utc::now"],
    },
    Rule {
        says: "randomness comes from host/core/src/secret only",
        scope: &HOST,
        home: &["host/core/src/secret"],
        words: &["rand::", "rand_core::", "getrandom", "OsRng"],
    },
    Rule { says: "live knows no money", scope: &["host/live/src"], home: &[], words: &["Msat", "Sats"] },
    Rule {
        says: "money knows nothing of sessions but what they tell (usage)",
        scope: &["host/money/src"],
        home: &["host/money/src/billing/tests"],
        words: &["satcast_live::Live", "satcast_live::Publisher"],
    },
    Rule {
        says: "HTTP only in host/web, and in host/net/src/http, which carries it",
        scope: &["host/net/src"],
        home: &["host/net/src/http"],
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
    breaches.extend(manifest_breaches()?);
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

/// The same rules seen from the manifests: a dependency is an import that nobody wrote down yet.
fn manifest_breaches() -> Result<Vec<String>, String> {
    let mut breaches = Vec::new();
    for path in
        workspace::files("plugins", "toml")?.into_iter().chain(workspace::files("plugin-api", "toml")?)
    {
        let text = workspace::read(&path)?;
        for name in dependencies(&text, "[").filter(|name| HOST_PACKAGES.contains(name)) {
            breaches.push(format!(
                "   {path}: depends on {name}: drivers and their contract never import the host"
            ));
        }
    }
    for sources in HOST {
        let path = sources.replace("src", "Cargo.toml");
        let text = workspace::read(&path)?;
        for name in dependencies(&text, "[dependencies]").filter(|name| name.starts_with("satcast-driver-")) {
            breaches.push(format!("   {path}: depends on {name}: drivers are loaded, not linked"));
        }
    }
    Ok(breaches)
}

/// Names of the dependencies in the sections whose header starts with `section`.
fn dependencies<'a>(manifest: &'a str, section: &'a str) -> impl Iterator<Item = &'a str> {
    let mut inside = false;
    manifest.lines().filter_map(move |line| {
        if line.starts_with('[') {
            inside = line.starts_with(section) && line.contains("dependencies");
            return None;
        }
        let (key, _) = line.split_once('=')?;
        let name = key.trim().split('.').next()?;
        (inside && !name.is_empty() && !name.starts_with('#')).then_some(name)
    })
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
        assert_eq!(breaches("plugins/rtmp/src/lib.rs", "use satcast::api::Api;\n"), 1);
        assert_eq!(breaches("host/live/src/lib.rs", "use satcast_driver_rtmp::Push;\n"), 1);
        assert_eq!(breaches("plugin-api/src/lib.rs", "use satcast::ids;\n"), 1);
        assert_eq!(breaches("plugin-api/media/src/flv.rs", "use std::net::TcpStream;\n"), 1);
        assert_eq!(breaches("host/web/src/api/streams.rs", "let rows = sqlx::query(text);\n"), 1);
        assert_eq!(breaches("host/live/src/lib.rs", "    unsafe { read(pointer) }\n"), 1);
        assert_eq!(breaches("host/live/src/lib.rs", "use std::time::{Duration, Instant};\n"), 1);
        assert_eq!(breaches("host/live/src/ingest/conn.rs", "let wait = rand::random();\n"), 1);
        assert_eq!(breaches("host/live/src/lib.rs", "use satcast_core::ids::Msat;\n"), 1);
        assert_eq!(breaches("host/money/src/billing/mod.rs", "use satcast_live::{Live, usage::Gate};\n"), 1);
        assert_eq!(breaches("host/web/src/auth/mod.rs", "use poem_openapi::Object;\n"), 1);
    }

    #[test]
    fn what_is_allowed_passes() {
        assert_eq!(breaches("host/store/src/streams.rs", "sqlx::query(\"SELECT 1\")\n"), 0);
        assert_eq!(breaches("host/drivers/src/load/loader.rs", "unsafe { library.get(name) }\n"), 0);
        assert_eq!(breaches("host/core/src/clock.rs", "SystemTime::now()\n"), 0);
        assert_eq!(breaches("host/live/src/ingest/conn.rs", "use tokio::time::{Duration, Instant};\n"), 0);
        assert_eq!(breaches("plugins/rtmp/src/lib.rs", "use satcast_plugin_api::Driver;\n"), 0);
        assert_eq!(breaches("host/live/src/lib.rs", "// SELECT is a word in a comment\n"), 0);
    }

    #[test]
    fn dependencies_are_read_from_manifests() {
        let text = "[package]\nname = \"x\"\n[dependencies]\nsatcast.workspace = true\nbytes = \"1\"\n[lints]\nworkspace = true\n";
        assert_eq!(dependencies(text, "[").collect::<Vec<_>>(), ["satcast", "bytes"]);
    }
}
