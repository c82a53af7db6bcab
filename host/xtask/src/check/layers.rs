//! The order of the host's crates and modules, and the files that may import each other in a circle: checked on all imports.

use crate::map::{self, Graph, Module};
use crate::workspace;

/// The crates of the host, lowest first. Crates of one row do not use each other, except in tests.
const ROWS: [&[&str]; 7] = [
    &["satcast-core"],
    &["satcast-net"],
    &["satcast-store", "satcast-drivers"],
    &["satcast-usage"],
    &["satcast-live", "satcast-money", "satcast-archive", "satcast-webhooks"],
    &["satcast-web"],
    &["satcast"],
];

/// The rules for one crate.
struct Crate {
    folder: &'static str,
    /// The main modules, lowest first; none imports a later one. The root is "".
    order: &'static [&'static str],
    /// Every circle of files, with the reason why it stays.
    circles: &'static [(&'static [&'static str], &'static str)],
}

const CRATES: [Crate; 11] = [
    Crate { folder: "host/drivers", order: &["published", "load", "run", "registry", ""], circles: &[] },
    Crate {
        folder: "host/live",
        order: &["queue", "spool", "hub", "destination", "live", "", "ingest"],
        circles: &[
            (
                &["live", "session", "session::run"],
                "all sessions are found by their stream, and one that ends takes itself out",
            ),
            (&["queue", "queue::spill"], "the queue and its spool change under one lock"),
        ],
    },
    Crate {
        folder: "host/money",
        order: &["billing", "wallet"],
        circles: &[
            (
                &["billing", "billing::hours", "billing::meter"],
                "the spending of an account is the sum over its meters, and each meter needs it",
            ),
            (
                &[
                    "wallet::topups",
                    "wallet::topups::balances",
                    "wallet::topups::refill",
                    "wallet::topups::wanted",
                    "wallet::topups::watch",
                ],
                "top-ups are one actor whose tasks keep their state in it",
            ),
        ],
    },
    Crate { folder: "host/store", order: &["error", "engine", "store", "audit"], circles: &[] },
    Crate { folder: "host/usage", order: &[], circles: &[] },
    Crate { folder: "host/archive", order: &[], circles: &[] },
    Crate { folder: "host/webhooks", order: &[], circles: &[] },
    Crate {
        folder: "host/core",
        order: &["ids", "clock", "config"],
        circles: &[
            (
                &[
                    "config",
                    "config::acme",
                    "config::archive",
                    "config::check",
                    "config::load",
                    "config::reload",
                    "config::wallet",
                ],
                "the configuration is one type, and its parts read and check it",
            ),
            (&["secret", "secret::vault"], "the vault gives and takes the secrets that the folder defines"),
        ],
    },
    Crate {
        folder: "host/net",
        order: &["certificates", "acme", "http"],
        circles: &[
            (
                &["http", "http::flow", "http::serving"],
                "a connection is served by the limits of its listener",
            ),
            (
                &["outbound", "outbound::lookups", "outbound::system"],
                "the guard asks the resolver, whose limits are the guard's",
            ),
        ],
    },
    Crate {
        folder: "host/web",
        order: &["base", "auth", "playback", "nodes", "pages", "watch", "api", "site"],
        circles: &[(
            &[
                "playback",
                "playback::recordings",
                "playback::recordings::access",
                "playback::recordings::body",
                "playback::recordings::poster",
                "playback::recordings::state",
                "playback::serve",
            ],
            "Playback is one state, and these files hold the methods that serve from it",
        )],
    },
    Crate {
        folder: "host",
        order: &["boot", "cli"],
        circles: &[
            (
                &["boot", "boot::database", "boot::node", "boot::wallets"],
                "the steps of the start share its one error",
            ),
            (
                &[
                    "cli",
                    "cli::accounts",
                    "cli::copy",
                    "cli::doctor",
                    "cli::drivers",
                    "cli::maintenance",
                    "cli::new_driver",
                ],
                "the commands share one error and one way to print",
            ),
        ],
    },
];

/// Fails with every breach, one a line.
pub(crate) fn check() -> Result<(), String> {
    let mut breaches: Vec<String> =
        CRATES.iter().flat_map(|of| breaches(&map::graph(of.folder), of)).collect();
    for folder in ["host", "plugins", "plugin-api"] {
        for path in workspace::files(folder, "toml")? {
            breaches.extend(dependency_breaches(&path, &workspace::read(&path)?));
        }
    }
    if breaches.is_empty() { Ok(()) } else { Err(breaches.join("\n")) }
}

