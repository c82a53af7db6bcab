//! `cargo xtask map`: lines, files, types and import circles of the product, for counts before and after a change; with
//! `--circles` also the files of each circle.
//!
//! A line counts unless it is blank, a comment or part of an item with `#[cfg(test)]`. A circle is a set of files of one crate, each of
//! which reaches all others by imports. Figures of a folder are those of its own files. Macros and `#[path]` are not followed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Folders without code of the product.
const SKIPPED: [&str; 10] =
    ["src", "target", "node_modules", ".git", "tests", "benches", "examples", "fuzz", "model", "xtask"];
const KINDS: [&str; 5] = ["struct", "enum", "trait", "union", "type"];

pub(crate) type Module = Vec<String>;

struct File {
    /// Folder it is counted in, from the root.
    folder: String,
    /// Its code without blank lines, comments and tests.
    code: String,
}

/// Which files each file imports.
pub(crate) type Graph = BTreeMap<Module, BTreeSet<Module>>;

pub(crate) fn run(args: &[String]) -> Result<(), String> {
    let (mut root, mut names_circles) = (crate::workspace::root(), false);
    let mut args = args.iter();
    while let Some(flag) = args.next() {
        match (flag.as_str(), args.as_slice().first()) {
            ("--circles", _) => names_circles = true,
            ("--root", Some(path)) => {
                root = PathBuf::from(path);
                args.next();
            }
            _ => return Err("map takes nothing, --circles or --root PATH".to_owned()),
        }
    }
    let found = crates(&root);
    if found.is_empty() {
        return Err(format!("there is no crate in or below {}", root.display()));
    }
    println!(
        "{:<44} {:>7} {:>6} {:>6} {:>8} {:>6}",
        "folder", "lines", "files", "types", "circles", "inside"
    );
    let mut total = [0; 5];
    for folder in found {
        let files = read_crate(&root, &folder);
        let (graph, mut named) = (graph_of(&files), BTreeSet::new());
        let folders: BTreeSet<&String> = files.values().map(|file| &file.folder).collect();
        let mut show = |name: &str, is_wanted: &dyn Fn(&Module) -> bool| {
            let circles = circles(&graph, is_wanted);
            let sums = count(&files, &circles, is_wanted);
            print(name, sums);
            for circle in circles.into_iter().filter(|circle| named.insert(circle.clone()) && names_circles) {
                let names: Vec<String> = circle.iter().map(|module| module.join("::")).collect();
                println!("    {}", names.join(", "));
            }
            sums
        };
        for folder in folders {
            show(folder, &|module| files[module].folder == *folder);
        }
        let name = format!("= {}", folder.strip_prefix(&root).unwrap_or(&folder).display());
        let sums = show(&name, &|_| true);
        total.iter_mut().zip(sums).for_each(|(total, sum)| *total += sum);
    }
    print("= all", total);
    Ok(())
}

/// The imports of the crate in a folder below the root of the workspace.
pub(crate) fn graph(folder: &str) -> Graph {
    let root = crate::workspace::root();
    graph_of(&read_crate(&root, &root.join(folder)))
}

fn graph_of(files: &BTreeMap<Module, File>) -> Graph {
    let imported = |(module, file): (&Module, &File)| (module.clone(), imports(module, &file.code, files));
    files.iter().map(imported).collect()
}

/// The circles: sets of files, each of which reaches all others by imports of wanted files.
pub(crate) fn circles(graph: &Graph, is_wanted: &dyn Fn(&Module) -> bool) -> BTreeSet<Vec<Module>> {
    let mut reach: BTreeMap<&Module, BTreeSet<&Module>> = BTreeMap::new();
    for module in graph.keys().filter(|module| is_wanted(module)) {
        let (mut seen, mut waiting) = (BTreeSet::new(), vec![module]);
        while let Some(module) = waiting.pop() {
            let next = graph[module].iter().filter(|next| is_wanted(next));
            waiting.extend(next.filter(|next| seen.insert(*next)));
        }
        reach.insert(module, seen);
    }
    // Files of one circle are the same for each of them.
    let circle = |(module, seen): (&&Module, &BTreeSet<&Module>)| {
        let back = |other: &&&Module| reach[*other].contains(*module);
        seen.iter().filter(back).map(|other| (*other).clone()).collect()
    };
    reach.iter().filter(|(module, seen)| seen.contains(**module)).map(circle).collect()
}

fn print(name: &str, [lines, files, types, circles, inside]: [usize; 5]) {
    println!("{name:<44} {lines:>7} {files:>6} {types:>6} {circles:>8} {inside:>6}");
}

fn entries(folder: &Path) -> BTreeSet<PathBuf> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

fn crates(folder: &Path) -> Vec<PathBuf> {
    let is_crate = folder.join("Cargo.toml").is_file() && folder.join("src").is_dir();
    let mut found: Vec<PathBuf> = is_crate.then(|| folder.to_owned()).into_iter().collect();
    for path in entries(folder) {
        let is_skipped = path.file_name().is_some_and(|name| SKIPPED.iter().any(|skipped| name == *skipped));
        if path.is_dir() && !is_skipped {
            found.extend(crates(&path));
        }
    }
    found
}

