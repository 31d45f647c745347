//! Reading tables key by key, noting every problem instead of stopping at the first.
//!
//! serde stops at the first error of a table and knows neither bounds nor origins; here each key is read with its shape,
//! and what was read is kept for `config show`, so that the two cannot differ.

use figment::value::{Dict, Value};

use super::layers::{ENV_PREFIX, KeyPath, Origins};
use super::problem::{Origin, Problem};
use super::shape::{Raw, Shape, quote};
use crate::tier::nearest;

/// One key of the effective configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The table it is in: `["tier", "order-30m"]`.
    pub section: Vec<String>,
    /// The key.
    pub key: String,
    /// The value as TOML, secrets masked; `None` when it is not set and has no default.
    pub value: Option<String>,
    /// Where it was set.
    pub origin: Origin,
}

/// What reading leaves behind beside the values.
pub(crate) struct Reader {
    /// Everything that is wrong.
    pub(crate) problems: Vec<Problem>,
    /// What is allowed and probably not meant.
    pub(crate) warnings: Vec<String>,
    /// Every key that was read.
    pub(crate) entries: Vec<Entry>,
    origins: Origins,
}

impl Reader {
    /// A reader that has read nothing.
    pub(crate) fn new(origins: Origins, problems: Vec<Problem>) -> Self {
        Self { problems, warnings: Vec::new(), entries: Vec::new(), origins }
    }

    /// The table of all.
    pub(crate) fn root(&mut self, values: Dict) -> Table<'_> {
        Table { reader: self, path: Vec::new(), values, known: Vec::new() }
    }

    /// Where the value at `path` was set.
    pub(crate) fn origin(&self, path: &[String]) -> Origin {
        self.origins.of(path)
    }

    /// Notes that the value at `path` breaks a rule that looks at more than this value.
    pub(crate) fn problem(&mut self, path: &[&str], rule: impl Into<String>) {
        let path: KeyPath = path.iter().map(|step| (*step).to_owned()).collect();
        let entry = path
            .split_last()
            .and_then(|(key, section)| self.entries.iter().find(|entry| entry.key == *key && entry.section == section));
        let value = entry.and_then(|entry| entry.value.clone());
        let origin = match entry.map(|entry| &entry.origin) {
            None | Some(Origin::Default) => self.origins.around(&path),
            Some(origin) => origin.clone(),
        };
        self.problems.push(Problem { key: dotted(&path), value, rule: rule.into(), origin });
    }
}

/// One table of the file.
pub(crate) struct Table<'r> {
    /// Where problems go.
    pub(crate) reader: &'r mut Reader,
    path: KeyPath,
    values: Dict,
    known: Vec<&'static str>,
}

