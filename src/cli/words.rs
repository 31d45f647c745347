//! Times, spans and other people's texts as the commands print them.

use std::time::{Duration, SystemTime};

/// The last moment of the year 9999 in seconds, after which a time has no such form.
const LAST: u64 = 253_402_300_799;

/// A moment in UTC, to the millisecond.
pub(super) fn utc(at: SystemTime) -> String {
    match at.duration_since(SystemTime::UNIX_EPOCH) {
        Err(_) => "before 1970".to_owned(),
        Ok(since) if since.as_secs() > LAST => "after the year 9999".to_owned(),
        Ok(_) => humantime::format_rfc3339_millis(at).to_string(),
    }
}

/// A span, in whole seconds.
pub(super) fn age(age: Duration) -> String {
    humantime::format_duration(Duration::from_secs(age.as_secs())).to_string()
}

/// A text of somebody else's, which breaks no line and commands no terminal.
pub(super) fn shown(text: &str) -> String {
    let one = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_time_of_postgres_can_be_printed() {
        let epoch = SystemTime::UNIX_EPOCH;
        assert_eq!(utc(epoch + Duration::from_millis(1)), "1970-01-01T00:00:00.001Z");
        assert_eq!(utc(epoch - Duration::from_secs(1)), "before 1970");
        assert_eq!(utc(epoch + Duration::from_secs(LAST)), "9999-12-31T23:59:59.000Z");
        assert_eq!(utc(epoch + Duration::from_secs(LAST + 1)), "after the year 9999");
    }

    #[test]
    fn other_peoples_texts_stay_on_their_line() {
        assert_eq!(shown("a\nb\x1b[2J \"ü\""), "a\\nb\\u{1b}[2J \"ü\"");
    }
}
