//! Spans and other people's texts as commands and pages print them.

use std::time::Duration;

/// A span, in whole seconds.
pub(crate) fn age(age: Duration) -> String {
    humantime::format_duration(Duration::from_secs(age.as_secs())).to_string()
}

/// A text of somebody else's, which breaks no line and commands no terminal.
pub(crate) fn shown(text: &str) -> String {
    let one = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(one).collect()
}

/// Longest part of such a text that stands in a line of the log.
const SHORT: usize = 100;

/// The beginning of one that may be as long as its author likes.
pub(crate) fn shown_short(text: &str) -> String {
    let short: String = text.chars().take(SHORT).collect();
    shown(&short) + if short.len() < text.len() { "..." } else { "" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut() {
        assert_eq!((shown_short("A-7"), shown_short("1\nWARN")), ("A-7".to_owned(), "1\\nWARN".to_owned()));
        assert_eq!(shown_short(&"7".repeat(5_000)).len(), 103);
    }

    #[test]
    fn other_peoples_texts_stay_on_their_line() {
        assert_eq!(shown("a\nb\x1b[2J \"ü\""), "a\\nb\\u{1b}[2J \"ü\"");
    }
}
