//! Shapes: what a value may be, said once for reading it, for refusing it in words, and for showing it.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use figment::value::{Num, Value};

use super::units::{parse_bytes, parse_duration, show_bytes, show_duration};

/// Longest name of an exchange, queue or routing key: AMQP sends it as a short string.
pub(crate) const MAX_AMQP_NAME: usize = 255;

/// A value as it was written.
pub(crate) struct Raw<'a> {
    /// The value; from the environment always a text.
    pub(crate) value: &'a Value,
    /// It comes from the environment, so that text may stand for numbers and lists.
    pub(crate) env: bool,
}

impl Raw<'_> {
    /// The text, if it is one.
    pub(crate) fn text(&self) -> Option<&str> {
        self.value.as_str()
    }

    /// The text of a variable, which may stand for something else.
    fn variable(&self) -> Option<&str> {
        self.text().filter(|_| self.env).map(str::trim)
    }

    /// The whole number, if it is one.
    pub(crate) fn whole(&self) -> Option<i128> {
        let Value::Num(_, number) = self.value else { return self.variable()?.parse().ok() };
        // Unsigned and signed are two kinds to figment, and a float is neither.
        number.to_i128().or_else(|| number.to_u128().and_then(|n| i128::try_from(n).ok()))
    }

    /// The truth value, if it is one.
    pub(crate) fn boolean(&self) -> Option<bool> {
        self.value.to_bool().or_else(|| self.variable()?.parse().ok())
    }

    /// The list, if it is one: in the environment `[a, "b"]`, or one entry without brackets.
    pub(crate) fn list(&self) -> Option<Vec<Value>> {
        let of_variable = || Some(split_list(self.variable()?).into_iter().map(Value::from).collect());
        self.value.as_array().map(<[Value]>::to_vec).or_else(of_variable)
    }

    /// The value as it was written, for an error.
    pub(crate) fn show(&self) -> String {
        match self.value {
            Value::String(_, text) => quote(&shorten(text)),
            Value::Bool(_, value) => value.to_string(),
            Value::Num(_, Num::F64(value)) => value.to_string(),
            Value::Num(..) => self.whole().map_or_else(|| "a number".to_owned(), |n| n.to_string()),
            Value::Array(_, values) => {
                let shown: Vec<String> = values.iter().map(|value| Raw { value, env: self.env }.show()).collect();
                format!("[{}]", shown.join(", "))
            }
            Value::Dict(..) => "a table".to_owned(),
            Value::Char(..) | Value::Empty(..) => "a value".to_owned(),
        }
    }
}

/// The entries of `[a, "b, c"]`; a text without brackets is one entry.
fn split_list(text: &str) -> Vec<String> {
    let Some(inner) = text.trim().strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) else {
        return vec![text.to_owned()];
    };
    let (mut entries, mut entry, mut quoted) = (Vec::new(), String::new(), false);
    for c in inner.chars() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => entries.push(std::mem::take(&mut entry)),
            _ => entry.push(c),
        }
    }
    entries.push(entry);
    entries.iter().map(|entry| entry.trim().to_owned()).filter(|entry| !entry.is_empty()).collect()
}

/// At most 200 characters: an error line stays one that people read.
fn shorten(text: &str) -> String {
    let mut short: String = text.chars().take(200).collect();
    if short.len() < text.len() {
        short.push_str("...");
    }
    short
}

