//! A reader of the documents: pastes the shell blocks of one into a shell, in order, as a newcomer does.
//!
//! The shell is bash, which ends at the first command that fails; variables of one block serve the next. Only paths and addresses are
//! replaced in a block, as text ([`Reader::new`]). `reader.sh` has the commands that a test cannot run as they are, each with its reason.

use std::collections::VecDeque;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{ChildStdin, Stdio};

use crate::author::root;
use crate::clients;
use crate::process::{Process, read_lossy};
use crate::service::{Service, binary};
use crate::source::{Source, target_dir};
use crate::wait::until;

/// Commands that replace others.
const PRELUDE: &str = include_str!("reader.sh");

/// A shell beside a service, and the document that is read there.
#[derive(Debug)]
pub struct Reader {
    shell: Process,
    input: ChildStdin,
    folder: PathBuf,
    places: Vec<(String, String)>,
    document: String,
    text: String,
    blocks: VecDeque<String>,
    runs: usize,
}

impl Reader {
    /// Opens a shell in the folder of a service, with its configuration. `places` are addresses and names of the document, each with
    /// the one that the test has for it.
    ///
    /// # Panics
    /// When there is no bash.
    #[must_use]
    #[track_caller]
    pub fn new(service: &Service, places: &[(&str, &str)]) -> Self {
        let folder = service.folder().join("reader");
        std::fs::create_dir(&folder).expect("a folder for the reader");
        let root = service.folder().join("root").display().to_string();
        let programs = binary().parent().expect("the folder of the binary").display().to_string();
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = service.shell("exec bash");
        command.stdin(Stdio::piped());
        command.env("PATH", format!("{programs}:{path}"));
        command.env("READER", &folder).env("ROOT", &root).env("BASE", service.base());
        command.env("NPM_TOOLS", clients::folder().join("node_modules/.bin"));
        command.env("PYTHON_TOOLS", target_dir().join("clients-python/bin"));
        let mut shell = Process::start("the reader's shell", command, &folder.join("log"));
        let input = shell.take_input().expect("the shell's input");

        let (http, rtmp) = (service.base().replace("http://", ""), service.rtmp_address().to_string());
        let source = Source::shared();
        let common = [
            ("target/debug/satcast", "satcast".to_owned()),
            ("127.0.0.1:8080", http),
            ("127.0.0.1:1935", rtmp.clone()),
            ("0.0.0.0:1935", rtmp),
            ("video.mp4", source.path().display().to_string()),
            ("~/", format!("{}/", service.folder().display())),
            ("/opt", format!("{root}/opt")),
            ("/etc/", format!("{root}/etc/")),
            ("/var/lib/", format!("{root}/var/lib/")),
        ];
        let own = places.iter().map(|(from, to)| ((*from).to_owned(), (*to).to_owned()));
        let places = common.into_iter().map(|(from, to)| (from.to_owned(), to)).chain(own).collect();
        let (document, text, blocks) = (String::new(), String::new(), VecDeque::new());
        let mut reader = Self { shell, input, folder, places, document, text, blocks, runs: 0 };
        reader.run(PRELUDE);
        reader
    }

    /// Opens a document, to be pasted from its first block on.
    ///
    /// # Panics
    /// When there is none.
    #[track_caller]
    pub fn open(&mut self, document: &str) {
        document.clone_into(&mut self.document);
        self.text = read(document);
        self.blocks = self.blocks_of("sh").into();
    }

    /// The blocks of the document in another language, with the places of the test.
    #[must_use]
    pub fn blocks_of(&self, language: &str) -> Vec<String> {
        let placed = |block: String| {
            self.places.iter().fold(block, |block, (from, to)| block.replace(from.as_str(), to))
        };
        blocks(&self.text, language).into_iter().map(placed).collect()
    }

    /// Pastes the next block; gives what it printed.
    ///
    /// # Panics
    /// When there is none, when a command of it fails, or when it does not end.
    #[track_caller]
    pub fn paste(&mut self) -> String {
        let block = self.blocks.pop_front();
        self.run(&block.unwrap_or_else(|| panic!("{} has no further block", self.document)))
    }

