//! Just enough of Rust's syntax to tell code from prose, and to see which modules a file reaches for.

use std::collections::BTreeSet;

/// Blanks comments and the inside of quotes; lines stay where they are.
pub(super) fn bare(text: &str) -> String {
    let mut bare = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let skipped = comment(rest).or_else(|| quoted(rest, &bare)).unwrap_or(0);
        if skipped == 0 {
            bare.push(next);
            rest = &rest[next.len_utf8()..];
        } else {
            bare.extend(rest[..skipped].chars().filter(|c| *c == '\n'));
            bare.push(' ');
            rest = &rest[skipped..];
        }
    }
    bare
}

/// The length of the comment at the start of `rest`, if there is one.
fn comment(rest: &str) -> Option<usize> {
    if rest.starts_with("//") {
        return Some(rest.find('\n').unwrap_or(rest.len()));
    }
    rest.starts_with("/*").then(|| rest.find("*/").map_or(rest.len(), |end| end + 2))
}

/// The length of the literal at the start of `rest`, if there is one; `before` tells a raw string from a name.
fn quoted(rest: &str, before: &str) -> Option<usize> {
    if let Some(rest) = rest.strip_prefix('"') {
        return Some(1 + closing(rest, '"'));
    }
    let in_name = before.chars().next_back().is_some_and(|c| c.is_alphanumeric() || c == '_');
    if let Some(raw) = rest.strip_prefix('r').filter(|_| !in_name) {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        if raw[hashes..].starts_with('"') {
            let end = format!("\"{}", "#".repeat(hashes));
            let body = &raw[hashes + 1..];
            return Some(1 + hashes + 1 + body.find(&end).map_or(body.len(), |at| at + end.len()));
        }
    }
    // A quote begins a character, unless it begins a lifetime.
    let mut chars = rest.strip_prefix('\'')?.chars();
    let (first, second) = (chars.next()?, chars.next()?);
    (first == '\\' || second == '\'').then(|| 1 + closing(&rest[1..], '\''))
}

/// The length up to and with the closing quote.
fn closing(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        if !escaped && c == quote {
            return at + 1;
        }
        escaped = !escaped && c == '\\';
    }
    text.len()
}

/// The lines of `code` with `word` in it, as a whole where it begins or ends like a name.
pub(super) fn lines_with(code: &str, word: &str) -> Vec<usize> {
    let name = |c: char| c.is_alphanumeric() || c == '_';
    let whole = |line: &str, at: usize| {
        let before = line[..at].chars().next_back().is_some_and(name) && word.starts_with(name);
        let after = line[at + word.len()..].chars().next().is_some_and(name) && word.ends_with(name);
        !before && !after
    };
    let hit = |line: &str| line.match_indices(word).any(|(at, _)| whole(line, at));
    code.lines().enumerate().filter(|(_, line)| hit(line)).map(|(index, _)| index + 1).collect()
}

/// The modules of the crate's top level that a file names, by `crate::` or by enough `super::`.
pub(super) fn modules(path: &str, code: &str) -> BTreeSet<String> {
    let depth = path.trim_start_matches("src/").trim_end_matches(".rs").split('/').count();
    let squeezed: String = code.split_whitespace().collect::<Vec<_>>().join(" ").replace(":: ", "::");
    let prefixes = ["crate::".to_owned(), "super::".repeat(depth)];
    let rests =
        prefixes.iter().flat_map(|prefix| squeezed.match_indices(prefix.as_str()).map(|(at, _)| at + prefix.len()));
    rests.flat_map(|at| heads(&squeezed[at..])).collect()
}

/// The first name of a path, or of each path in a brace.
fn heads(path: &str) -> Vec<String> {
    let head = |path: &str| path.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    let Some(group) = path.strip_prefix('{') else { return vec![head(path)] };
    let (mut depth, mut heads, mut start) = (1, Vec::new(), 0);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 || (depth == 1 && c == ',') {
            heads.push(head(&group[start..at]));
            start = at + 1;
        }
        if depth == 0 {
            break;
        }
    }
    heads
}

#[test]
fn prose_is_not_code() {
    let text = "a /* lapin */ b // lapin\n\"lapin \\\" lapin\" c r#\"lapin\"# 'l' '\\'' &'lapin d\nnumber\"lapin\"";
    let bare = bare(text);
    assert_eq!(bare.matches("lapin").count(), 1, "only the lifetime is code: {bare}");
    assert_eq!(bare.lines().count(), text.lines().count());
    assert!(bare.contains('d') && bare.contains("number"));
}

#[test]
fn words_are_whole_and_have_their_line() {
    let code = "spawn_all();\ntokio::spawn(x);\nrespawn(); x.unwrap_or(y)\nz.unwrap()";
    assert_eq!(lines_with(code, "spawn"), [2]);
    assert_eq!(lines_with(code, ".unwrap()"), [4]);
}

#[test]
fn modules_are_seen_however_they_are_named() {
    let code =
        "use crate::{a::{x, y}, b};\nuse super::super::c::d; crate::e::f(); use super::near; use crate::\n    g::h;";
    let seen = modules("src/side/file.rs", code);
    assert_eq!(seen.iter().map(String::as_str).collect::<Vec<_>>(), ["a", "b", "c", "e", "g"]);
    assert!(modules("src/side.rs", "use super::other::x;").contains("other"));
}
