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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_peoples_texts_stay_on_their_line() {
        assert_eq!(shown("a\nb\x1b[2J \"ü\""), "a\\nb\\u{1b}[2J \"ü\"");
    }
}
