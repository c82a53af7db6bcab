//! The manual: mdBook makes a site of `docs/`, which the service shows at `/manual/`.
//!
//! mdBook is a tool with the licence MPL-2.0, and none of its own files are shipped: the theme is ours. The site contains one
//! script of another project, elasticlunr; its licence (MIT) lies beside it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::{process, workspace};

/// Version of mdBook.
const VERSION: &str = "0.5.4";
/// Folder of the documents.
const SOURCES: &str = "docs";
/// The list of chapters, which is no page.
const SUMMARY: &str = "docs/SUMMARY.md";
/// Name of the site's folder, and of the folder that it is made in.
const FOLDER_NAME: &str = "manual";
/// Files that the pages use. The site has more, for the themes of mdBook.
const FILES: [&str; 5] = [
    "elasticlunr.min.js",
    "searchindex.js",
    "theme/elasticlunr-licence.txt",
    "theme/manual.css",
    "theme/manual.js",
];
/// Images that documents may show.
const IMAGES: [&str; 3] = ["png", "svg", "webp"];
/// Largest file in bytes: the service starts without its pages when one is larger.
const FILE_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Files of the repository that the service shows: path and address.
const SHOWN: [(&str, &str); 1] = [("openapi/openapi.json", "/openapi.json")];

/// Builds the manual into the folder of the pages. Installs mdBook if it is missing.
pub(crate) fn build(folder: &Path) -> Result<(), String> {
    let made = workspace::target_dir().join(FOLDER_NAME);
    process::run(process::command(installed()?).args(["build", SOURCES, "--dest-dir"]).arg(&made))?;
    let site = Site::read()?;
    let folder = folder.join(FOLDER_NAME);
    let _ = std::fs::remove_dir_all(&folder);
    for (page, document) in &site.origins {
        let html = std::fs::read_to_string(made.join(page))
            .map_err(|error| format!("cannot read the page {page} ({error}); name it in {SUMMARY}"))?;
        let html = site.mended(&html, page, document);
        if let Some(tag) = refused(&html) {
            return Err(format!(
                "the page {page} has <{tag}>: pages may have no style or script inside, because the \
                 service forbids browsers to use it; remove it from {document} or from the theme"
            ));
        }
        write(&folder.join(page), html.as_bytes())?;
    }
    for file in &site.files {
        let path = made.join(file);
        let bytes =
            std::fs::read(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        write(&folder.join(file), &bytes)?;
    }
    println!("made {} with {} pages", folder.display(), site.origins.len());
    Ok(())
}

/// The path of mdBook, which is installed where it is missing or of another version.
fn installed() -> Result<PathBuf, String> {
    let tools = workspace::target_dir().join("tools");
    let mdbook = tools.join("bin/mdbook");
    let said = process::output(process::command(&mdbook).arg("--version"));
    if !said.is_ok_and(|version| version.trim() == format!("mdbook v{VERSION}")) {
        let mut cargo = process::cargo();
        cargo.args(["install", "mdbook", "--version", VERSION, "--locked"]);
        cargo.args(["--no-default-features", "--features", "search", "--root"]).arg(&tools);
        process::run(&mut cargo)?;
    }
    Ok(mdbook)
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), String> {
    if bytes.len() > FILE_BYTES_MAX {
        return Err(format!(
            "{} would have {} bytes, and the service takes {FILE_BYTES_MAX}; divide the document, or let \
             the search leave out a chapter in docs/book.toml",
            path.display(),
            bytes.len()
        ));
    }
    let folder = path.parent().unwrap_or(Path::new(""));
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(path, bytes))
        .map_err(|error| format!("cannot write {}: {error}", path.display()))
}

/// Pages and files of the manual.
#[derive(Debug, Default)]
struct Site {
    /// The document of each page: the included one, where a document only includes another.
    origins: BTreeMap<String, String>,
    /// The page of each document. A README has a second name here, because its page is an index.
    pages: BTreeMap<String, String>,
    /// Files beside the pages.
    files: Vec<String>,
}

impl Site {
    fn read() -> Result<Self, String> {
        let mut site = Self { files: Vec::from(FILES.map(str::to_owned)), ..Self::default() };
        for document in workspace::files(SOURCES, "md")?.into_iter().filter(|document| document != SUMMARY) {
            let text = workspace::read(&document)?;
            site.add(&document, &text);
        }
        for ending in IMAGES {
            let images = workspace::files(SOURCES, ending)?;
            site.files.extend(images.iter().filter_map(|path| below(path).map(str::to_owned)));
        }
        Ok(site)
    }

    fn add(&mut self, document: &str, text: &str) {
        let made = document.replace("README.md", "index.md");
        let Some(page) = below(&made).map(|path| path.replace(".md", ".html")) else { return };
        let origin = included(text).map(|file| workspace::resolved(document, file));
        let origin = origin.unwrap_or_else(|| document.to_owned());
        for name in [document, &made, &origin] {
            self.pages.insert(name.to_owned(), page.clone());
        }
        self.origins.insert(page, origin);
    }

