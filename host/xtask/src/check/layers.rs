//! Which modules of the host stand below which, and where files import each other in no circle: proved on all imports together.

use crate::map::{self, Graph, Module};

/// Of a crate: its folder, its modules with the lowest first, of which none imports a later one (its root is ""), and modules without a
/// circle inside.
const CRATES: [(&str, &[&str], &[&str]); 3] = [
    (
        "host/drivers",
        &["published", "load", "run", "registry", ""],
        &["published", "load", "run", "registry"],
    ),
    ("host/live", &["usage", "", "ingest"], &[]),
    ("host", &["base", "auth", "playback", "watch", "api", "site", "boot", "cli"], &["base"]),
];

/// Fails with every breach, one a line.
pub(crate) fn check() -> Result<(), String> {
    let of_crate = |(folder, order, without_circles): &(&str, &[&str], &[&str])| {
        breaches(&map::graph(folder), order, without_circles)
    };
    let breaches: Vec<String> = CRATES.iter().flat_map(of_crate).collect();
    if breaches.is_empty() { Ok(()) } else { Err(breaches.join("\n")) }
}

fn breaches(graph: &Graph, order: &[&str], without_circles: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    let place = |module: &Module| order.iter().position(|name| is_in(module, name));
    for (module, imported) in graph {
        let is_higher = |other: &&Module| place(module).is_some_and(|own| Some(own) < place(other));
        let breach = |other| format!("   {} imports {}, which stands above it", shown(module), shown(other));
        found.extend(imported.iter().filter(is_higher).map(breach));
    }
    for name in without_circles {
        for circle in map::circles(graph, &|module| is_in(module, name)) {
            let names: Vec<String> = circle.iter().map(shown).collect();
            found.push(format!("   {} import each other in a circle", names.join(", ")));
        }
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

    #[test]
    fn a_lower_module_imports_no_higher_one() {
        let good: &[(&str, &[&str])] = &[("low::a", &[]), ("high", &["low::a"]), ("highest", &["high"])];
        assert_eq!(breaches(&graph(good), &["low", "high"], &[]).len(), 0);
        let bad: &[(&str, &[&str])] = &[("low::a", &["high"]), ("high", &["highest"]), ("highest", &[])];
        assert_eq!(breaches(&graph(bad), &["low", "high"], &[]).len(), 1);
    }

    #[test]
    fn a_circle_is_found_where_there_must_be_none() {
        let files: &[(&str, &[&str])] = &[("a::b", &["a::c"]), ("a::c", &["a::b"]), ("ab", &["a::b"])];
        assert_eq!(breaches(&graph(files), &[], &["a"]).len(), 1);
        assert_eq!(breaches(&graph(files), &[], &["ab"]).len(), 0);
    }
}