fn read_crate(root: &Path, folder: &Path) -> BTreeMap<Module, File> {
    let (mut files, mut tests) = (BTreeMap::new(), BTreeSet::new());
    let source = folder.join("src");
    let mut waiting = vec![source.clone()];
    while let Some(path) = waiting.pop() {
        if path.is_dir() {
            waiting.extend(entries(&path));
            continue;
        }
        if path.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        let inner = path.strip_prefix(&source).unwrap_or(&path).with_extension("");
        let mut module: Module = inner.iter().map(|part| part.to_string_lossy().into_owned()).collect();
        module.pop_if(|last| ["mod", "lib", "main"].contains(&last.as_str()));
        // The file of a module counts to its folder, and so do all folders below it.
        let own = module.first().map(|first| source.join(first)).filter(|own| own.is_dir());
        let own = own.unwrap_or_else(|| source.clone());
        let place = own.strip_prefix(root).unwrap_or(&own).display().to_string();
        let (code, modules) = without_tests(&fs::read_to_string(&path).unwrap_or_default());
        tests.extend(modules.into_iter().map(|name| [&module[..], &[name]].concat()));
        // A library and a program of one folder count as one.
        let known: &mut File = files.entry(module).or_insert(File { folder: place, code: String::new() });
        known.code += &code;
    }
    files.retain(|module, _| !(1..=module.len()).any(|end| tests.contains(&module[..end])));
    files
}

/// The lines that count, and the modules in other files that exist only in tests. In formatted code an item ends with a line of its own
/// indentation.
fn without_tests(text: &str) -> (String, Vec<String>) {
    let (mut code, mut modules) = (String::new(), Vec::new());
    let indentation = |line: &str| line.len() - line.trim_start().len();
    let mut lines =
        text.lines().filter(|line| !line.trim().is_empty() && !line.trim_start().starts_with("//"));
    while let Some(line) = lines.next() {
        if !line.trim_start().starts_with("#[cfg(test)]") {
            code.push_str(line);
            code.push('\n');
            continue;
        }
        let is_last = |next: &&str| {
            indentation(next) == indentation(line)
                && !next.trim().starts_with('#')
                && next.ends_with([';', '}', ','])
        };
        let last = lines.by_ref().find(is_last).unwrap_or_default();
        modules.extend(last.strip_suffix(';').and_then(|last| Some(last.split_once("mod ")?.1.to_owned())));
    }
    (code, modules)
}

/// Lines, files, types, circles and files in circles.
fn count(
    files: &BTreeMap<Module, File>,
    circles: &BTreeSet<Vec<Module>>,
    is_wanted: &dyn Fn(&Module) -> bool,
) -> [usize; 5] {
    let own = || files.iter().filter(|(module, _)| is_wanted(module)).map(|(_, file)| file);
    let lines = || own().flat_map(|file| file.code.lines());
    let types = lines().filter(|line| is_type(line)).count();
    [lines().count(), own().count(), types, circles.len(), circles.iter().map(Vec::len).sum()]
}

fn is_type(line: &str) -> bool {
    let mut words = line.split_whitespace().skip_while(|word| word.starts_with("pub"));
    // An indented `type` belongs to a trait.
    let is_kind = |word: &str| KINDS.contains(&word) && (word != "type" || !line.starts_with(' '));
    words.next().is_some_and(is_kind) && words.next().is_some()
}

/// The files that a file names by paths from `crate`, `self`, `super` or a module of its own.
fn imports(own: &Module, code: &str, files: &BTreeMap<Module, File>) -> BTreeSet<Module> {
    let mut found = BTreeSet::new();
    // `pub(in PATH)` limits the visibility of an item, and imports nothing.
    let parts = code.split("pub(in ").enumerate();
    let code: String =
        parts.map(|(at, part)| if at == 0 { part } else { &part[part.find(')').unwrap_or(0)..] }).collect();
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut rest = &code[..];
    while let Some(start) = rest.find(is_word) {
        let is_first = !rest[..start].ends_with([':', '.']);
        rest = &rest[start..];
        let name = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        if is_first && rest[name..].starts_with("::") {
            follow(own, own, rest, files, &mut found);
        }
        rest = &rest[name..];
    }
    found.remove(own);
    found
}

/// Follows one path, and each path of a group in braces; returns the text after it.
fn follow<'a>(
    own: &Module,
    start: &Module,
    mut rest: &'a str,
    files: &BTreeMap<Module, File>,
    found: &mut BTreeSet<Module>,
) -> &'a str {
    let (mut at, mut is_ours) = (start.clone(), start != own);
    loop {
        rest = rest.trim_start();
        if let Some(group) = rest.strip_prefix('{') {
            rest = group;
            while !rest.trim_start().starts_with('}') && !rest.is_empty() {
                rest = follow(own, &at, rest, files, found);
                rest = &rest[rest.find([',', '}']).unwrap_or(rest.len())..];
                rest = rest.strip_prefix(',').unwrap_or(rest);
            }
            return rest.trim_start().strip_prefix('}').unwrap_or(rest);
        }
        let (name, more) =
            rest.split_at(rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len()));
        rest = more;
        let child = [&at[..], &[name.to_owned()]].concat();
        match name {
            "crate" => at = Module::new(),
            "super" => drop(at.pop()),
            "self" => {}
            _ if files.contains_key(&child) => at = child,
            _ => break,
        }
        is_ours = true;
        match rest.strip_prefix("::") {
            Some(more) => rest = more,
            None => break,
        }
    }
    if is_ours {
        found.insert(at);
    }
    rest
}
