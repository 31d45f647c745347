//! The shipped `relay.toml` and the code agree.

use std::collections::{BTreeMap, BTreeSet};

use duebox::config::{self, Origin};

use super::{good, root};

/// A line of `relay.toml` that is a key which is not set: `#workers = 4`, but not `# A sentence.`
fn is_unset_key(line: &str) -> bool {
    line.strip_prefix('#').is_some_and(|rest| {
        rest.starts_with('[')
            || rest.split_once(" = ").is_some_and(|(key, _)| key.chars().all(|c| c == '_' || c.is_ascii_lowercase()))
    })
}

/// The path of a key, the names of tiers and rules left out.
fn path_of(entry: &config::Entry) -> String {
    let mut path = entry.section.clone();
    if matches!(path[0].as_str(), "tier" | "rule") {
        path[1] = "NAME".to_owned();
    }
    path.push(entry.key.clone());
    path.join(".")
}

#[test]
fn relay_toml_has_every_key_of_the_code_with_its_default() {
    let text = std::fs::read_to_string(root().join("relay.toml")).unwrap();
    let with_all: String = text
        .lines()
        .map(|line| if is_unset_key(line) { format!("{}\n", &line[1..]) } else { format!("{line}\n") })
        .collect();
    let (shipped, all) = (good(&text, &[]), good(&with_all, &[]));
    // A key that is not in the code would not have loaded; here none of the code is missing in the file.
    let known: BTreeSet<String> = all.entries.iter().map(path_of).collect();
    let written = all.entries.iter().filter(|entry| entry.origin != Origin::Default).map(path_of).collect();
    let missing: Vec<&String> = known.difference(&written).collect();
    assert!(missing.is_empty(), "keys of the code that relay.toml does not show: {missing:?}");
    assert!(known.len() > 50, "{known:?}");

    let values: BTreeMap<_, _> = all.entries.iter().map(|e| ((&e.section, &e.key), &e.value)).collect();
    for entry in shipped.entries.iter().filter(|entry| entry.value.is_some()) {
        assert_eq!(values[&(&entry.section, &entry.key)], &entry.value, "{:?}.{}", entry.section, entry.key);
    }
}

#[test]
fn relay_toml_gives_a_reason_for_every_key() {
    let text = std::fs::read_to_string(root().join("relay.toml")).unwrap();
    let (mut before, mut in_example, mut keys) = ("", false, 0);
    for line in text.lines() {
        if line.trim_start_matches('#').starts_with('[') {
            // Tiers and rules are explained as a whole.
            in_example = line.contains("[tier.") || line.contains("[rule.");
        } else if !in_example && (is_unset_key(line) || line.contains(" = ") && !line.starts_with('#')) {
            assert!(before.starts_with("# "), "no reason above {line}");
            keys += 1;
        }
        before = line;
    }
    assert!(keys > 25, "{keys}");
}
