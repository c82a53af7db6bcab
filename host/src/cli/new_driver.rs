//! `satcast drivers new`: a folder with a driver that builds, passes its tests and streams, to be changed into another one.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use satcast_plugin_api::manifest::is_name;

use super::{CliError, print};

/// Files of a driver in Rust: where each goes, and its text.
const RUST: [(&str, &str); 7] = [
    ("Cargo.toml", include_str!("../../../plugin-api/templates/rust/Cargo.toml.in")),
    ("README.md", include_str!("../../../plugin-api/templates/rust/README.md.in")),
    ("src/lib.rs", include_str!("../../../plugin-api/templates/rust/lib.rs.in")),
    ("src/flv.rs", include_str!("../../../plugins/examples/recorder/src/flv.rs")),
    ("tests/life.rs", include_str!("../../../plugin-api/templates/rust/life.rs.in")),
    ("rustfmt.toml", include_str!("../../../rustfmt.toml")),
    (".gitignore", "target\n"),
];
/// The same in C: the example, with its header beside it.
const C: [(&str, &str); 8] = [
    ("Makefile", include_str!("../../../plugins/examples/tcp-flv-c/Makefile")),
    ("README.md", include_str!("../../../plugin-api/templates/c/README.md.in")),
    ("driver.c", include_str!("../../../plugins/examples/tcp-flv-c/driver.c")),
    ("flv.c", include_str!("../../../plugins/examples/tcp-flv-c/flv.c")),
    ("flv.h", include_str!("../../../plugins/examples/tcp-flv-c/flv.h")),
    ("test.c", include_str!("../../../plugins/examples/tcp-flv-c/test.c")),
    ("satcast_driver.h", include_str!("../../../plugin-api/include/satcast_driver.h")),
    (".gitignore", "*.so\ntest\n"),
];
/// The example's own name, and where its Makefile finds the header.
const C_NAME: &str = "tcp-flv";
const C_HEADER: &str = "HEADER ?= ../../../plugin-api/include";

/// `satcast drivers new ...`
#[derive(Clone, Debug, Args)]
pub struct NewDriver {
    /// Name of the driver, of its destination type and of the new folder: a-z, 0-9 and -, beginning with a letter
    name: String,
    /// Language
    #[arg(long, value_enum, default_value_t = Language::Rust)]
    lang: Language,
    /// Rust only: the folder plugin-api of the sources of this service, or the address of their git repository
    #[arg(long, value_name = "DIR|URL")]
    api: Option<String>,
}

/// Languages there are templates for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Language {
    /// A library and its tests, built by cargo
    Rust,
    /// C11, built by make
    C,
}

/// Creates the folder in the working folder and prints the next steps.
///
/// # Errors
/// An invalid name, an existing folder, an API that cannot be found, a failed write.
pub(super) fn run(new: &NewDriver) -> Result<(), CliError> {
    let starts_well = new.name.starts_with(|first: char| first.is_ascii_lowercase());
    if !is_name(&new.name) || !starts_well {
        let text = format!(
            "\"{}\" is not a driver name; use at most 32 of a-z, 0-9 and -, beginning with a letter",
            new.name
        );
        return Err(CliError::Usage(text));
    }
    let folder = PathBuf::from(&new.name);
    let files = match new.lang {
        Language::Rust => rust(&new.name, &dependency(new.api.as_deref())?),
        Language::C => c(&new.name),
    };
    write(&folder, &files).map_err(|error| {
        CliError::Failed(format!("cannot make a driver in {}: {error}", folder.display()))
    })?;
    print(&next_steps(new))
}

type Files = Vec<(&'static str, String)>;

fn rust(name: &str, api: &str) -> Files {
    let package = name.replace('-', "_");
    let fill = |text: &str| {
        let text = text.replace("{{name}}", name).replace("{{crate}}", &package);
        text.replace("{{type}}", &type_name(name)).replace("{{api}}", api)
    };
    RUST.iter().map(|(path, text)| (*path, fill(text))).collect()
}

fn c(name: &str) -> Files {
    let fill = |text: &str| {
        let text = text.replace(C_HEADER, "HEADER ?= .").replace(C_NAME, name);
        text.replace("{{name}}", name)
    };
    C.iter().map(|(path, text)| (*path, fill(text))).collect()
}

/// `my-driver` as `MyDriver`.
fn type_name(name: &str) -> String {
    let word = |word: &str| {
        let mut letters = word.chars();
        letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters).collect::<String>()
    };
    name.split('-').map(word).collect()
}