impl Table<'_> {
    /// Whether the key is set.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.values.contains_key(key)
    }

    /// The value of a key that may be missing.
    pub(crate) fn optional<T>(&mut self, key: &'static str, shape: &Shape<T>) -> Option<T> {
        match self.read(key, shape) {
            Some(result) => result.ok(),
            None => {
                self.note(key, None, Origin::Default);
                None
            }
        }
    }

    /// The value of a key, or its default; the default as well after a problem, which is noted.
    pub(crate) fn or<T>(&mut self, key: &'static str, default: T, shape: &Shape<T>) -> T {
        match self.read(key, shape) {
            Some(result) => result.unwrap_or(default),
            None => {
                self.note(key, Some((shape.show)(&default)), Origin::Default);
                default
            }
        }
    }

    /// The value of a key that must be set; `None` after a problem, which is noted.
    pub(crate) fn required<T>(&mut self, key: &'static str, shape: &Shape<T>, meaning: &str) -> Option<T> {
        match self.read(key, shape) {
            Some(result) => result.ok(),
            None => {
                self.missing(key, meaning);
                None
            }
        }
    }

    /// Notes that a key must be set.
    pub(crate) fn missing(&mut self, key: &'static str, meaning: &str) {
        self.known.push(key);
        let path = self.path_of(key);
        let variable = if path.len() == 2 { format!(", here or in {}", variable(&path)) } else { String::new() };
        let origin = self.reader.origins.around(&path);
        let rule = format!("must be set{variable}: {meaning}");
        self.reader.problems.push(Problem { key: dotted(&path), value: None, rule, origin });
    }

    /// Notes a problem if the key is set.
    pub(crate) fn refuse(&mut self, key: &'static str, rule: &str) {
        self.known.push(key);
        if let Some(value) = self.values.remove(key) {
            self.reject(key, &value, None, rule.to_owned());
        }
    }

    /// Notes that the value of a key that was read breaks a rule.
    pub(crate) fn problem(&mut self, key: &str, rule: impl Into<String>) {
        let path = self.path_of(key);
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        self.reader.problem(&path, rule);
    }

    /// Notes that the table as a whole breaks a rule.
    pub(crate) fn wrong(&mut self, rule: impl Into<String>) {
        let path: Vec<&str> = self.path.iter().map(String::as_str).collect();
        self.reader.problem(&path, rule);
    }

    /// The table at a key; `None` when it is missing, or no table, which is noted.
    pub(crate) fn table(&mut self, key: &'static str) -> Option<Table<'_>> {
        self.known.push(key);
        let value = self.values.remove(key)?;
        if let Value::Dict(_, values) = value {
            return Some(Table { path: self.path_of(key), reader: self.reader, values, known: Vec::new() });
        }
        self.reject(key, &value, Some(|_| "***".to_owned()), format!("must be a table, [{key}]"));
        None
    }

    /// The table at a key, empty when it is missing or no table.
    pub(crate) fn section(&mut self, key: &'static str) -> Table<'_> {
        let values = self.table(key).map(|mut table| std::mem::take(&mut table.values)).unwrap_or_default();
        Table { path: self.path_of(key), reader: self.reader, values, known: Vec::new() }
    }

    /// Takes all keys of a table whose keys are names of the user's, each read by `each`.
    pub(crate) fn drain(mut self, mut each: impl FnMut(&mut Reader, &KeyPath, &str, Raw<'_>)) {
        for (key, value) in std::mem::take(&mut self.values) {
            let path = self.path_of(&key);
            let env = matches!(self.reader.origins.of(&path), Origin::Env(_));
            each(self.reader, &path, &key, Raw { value: &value, env });
        }
    }

    /// Takes the tables of a table whose keys are names of the user's, each read by `each`.
    pub(crate) fn drain_tables(mut self, mut each: impl FnMut(Table<'_>, &str)) {
        for (name, value) in std::mem::take(&mut self.values) {
            let path = self.path_of(&name);
            if let Value::Dict(_, values) = value {
                each(Table { reader: self.reader, path, values, known: Vec::new() }, &name);
            } else {
                self.reject(&name, &value, None, format!("must be a table, [{}]", dotted(&path)));
            }
        }
    }

    /// Notes every key that nothing has asked for, with the nearest one that something did.
    pub(crate) fn finish(mut self) {
        for key in std::mem::take(&mut self.values).into_keys() {
            let path = self.path_of(&key);
            let origin = self.reader.origins.of(&path);
            let near = nearest(&key, self.known.iter().copied());
            let section =
                if self.path.is_empty() { "the file".to_owned() } else { format!("[{}]", dotted(&self.path)) };
            let hint = near.map(|near| match origin {
                Origin::Env(_) if self.path.is_empty() => {
                    format!("; the nearest is {}__", variable(&self.path_of(near)))
                }
                Origin::Env(_) => format!("; the nearest is {}", variable(&self.path_of(near))),
                Origin::Default | Origin::File { .. } => format!("; the nearest is '{near}'"),
            });
            let rule = format!("is not a key of {section}{}", hint.unwrap_or_default());
            // No value: under a mistyped key it may be a password.
            self.reader.problems.push(Problem { key: dotted(&path), value: None, rule, origin });
        }
    }

    /// The value of a key that is set, noted either way.
    fn read<T>(&mut self, key: &'static str, shape: &Shape<T>) -> Option<Result<T, ()>> {
        self.known.push(key);
        let value = self.values.remove(key)?;
        let origin = self.reader.origins.of(&self.path_of(key));
        let raw = Raw { value: &value, env: matches!(origin, Origin::Env(_)) };
        Some(match (shape.read)(&raw) {
            Ok(read) => {
                self.note(key, Some((shape.show)(&read)), origin);
                Ok(read)
            }
            Err(rule) => {
                self.reject(key, &value, shape.mask, rule);
                Err(())
            }
        })
    }

    /// Notes a value that is not taken.
    fn reject(&mut self, key: &str, value: &Value, mask: Option<fn(&Raw<'_>) -> String>, rule: String) {
        let path = self.path_of(key);
        let origin = self.reader.origins.of(&path);
        let raw = Raw { value, env: matches!(origin, Origin::Env(_)) };
        let shown = mask.map_or_else(|| raw.show(), |mask| mask(&raw));
        self.reader.problems.push(Problem { key: dotted(&path), value: Some(shown), rule, origin });
    }

    /// Notes a value for `config show`.
    fn note(&mut self, key: &str, value: Option<String>, origin: Origin) {
        self.reader.entries.push(Entry { section: self.path.clone(), key: key.to_owned(), value, origin });
    }

    /// The whole path of a key of this table.
    fn path_of(&self, key: &str) -> KeyPath {
        let mut path = self.path.clone();
        path.push(key.to_owned());
        path
    }
}

/// The variable that sets a key.
fn variable(path: &[String]) -> String {
    format!("{ENV_PREFIX}{}", path.join("__").to_uppercase().replace(['-', '.'], "_"))
}

/// A path as TOML writes it: `tier."a b".delay`.
pub(crate) fn dotted(path: &[String]) -> String {
    let bare = |step: &String| !step.is_empty() && step.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c));
    let steps: Vec<String> = path.iter().map(|step| if bare(step) { step.clone() } else { quote(step) }).collect();
    steps.join(".")
}
