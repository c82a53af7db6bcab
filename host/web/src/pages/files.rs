//! The files of the folder, by their path in it.

use std::collections::HashMap;
use std::fs::{DirEntry, File as OpenFile};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;

/// Most files, the manual with them.
pub const FILES_MAX: usize = 512;
/// Largest file in bytes; the largest today, the API reference, has two thirds of this size.
pub const FILE_BYTES_MAX: u64 = 2 * 1024 * 1024;
/// Most folders between the folder of the pages and a file.
const DEPTH_MAX: usize = 4;
/// Longest name of a file or folder.
const NAME_CHARS_MAX: usize = 128;
/// Compression level; each file is compressed once, when it is first wanted so.
const GZIP_LEVEL: Compression = Compression::best();

/// Media type of texts.
pub(super) const PLAIN_TEXT: &str = "text/plain; charset=utf-8";
/// Media types by file extension.
const TYPES: [(&str, &str); 9] = [
    ("css", "text/css; charset=utf-8"),
    ("html", "text/html; charset=utf-8"),
    ("js", "text/javascript; charset=utf-8"),
    ("json", "application/json"),
    ("png", "image/png"),
    ("svg", "image/svg+xml"),
    ("txt", PLAIN_TEXT),
    ("webp", "image/webp"),
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
    /// A folder is too deep.
    #[error("{path} is more than {DEPTH_MAX} folders deep; remove folders that the build did not make")]
    TooDeep {
        /// The folder.
        path: PathBuf,
    },
    /// A file is too large.
    #[error("{path} has more than {FILE_BYTES_MAX} bytes; build the pages again")]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
}

/// A file that is served.
#[derive(Debug)]
pub(super) struct File {
    pub(super) content_type: &'static str,
    pub(super) plain: Bytes,
    gzip: OnceLock<Option<Bytes>>,
}

impl File {
    fn new(content_type: &'static str, plain: Bytes) -> Self {
        Self { content_type, plain, gzip: OnceLock::new() }
    }

    /// The compressed bytes; `None` if compression does not make it smaller. The first call compresses, which takes up to 0.1 s
    /// for the largest file: all of them would delay each start of the service.
    pub(super) fn gzip(&self) -> Option<&Bytes> {
        self.gzip.get_or_init(|| packed(&self.plain)).as_ref()
    }
}

/// Files by path: `assets/docs-A1.js`.
pub(super) type Files = HashMap<String, File>;

/// Reads `folder`. Links, hidden files and files of unknown kinds are skipped, with a line in the log.
pub(super) fn read(folder: &Path) -> Result<Files, PagesError> {
    let mut files = Files::new();
    add(&mut files, folder, "", 0)?;
    Ok(files)
}

/// Adds the files of `folder`; their paths begin with `prefix`.
fn add(files: &mut Files, folder: &Path, prefix: &str, depth: usize) -> Result<(), PagesError> {
    let failed = |source| PagesError::Unreadable { path: folder.to_owned(), source };
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let kind = entry.file_type().map_err(failed)?;
        let Some(path) = path_of(&entry, prefix) else {
            skipped(&entry);
            continue;
        };
        if kind.is_dir() {
            if depth == DEPTH_MAX {
                return Err(PagesError::TooDeep { path: entry.path() });
            }
            add(files, &entry.path(), &format!("{path}/"), depth + 1)?;
            continue;
        }
        let Some(content_type) = content_type(&path).filter(|_| kind.is_file()) else {
            skipped(&entry);
            continue;
        };
        if files.len() >= FILES_MAX {
            return Err(PagesError::TooMany { path: folder.to_owned() });
        }
        let plain = Bytes::from(bounded(&entry.path())?);
        files.insert(path, File::new(content_type, plain));
    }
    Ok(())
}

/// The path of an entry; `None` for a name that no build makes.
fn path_of(entry: &DirEntry, prefix: &str) -> Option<String> {
    let name = entry.file_name();
    name.to_str().filter(|name| is_name(name)).map(|name| format!("{prefix}{name}"))
}

