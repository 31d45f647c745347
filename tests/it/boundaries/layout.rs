//! What lies at the top of the project.

use super::source::root;
use std::collections::BTreeSet;
use std::fs;

/// What the project must have there.
const NEEDED: [&str; 7] = ["Cargo.toml", "src", "sql", "systemd", "tests", "relay.toml", "README.md"];

/// What convention adds to it.
const CONVENTION: [&str; 8] =
    ["Cargo.lock", "LICENSE", "CHANGELOG.md", "Makefile", "docs", "examples", "benches", ".ci"];

/// Settings that the tools look for there and nowhere else.
const TOOLS: [&str; 4] = [".cargo", ".clippy.toml", ".gitignore", "rustfmt.toml"];

/// What git and cargo make.
const MADE: [&str; 2] = [".git", "target"];

#[track_caller]
fn check(found: &BTreeSet<String>) -> Result<(), String> {
    let missing: Vec<_> = NEEDED.iter().filter(|name| !found.contains(**name)).collect();
    let known = [NEEDED.as_slice(), &CONVENTION, &TOOLS, &MADE].concat();
    let strange: Vec<_> = found.iter().filter(|name| !known.contains(&name.as_str())).collect();
    if missing.is_empty() && strange.is_empty() {
        return Ok(());
    }
    Err(format!("missing: {missing:?}; has no place here: {strange:?}"))
}

#[test]
fn the_top_level_has_what_it_must_and_nothing_strange() {
    let entries = fs::read_dir(root()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    check(&entries.collect()).unwrap();
}

#[test]
fn a_missing_or_strange_entry_is_named() {
    let good: BTreeSet<String> = NEEDED.iter().map(|name| (*name).to_owned()).collect();
    check(&good).unwrap();
    let mut without = good.clone();
    without.remove("sql");
    assert!(check(&without).unwrap_err().contains("missing: [\"sql\"]"));
    let mut with = good;
    with.insert("notes.txt".to_owned());
    assert!(check(&with).unwrap_err().contains("notes.txt"));
}
