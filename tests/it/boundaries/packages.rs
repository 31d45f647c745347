//! The packages in Cargo.toml: the seven it stands on are there, and every one is used.

use super::code::{bare, lines_with};
use super::source::{Source, root, sources};
use std::fs;

/// What duebox is made of; the rest is convenience.
const SEVEN: [&str; 7] =
    ["tokio", "tokio-postgres", "deadpool-postgres", "lapin", "serde_json", "figment", "signal-hook"];

/// The names in one table of a Cargo.toml.
fn packages(manifest: &str, table: &str) -> Vec<String> {
    let header = format!("[{table}]");
    let lines = manifest.lines().skip_while(|line| *line != header).skip(1).take_while(|line| !line.starts_with('['));
    let names = lines.filter_map(|line| line.split_once('=')).map(|(name, _)| name.trim().to_owned());
    names.filter(|name| !name.starts_with('#')).collect()
}

/// Those of `packages` that no source names. Tests of a file count, as packages for tests are used there.
fn unused(packages: &[String], sources: &[Source]) -> Vec<String> {
    let code: Vec<String> = sources.iter().map(|source| bare(&source.text)).collect();
    let used = |package: &str| {
        let name = package.replace('-', "_");
        code.iter().any(|code| {
            [format!("{name}::"), format!("{name};"), format!("{name} as")]
                .iter()
                .any(|word| !lines_with(code, word).is_empty())
        })
    };
    packages.iter().filter(|package| !used(package)).cloned().collect()
}

fn manifest() -> String {
    fs::read_to_string(root().join("Cargo.toml")).unwrap()
}

#[test]
fn the_seven_packages_are_there_and_used() {
    let packages = packages(&manifest(), "dependencies");
    let production =
        sources("src", 40).into_iter().map(|source| Source { text: source.production().to_owned(), ..source });
    let production: Vec<Source> = production.collect();
    for package in SEVEN {
        assert!(packages.contains(&package.to_owned()), "{package} is not in Cargo.toml");
        assert_eq!(unused(&[package.to_owned()], &production), [""; 0], "not used in src");
    }
}

#[test]
fn no_package_is_there_for_nothing() {
    let all = packages(&manifest(), "dependencies");
    assert!(all.len() > SEVEN.len(), "{all:?}");
    assert_eq!(unused(&all, &sources("src", 40)), [""; 0], "in [dependencies] and not used in src");
    let for_tests = packages(&manifest(), "dev-dependencies");
    assert!(!for_tests.is_empty());
    let both: Vec<Source> = sources("src", 40).into_iter().chain(sources("tests", 20)).collect();
    assert_eq!(unused(&for_tests, &both), [""; 0], "in [dev-dependencies] and not used");
}

#[test]
fn a_package_that_nothing_uses_is_named() {
    let manifest =
        "[dependencies]\na-b = \"1\"\nc = { version = \"1\" }\n#d = \"1\"\n\n[dev-dependencies]\ne = \"1\"\n";
    let listed = packages(manifest, "dependencies");
    assert_eq!(listed, ["a-b", "c"]);
    let source = Source { path: String::new(), text: "use a_b::x; // c::y\nabc::z()".to_owned() };
    assert_eq!(unused(&listed, &[source]), ["c"]);
}
