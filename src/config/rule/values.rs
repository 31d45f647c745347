//! Shapes that only rules have: a status, an SQL expression, a moment.

use std::time::{Duration, SystemTime};

use figment::value::Value;

use super::super::shape::{Raw, Shape, quote, text};
use super::MAX_TEXT;

/// Longest SQL expression, in bytes; what is longer belongs into a function.
const MAX_EXPRESSION: usize = 10_000;

/// A status: a text, or a whole number for a column of numbers.
pub(super) fn status_text() -> Shape<String> {
    let shape = text(MAX_TEXT);
    Shape::new(
        |status| quote(status),
        move |raw: &Raw<'_>| match raw.whole() {
            Some(number) if !raw.env => Ok(number.to_string()),
            _ => (shape.read)(raw),
        },
    )
}

/// A JSON pointer to something inside a document.
pub(super) fn pointer() -> Shape<String> {
    let shape = text(MAX_TEXT);
    Shape::new(shape.show, move |raw| match (shape.read)(raw) {
        Ok(pointer) if !pointer.starts_with('/') => Err("must be a JSON pointer, such as \"/order/id\"".to_owned()),
        read => read,
    })
}

/// An SQL expression, which may go over several lines.
pub(super) fn expression() -> Shape<String> {
    Shape::new(
        |value| quote(value),
        |raw| {
            let text = raw.text().ok_or("must be an SQL expression in quotes, such as \"now()\"")?;
            if text.trim().is_empty() {
                return Err("must not be empty".to_owned());
            }
            if text.len() > MAX_EXPRESSION {
                return Err(format!("must be at most {MAX_EXPRESSION} bytes long, and this is {}", text.len()));
            }
            if text.contains('\0') {
                return Err("must not contain a NUL".to_owned());
            }
            Ok(text.to_owned())
        },
    )
}

/// A moment.
pub(super) fn moment() -> Shape<SystemTime> {
    const FORM: &str =
        "must be a moment with its offset, such as \"2026-12-01T00:00:00Z\" or \"2026-12-01T00:00:00+01:00\"";
    Shape::new(
        |value| quote(&humantime::format_rfc3339(*value).to_string()),
        |raw| read_moment(raw).ok_or_else(|| FORM.to_owned()),
    )
}

/// A text, or a moment as TOML has it without quotes.
fn read_moment(raw: &Raw<'_>) -> Option<SystemTime> {
    let unquoted = raw.value.as_dict().and_then(|parts| parts.get("$__toml_private_datetime")).and_then(Value::as_str);
    parse_moment(raw.text().or(unquoted)?)
}

fn parse_moment(text: &str) -> Option<SystemTime> {
    if text.ends_with('Z') {
        return humantime::parse_rfc3339(text).ok();
    }
    let (local, offset) = text.split_at_checked(text.len().checked_sub(6)?)?;
    let (sign, (hours, minutes)) = (offset.get(..1)?, offset.get(1..)?.split_once(':')?);
    let number = |digits: &str| {
        (digits.len() == 2 && digits.bytes().all(|b| b.is_ascii_digit())).then(|| digits.parse::<u64>().ok())?
    };
    let (hours, minutes) = (number(hours).filter(|h| *h < 24)?, number(minutes).filter(|m| *m < 60)?);
    let (local, offset) = (humantime::parse_rfc3339(&format!("{local}Z")).ok()?, hours * 3600 + minutes * 60);
    match sign {
        "+" => local.checked_sub(Duration::from_secs(offset)),
        "-" => local.checked_add(Duration::from_secs(offset)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_read_with_its_offset_and_refused_without() {
        let shown = |text| parse_moment(text).map(|at| humantime::format_rfc3339(at).to_string());
        for (text, utc) in [
            ("2026-12-01T00:00:00Z", "2026-12-01T00:00:00Z"),
            ("2026-12-01T00:00:00+01:00", "2026-11-30T23:00:00Z"),
            ("2026-12-01T00:00:00-05:30", "2026-12-01T05:30:00Z"),
            ("2026-12-01T00:00:00.5Z", "2026-12-01T00:00:00.500000000Z"),
        ] {
            assert_eq!(shown(text).as_deref(), Some(utc), "{text}");
        }
        for text in [
            "",
            "Z",
            "2026-12-01",
            "2026-12-01T00:00:00",
            "2026-13-01T00:00:00Z",
            "2026-12-01T00:00:00+1:000",
            "2026-12-01T00:00:00+24:00",
            "2026-12-01T00:00:00+00:60",
            "2026-12-01T00:00:00é1:00",
            "tomorrow",
        ] {
            assert_eq!(shown(text), None, "{text}");
        }
    }
}
