//! The layers: the file, the environment over it, and for every key where it was set.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use figment::providers::{Format, Toml};
use figment::value::{Dict, Map, Value};
use figment::{Figment, Metadata, Profile, Provider};

use super::problem::{Origin, Problem};
use crate::tier::nearest;

/// What every variable of ours begins with.
pub(crate) const ENV_PREFIX: &str = "DUEBOX_";

/// Variables of ours that are no keys of the file: its path, and the log filter.
const OUTSIDE: [&str; 2] = ["DUEBOX_CONFIG", "DUEBOX_LOG"];

/// Kubernetes gives every container these for a Service named `duebox`; nobody wrote them, so they are no typos.
const KUBERNETES: [&str; 2] = ["DUEBOX_SERVICE_", "DUEBOX_PORT"];

/// A key as its steps: `["relay", "workers"]`.
pub(crate) type KeyPath = Vec<String>;

/// The merged values and their origins.
pub(crate) struct Layers {
    /// All values, environment over file.
    pub(crate) values: Dict,
    /// Where each was set.
    pub(crate) origins: Origins,
    /// Variables that could not be taken.
    pub(crate) problems: Vec<Problem>,
}

/// Where each key was set.
pub(crate) struct Origins {
    path: PathBuf,
    lines: BTreeMap<KeyPath, usize>,
    env: BTreeMap<KeyPath, String>,
}

impl Origins {
    /// Where the value of `key` comes from; for a table, where it begins.
    pub(crate) fn of(&self, key: &[String]) -> Origin {
        if let Some(name) = self.env.get(key) {
            return Origin::Env(name.clone());
        }
        let line = self.lines.get(key).map(|line| Origin::File { path: self.path.clone(), line: Some(*line) });
        // A table that only variables make: the first of them.
        let below =
            || self.env.iter().find(|(path, _)| path.starts_with(key)).map(|(_, name)| Origin::Env(name.clone()));
        line.or_else(below).unwrap_or(Origin::Default)
    }

    /// The origin of something that is missing below `key`: the nearest table that is there, or the file.
    pub(crate) fn around(&self, key: &[String]) -> Origin {
        let found = (1..=key.len()).rev().find_map(|n| self.lines.get(&key[..n]).copied());
        Origin::File { path: self.path.clone(), line: found }
    }
}

/// Values of the environment, all of them as text: what looks like a number may be a password (`007`, `true`, `[a]`).
struct EnvText(Dict);

impl Provider for EnvText {
    fn metadata(&self) -> Metadata {
        Metadata::named("environment")
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        Ok(Profile::Default.collect(self.0.clone()))
    }
}

/// Merges the text of the file at `path` with the variables of the environment.
pub(crate) fn merge(
    path: &Path,
    text: &str,
    variables: impl IntoIterator<Item = (String, String)>,
) -> Result<Layers, Problem> {
    let document = toml_edit::ImDocument::parse(text).map_err(|error| syntax_problem(path, text, &error))?;
    let mut lines = BTreeMap::new();
    note_lines(document.as_table(), text, &mut Vec::new(), &mut lines);
    let mut problems = Vec::new();
    let (mut env, mut dict) = (BTreeMap::new(), Dict::new());
    for (name, value) in variables {
        match key_of(&name, &lines) {
            None => {}
            // What is no text arrives with this character, and a password would silently be another one.
            Some(Ok(_)) if value.contains('\u{FFFD}') => {
                problems.push(env_problem(&name, "must be UTF-8".to_owned()));
            }
            Some(Ok(key)) => {
                if insert(&mut dict, &key, value) {
                    env.insert(key, name);
                } else {
                    problems.push(env_problem(
                        &name,
                        "contradicts another variable: both set the same key, or one sets the table of the other"
                            .to_owned(),
                    ));
                }
            }
            Some(Err(rule)) => problems.push(env_problem(&name, rule)),
        }
    }
    let values = Figment::new()
        .merge(Toml::string(text))
        .merge(EnvText(dict))
        .data()
        .map_err(|error| Problem { key: String::new(), value: None, rule: error.kind.to_string(), origin: file(path) })?
        .remove(&Profile::Default)
        .unwrap_or_default();
    Ok(Layers { values, origins: Origins { path: path.to_owned(), lines, env }, problems })
}

