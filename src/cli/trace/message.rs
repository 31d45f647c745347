//! One message: what became of it, and where it should be now.

use super::Known;
use crate::outbox::decode::micros;
use crate::outbox::trace::{Message, State};
use crate::rule::utc;
use crate::tier::{Kind, Route, RowTimes, Tier};
use crate::words::{age, shown};
use serde::Serialize;
use std::time::{Duration, SystemTime};

/// One message as it is shown.
#[derive(Serialize)]
pub(super) struct MessageView {
    message_id: String,
    tier: String,
    #[serde(rename = "type")]
    kind: Option<String>,
    created_at: String,
    /// When it must reach its consumer; none where only its tier would tell, and that is unknown.
    due_at: Option<String>,
    /// `pending`, `held`, `sent`, `parked` or `cancelled`.
    state: &'static str,
    attempts: i32,
    last_error: Option<String>,
    /// Where it should be now, in words.
    place: String,
}

impl MessageView {
    pub(super) fn of(known: &Known<'_>, message: &Message) -> Self {
        let tier = known.config.tiers.get(&message.tier);
        let due = message.due_at.or_else(|| message.created_at.checked_add(tier?.delay()));
        Self {
            message_id: message.message_id.to_string(),
            tier: message.tier.clone(),
            kind: message.kind.clone(),
            created_at: utc(message.created_at),
            due_at: due.map(utc),
            state: match message.state {
                State::Pending if message.available_at > message.now => "held",
                State::Pending => "pending",
                State::Sent(_) => "sent",
                State::Parked(_) => "parked",
                State::Cancelled(_) => "cancelled",
            },
            attempts: message.attempts,
            last_error: message.last_error.clone(),
            place: place(known, message, tier),
        }
    }

    pub(super) fn text(&self) -> String {
        let kind = self.kind.as_deref().map_or_else(|| "message without type".to_owned(), shown);
        let due = self.due_at.as_ref().map_or_else(|| "due as its tier says".to_owned(), |due| format!("due {due}"));
        let attempts = match self.attempts {
            0 => String::new(),
            attempts => format!(", failed attempts {attempts}"),
        };
        let error = self.last_error.as_ref().map_or_else(String::new, |error| format!("  last: {}\n", shown(error)));
        format!(
            "{kind} in tier {} as {}\n  created {}, {due}{attempts}\n  {}\n{error}",
            shown(&self.tier),
            self.message_id,
            self.created_at,
            self.place
        )
    }
}

fn place(known: &Known<'_>, message: &Message, tier: Option<&Tier>) -> String {
    let (now, available) = (message.now, message.available_at);
    match message.state {
        State::Cancelled(at) => format!("cancelled {}", utc(at)),
        State::Parked(at) => format!("parked {}: out of circulation until somebody requeues it", utc(at)),
        State::Sent(at) => format!("sent {}; {}", utc(at), sent_to(message, tier, at)),
        State::Pending if available > now => format!("held in the outbox until {}", utc(available)),
        State::Pending if tier.is_none() => "in the outbox: relay.toml does not have its tier".to_owned(),
        State::Pending if known.tier_paused(&message.tier).is_some() => "in the outbox: paused".to_owned(),
        State::Pending => {
            let waits = now.duration_since(available).unwrap_or_default();
            format!("in the outbox: it may go since {} ({})", utc(available), age(waits))
        }
    }
}

/// Where the broker should have a message that was marked sent at `at`.
fn sent_to(message: &Message, tier: Option<&Tier>, at: SystemTime) -> String {
    let Some(tier) = tier else { return "relay.toml does not have its tier, and so not its way".to_owned() };
    let times = |now| RowTimes { created_at: micros(message.created_at), due_at: message.due_at.map(micros), now };
    let due = tier.due(&times(0));
    // Overdue, every message goes to the target: that is how its hop is asked for.
    let target = match tier.route(&times(due), message.routing_key.as_deref()) {
        Route::Publish { hop, .. } => hop.to_string(),
        Route::Hold(_) => String::new(),
        Route::Bad(reason) => return reason,
    };
    // It was published just before it was marked. A row that was late for its tier waited for its due time instead.
    let delayed = micros(at) < due;
    match &tier.kind {
        Kind::Queue { delay, queue, .. } if delayed => {
            let until = at + *delay;
            if until > message.now {
                return format!("in delay queue '{}' until {}, then {target}", queue.name, utc(until));
            }
            format!("since {} in {target}, or with whoever consumes it", utc(until))
        }
        Kind::Plugin { exchange, .. } if delayed => {
            let left = Duration::from_micros(u64::try_from(due.saturating_sub(micros(at))).unwrap_or(0));
            format!("kept by the plugin in exchange '{exchange}' until {}, or gone with it", utc(at + left))
        }
        Kind::Queue { .. } | Kind::Direct | Kind::Hold { .. } | Kind::Plugin { .. } => {
            format!("in {target}, or with whoever consumes it")
        }
    }
}
