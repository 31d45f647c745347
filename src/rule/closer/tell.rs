//! What became of a message, in the log and in metrics: one line for each that is done with.

use super::{BY, Closer, Work};
use crate::rule::closing::{Closing, Kept};
use crate::rule::port::Receipt;
use crate::rule::tell::{self, utc};
use crate::words::{shown, shown_short};
use std::time::SystemTime;
use uuid::Uuid;

impl<R: Receipt> Closer<R> {
    /// The order was closed, or is left as it is, and nothing more is done about its message.
    pub(super) fn tell(&self, work: &Work<R>, rule: &str, id: &str, closing: &Closing) {
        tell::tell(&self.metrics, rule, BY, &shown_short(id), closing, work.delivery.message_id.as_deref());
    }

    /// Counts an order that is left as it is for now.
    pub(super) fn count(&self, rule: &str, kept: &Kept) {
        self.metrics.rules.refused(rule, BY, kept.reason());
    }

    /// The message is held in the outbox.
    pub(super) fn tell_held(&self, work: &Work<R>, rule: &str, id: &str, kept: &Kept, until: Option<SystemTime>) {
        let (id, reason, message_id) = (shown_short(id), kept.reason(), work.delivery.message_id.as_deref());
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
            "rule {rule}: the message of order {id} is held in the outbox: {kept}"
        );
    }

    /// The message was parked, as the row `parked`.
    pub(super) fn tell_parked(&self, work: &Work<R>, rule: Option<&str>, id: Option<&str>, reason: &str, parked: Uuid) {
        let (queue, message_id) = (work.delivery.queue.as_str(), work.delivery.message_id.as_deref());
        // The database quotes what it does not take.
        let reason = shown(&reason.chars().take(MAX_LOGGED).collect::<String>());
        self.metrics.closer.parked(queue);
        tracing::warn!(
            order = id.map(shown_short),
            rule,
            by = BY,
            message_id,
            %parked,
            "a message of queue '{queue}' was parked, as {parked}: {reason}"
        );
    }
}

/// Longest part of a reason that is logged; the row has more of it.
const MAX_LOGGED: usize = 500;
