//! Which modules of the host stand below which, and where files import each other in no circle: proved on all imports together.

use crate::map::{self, Graph, Module};

/// What is proved of one crate.
struct Crate {
    folder: &'static str,
    /// Its modules with the lowest first, of which none imports a later one; its root is "".
    order: &'static [&'static str],
    /// Every circle of its files, with the reason why it stays; `None` where nobody has looked yet.
    circles: Option<&'static [(&'static [&'static str], &'static str)]>,
}

const CRATES: [Crate; 7] = [
    Crate {
        folder: "host/drivers",
        order: &["published", "load", "run", "registry", ""],
        circles: Some(&[]),
    },
    Crate {
        folder: "host/live",
        order: &["usage", "queue", "spool", "live", "", "ingest"],
        circles: Some(&[
            (
                &["live", "session"],
                "all sessions are found by their stream, and one that ends takes itself out",
            ),
            (&["queue", "queue::spill"], "the queue and what is behind it change under one lock"),
        ]),
    },
    Crate {
        folder: "host/money",
        order: &["billing", "wallet"],
        circles: Some(&[
            (
                &["billing", "billing::hours", "billing::meter"],
                "what an account spends is the sum over its meters, and each of them asks for it",
            ),
            (
                &[
                    "wallet::desk",
                    "wallet::desk::balances",
                    "wallet::desk::refill",
                    "wallet::desk::wanted",
                    "wallet::desk::watch",
                ],
                "the desk is one actor whose tasks keep their state in it",
            ),
        ]),
    },
    Crate { folder: "host/archive", order: &[], circles: Some(&[]) },
    Crate { folder: "host/webhooks", order: &[], circles: Some(&[]) },
    Crate { folder: "host/web", order: &["base", "auth", "playback", "watch", "api", "site"], circles: None },
    Crate { folder: "host", order: &["boot", "cli"], circles: None },
];

/// Fails with every breach, one a line.
pub(crate) fn check() -> Result<(), String> {
    let breaches: Vec<String> = CRATES.iter().flat_map(|of| breaches(&map::graph(of.folder), of)).collect();
    if breaches.is_empty() { Ok(()) } else { Err(breaches.join("\n")) }
}

fn breaches(graph: &Graph, of: &Crate) -> Vec<String> {
    let mut found = Vec::new();
    let place = |module: &Module| of.order.iter().position(|name| is_in(module, name));
    for (module, imported) in graph {
        let is_higher = |other: &&Module| place(module).is_some_and(|own| Some(own) < place(other));
        let breach = |other| format!("   {} imports {}, which stands above it", shown(module), shown(other));
        found.extend(imported.iter().filter(is_higher).map(breach));
    }
    let Some(known) = of.circles else { return found };
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
        circles: Option<&'static [(&'static [&'static str], &'static str)]>,
    ) -> Crate {
        Crate { folder: "x", order, circles }
    }

    #[test]
    fn a_lower_module_imports_no_higher_one() {
        let of = crate_of(&["low", "high"], None);
        let good: &[(&str, &[&str])] = &[("low::a", &[]), ("high", &["low::a"]), ("highest", &["high"])];
        assert_eq!(breaches(&graph(good), &of).len(), 0);
        let bad: &[(&str, &[&str])] = &[("low::a", &["high"]), ("high", &["highest"]), ("highest", &[])];
        assert_eq!(breaches(&graph(bad), &of).len(), 1);
    }

    #[test]
    fn a_circle_has_its_reason_and_a_reason_its_circle() {
        let files: &[(&str, &[&str])] = &[("a::b", &["a::c"]), ("a::c", &["a::b"]), ("ab", &["a::b"])];
        assert_eq!(breaches(&graph(files), &crate_of(&[], Some(&[]))).len(), 1);
        assert_eq!(breaches(&graph(files), &crate_of(&[], Some(&[(&["a::b", "a::c"], "why")]))).len(), 0);
        assert_eq!(breaches(&graph(files), &crate_of(&[], Some(&[(&["a::b", "ab"], "why")]))).len(), 2);
        assert_eq!(breaches(&graph(files), &crate_of(&[], None)).len(), 0);
    }
}
