//! Durations and byte sizes as people write them: always with a unit, because `30` in one daemon is seconds and in the
//! next one milliseconds.

use std::time::Duration;

/// Time units we take. Months and years have no fixed length, and humantime's `M` beside `m` is a trap: `30M` would be
/// two and a half years.
const TIME_UNITS: [(&str, f64); 21] = [
    ("ms", 0.001),
    ("millis", 0.001),
    ("s", 1.0),
    ("sec", 1.0),
    ("secs", 1.0),
    ("second", 1.0),
    ("seconds", 1.0),
    ("m", 60.0),
    ("min", 60.0),
    ("mins", 60.0),
    ("minute", 60.0),
    ("minutes", 60.0),
    ("h", 3_600.0),
    ("hr", 3_600.0),
    ("hour", 3_600.0),
    ("hours", 3_600.0),
    ("d", 86_400.0),
    ("day", 86_400.0),
    ("days", 86_400.0),
    ("week", 604_800.0),
    ("weeks", 604_800.0),
];

/// Byte units, largest first, so that rendering finds the largest that divides.
const BYTE_UNITS: [(&str, u64); 7] = [
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("kB", 1_000),
    ("B", 1),
];

/// Reads a duration such as `30m`, `1h 30m` or `500ms`; the error is the rule that was broken.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    const FORM: &str = "must be a duration with a unit (ms, s, m, h, d), such as \"30s\", \"5m\" or \"1h 30m\"";
    let text = text.trim();
    if text.starts_with('-') {
        return Err("must not be negative: a duration such as \"30s\"".to_owned());
    }
    if !text.is_empty() && text.chars().all(|c| c.is_ascii_digit()) {
        return Err(format!("needs a unit: write \"{text}s\" for seconds or \"{text}ms\" for milliseconds"));
    }
    if let Some(suggestion) = whole_form_of(text) {
        return Err(format!("takes whole numbers only: write \"{suggestion}\""));
    }
    let mut words = text.split(|c: char| !c.is_alphabetic()).filter(|word| !word.is_empty());
    if let Some(word) = words.find(|word| !TIME_UNITS.iter().any(|(unit, _)| unit == word)) {
        return Err(format!(
            "has '{word}' where a unit belongs, which is no unit (ms, s, m for minutes, h and d are): such as \"30s\" or \"5m\""
        ));
    }
    humantime::parse_duration(text).map_err(|_| FORM.to_owned())
}

/// What a person who wrote `1.5h` meant, in the form we take.
fn whole_form_of(text: &str) -> Option<String> {
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.'))?;
    let (number, unit) = text.split_at(end);
    let seconds = TIME_UNITS.iter().find(|(name, _)| *name == unit.trim())?.1;
    let number: f64 = number.contains('.').then(|| number.parse().ok())??;
    Duration::try_from_secs_f64(number * seconds).ok().map(show_duration)
}

/// A duration as people write it: `1h 30m`.
pub(crate) fn show_duration(duration: Duration) -> String {
    let millis = duration.as_millis();
    let parts = [
        (millis / 86_400_000, "d"),
        (millis / 3_600_000 % 24, "h"),
        (millis / 60_000 % 60, "m"),
        (millis / 1_000 % 60, "s"),
        (millis % 1_000, "ms"),
    ];
    let shown: Vec<String> = parts.iter().filter(|(n, _)| *n > 0).map(|(n, unit)| format!("{n}{unit}")).collect();
    if shown.is_empty() { "0s".to_owned() } else { shown.join(" ") }
}

/// Reads a byte size such as `8MiB`; the error is the rule that was broken.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    const FORM: &str = "must be a whole number of bytes with a unit (B, kB, KiB, MB, MiB, GB, GiB), such as \"8MiB\"";
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    if unit.is_empty() && !number.is_empty() {
        return Err(format!("needs a unit: write \"{number}B\" for bytes, or KiB, MiB, GiB"));
    }
    let number: u64 = number.parse().map_err(|_| FORM.to_owned())?;
    let (_, factor) = BYTE_UNITS.iter().find(|(name, _)| *name == unit.trim()).ok_or(FORM)?;
    number.checked_mul(*factor).ok_or_else(|| FORM.to_owned())
}

/// A byte size in the largest unit that says it exactly.
pub(crate) fn show_bytes(bytes: u64) -> String {
    let unit = BYTE_UNITS.iter().find(|(_, factor)| bytes >= *factor && bytes.is_multiple_of(*factor));
    unit.map_or_else(|| "0B".to_owned(), |(name, factor)| format!("{}{name}", bytes / factor))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_are_read_as_people_write_them() {
        for (text, millis) in
            [("30m", 1_800_000), ("1h 30m", 5_400_000), ("1h30m", 5_400_000), ("500ms", 500), ("0s", 0)]
        {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn what_is_not_a_duration_is_answered_with_the_right_form() {
        for (text, answer) in [
            ("30", "write \"30s\""),
            ("1.5h", "write \"1h 30m\""),
            ("0.5 min", "write \"30s\""),
            ("-1s", "negative"),
            ("30M", "'M' where a unit belongs"),
            ("2years", "'years' where a unit belongs"),
            ("5us", "'us' where a unit belongs"),
            ("", "must be a duration"),
            ("m", "must be a duration"),
            ("99999999999999999999d", "must be a duration"),
        ] {
            let error = parse_duration(text).unwrap_err();
            assert!(error.contains(answer), "{text}: {error}");
        }
    }

    #[test]
    fn byte_sizes_need_a_unit() {
        assert_eq!(parse_bytes("8MiB"), Ok(8_388_608));
        assert_eq!(parse_bytes("512 KiB"), Ok(524_288));
        assert_eq!(parse_bytes("1GB"), Ok(1_000_000_000));
        assert_eq!((show_bytes(3_000_000), show_bytes(3 << 20)), ("3MB".to_owned(), "3MiB".to_owned()));
        assert_eq!((show_bytes(0), show_bytes(1_025)), ("0B".to_owned(), "1025B".to_owned()));
        assert!(parse_bytes("8388608").unwrap_err().contains("8388608B"));
        for text in ["", "MiB", "-1MiB", "1.5MiB", "8mib", "99999999999GiB"] {
            assert!(parse_bytes(text).unwrap_err().contains("such as \"8MiB\""), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_reads_back_the_same(millis in 0u64..400_000_000_000, bytes in any::<u64>()) {
            let duration = Duration::from_millis(millis);
            prop_assert_eq!(parse_duration(&show_duration(duration)), Ok(duration));
            prop_assert_eq!(parse_bytes(&show_bytes(bytes)), Ok(bytes));
        }
    }
}