    /// Pastes all blocks up to the one with `text`; gives what that one printed.
    ///
    /// # Panics
    /// As [`Reader::paste`].
    #[track_caller]
    pub fn paste_to(&mut self, text: &str) -> String {
        loop {
            let is_last = self.blocks.front().is_some_and(|block| block.contains(text));
            let said = self.paste();
            if is_last {
                return said;
            }
        }
    }

    /// Expects that every block of the document was pasted.
    ///
    /// # Panics
    /// When one was not.
    #[track_caller]
    pub fn finish(&self) {
        assert!(self.blocks.is_empty(), "blocks of {} that no test runs: {:?}", self.document, self.blocks);
    }

    /// Runs lines of the test itself.
    ///
    /// # Panics
    /// As [`Reader::paste`].
    #[track_caller]
    pub fn run(&mut self, lines: &str) -> String {
        let before = self.shell.log().len();
        self.runs += 1;
        let (number, done) = (self.runs.to_string(), self.folder.join("done"));
        let file = self.folder.join(format!("{number}.sh"));
        std::fs::write(&file, lines).expect("a file for a block");
        // Fails only when the shell has ended, which is seen below.
        let _ = writeln!(
            self.input,
            "source '{}' < /dev/null; echo {number} > '{}'",
            file.display(),
            done.display()
        );
        until("a block to end", || {
            if read_lossy(&done).trim() == number {
                return Ok(());
            }
            let ended = self.shell.ended();
            let said = since(&self.shell, before);
            if let Some(status) = ended {
                panic!("{}: the shell ended with {status} in\n{lines}\nIt printed:\n{said}", self.document);
            }
            Err(format!("{}:\n{lines}\nIt printed:\n{said}", self.document))
        });
        since(&self.shell, before)
    }

    /// The value of a variable of the shell.
    ///
    /// # Panics
    /// When it has none.
    #[must_use]
    #[track_caller]
    pub fn value(&mut self, name: &str) -> String {
        let file = self.folder.join("value");
        self.run(&format!("printf '%s' \"${name}\" > '{}'\n", file.display()));
        read_lossy(&file)
    }

    /// The commands that were noted instead of run, a line for each.
    #[must_use]
    pub fn calls(&self) -> String {
        read_lossy(&self.folder.join("calls"))
    }
}

/// What a process printed after its first bytes.
fn since(process: &Process, bytes: usize) -> String {
    process.log().get(bytes..).unwrap_or_default().to_owned()
}

/// The text of a document, by its path in the repository.
///
/// # Panics
/// When there is none.
#[must_use]
#[track_caller]
pub fn read(document: &str) -> String {
    let text = std::fs::read_to_string(root().join(document));
    text.unwrap_or_else(|error| panic!("cannot read {document}: {error}"))
}

/// The fenced blocks of a language in a document, in order; those of a list without its indent.
#[must_use]
pub fn blocks(text: &str, language: &str) -> Vec<String> {
    let opening = format!("```{language}");
    let mut found = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for line in text.lines() {
        let shown = line.trim_start();
        match &mut open {
            None => {
                if shown == opening {
                    open = Some((line.len() - shown.len(), String::new()));
                }
            }
            Some((_, block)) if shown == "```" => {
                found.push(std::mem::take(block));
                open = None;
            }
            Some((indent, block)) => {
                block.push_str(line.get(*indent..).unwrap_or_default());
                block.push('\n');
            }
        }
    }
    found
}

/// Paths of all documents for people, relative to the root of the repository.
///
/// # Panics
/// When the folder of the documents cannot be read.
#[must_use]
pub fn documents() -> Vec<String> {
    let mut found: Vec<String> =
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md"].map(str::to_owned).into();
    let mut folders = vec![PathBuf::from("docs")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(root().join(&folder)).expect("a folder of documents").flatten() {
            let path = folder.join(entry.file_name());
            if entry.path().is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "md") {
                found.push(path.display().to_string());
            }
        }
    }
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_found_by_their_language_also_in_lists() {
        let text =
            "a\n```sh\none\n\n  two\n```\n```toml\nx = 1\n```\n1. b\n   ```sh\n   three\n     four\n   ```\n";
        assert_eq!(blocks(text, "sh"), ["one\n\n  two\n", "three\n  four\n"]);
        assert_eq!(blocks(text, "toml"), ["x = 1\n"]);
    }
}
