//! `event` of a rule: the message that closing writes to the outbox.

use super::super::shape::{MAX_AMQP_NAME, text};
use super::super::table::Table;
use super::super::tiers::Tiers;
use super::values::expression;
use crate::tier::Target;

/// `event` of a rule: the message that closing writes to the outbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Its tier.
    pub tier: String,
    /// Its AMQP type; the key is `type`.
    pub type_: String,
    /// Its routing key, set exactly where the target of the tier has none.
    pub routing_key: Option<String>,
    /// Its payload, an SQL expression over the closed order's row `o`; id, rule, statuses and times unless set.
    pub payload: Option<String>,
}

/// `event`, with its tier checked.
pub(super) fn read(table: &mut Table<'_>, tiers: &Tiers) -> Option<Event> {
    let mut table = table.table("event")?;
    let tier = table.required("tier", &text(MAX_AMQP_NAME), "the tier that the message goes to");
    let type_ = table.required("type", &text(MAX_AMQP_NAME), "the AMQP type, such as \"order.closed\"");
    let routing_key = table.optional("routing_key", &text(MAX_AMQP_NAME));
    let payload = table.optional("payload", &expression());
    if let Some(rule) = tier.as_deref().and_then(|tier| tiers.unknown(tier)) {
        table.problem("tier", rule);
    }
    let target = tier.as_ref().and_then(|tier| tiers.built.get(tier)).map(|tier| &tier.target);
    let keyless = target.map(|target| matches!(target, Target::Exchange { routing_key: None, .. }));
    match (keyless, &routing_key) {
        (Some(true), None) => {
            table.problem("routing_key", "must be set: the target of its tier is an exchange without a key");
        }
        (Some(false), Some(_)) => {
            table.problem("routing_key", "must not be set: the target of its tier has a fixed way");
        }
        _ => {}
    }
    table.finish();
    Some(Event { tier: tier?, type_: type_?, routing_key, payload })
}
