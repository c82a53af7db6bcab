//! The container image: an OCI image layout in a tar file, written without a container engine.
//!
//! The binary needs the C library and the certificates of authorities, nothing else. So the first layer has the files of a few Debian
//! packages as they are installed on the machine of the build, because the binary was linked with exactly that C library; there is no
//! shell. The second layer has the service.

use std::path::{Path, PathBuf};

use super::debian::architecture;
use super::{Pack, add_folder, copy, folder, gzip, lay_system, link, parent, sha256, tar, write};
use crate::process;

/// Packages whose shared libraries are in the image. Drivers may need those that the service does not.
const LIBRARIES: [&str; 2] = ["libc6", "libgcc-s1"];
/// The package with the certificates of authorities, and where they lie.
const CERTIFICATES: (&str, &str) = ("ca-certificates", "/usr/share/ca-certificates/mozilla/");
/// All certificates in one file.
const BUNDLE: &str = "etc/ssl/certs/ca-certificates.crt";
/// User and group of the service; a number that Debian gives to nobody.
const USER: u32 = 65532;
/// The data folder.
const DATA: &str = "var/lib/satcast";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

pub(super) fn make(pack: &Pack, staging: &Path) -> Result<PathBuf, String> {
    let (base, app) = (staging.join("base"), staging.join("app"));
    lay_base(&base)?;
    lay_system(pack, &app)?;
    folder(&app.join(DATA))?;
    let layout = staging.join("layout");
    let blobs = layout.join("blobs/sha256");
    folder(&blobs)?;
    let layers = [base_layer(pack, &base, staging, &blobs)?, app_layer(pack, &app, staging, &blobs)?];

    let date = format!("--date=@{}", pack.seconds);
    let created = process::output(process::command("date").args(["--utc", &date, "+%FT%TZ"]))?;
    let architecture = architecture()?;
    let config = blob(&blobs, &config(pack, created.trim(), &architecture, &layers))?;
    let manifest = blob(&blobs, &manifest(&config, &layers))?;
    let Blob { digest, size } = &manifest;
    let index = format!(
        "{{\"schemaVersion\":2,\"mediaType\":\"application/vnd.oci.image.index.v1+json\",\"manifests\":[\
         {{\"mediaType\":\"{MANIFEST}\",\"digest\":\"sha256:{digest}\",\"size\":{size},\
         \"platform\":{{\"architecture\":\"{architecture}\",\"os\":\"linux\"}},\
         \"annotations\":{{\"io.containerd.image.name\":\"localhost/satcast:{0}\",\
         \"org.opencontainers.image.ref.name\":\"localhost/satcast:{0}\"}}}}]}}\n",
        pack.version
    );
    write(&layout.join("index.json"), &index)?;
    write(&layout.join("oci-layout"), "{\"imageLayoutVersion\":\"1.0.0\"}\n")?;
    let file = pack.out.join(format!("satcast-{}-{architecture}-oci.tar", pack.version));
    tar(&layout, &["blobs", "index.json", "oci-layout"], &file, &pack.seconds)?;
    Ok(file)
}

/// A file of the layout, named by its SHA-256.
struct Blob {
    digest: String,
    size: u64,
}

/// A layer: the compressed file, and the SHA-256 of its tar file.
struct Layer {
    file: Blob,
    plain: String,
}

/// Lays libraries, certificates, users and a list of the packages below `root`.
fn lay_base(root: &Path) -> Result<(), String> {
    for name in ["lib", "lib64"] {
        link(&format!("usr/{name}"), &root.join(name))?;
    }
    for package in LIBRARIES {
        let listed = listed(package)?;
        for file in listed.lines().filter(|file| is_library(file)) {
            // As Debian merges /lib into /usr/lib.
            let place = file.trim_start_matches('/');
            let place = if place.starts_with("usr/") { place.to_owned() } else { format!("usr/{place}") };
            copy_or_link(Path::new(file), &root.join(place))?;
        }
    }
    let (package, place) = CERTIFICATES;
    let listed = listed(package)?;
    let mut files: Vec<&str> =
        listed.lines().filter(|file| file.starts_with(place) && file.ends_with(".crt")).collect();
    files.sort_unstable();
    let mut bundle = String::new();
    for file in files {
        bundle += &std::fs::read_to_string(file).map_err(|error| format!("cannot read {file}: {error}"))?;
    }
    let texts = [
        (BUNDLE, bundle),
        (
            "etc/passwd",
            format!("root:x:0:0:root:/root:/sbin/nologin\nsatcast:x:{USER}:{USER}::/{DATA}:/sbin/nologin\n"),
        ),
        ("etc/group", format!("root:x:0:\nsatcast:x:{USER}:\n")),
        ("etc/os-release", read("/etc/os-release")?),
    ];
    for (name, text) in texts {
        parent(&root.join(name))?;
        write(&root.join(name), &text)?;
    }
    for package in LIBRARIES.into_iter().chain([CERTIFICATES.0]) {
        lay_notes(root, package)?;
    }
    folder(&root.join("tmp"))
}

/// Lays licence and description of a package below `root`, where scanners of images look.
fn lay_notes(root: &Path, package: &str) -> Result<(), String> {
    let licence = format!("usr/share/doc/{package}/copyright");
    parent(&root.join(&licence))?;
    copy(&Path::new("/").join(&licence), &root.join(&licence), 0o644)?;
    let status = process::output(process::command("dpkg-query").args(["--status", package]))?;
    let path = root.join("var/lib/dpkg/status.d").join(package);
    parent(&path)?;
    write(&path, &status)
}

