//! Sources as the rules read them: without tests, comments and what stands in quotes.

use std::fs;
use std::path::{Path, PathBuf};

/// One file of Rust, named from the project's root.
pub(super) struct Source {
    pub(super) path: String,
    pub(super) text: String,
}

/// The project's root.
pub(super) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every Rust file under a folder of the project. Finding hardly any is a mistake of the search, not good news.
#[track_caller]
pub(super) fn sources(folder: &str, at_least: usize) -> Vec<Source> {
    let sources: Vec<Source> = files(folder, "rs").iter().map(|path| Source::read(path)).collect();
    assert!(sources.len() >= at_least, "only {} Rust files found under {folder}", sources.len());
    sources
}

/// Every file under a folder of the project whose name ends in `.extension`, in order.
pub(super) fn files(folder: &str, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|found| found == extension) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

impl Source {
    fn read(path: &Path) -> Self {
        let name = path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
        Self { path: name, text: fs::read_to_string(path).unwrap() }
    }

    /// What is compiled into the program: by the house's custom a file's tests are its last lines.
    pub(super) fn production(&self) -> &str {
        let end = self.text.find("\n#[cfg(test)]\n").map_or(self.text.len(), |at| at + 1);
        &self.text[..end]
    }

    /// The same without comments and quoted text, line by line.
    pub(super) fn code(&self) -> String {
        super::code::bare(self.production())
    }
}

#[test]
fn the_tests_of_a_file_are_not_its_production_code() {
    let source = |text: &str| Source { path: String::new(), text: text.to_owned() };
    assert_eq!(source("a\n#[cfg(test)]\nmod tests {}\n").production(), "a\n");
    assert_eq!(source("a\n    #[cfg(test)]\nb\n").production(), "a\n    #[cfg(test)]\nb\n");
}

#[test]
#[should_panic(expected = "only")]
fn finding_nothing_to_read_is_red() {
    sources("docs", 1);
}
