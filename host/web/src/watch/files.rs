//! The built pages: read and compressed once when the service starts; only files found then are served.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;

use super::template::{Template, TemplateError};

/// File name of the player page.
const WATCH_FILE_NAME: &str = "watch.html";
/// Subfolder of scripts and styles.
const ASSETS_FOLDER_NAME: &str = "assets";
/// Most files of scripts and styles.
pub const FILES_MAX: usize = 64;
/// Largest file in bytes; the largest today, hls.js, has a fifth of this size.
pub const FILE_BYTES_MAX: u64 = 2 * 1024 * 1024;
/// Longest name of a file.
const NAME_CHARS_MAX: usize = 128;
/// Compression level; each file is compressed only once.
const GZIP_LEVEL: Compression = Compression::best();

/// Media types by file extension.
const TYPES: [(&str, &str); 5] = [
    ("css", "text/css; charset=utf-8"),
    ("js", "text/javascript; charset=utf-8"),
    ("svg", "image/svg+xml"),
    ("txt", "text/plain; charset=utf-8"),
    ("woff2", "font/woff2"),
];

/// Why there are no pages.
#[derive(Debug, thiserror::Error)]
pub enum PagesError {
    /// A file or folder cannot be read, or is not there.
    #[error("cannot read {path} ({source}); `cargo xtask build` makes the pages")]
    Unreadable { path: PathBuf, source: std::io::Error },
    /// Too many files to keep in memory.
    #[error("{path} has more than {FILES_MAX} files; remove files that the build did not make")]
    TooMany {
        /// The folder.
        path: PathBuf,
    },
    /// A file is too large.
    #[error("{path} has more than {FILE_BYTES_MAX} bytes; build the pages again")]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// The page belongs to another version.
    #[error("{path} is not a player page of this version ({source}); build the pages again")]
    Template {
        /// The file.
        path: PathBuf,
        source: TemplateError,
    },
}

/// A script, style or related file.
#[derive(Debug)]
pub(super) struct Asset {
    pub(super) content_type: &'static str,
    pub(super) plain: Bytes,
    /// `None` if compression does not make it smaller.
    pub(super) gzip: Option<Bytes>,
}

/// The files of the folder.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) watch: Template,
    pub(super) assets: HashMap<String, Asset>,
}

/// Reads `folder`. Links and files of unknown kinds are skipped, with a line in the log.
pub(super) fn read(folder: &Path) -> Result<Found, PagesError> {
    let path = folder.join(WATCH_FILE_NAME);
    let text = String::from_utf8_lossy(&bounded(&path)?).into_owned();
    let watch = Template::parse(&text).map_err(|source| PagesError::Template { path, source })?;
    let folder = folder.join(ASSETS_FOLDER_NAME);
    let failed = |source| PagesError::Unreadable { path: folder.clone(), source };
    let mut assets = HashMap::new();
    for entry in std::fs::read_dir(&folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let is_plain = entry.file_type().map_err(failed)?.is_file();
        let name = entry.file_name();
        let known = name.to_str().filter(|name| is_plain && is_name(name));
        let Some((name, content_type)) = known.and_then(|name| Some((name, content_type(name)?))) else {
            tracing::warn!(file = %entry.path().display(), "a file in the folder of the pages is not a script or style and is not served");
            continue;
        };
        if assets.len() >= FILES_MAX {
            return Err(PagesError::TooMany { path: folder });
        }
        let plain = Bytes::from(bounded(&entry.path())?);
        let gzip = packed(&plain);
        assets.insert(name.to_owned(), Asset { content_type, plain, gzip });
    }
    Ok(Found { watch, assets })
}

fn bounded(path: &Path) -> Result<Vec<u8>, PagesError> {
    let failed = |source| PagesError::Unreadable { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(PagesError::TooLarge { path: path.to_owned() });
    }
    Ok(bytes)
}

fn is_name(name: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    !name.starts_with('.') && name.len() <= NAME_CHARS_MAX && name.bytes().all(good)
}

fn content_type(name: &str) -> Option<&'static str> {
    let (_, ending) = name.rsplit_once('.')?;
    TYPES.iter().find(|(known, _)| *known == ending).map(|(_, content_type)| *content_type)
}

fn packed(plain: &Bytes) -> Option<Bytes> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(plain.len() / 3), GZIP_LEVEL);
    encoder.write_all(plain).ok()?;
    let packed = encoder.finish().ok()?;
    (packed.len() < plain.len()).then(|| Bytes::from(packed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::testing;

    #[test]
    fn only_plain_files_of_known_kinds_are_taken() {
        let folder = testing::folder();
        let assets = folder.path().join(ASSETS_FOLDER_NAME);
        std::fs::write(folder.path().join("outside.js"), "outside").unwrap();
        std::os::unix::fs::symlink(folder.path().join("outside.js"), assets.join("linked.js")).unwrap();
        std::fs::create_dir(assets.join("folder.js")).unwrap();
        for name in ["a.html", ".hidden.js", "odd name.js", "noending"] {
            std::fs::write(assets.join(name), "x").unwrap();
        }
        let found = read(folder.path()).unwrap();
        let mut names: Vec<_> = found.assets.keys().map(String::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, testing::ASSETS);
        let script = &found.assets[testing::SCRIPT];
        assert_eq!(script.content_type, "text/javascript; charset=utf-8");
        assert!(script.gzip.as_ref().is_some_and(|packed| packed.len() < script.plain.len()));
        assert!(found.assets["tiny.css"].gzip.is_none(), "compressed, it would be larger");
    }

    #[test]
    fn a_folder_that_is_not_of_a_build_is_refused_with_the_reason() {
        let folder = testing::folder();
        let assets = folder.path().join(ASSETS_FOLDER_NAME);
        let large = assets.join("large.js");
        std::fs::write(&large, vec![b'x'; FILE_BYTES_MAX as usize]).unwrap();
        assert!(read(folder.path()).is_ok(), "as large as may be");
        std::fs::write(&large, vec![b'x'; FILE_BYTES_MAX as usize + 1]).unwrap();
        assert!(matches!(read(folder.path()), Err(PagesError::TooLarge { .. })));
        std::fs::remove_file(large).unwrap();
        for index in testing::ASSETS.len()..FILES_MAX {
            std::fs::write(assets.join(format!("{index}.js")), "x").unwrap();
        }
        assert_eq!(read(folder.path()).unwrap().assets.len(), FILES_MAX);
        std::fs::write(assets.join("one-more.js"), "x").unwrap();
        assert!(matches!(read(folder.path()), Err(PagesError::TooMany { .. })));
        std::fs::write(folder.path().join(WATCH_FILE_NAME), "<p>{{label}}</p>").unwrap();
        assert!(matches!(read(folder.path()), Err(PagesError::Template { .. })));
        std::fs::remove_file(folder.path().join(WATCH_FILE_NAME)).unwrap();
        let error = read(folder.path()).unwrap_err();
        assert!(
            matches!(&error, PagesError::Unreadable { path, .. } if path.ends_with(WATCH_FILE_NAME)),
            "{error}"
        );
    }

    #[test]
    fn a_missing_page_text() {
        let source = std::io::Error::from(std::io::ErrorKind::NotFound);
        let error = PagesError::Unreadable { path: "web/watch.html".into(), source };
        let text = "cannot read web/watch.html (entity not found); `cargo xtask build` makes the pages";
        assert_eq!(error.to_string(), text);
    }
}