/// The files of an installed package.
fn listed(package: &str) -> Result<String, String> {
    process::output(process::command("dpkg-query").args(["--listfiles", package]))
}

/// A shared library that programs are linked with, not one that another library loads (`gconv`).
fn is_library(file: &str) -> bool {
    let Some((folder, name)) = file.rsplit_once('/') else { return false };
    let parent = folder.rsplit('/').next().unwrap_or_default();
    (parent.ends_with("-linux-gnu") || parent == "lib64")
        && (name.ends_with(".so") || name.contains(".so."))
        && !folder.starts_with("/etc")
}

fn copy_or_link(from: &Path, to: &Path) -> Result<(), String> {
    parent(to)?;
    match std::fs::read_link(from) {
        Ok(target) => link(&target.to_string_lossy(), to),
        Err(_) => copy(from, to, 0o755),
    }
}

fn read(path: &str) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("cannot read {path}: {error}"))
}

fn base_layer(pack: &Pack, root: &Path, staging: &Path, blobs: &Path) -> Result<Layer, String> {
    let file = staging.join("base.tar");
    tar(root, &["etc", "lib", "lib64", "usr", "var"], &file, &pack.seconds)?;
    add_folder(root, "tmp", &file, &pack.seconds, (0, "1777"))?;
    layer(pack, &file, blobs)
}

fn app_layer(pack: &Pack, root: &Path, staging: &Path, blobs: &Path) -> Result<Layer, String> {
    let file = staging.join("app.tar");
    tar(root, &["usr"], &file, &pack.seconds)?;
    add_folder(root, DATA, &file, &pack.seconds, (USER, "0700"))?;
    layer(pack, &file, blobs)
}

fn layer(pack: &Pack, file: &Path, blobs: &Path) -> Result<Layer, String> {
    let plain = sha256(file)?;
    Ok(Layer { file: placed(&gzip(pack, file)?, blobs)?, plain })
}

fn blob(blobs: &Path, text: &str) -> Result<Blob, String> {
    let file = blobs.join("new");
    write(&file, text)?;
    placed(&file, blobs)
}

/// Moves a file to its name in the layout.
fn placed(file: &Path, blobs: &Path) -> Result<Blob, String> {
    let digest = sha256(file)?;
    let cannot = |error| format!("cannot move {} into {}: {error}", file.display(), blobs.display());
    let size = std::fs::metadata(file).map_err(cannot)?.len();
    std::fs::rename(file, blobs.join(&digest)).map_err(cannot)?;
    Ok(Blob { digest, size })
}

/// The configuration of the image. No text in it has anything that JSON would escape.
fn config(pack: &Pack, created: &str, architecture: &str, layers: &[Layer; 2]) -> String {
    let [base, app] = layers.each_ref().map(|layer| &layer.plain);
    format!(
        "{{\"created\":\"{created}\",\"architecture\":\"{architecture}\",\"os\":\"linux\",\"config\":{{\
         \"User\":\"{USER}:{USER}\",\"ExposedPorts\":{{\"1935/tcp\":{{}},\"8080/tcp\":{{}}}},\"Env\":[\
         \"PATH=/usr/bin\",\"SATCAST_DATA_DIR=/{DATA}\",\"SATCAST_HTTP__LISTEN=0.0.0.0:8080\",\
         \"SATCAST_INGEST__RTMP_LISTEN=0.0.0.0:1935\",\"SSL_CERT_FILE=/{BUNDLE}\"],\
         \"Entrypoint\":[\"/usr/bin/satcast\"],\"Cmd\":[\"run\"],\"WorkingDir\":\"/{DATA}\",\
         \"Volumes\":{{\"/{DATA}\":{{}}}},\"StopSignal\":\"SIGTERM\",\
         \"Labels\":{{\"org.opencontainers.image.title\":\"satcast\",\
         \"org.opencontainers.image.version\":\"{}\",\"org.opencontainers.image.licenses\":\"MIT\"}}}},\
         \"rootfs\":{{\"type\":\"layers\",\"diff_ids\":[\"sha256:{base}\",\"sha256:{app}\"]}},\"history\":[\
         {{\"created\":\"{created}\",\"comment\":\"C library and certificates of Debian\"}},\
         {{\"created\":\"{created}\",\"comment\":\"satcast {}\"}}]}}\n",
        pack.version, pack.version
    )
}

fn manifest(config: &Blob, layers: &[Layer; 2]) -> String {
    let entry = |kind: &str, blob: &Blob| {
        let Blob { digest, size } = blob;
        format!("{{\"mediaType\":\"{kind}\",\"digest\":\"sha256:{digest}\",\"size\":{size}}}")
    };
    let config = entry("application/vnd.oci.image.config.v1+json", config);
    let layers =
        layers.each_ref().map(|layer| entry("application/vnd.oci.image.layer.v1.tar+gzip", &layer.file));
    format!(
        "{{\"schemaVersion\":2,\"mediaType\":\"{MANIFEST}\",\"config\":{config},\"layers\":[{}]}}\n",
        layers.join(",")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_those_that_programs_are_linked_with() {
        for file in [
            "/lib/x86_64-linux-gnu/libc.so.6",
            "/usr/lib/aarch64-linux-gnu/libm.so.6",
            "/lib64/ld-linux-x86-64.so.2",
        ] {
            assert!(is_library(file), "{file}");
        }
        for file in [
            "/lib/x86_64-linux-gnu",
            "/usr/lib/x86_64-linux-gnu/gconv/UTF-16.so",
            "/usr/share/doc/libc6/copyright",
            "/etc/ld.so.conf.d",
        ] {
            assert!(!is_library(file), "{file}");
        }
    }
}
