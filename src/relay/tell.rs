//! What the log says of single rows: every verdict but `sent`, with `key` and `message_id`, and never a payload.

use super::{Fate, Outgoing};
use crate::message::Row;
use crate::tier::Tier;
use crate::verdict::Verdict;
use std::collections::HashMap;

/// One line for each row that was decided without publishing; holding is daily business, parking is not.
pub(super) fn log_decided(tier: &Tier, rows: &[Row], fates: &[(i64, Fate)]) {
    let by_id: HashMap<i64, &Row> = rows.iter().map(|row| (row.id, row)).collect();
    for (id, fate) in fates {
        let Some(row) = by_id.get(id) else { continue };
        let (message_id, key) = (row.message_id, row.key.as_deref().unwrap_or_default());
        match fate {
            Fate::Parked { reason, .. } => {
                tracing::warn!(tier = tier.name, %message_id, key, verdict = "bad", "parked {message_id}: {reason}");
            }
            Fate::Later { until, .. } => {
                tracing::debug!(tier = tier.name, %message_id, key, verdict = "held", until, "held {message_id}");
            }
            Fate::Sent => {}
        }
    }
}

/// One line for each message that was not sent. What is not the row's fault is summed up elsewhere, so only at debug.
pub(super) fn log_verdict(out: &Outgoing<'_>, verdict: &Verdict, fate: &Fate) {
    let tier = &out.message.tier;
    let (message_id, key) = (out.message.message_id, out.message.key.as_deref().unwrap_or_default());
    match verdict {
        Verdict::Sent => {}
        Verdict::Unroutable(reason) => match fate {
            Fate::Parked { reason, .. } => {
                tracing::warn!(tier, %message_id, key, verdict = "unroutable", "parked {message_id}: {reason}");
            }
            Fate::Sent | Fate::Later { .. } => {
                tracing::warn!(tier, %message_id, key, verdict = "unroutable", "unroutable {message_id}: {reason}");
            }
        },
        Verdict::Bad(reason) => {
            tracing::warn!(tier, %message_id, key, verdict = "bad", "parked {message_id}: {reason}");
        }
        Verdict::Refused(reason) => {
            tracing::debug!(tier, %message_id, key, verdict = "refused", "refused {message_id}: {reason}");
        }
        Verdict::HopTrouble(reason) => {
            tracing::debug!(tier, %message_id, key, verdict = "hop trouble", "refused {message_id}: {reason}");
        }
    }
}

/// One line for a row that got no answer although it was alone.
pub(super) fn log_alone(tier: &Tier, row: &Row, fate: &Fate) {
    let (message_id, key) = (row.message_id, row.key.as_deref().unwrap_or_default());
    match fate {
        Fate::Parked { reason, .. } => {
            tracing::warn!(tier = tier.name, %message_id, key, verdict = "unanswered", "parked {message_id}: {reason}");
        }
        Fate::Later { counted, reason, .. } => {
            let reason = reason.as_deref().unwrap_or_default();
            let text = if *counted { "a failed attempt of" } else { "no answer for" };
            tracing::warn!(tier = tier.name, %message_id, key, verdict = "unanswered", "{text} {message_id}: {reason}");
        }
        Fate::Sent => {}
    }
}
