//! Exported symbols of the binaries. A driver that resolved the host's SQLite by name would use it with its own headers.

use std::path::Path;

use crate::{build, process};

/// The one symbol of a driver.
const DRIVER_ENTRY: &str = "satcast_driver_entry";
/// Prefixes of the C libraries that are compiled into the host.
const BUNDLED: &[&str] = &["sqlite3", "ring_core"];

/// Prefixes of harmless exports of a dependency: the checksums of the S3 client, which always has a C interface.
const HARMLESS: &[&str] = &["crc_fast_"];

/// Fails when the host exports anything of a bundled C library, or a driver anything but its entry.
pub(crate) fn check(folder: &Path) -> Result<(), String> {
    let mut wrong = Vec::new();
    for symbol in exported(&folder.join("satcast"))? {
        if BUNDLED.iter().any(|prefix| symbol.starts_with(prefix)) {
            wrong.push(format!("   satcast exports {symbol}"));
        }
    }
    for (id, _) in build::DRIVERS {
        let file = format!("{id}.so");
        let mut symbols = exported(&folder.join("drivers").join(&file))?;
        symbols.retain(|symbol| !HARMLESS.iter().any(|prefix| symbol.starts_with(prefix)));
        if symbols != [DRIVER_ENTRY] {
            wrong.push(format!("   {file} exports {symbols:?}, expected only {DRIVER_ENTRY}"));
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
}

/// Names of the dynamic symbols that a file defines, sorted.
fn exported(path: &Path) -> Result<Vec<String>, String> {
    let listing = process::output(process::command("nm").args(["-D", "--defined-only"]).arg(path))?;
    let mut names: Vec<String> =
        listing.lines().filter_map(|line| line.split_whitespace().last()).map(str::to_owned).collect();
    names.sort();
    Ok(names)
}
