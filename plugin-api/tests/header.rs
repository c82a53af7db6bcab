//! `include/satcast_driver.h` matches the Rust definitions of the C table, from which it is generated.
//!
//! `cargo xtask header` writes it: it runs this with `SATCAST_WRITE_HEADER=1`.
#![allow(clippy::unwrap_used)] // A failed step is a failed test.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use cbindgen::{Builder, Config, DocumentationStyle, Language, Style};

const HEADER: &str = "include/satcast_driver.h";
/// Sizes and offsets that may never change, see `tests/layout.rs`.
const LAYOUT: &str = "tests/layout-64.txt";
/// Where the definitions are.
const SOURCES: [&str; 7] = [
    "src/abi/mod.rs",
    "src/abi/media.rs",
    "src/abi/driver.rs",
    "src/abi/host.rs",
    "src/abi/ext.rs",
    "src/abi/recordings.rs",
    "src/abi/http.rs",
];

/// Files with limits that also apply to authors in C.
const LIMITS: [&str; 4] =
    ["src/driver/media.rs", "src/host/listing.rs", "src/host/recordings.rs", "types/src/http.rs"];

/// Text before the definitions.
const HEAD: &str = "\
/*
 * The Satcast driver contract: the boundary between the service and a driver.
 *
 * Made from plugin-api/src/abi by `cargo xtask header`; do not edit.
 *";

/// Helpers that only C and C++ need.
const TAIL: &str = "\
#if defined(__GNUC__)
#define SATCAST_EXPORT __attribute__((visibility(\"default\")))
#else
#define SATCAST_EXPORT
#endif

#if defined(__cplusplus)
#define SATCAST_ASSERT(condition, text) static_assert(condition, text)
extern \"C\" {
#else
#define SATCAST_ASSERT(condition, text) _Static_assert(condition, text)
#endif

/**
 * The one symbol a driver exports; see `SatcastDriverEntry`. Everything else is hidden: compile with -fvisibility=hidden.
 */
SATCAST_EXPORT const SatcastDriver *satcast_driver_entry(uint32_t host_major);

/**
 * Borrows a terminated text for a call. Null is the empty text.
 */
static inline SatcastStr satcast_str(const char *text)
{
    SatcastStr borrowed;
    borrowed.ptr = (const uint8_t *)text;
    borrowed.len = text ? strlen(text) : 0;
    return borrowed;
}

#if defined(__cplusplus)
}
#endif
";

#[test]
fn the_committed_header_matches_the_definitions() {
    let made = make();
    if std::env::var_os("SATCAST_WRITE_HEADER").is_some() {
        std::fs::write(path(HEADER), &made).unwrap();
    }
    let is_current = read(HEADER) == made;
    assert!(is_current, "{HEADER} does not match src/abi: run `cargo xtask header` and commit it");
}

/// A file of this package.
fn path(relative: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(relative)
}

fn read(relative: &str) -> String {
    std::fs::read_to_string(path(relative)).unwrap_or_else(|error| panic!("{relative}: {error}"))
}

fn make() -> String {
    let sources = SOURCES.map(read);
    let constants: Vec<Constant<'_>> = sources.iter().flat_map(|text| constants(text)).collect();
    let mut config = Config {
        language: Language::C,
        style: Style::Both,
        usize_is_size_t: true,
        documentation_style: DocumentationStyle::Doxy,
        include_guard: Some("SATCAST_DRIVER_H".into()),
        no_includes: true,
        sys_includes: ["stddef.h", "stdint.h", "string.h"].map(Into::into).to_vec(),
        cpp_compat: true,
        header: Some(format!("{HEAD}\n{} */", rules(&sources[0]))),
        after_includes: Some(texts(&constants)),
        trailer: Some(format!("{TAIL}\n{}", asserts(&read(LAYOUT)))),
        line_length: 120,
        tab_width: 4,
        ..Config::default()
    };
    config.export.exclude.push("SatcastMedia".into());
    // No Rust function uses these types, so each is listed.
    config.export.include = sources.iter().flat_map(|text| types(text)).map(str::to_owned).collect();
    for constant in &constants {
        config.export.rename.insert(constant.name.into(), format!("SATCAST_{}", constant.name));
    }
    for (rust, c) in [("AtomicU32", "uint32_t"), ("AtomicU64", "uint64_t")] {
        config.export.rename.insert(rust.into(), c.into());
    }
    let mut builder = Builder::new().with_config(config).with_src(path(SOURCES[0]));
    for source in LIMITS.iter().chain(&SOURCES[1..]) {
        builder = builder.with_src(path(source));
    }
    let mut text = Vec::new();
    builder.generate().unwrap().write(&mut text);
    let text = prefixed(&String::from_utf8(text).unwrap());
    // A negative number is an expression of two tokens.
    let closed = |line: &str| match line.split_once(" -") {
        Some((name, number)) if name.starts_with("#define ") => format!("{name} (-{number})\n"),
        _ => format!("{line}\n"),
    };
    text.lines().map(closed).collect()
}

/// One `pub const` and the text of its description.
struct Constant<'a> {
    name: &'a str,
    value: &'a str,
    doc: Vec<&'a str>,
}