fn skipped(entry: &DirEntry) {
    let file = entry.path();
    tracing::warn!(file = %file.display(), "a file in the folder of the pages is of no known kind and is not served");
}

fn bounded(path: &Path) -> Result<Vec<u8>, PagesError> {
    let failed = |source| PagesError::Unreadable { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    let file = OpenFile::open(path).map_err(failed)?;
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

fn content_type(path: &str) -> Option<&'static str> {
    let (_, ending) = path.rsplit_once('.')?;
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
    use crate::pages::testing::{self, SCRIPT};

    #[test]
    fn only_plain_files_of_known_kinds_are_taken() {
        let folder = testing::folder();
        let assets = folder.path().join("assets");
        std::fs::write(folder.path().join("outside.js"), "outside").unwrap();
        std::os::unix::fs::symlink(folder.path().join("outside.js"), assets.join("linked.js")).unwrap();
        std::os::unix::fs::symlink(folder.path(), assets.join("around")).unwrap();
        std::fs::create_dir(assets.join(".git")).unwrap();
        for name in ["a.exe", ".hidden.js", "odd name.js", "noending", ".git/config.txt"] {
            std::fs::write(assets.join(name), "x").unwrap();
        }
        let found = read(folder.path()).unwrap();
        let mut names: Vec<_> = found.keys().map(String::as_str).collect();
        names.sort_unstable();
        let expected = [
            "assets/script-A1.js",
            "assets/tiny.css",
            "docs.html",
            "index.html",
            "licences.txt",
            "manual/drivers/guide.html",
            "manual/index.html",
            "outside.js",
            "watch.html",
        ];
        assert_eq!(names, expected);
        let script = &found[&format!("assets/{SCRIPT}")];
        assert_eq!(script.content_type, "text/javascript; charset=utf-8");
        assert!(script.gzip().is_some_and(|packed| packed.len() < script.plain.len()));
        assert!(found["assets/tiny.css"].gzip().is_none(), "compressed, it would be larger");
    }

    #[test]
    fn a_folder_that_is_not_of_a_build_is_refused_with_the_reason() {
        let folder = testing::folder();
        let assets = folder.path().join("assets");
        let large = assets.join("large.js");
        std::fs::write(&large, vec![b'x'; FILE_BYTES_MAX as usize]).unwrap();
        assert!(read(folder.path()).is_ok(), "as large as may be");
        std::fs::write(&large, vec![b'x'; FILE_BYTES_MAX as usize + 1]).unwrap();
        assert!(matches!(read(folder.path()), Err(PagesError::TooLarge { .. })));
        std::fs::remove_file(large).unwrap();
        for index in read(folder.path()).unwrap().len()..FILES_MAX {
            std::fs::write(assets.join(format!("{index}.js")), "x").unwrap();
        }
        assert_eq!(read(folder.path()).unwrap().len(), FILES_MAX);
        std::fs::write(assets.join("one-more.js"), "x").unwrap();
        assert!(matches!(read(folder.path()), Err(PagesError::TooMany { .. })));
        let error = read(&folder.path().join("none")).unwrap_err();
        assert!(matches!(&error, PagesError::Unreadable { path, .. } if path.ends_with("none")), "{error}");
    }

    #[test]
    fn folders_have_a_depth() {
        let folder = testing::folder();
        let deep = folder.path().join("1/2/3/4");
        std::fs::create_dir_all(&deep).unwrap();
        std::fs::write(deep.join("page.html"), "deep").unwrap();
        assert!(read(folder.path()).unwrap().contains_key("1/2/3/4/page.html"));
        std::fs::create_dir(deep.join("5")).unwrap();
        assert!(matches!(read(folder.path()), Err(PagesError::TooDeep { .. })));
    }

    #[test]
    fn a_missing_folder_text() {
        let source = std::io::Error::from(std::io::ErrorKind::NotFound);
        let error = PagesError::Unreadable { path: "web".into(), source };
        let text = "cannot read web (entity not found); `cargo xtask build` makes the pages";
        assert_eq!(error.to_string(), text);
    }
}
