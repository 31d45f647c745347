//! Telling what became of orders: one log line and one count each.

use super::closing::{Closed, Closing, Kept};
use crate::admin::metrics::Metrics;
use std::time::SystemTime;

/// Reason of an order that could not be closed, beside those of [`super::Kept`].
pub const FAILED: &str = "error";

/// Tells what became of an order, whose `id` breaks no line; `trigger` is the id of the message that it was looked at for, if there was one.
pub(super) fn tell(
    metrics: &Metrics,
    rule: &str,
    by: &'static str,
    id: &str,
    closing: &Closing,
    trigger: Option<&str>,
) {
    match closing {
        Closing::Closed(closed) => tell_closed(metrics, rule, by, (id, closed), trigger),
        Closing::Kept(kept) => {
            let reason = kept.reason();
            let from = if let Kept::Status(status) = kept { Some(status) } else { None };
            metrics.rules.refused(rule, by, reason);
            tracing::info!(
                order = id,
                rule,
                from,
                by,
                reason,
                message_id = trigger,
                "rule {rule}: order {id} is kept: {kept}"
            );
        }
    }
}

fn tell_closed(metrics: &Metrics, rule: &str, by: &'static str, (id, closed): (&str, &Closed), trigger: Option<&str>) {
    let Closed { was, is, message_id, late, .. } = closed;
    metrics.rules.closed(rule, by, *late);
    // A rule without `to` reminds, and whoever reads that an order was closed would look for a fault.
    let done = match is {
        Some(is) if is == was => format!("applied to order {id}"),
        _ => format!("order {id} closed"),
    };
    let message_id = message_id.map(tracing::field::display);
    tracing::info!(order = id, rule, from = was, to = is, by, message_id, trigger, "rule {rule}: {done}");
}

/// The last moment of the year 9999 in seconds, after which a time has no such form.
const LAST: u64 = 253_402_300_799;

/// A moment in UTC, to the millisecond.
pub(crate) fn utc(at: SystemTime) -> String {
    match at.duration_since(SystemTime::UNIX_EPOCH) {
        Err(_) => "before 1970".to_owned(),
        Ok(since) if since.as_secs() > LAST => "after the year 9999".to_owned(),
        Ok(_) => humantime::format_rfc3339_millis(at).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn any_time_of_postgres_can_be_printed() {
        let epoch = SystemTime::UNIX_EPOCH;
        assert_eq!(utc(epoch + Duration::from_millis(1)), "1970-01-01T00:00:00.001Z");
        assert_eq!(utc(epoch - Duration::from_secs(1)), "before 1970");
        assert_eq!(utc(epoch + Duration::from_secs(LAST)), "9999-12-31T23:59:59.000Z");
        assert_eq!(utc(epoch + Duration::from_secs(LAST + 1)), "after the year 9999");
    }
}