/// Adds the project's prefix to every macro that lacks it, also in comments: a driver has its own limits.
fn prefixed(text: &str) -> String {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let defined = text.lines().filter_map(|line| line.strip_prefix("#define "));
    let names: Vec<&str> = defined
        .map(|rest| &rest[..rest.find(|c| !is_name(c)).unwrap_or(rest.len())])
        .filter(|name| !name.starts_with("SATCAST_"))
        .collect();
    let mut prefixed = String::with_capacity(text.len());
    for part in text.split_inclusive(|c| !is_name(c)) {
        let word = part.trim_end_matches(|c| !is_name(c));
        if names.contains(&word) {
            prefixed.push_str("SATCAST_");
        }
        prefixed.push_str(part);
    }
    prefixed
}

/// The constants of a source file, as rustfmt lays them out.
fn constants(text: &str) -> Vec<Constant<'_>> {
    let mut found = Vec::new();
    let mut doc = Vec::new();
    for line in text.lines() {
        if let Some(words) = line.strip_prefix("/// ") {
            doc.push(words);
            continue;
        }
        let parts = line.strip_prefix("pub const ").and_then(|rest| rest.split_once(": "));
        if let Some((name, rest)) = parts
            && let Some((_, value)) = rest.split_once(" = ")
        {
            let value = value.trim_end_matches(';');
            found.push(Constant { name, value, doc: std::mem::take(&mut doc) });
        }
        doc.clear();
    }
    found
}

/// The types of a source file.
fn types(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let rest = line.strip_prefix("pub struct ").or_else(|| line.strip_prefix("pub type "))?;
        Some(&rest[..rest.find(|c: char| !c.is_ascii_alphanumeric())?])
    })
}

/// The rules that hold for the whole table: the description of the module, as lines of a C comment.
fn rules(source: &str) -> String {
    let lines = source.lines().take_while(|line| line.starts_with("//!")).skip(2);
    let lines = lines.map(|line| format!(" *{}\n", line.trim_start_matches("//!")));
    lines.collect::<String>().replace("`#[repr(C)]` structs", "structs")
}

/// Definitions that the generator leaves out: names, and the opaque queue.
fn texts(constants: &[Constant<'_>]) -> String {
    let mut text = String::from("\n");
    for constant in constants.iter().filter(|constant| constant.value.starts_with('"')) {
        let _ = write!(text, "/**\n * {}\n */\n", constant.doc.join("\n * "));
        let _ = writeln!(text, "#define SATCAST_{} {}\n", constant.name, constant.value);
    }
    text.push_str("/**\n * The queue of one destination, owned by the host, released with `SatcastHost.media_release`.\n */\n");
    text.push_str("typedef struct SatcastMedia SatcastMedia;\n");
    text.push_str("typedef struct SatcastPacket SatcastPacket;\n");
    text
}

/// The layout as assertions of the compiler that builds a driver.
fn asserts(layout: &str) -> String {
    let mut text = String::from("#if UINTPTR_MAX == 0xffffffffffffffffu\n");
    for line in layout.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let _ = match words[..] {
            [name, "size", bytes, ..] => {
                writeln!(text, "SATCAST_ASSERT(sizeof({name}) == {bytes}, \"{name}\");")
            }
            [field, "offset", bytes] => {
                let (name, member) = field.split_once('.').unwrap_or((field, ""));
                writeln!(text, "SATCAST_ASSERT(offsetof({name}, {member}) == {bytes}, \"{field}\");")
            }
            _ => Ok(()),
        };
    }
    text.push_str("#endif\n");
    text
}

#[test]
fn macros_get_the_prefix_everywhere() {
    let text = "#define HEADERS_MAX 3\n#define SATCAST_OK 0\nint a[HEADERS_MAX]; /* MY_HEADERS_MAX, HEADERS_MAX */\n";
    let expected = "#define SATCAST_HEADERS_MAX 3\n#define SATCAST_OK 0\nint a[SATCAST_HEADERS_MAX]; /* MY_HEADERS_MAX, SATCAST_HEADERS_MAX */\n";
    assert_eq!(prefixed(text), expected);
}

#[test]
fn constants_are_found_with_their_comments() {
    let text =
        "/// One\n/// two.\npub const A: &str = \"x\";\nstruct B;\n/// Three.\npub const C: u32 = 1 << 1;\n";
    let found = constants(text);
    assert_eq!((found[0].name, found[0].value, &found[0].doc[..]), ("A", "\"x\"", &["One", "two."][..]));
    assert_eq!((found[1].name, found[1].value), ("C", "1 << 1"));
}

#[test]
fn a_layout_becomes_assertions() {
    let text = asserts("SatcastStr size 16 align 8\nSatcastStr.len offset 8\n");
    assert!(text.contains("SATCAST_ASSERT(sizeof(SatcastStr) == 16, \"SatcastStr\");"), "{text}");
    assert!(text.contains("SATCAST_ASSERT(offsetof(SatcastStr, len) == 8, \"SatcastStr.len\");"), "{text}");
}