/// A text in quotes, as TOML writes it.
pub(crate) fn quote(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => quoted.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// A list of texts, as TOML writes it.
pub(crate) fn show_list(all: &[String]) -> String {
    format!("[{}]", all.iter().map(|one| quote(one)).collect::<Vec<_>>().join(", "))
}

/// Reads a value; the error is the rule that was broken.
type Read<T> = Box<dyn Fn(&Raw<'_>) -> Result<T, String>>;

/// What a value may be.
pub(crate) struct Shape<T> {
    /// Reads it.
    pub(crate) read: Read<T>,
    /// Shows it as TOML.
    pub(crate) show: fn(&T) -> String,
    /// Set for secrets: shows what was written without the secret.
    pub(crate) mask: Option<fn(&Raw<'_>) -> String>,
}

impl<T> Shape<T> {
    /// A shape whose values are no secrets.
    pub(crate) fn new(show: fn(&T) -> String, read: impl Fn(&Raw<'_>) -> Result<T, String> + 'static) -> Self {
        Self { read: Box::new(read), show, mask: None }
    }
}

/// A whole number within `range`.
pub(crate) fn whole<T: TryFrom<u64> + Display + 'static>(range: RangeInclusive<u64>) -> Shape<T> {
    Shape::new(
        |value: &T| value.to_string(),
        move |raw| {
            let rule = || format!("must be a whole number from {} to {}", range.start(), range.end());
            let number = raw.whole().and_then(|n| u64::try_from(n).ok()).filter(|n| range.contains(n));
            number.and_then(|n| T::try_from(n).ok()).ok_or_else(rule)
        },
    )
}

/// `true` or `false`.
pub(crate) fn boolean() -> Shape<bool> {
    Shape::new(bool::to_string, |raw| raw.boolean().ok_or_else(|| "must be true or false".to_owned()))
}

/// A duration within `range`.
pub(crate) fn duration(range: RangeInclusive<Duration>) -> Shape<Duration> {
    Shape::new(
        |value| quote(&show_duration(*value)),
        move |raw| {
            let value = match raw.text() {
                Some(text) => parse_duration(text)?,
                None => parse_duration(&raw.whole().map_or_else(String::new, |n| n.to_string()))?,
            };
            let bounds =
                || format!("must be from {} to {}", show_duration(*range.start()), show_duration(*range.end()));
            if range.contains(&value) { Ok(value) } else { Err(bounds()) }
        },
    )
}

/// A byte size within `range`.
pub(crate) fn bytes(range: RangeInclusive<u64>) -> Shape<usize> {
    Shape::new(
        |value| quote(&show_bytes(u64::try_from(*value).unwrap_or(u64::MAX))),
        move |raw| {
            let written = raw.text().map(str::to_owned).or_else(|| raw.whole().map(|n| n.to_string()));
            let value = parse_bytes(&written.unwrap_or_default())?;
            let bounds = || format!("must be from {} to {}", show_bytes(*range.start()), show_bytes(*range.end()));
            usize::try_from(value).ok().filter(|_| range.contains(&value)).ok_or_else(bounds)
        },
    )
}

/// A text of at least one and at most `max` bytes, on one line.
pub(crate) fn text(max: usize) -> Shape<String> {
    Shape::new(|value| quote(value), move |raw| short_text(raw, 1, max))
}

/// A text of at most `max` bytes that may be empty.
pub(crate) fn text_or_empty(max: usize) -> Shape<String> {
    Shape::new(|value| quote(value), move |raw| short_text(raw, 0, max))
}

/// Reads a text within its bounds.
fn short_text(raw: &Raw<'_>, min: usize, max: usize) -> Result<String, String> {
    let text = raw.text().ok_or("must be a text in quotes")?;
    if text.len() < min {
        return Err("must not be empty".to_owned());
    }
    if text.len() > max {
        return Err(format!("must be at most {max} bytes long, and this is {}", text.len()));
    }
    if text.chars().any(char::is_control) {
        return Err("must not contain control characters".to_owned());
    }
    Ok(text.to_owned())
}

/// A path.
pub(crate) fn path() -> Shape<PathBuf> {
    let shape = text(4096);
    Shape::new(|path| quote(&path.to_string_lossy()), move |raw| (shape.read)(raw).map(PathBuf::from))
}

/// One of the names of `choices`.
pub(crate) fn choice<T: Copy + PartialEq + 'static>(
    choices: &'static [(&'static str, T)],
    show: fn(&T) -> String,
) -> Shape<T> {
    Shape::new(show, move |raw| {
        let found = raw.text().and_then(|text| choices.iter().find(|(name, _)| *name == text));
        let names = || choices.iter().map(|(name, _)| quote(name)).collect::<Vec<_>>().join(" or ");
        found.map(|(_, value)| *value).ok_or_else(|| format!("must be {}", names()))
    })
}

/// A list of at least one entry of a shape; the rule names the entry that breaks it, counted from 1.
pub(crate) fn list<T: 'static>(entry: Shape<T>, show: fn(&Vec<T>) -> String) -> Shape<Vec<T>> {
    let mask = entry.mask;
    let read = move |raw: &Raw<'_>| {
        let values = raw.list().ok_or("must be a list in brackets, such as [\"a\", \"b\"]")?;
        if values.is_empty() {
            return Err("must have at least one entry".to_owned());
        }
        let one = |(n, value): (usize, &Value)| {
            let raw = Raw { value, env: raw.env };
            (entry.read)(&raw).map_err(|rule| match raw.text() {
                _ if values.len() > 1 => format!("entry {}: {rule}", n + 1),
                Some(text) if text.contains(',') => format!("{rule}; several are written [\"a\", \"b\"]"),
                _ => rule,
            })
        };
        values.iter().enumerate().map(one).collect()
    };
    Shape { mask, ..Shape::new(show, read) }
}
