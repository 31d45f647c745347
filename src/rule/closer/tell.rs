//! What became of a message, in the log and in metrics: one line for each that is done with.

use super::{BY, Closer, Work};
use crate::rule::closing::{Closing, Kept};
use crate::rule::port::Receipt;
use crate::rule::tell::{self, utc};
use std::time::SystemTime;
use uuid::Uuid;

impl<R: Receipt> Closer<R> {
    /// The order was closed, or is left as it is, and nothing more is done about its message.
    pub(super) fn tell(&self, work: &Work<R>, rule: &str, id: &str, closing: &Closing) {
        tell::tell(&self.metrics, rule, BY, &shown(id), closing, work.delivery.message_id.as_deref());
    }

    /// Counts an order that is left as it is for now.
    pub(super) fn count(&self, rule: &str, kept: &Kept) {
        self.metrics.rules.refused(rule, BY, kept.reason());
    }

    /// The message was given back to the outbox.
    pub(super) fn tell_put_off(&self, work: &Work<R>, rule: &str, id: &str, kept: &Kept, until: Option<SystemTime>) {
        let (id, reason, message_id) = (shown(id), kept.reason(), work.delivery.message_id.as_deref());
        self.count(rule, kept);
        self.metrics.closer.put_off(&work.delivery.queue);
        let until = until.map(utc);
        tracing::info!(
            order = id,
            rule,
            by = BY,
            reason,
            message_id,
            until,
            "rule {rule}: the message of order {id} waits in the outbox: {kept}"
        );
    }

    /// The message was parked, as the row `parked`.
    pub(super) fn tell_parked(&self, work: &Work<R>, rule: Option<&str>, id: Option<&str>, reason: &str, parked: Uuid) {
        let (queue, message_id) = (work.delivery.queue.as_str(), work.delivery.message_id.as_deref());
        // The database quotes what it does not take.
        let reason: String = reason.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_REASON).collect();
        self.metrics.closer.parked(queue);
        tracing::warn!(
            order = id.map(shown),
            rule,
            by = BY,
            message_id,
            %parked,
            "a message of queue '{queue}' was parked, as {parked}: {reason}"
        );
    }
}

/// Longest part of a reason that is logged; the row has more of it.
const MAX_REASON: usize = 500;

/// Longest part of an id that is shown.
const MAX_SHOWN: usize = 100;

/// An id as it may stand in the log: anybody who may publish to the queue may have chosen it.
pub(super) fn shown(id: &str) -> String {
    let (mut shown, mut rest) = (String::new(), id.chars());
    shown.extend(rest.by_ref().take(MAX_SHOWN).flat_map(char::escape_debug));
    if rest.next().is_some() {
        shown.push_str("...");
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::shown;

    #[test]
    fn an_id_brings_no_line_of_its_own_into_the_log() {
        assert_eq!(shown("A-7"), "A-7");
        assert_eq!(shown("1\nWARN\u{1b}[0m"), "1\\nWARN\\u{1b}[0m");
        assert_eq!(shown(&"7".repeat(5_000)).len(), 103);
    }
}