    /// A page with links that lead to other pages. In the text they are relative to its document; around it, to the page.
    fn mended(&self, html: &str, page: &str, document: &str) -> String {
        let around = format!("{SOURCES}/{page}");
        let mut within = false;
        let mut mended = String::with_capacity(html.len());
        for (index, part) in html.split('<').enumerate() {
            let (tag, rest) = part.split_once('>').map_or((part, None), |(tag, rest)| (tag, Some(rest)));
            match tag.split(' ').next() {
                Some("main") => within = true,
                Some("/main") => within = false,
                _ => {}
            }
            if index == 0 {
                mended.push_str(part);
                continue;
            }
            mended.push('<');
            mended.push_str(&self.tag(tag, page, if within { document } else { &around }));
            if let Some(rest) = rest {
                mended.push('>');
                mended.push_str(rest);
            }
        }
        mended
    }

    /// A tag with the address in it replaced. A link that leads to no page loses its address, and is text then.
    fn tag(&self, tag: &str, page: &str, document: &str) -> String {
        for attribute in [" href=\"", " src=\""] {
            let Some((before, (link, after))) =
                tag.split_once(attribute).and_then(|(before, rest)| Some((before, rest.split_once('"')?)))
            else {
                continue;
            };
            return match self.address(link, page, document) {
                Some(address) => format!("{before}{attribute}{address}\"{after}"),
                None => format!("{before}{after}"),
            };
        }
        tag.to_owned()
    }

    /// The address of a link on `page`, where the link is relative to `document`. `None` if the manual has nothing there.
    fn address(&self, link: &str, page: &str, document: &str) -> Option<String> {
        if link.starts_with(['#', '/']) || link.contains(':') {
            return Some(link.to_owned());
        }
        let (file, anchor) = link.split_at(link.find('#').unwrap_or(link.len()));
        let path = workspace::resolved(document, file);
        if let Some((_, address)) = SHOWN.iter().find(|(shown, _)| *shown == path) {
            return Some((*address).to_owned());
        }
        let named = path.strip_suffix(".html").map_or_else(|| path.clone(), |stem| format!("{stem}.md"));
        let file = below(&path).filter(|file| self.files.iter().any(|known| known == file));
        let target = self.pages.get(&named).map(String::as_str).or(file)?;
        Some(format!("{}{target}{anchor}", "../".repeat(page.matches('/').count())))
    }
}

/// A path in the folder of the documents.
fn below(path: &str) -> Option<&str> {
    path.strip_prefix(SOURCES)?.strip_prefix('/')
}

/// The file that a document consists of.
fn included(text: &str) -> Option<&str> {
    text.trim().strip_prefix("{{#include ")?.strip_suffix("}}").filter(|file| !file.contains('\n'))
}

/// The first tag that the policy of the service forbids.
fn refused(html: &str) -> Option<&str> {
    let mut tags = html.split('<').skip(1).filter_map(|part| part.split('>').next());
    tags.find(|tag| {
        let is_script = tag.starts_with("script") && !tag.contains(" src=");
        is_script || tag.starts_with("style") || tag.contains(" style=")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site() -> Site {
        let files = vec!["theme/manual.css".into(), "images/a.png".into()];
        let mut site = Site { files, ..Site::default() };
        site.add("docs/README.md", "# Documents");
        site.add("docs/api.md", "# API");
        site.add("docs/decisions/README.md", "# Decisions");
        site.add("docs/map.md", "{{#include ../ARCHITECTURE.md}}\n");
        site
    }

    #[test]
    fn links_lead_from_page_to_page() {
        let site = site();
        let address = |link: &str| site.address(link, "decisions/index.html", "docs/decisions/README.md");
        assert_eq!(address("../api.html#keys").as_deref(), Some("../api.html#keys"));
        assert_eq!(address("../README.html").as_deref(), Some("../index.html"));
        assert_eq!(address("../../ARCHITECTURE.html#walks").as_deref(), Some("../map.html#walks"));
        assert_eq!(address("../images/a.png").as_deref(), Some("../images/a.png"));
        assert_eq!(address("../../openapi/openapi.json").as_deref(), Some("/openapi.json"));
        assert_eq!(address("../../plugins/examples"), None);
        for other in ["#here", "/docs", "https://example.com/a.md", "data:,"] {
            assert_eq!(address(other).as_deref(), Some(other));
        }
    }

    #[test]
    fn the_links_of_an_included_document_are_those_of_its_own_folder() {
        let html = "<link href=\"theme/manual.css\"><a href=\"map.md\">Map</a>\
            <main id=\"content\">a > b <a class=\"x\" href=\"docs/decisions/README.html\">why</a> \
            <a href=\"host/src\">code</a></main><a href=\"api.html\">Next</a>";
        let mended = site().mended(html, "map.html", "ARCHITECTURE.md");
        let wanted = html.replace("map.md", "map.html").replace("docs/decisions/README", "decisions/index");
        assert_eq!(mended, wanted.replace(" href=\"host/src\"", ""));
    }

    #[test]
    fn pages_have_no_style_or_script_inside() {
        for (html, tag) in [
            ("<p><style>p {}</style>", Some("style")),
            ("<td style=\"text-align: right\">", Some("td style=\"text-align: right\"")),
            ("<script>1</script>", Some("script")),
            ("<script src=\"a.js\"></script><code>&lt;style></code>", None),
        ] {
            assert_eq!(refused(html), tag);
        }
    }

    #[test]
    fn every_document_is_in_the_summary() {
        let summary = workspace::read(SUMMARY).unwrap();
        for document in workspace::files(SOURCES, "md").unwrap().iter().filter(|path| *path != SUMMARY) {
            assert!(summary.contains(&format!("({})", below(document).unwrap())), "{document}");
        }
    }
}