/// How the driver's Cargo.toml names the driver contract.
fn dependency(api: Option<&str>) -> Result<String, CliError> {
    let Some(api) = api else {
        let text = "a driver in Rust needs --api: the folder plugin-api of the sources of this service, or the address of \
                    their git repository";
        return Err(CliError::Usage(text.into()));
    };
    if api.contains(['"', '\\', '\n']) {
        return Err(CliError::Usage("--api contains a character that Cargo.toml does not allow".into()));
    }
    if api.contains("://") {
        return Ok(format!("git = \"{api}\""));
    }
    let manifest = Path::new(api).join("Cargo.toml");
    let is_api =
        fs::read_to_string(&manifest).is_ok_and(|text| text.contains("name = \"satcast-plugin-api\""));
    let path = Path::new(api).canonicalize().ok().filter(|_| is_api);
    let path = path.as_deref().and_then(Path::to_str).filter(|path| !path.contains(['"', '\\', '\n']));
    match path {
        Some(path) => Ok(format!("path = \"{path}\"")),
        None => Err(CliError::Usage(format!("{api} is not the folder plugin-api of the sources of Satcast"))),
    }
}

/// Writes the files into a new folder.
fn write(folder: &Path, files: &Files) -> io::Result<()> {
    fs::create_dir(folder)?;
    for (path, text) in files {
        let path = folder.join(path);
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        fs::write(path, text)?;
    }
    Ok(())
}

fn next_steps(new: &NewDriver) -> String {
    let (name, package) = (&new.name, new.name.replace('-', "_"));
    let (test, build, library) = match new.lang {
        Language::Rust => ("cargo test", "cargo build --release", format!("target/release/lib{package}.so")),
        Language::C => ("make check", "make", format!("{name}.so")),
    };
    format!(
        "driver {name} is in the folder {name}; next:\n  cd {name}\n  {test}\n  {build}\n  \
         cp {library} DRIVERS/{name}.so   (the drivers folder; then name it in [drivers] enabled)\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_placeholder_of_the_templates_is_replaced() {
        for (path, text) in rust("my-own", "path = \"/x\"").iter().chain(&c("my-own")) {
            // C code contains braces.
            let open =
                ["{{name", "{{crate", "{{type", "{{api", C_NAME].iter().find(|left| text.contains(**left));
            assert_eq!(open, None, "{path}: {text}");
        }
        let files = rust("my-own", "path = \"/x\"");
        assert!(files[2].1.contains("struct MyOwn;") && files[2].1.contains("id: \"my-own\""));
        assert!(files[0].1.contains("satcast-plugin-api = { path = \"/x\" }"));
        // Events are made of its values.
        let (dependencies, for_tests) = files[0].1.split_once("[dev-dependencies]").unwrap();
        assert!(dependencies.contains("serde_json = ") && !for_tests.contains("serde_json"));
        assert!(c("my-own")[0].1.contains("NAME = my-own\nHEADER ?= .\n"));
    }

    #[test]
    fn the_contract_is_a_folder_or_a_repository() {
        let api = concat!(env!("CARGO_MANIFEST_DIR"), "/../plugin-api");
        assert!(dependency(Some(api)).is_ok_and(|found| found.ends_with("plugin-api\"")));
        assert!(dependency(Some("https://example.org/x.git")).is_ok_and(|found| found.starts_with("git = ")));
        for wrong in [None, Some("/"), Some("https://x/\"y"), Some(env!("CARGO_MANIFEST_DIR"))] {
            assert!(matches!(dependency(wrong), Err(CliError::Usage(_))), "{wrong:?}");
        }
    }
}
