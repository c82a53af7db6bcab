//! The Debian package, made by `dpkg-deb`.

use std::path::{Path, PathBuf};

use super::{DRIVERS, LIBRARY, Pack, copy, folder, gzip, lay_examples, lay_system, parent, write};
use crate::{build, process, workspace};

/// Who answers for the package.
const MAINTAINER: &str = "Satcast <satcast@users.noreply.invalid>";
/// The configuration file, which dpkg keeps as the operator changed it.
const CONFIGURATION: &str = "etc/satcast/satcast.toml";
/// Scripts of dpkg.
const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];
/// Units of systemd. The service is the enabled one.
const UNITS: [&str; 3] = ["satcast.service", "satcast.socket", "satcast-rtmp.socket"];
/// Where systemd finds them.
const UNIT_FOLDER: &str = "lib/systemd/system";
/// The binary of an unpacked archive in the unit, and that of a package.
const BINARY: (&str, &str) = ("/opt/satcast/satcast", "/usr/bin/satcast");

pub(super) fn make(pack: &Pack, root: &Path) -> Result<PathBuf, String> {
    let packaging = workspace::root().join("packaging");
    lay_system(pack, root)?;
    let documents = root.join("usr/share/doc/satcast");
    lay_examples(&documents.join("examples"))?;
    copy(&workspace::root().join("CHANGELOG.md"), &documents.join("CHANGELOG.md"), 0o644)?;
    write(&documents.join("changelog"), &changelog(pack)?)?;
    for name in ["CHANGELOG.md", "changelog"] {
        gzip(&Pack { fast: false, ..pack.clone() }, &documents.join(name))?;
    }

    let configuration = root.join(CONFIGURATION);
    parent(&configuration)?;
    copy(&packaging.join("debian/satcast.toml"), &configuration, 0o640)?;
    let units = root.join(UNIT_FOLDER);
    folder(&units)?;
    for name in UNITS {
        let unit = workspace::read(&format!("packaging/systemd/{name}"))?;
        write(&units.join(name), &unit.replace(BINARY.0, BINARY.1))?;
    }
    // Independent of the umask and of the modes in the checkout.
    process::run(process::command("chmod").args(["--recursive", "u=rwX,go=rX"]).arg(root))?;
    process::run(process::command("chmod").arg("0640").arg(&configuration))?;
    control(pack, root, &packaging)?;

    let file = pack.out.join(format!("satcast_{}_{}.deb", pack.version, architecture()?));
    let mut dpkg = process::command("dpkg-deb");
    // Several threads would compress other blocks than one.
    dpkg.args(["--root-owner-group", "--threads-max=1", "--build"]);
    dpkg.args(if pack.fast { &["-Znone"][..] } else { &["-Zxz", "-z6"] });
    process::run(dpkg.arg(root).arg(&file).env("SOURCE_DATE_EPOCH", &pack.seconds))?;
    Ok(file)
}

/// The entry that Debian's tools expect; users read `CHANGELOG.md` beside it.
fn changelog(pack: &Pack) -> Result<String, String> {
    let date = format!("--date=@{}", pack.seconds);
    let date =
        process::output(process::command("date").args(["--utc", "--rfc-email", &date]).env("LC_ALL", "C"))?;
    let version = &pack.version;
    Ok(format!(
        "satcast ({version}) stable; urgency=medium\n\n  * Release {version}; see CHANGELOG.md.gz.\n\n \
         -- {MAINTAINER}  {}\n",
        date.trim()
    ))
}

/// Writes what dpkg reads: the description, the scripts, the configuration files and the checksums.
fn control(pack: &Pack, root: &Path, packaging: &Path) -> Result<(), String> {
    let size =
        process::output(process::command("du").args(["--summarize", "--apparent-size", "-k"]).arg(root))?;
    let size = size.split_whitespace().next().unwrap_or("0").to_owned();
    let sums = checksums(root)?;
    let control = root.join("DEBIAN");
    folder(&control)?;
    process::run(process::command("chmod").arg("0755").arg(&control))?;
    for name in SCRIPTS {
        copy(&packaging.join("debian").join(name), &control.join(name), 0o755)?;
    }
    let (version, architecture, libc) = (&pack.version, architecture()?, libc(pack)?);
    let text = format!(
        "Package: satcast\nVersion: {version}\nArchitecture: {architecture}\nMaintainer: {MAINTAINER}\n\
         Installed-Size: {size}\n\
         Depends: adduser, ca-certificates, init-system-helpers (>= 1.54~), libc6 (>= {libc}), libgcc-s1 (>= 3.0)\n\
         Section: video\nPriority: optional\n\
         Description: relay for live streams, with playback and recording\n \
         Satcast takes one live stream from an encoder and forwards it to any number of\n \
         destinations. It plays streams back over HLS with an hour of rewind, records\n \
         them into an object store, and meters every minute and byte in sats.\n"
    );
    write(&control.join("control"), &text)?;
    write(&control.join("conffiles"), &format!("/{CONFIGURATION}\n"))?;
    write(&control.join("md5sums"), &sums)?;
    for name in ["control", "conffiles", "md5sums"] {
        process::run(process::command("chmod").arg("0644").arg(control.join(name)))?;
    }
    Ok(())
}

/// The checksums that `dpkg --verify` compares: all files but the configuration.
fn checksums(root: &Path) -> Result<String, String> {
    let script = format!(
        "find . -type f ! -path ./{CONFIGURATION} -printf '%P\\0' | LC_ALL=C sort -z | xargs -0 md5sum --"
    );
    process::output(process::command("sh").current_dir(root).args(["-c", &script]))
}

/// The newest version of the C library that the binary or a driver asks for, as in `2.34`.
fn libc(pack: &Pack) -> Result<String, String> {
    let mut nm = process::command("nm");
    nm.args(["--dynamic", "--undefined-only"]).arg(pack.built.join("satcast"));
    nm.args(build::DRIVERS.map(|(id, _)| pack.built.join(DRIVERS).join(format!("{id}.so"))));
    newest(&process::output(&mut nm)?)
        .ok_or_else(|| format!("{LIBRARY}/satcast asks for no version of glibc"))
}

fn newest(symbols: &str) -> Option<String> {
    let versions = symbols.split("GLIBC_").skip(1).filter_map(|rest| {
        let (major, minor) = rest.split_whitespace().next()?.split_once('.')?;
        Some((major.parse::<u32>().ok()?, minor.split('.').next()?.parse::<u32>().ok()?))
    });
    versions.max().map(|(major, minor)| format!("{major}.{minor}"))
}

/// Debian's name of this machine's architecture, as in `amd64`.
pub(super) fn architecture() -> Result<String, String> {
    let said = process::output(process::command("dpkg").arg("--print-architecture"))?;
    Ok(said.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_of_the_c_library_is_found() {
        let symbols =
            "  U accept@GLIBC_2.2.5\n  U pidfd_spawnp@GLIBC_2.39 (4)\n  U log@GLIBC_2.4\n  U x@GCC_3.0\n";
        assert_eq!(newest(symbols).as_deref(), Some("2.39"));
        assert_eq!(newest("  U x@GCC_3.0\n"), None);
    }

    #[test]
    fn the_unit_names_the_binary_that_a_package_replaces() {
        let unit = workspace::read("packaging/systemd/satcast.service").unwrap();
        assert_eq!(unit.matches(BINARY.0).count(), 1);
    }
}
