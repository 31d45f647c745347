//! The files in `sql/` say what they are for, and the code uses every one.

use super::source::{Source, files, root, sources};
use std::fs;

/// What the head of a statement must say.
const HEAD: [&str; 3] = ["-- Purpose: ", "-- Parameters: ", "-- Index: "];

/// The lines that are missing in the head of a file; a migration has no parameters and builds its indexes itself.
fn missing(name: &str, text: &str) -> Vec<&'static str> {
    let wanted = if name.starts_with("migrations/") { &HEAD[..1] } else { &HEAD[..] };
    let head: Vec<&str> = text.lines().take_while(|line| line.starts_with("--")).collect();
    wanted.iter().copied().filter(|line| !head.iter().any(|found| found.starts_with(line))).collect()
}

/// Whether some source includes the file.
fn included(name: &str, sources: &[Source]) -> bool {
    let path = format!("sql/{name}\"");
    sources.iter().any(|source| {
        source
            .production()
            .split("include_str!")
            .skip(1)
            .any(|rest| rest.split(')').next().is_some_and(|argument| argument.contains(&path)))
    })
}

#[test]
fn every_sql_file_says_what_it_is_for_and_is_used() {
    let sources = sources("src", 40);
    let files = files("sql", "sql");
    assert!(files.len() >= 13, "only {} files found in sql/", files.len());
    for path in files {
        let name = path.strip_prefix(root().join("sql")).unwrap().to_str().unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(missing(name, &text), [""; 0], "sql/{name} does not say it in its first lines");
        assert!(included(name, &sources), "sql/{name} is used by no code");
    }
}

#[test]
fn a_file_that_says_nothing_or_is_not_used_is_seen() {
    assert_eq!(missing("x.sql", "-- Purpose: x.\n-- Index: y.\nselect 1"), ["-- Parameters: "]);
    assert_eq!(missing("x.sql", "select 1\n-- Purpose: too late"), HEAD);
    assert_eq!(missing("migrations/1.sql", "-- Purpose: x\n"), [""; 0]);
    let source = |text: &str| [Source { path: String::new(), text: text.to_owned() }];
    assert!(included("x.sql", &source("const X: &str = include_str!(\"../sql/x.sql\");")));
    assert!(!included("x.sql", &source("// sql/x.sql\" include_str!(\"../sql/xx.sql\")")));
}