fn breaches(graph: &Graph, of: &Crate) -> Vec<String> {
    let mut found = Vec::new();
    // Without this check a renamed folder would always pass.
    if graph.is_empty() {
        found.push(format!("   {}: the folder has no code", of.folder));
    }
    let place = |module: &Module| of.order.iter().position(|name| is_in(module, name));
    for (module, imported) in graph {
        let is_higher = |other: &&Module| place(module).is_some_and(|own| Some(own) < place(other));
        let breach = |other| format!("   {} imports {}, which is above it", shown(module), shown(other));
        found.extend(imported.iter().filter(is_higher).map(breach));
    }
    let known = of.circles;
    let circles: Vec<Vec<String>> =
        map::circles(graph, &|_| true).iter().map(|circle| circle.iter().map(shown).collect()).collect();
    for circle in circles.iter().filter(|circle| !known.iter().any(|(files, _)| *circle == files)) {
        found.push(format!("   {}: {} import each other in a circle", of.folder, circle.join(", ")));
    }
    for (files, _) in known.iter().filter(|(files, _)| !circles.iter().any(|circle| circle == files)) {
        found.push(format!(
            "   {}: {} are no circle any more; take it off the list",
            of.folder,
            files.join(", ")
        ));
    }
    found
}

/// Dependencies of a manifest on crates beside or above it. Drivers have this rule in tests too, the host's crates do not.
fn dependency_breaches(path: &str, manifest: &str) -> Vec<String> {
    let row = |name: &str| ROWS.iter().position(|row| row.contains(&name));
    let own = package(manifest).and_then(row);
    let breach = |name: &str| match (own, row(name)) {
        (Some(own), Some(other)) => own <= other,
        (Some(_), None) => name.starts_with("satcast-driver-"),
        (None, other) => other.is_some() && !path.starts_with("host/"),
    };
    let section = if own.is_some() { "[dependencies]" } else { "[" };
    dependencies(manifest, section)
        .filter(|name| breach(name))
        .map(|name| format!("   {path}: depends on {name}, which is beside or above it"))
        .collect()
}

fn package(manifest: &str) -> Option<&str> {
    manifest.lines().find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'))
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

/// Whether a file is that of the module `name`, or below it.
fn is_in(module: &Module, name: &str) -> bool {
    let own = shown(module);
    own.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

fn shown(module: &Module) -> String {
    module.join("::")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(imports: &[(&str, &[&str])]) -> Graph {
        let module = |name: &str| name.split("::").map(str::to_owned).collect::<Module>();
        let file = |(name, imported): &(&str, &[&str])| {
            (module(name), imported.iter().map(|name| module(name)).collect())
        };
        imports.iter().map(file).collect()
    }

    fn crate_of(
        order: &'static [&'static str],
        circles: &'static [(&'static [&'static str], &'static str)],
    ) -> Crate {
        Crate { folder: "x", order, circles }
    }

    #[test]
    fn a_folder_without_code_is_a_breach() {
        assert_eq!(breaches(&graph(&[]), &crate_of(&[], &[])).len(), 1);
    }

    #[test]
    fn a_crate_depends_on_lower_rows_and_no_driver_on_the_host() {
        let manifest = |name: &str, section: &str, dependency: &str| {
            format!(
                "[package]\nname = \"{name}\"\n{section}\n{dependency}.workspace = true\n[lints]\nworkspace = true\n"
            )
        };
        for (path, name, section, dependency, wrong) in [
            ("host/live/Cargo.toml", "satcast-live", "[dependencies]", "satcast-usage", false),
            ("host/live/Cargo.toml", "satcast-live", "[dependencies]", "satcast-web", true),
            ("host/money/Cargo.toml", "satcast-money", "[dependencies]", "satcast-live", true),
            ("host/money/Cargo.toml", "satcast-money", "[dev-dependencies]", "satcast-live", false),
            ("host/live/Cargo.toml", "satcast-live", "[dependencies]", "satcast-driver-rtmp", true),
            ("plugins/rtmp/Cargo.toml", "satcast-driver-rtmp", "[dev-dependencies]", "satcast-core", true),
            ("plugins/rtmp/Cargo.toml", "satcast-driver-rtmp", "[dependencies]", "satcast-media", false),
            ("plugin-api/Cargo.toml", "satcast-plugin-api", "[dependencies]", "satcast", true),
        ] {
            let found = dependency_breaches(path, &manifest(name, section, dependency));
            assert_eq!(found.len(), usize::from(wrong), "{name} on {dependency}: {found:?}");
        }
    }

    #[test]
    fn a_lower_module_imports_no_higher_one() {
        let of = crate_of(&["low", "high"], &[]);
        let good: &[(&str, &[&str])] = &[("low::a", &[]), ("high", &["low::a"]), ("highest", &["high"])];
        assert_eq!(breaches(&graph(good), &of).len(), 0);
        let bad: &[(&str, &[&str])] = &[("low::a", &["high"]), ("high", &["highest"]), ("highest", &[])];
        assert_eq!(breaches(&graph(bad), &of).len(), 1);
    }

    #[test]
    fn a_circle_has_its_reason_and_a_reason_its_circle() {
        let files: &[(&str, &[&str])] = &[("a::b", &["a::c"]), ("a::c", &["a::b"]), ("ab", &["a::b"])];
        assert_eq!(breaches(&graph(files), &crate_of(&[], &[])).len(), 1);
        assert_eq!(breaches(&graph(files), &crate_of(&[], &[(&["a::b", "a::c"], "why")])).len(), 0);
        assert_eq!(breaches(&graph(files), &crate_of(&[], &[(&["a::b", "ab"], "why")])).len(), 2);
    }
}