/// The file as an origin.
fn file(path: &Path) -> Origin {
    Origin::File { path: path.to_owned(), line: None }
}

/// A problem with a variable; its value may be a secret and stays out.
fn env_problem(name: &str, rule: String) -> Problem {
    Problem { key: name.to_owned(), value: None, rule, origin: Origin::Default }
}

/// A syntax error by its line: the parser's own text quotes the line, and that may be the one with the password.
fn syntax_problem(path: &Path, text: &str, error: &toml_edit::TomlError) -> Problem {
    let line = error.span().map(|span| line_of(text, span.start));
    let message = error.message().lines().next().unwrap_or_default();
    let rule = format!("not TOML: {message}");
    Problem { key: String::new(), value: None, rule, origin: Origin::File { path: path.to_owned(), line } }
}

/// The line, counted from 1, of a byte offset.
fn line_of(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1
}

/// Notes the line of every key below `table`.
fn note_lines(table: &dyn toml_edit::TableLike, text: &str, path: &mut KeyPath, lines: &mut BTreeMap<KeyPath, usize>) {
    for (name, item) in table.iter() {
        path.push(name.to_owned());
        let span = table.key(name).and_then(toml_edit::Key::span).or_else(|| item.span());
        if let Some(span) = span {
            lines.insert(path.clone(), line_of(text, span.start));
        }
        if let Some(table) = item.as_table_like() {
            note_lines(table, text, path, lines);
        }
        path.pop();
    }
}

/// The key that a variable sets: `DUEBOX_RELAY__WORKERS` is `relay.workers`. `None`: not ours. `Err`: ours, but no key.
fn key_of(name: &str, file: &BTreeMap<KeyPath, usize>) -> Option<Result<KeyPath, String>> {
    let rest = name.strip_prefix(ENV_PREFIX)?;
    if OUTSIDE.contains(&name) || KUBERNETES.iter().any(|prefix| name.starts_with(prefix)) {
        return None;
    }
    let mut key: KeyPath = rest.split("__").map(str::to_lowercase).collect();
    if key.len() < 2 || key.iter().any(String::is_empty) {
        return Some(Err("is no setting: variables are DUEBOX_SECTION__KEY, such as DUEBOX_POSTGRES__URL".to_owned()));
    }
    if matches!(key[0].as_str(), "tier" | "rule") {
        match named_in_file(&key, file) {
            Ok(named) => key[1] = named,
            Err(rule) => return Some(Err(rule)),
        }
    }
    Some(Ok(key))
}

/// The tier or rule of the file that a variable means: variables cannot hold `-` or `.`, so `ORDER_30M` is `order-30m`.
/// Names must be in the file, or a typo here would be a tier that nobody asked for.
fn named_in_file(key: &[String], file: &BTreeMap<KeyPath, usize>) -> Result<String, String> {
    let fold = |name: &str| name.to_lowercase().replace(['-', '.'], "_");
    let names: Vec<&String> =
        file.keys().filter(|known| known.len() == 2 && known[0] == key[0]).map(|k| &k[1]).collect();
    let matching: Vec<&&String> = names.iter().filter(|name| fold(name) == fold(&key[1])).collect();
    match matching.as_slice() {
        [one] => Ok((**one).clone()),
        [] => {
            let hint = nearest(&key[1], names.iter().map(|name| name.as_str()));
            let hint = hint.map(|name| format!("; the nearest is '{name}'")).unwrap_or_default();
            Err(format!("names a {} that is not in the file{hint}", key[0]))
        }
        _ => Err(format!("fits more than one {} of the file", key[0])),
    }
}

/// Puts a text at `key`; false when something else is in the way.
fn insert(dict: &mut Dict, key: &[String], text: String) -> bool {
    match key {
        [] => false,
        [last] => dict.insert(last.clone(), Value::from(text)).is_none(),
        [first, rest @ ..] => {
            let inner = dict.entry(first.clone()).or_insert_with(|| Value::from(Dict::new()));
            if let Value::Dict(_, inner) = inner { insert(inner, rest, text) } else { false }
        }
    }
}
