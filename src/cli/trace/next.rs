//! What to do next, in one line.

use super::super::pause::told;
use super::{Known, promise};
use crate::outbox::trace::{Message, State};
use crate::rule::{Kept, Order, Seen, holders, utc};
use crate::tier;
use crate::words::{age, shown};
use std::time::Duration;

/// How long a row may wait before that is worth a look.
const SOON: Duration = Duration::from_secs(10);

/// The first thing that keeps the order from its end; what only somebody can mend goes before what mends itself.
pub(super) fn next(known: &Known<'_>) -> String {
    if known.nothing() {
        return nothing(known);
    }
    let messages = &known.messages.messages;
    None.or_else(|| parked(known))
        .or_else(|| messages.iter().find_map(|message| unknown_tier(known, message)))
        .or_else(|| messages.iter().find_map(|message| paused(known, message)))
        .or_else(|| known.orders.iter().find_map(|(rule, seen)| order_paused(known, rule, seen)))
        .or_else(|| messages.iter().find_map(refused))
        .or_else(|| messages.iter().find_map(waits))
        .or_else(|| known.orders.iter().find_map(|(rule, seen)| broken(rule, seen)))
        .or_else(|| promise::broken(known))
        .or_else(|| known.orders.iter().find_map(|(rule, seen)| locked(known, rule, seen)))
        .or_else(|| known.orders.iter().find_map(|(rule, seen)| misfit(rule, seen)))
        .or_else(|| messages.iter().find_map(|message| unheard(known, message)))
        .or_else(|| promise::overdue(known))
        .or_else(|| promise::early(known))
        .unwrap_or_else(|| "nothing to do".to_owned())
}

fn nothing(known: &Known<'_>) -> String {
    if known.config.rules.is_empty() {
        return "is the key right? relay.toml has no rule that would name a table of orders to look in".to_owned();
    }
    match known.orders.iter().find_map(|(rule, seen)| misfit(rule, seen)) {
        Some(misfit) => misfit,
        None => "is the key right? whoever writes the order writes its id as the key".to_owned(),
    }
}

fn parked(known: &Known<'_>) -> Option<String> {
    let parked = known.messages.messages.iter().filter(|message| matches!(message.state, State::Parked(_)));
    let ids: Vec<String> = parked.map(|message| format!("'{}'::uuid", message.message_id)).collect();
    let schema = &known.config.postgres.schema;
    let requeue = |id: &String| format!("select {schema}.requeue({id});");
    let calls = ids.iter().map(requeue).collect::<Vec<_>>().join(" ");
    (!ids.is_empty()).then(|| format!("cure what its last error says, then: {calls}"))
}

fn pending(message: &Message) -> bool {
    message.state == State::Pending
}

fn unknown_tier(known: &Known<'_>, message: &Message) -> Option<String> {
    let tiers = &known.config.tiers;
    if !pending(message) || tiers.contains_key(&message.tier) {
        return None;
    }
    let known: Vec<&str> = tiers.keys().map(String::as_str).collect();
    Some(format!(
        "unknown tier: relay.toml has no '{}'; add the tier, unless another relay.toml on this schema has it, or cancel message {} and enqueue it again; {}",
        shown(&message.tier),
        message.message_id,
        tier::hint("the application", &message.tier, &known)
    ))
}

fn paused(known: &Known<'_>, message: &Message) -> Option<String> {
    let pause = known.tier_paused(&message.tier).filter(|_| pending(message))?;
    Some(format!("paused: {}; when that is over: duebox resume {}", told(pause), shown(&pause.what)))
}

/// A pause that keeps an overdue order open. A paused closer alone does not: the sweep finds the order.
fn order_paused(known: &Known<'_>, rule: &str, seen: &Seen) -> Option<String> {
    let Seen::Order(Order { kept: Some(Kept::Paused | Kept::AskerPaused), .. }) = seen else { return None };
    let pause = known.paused(&format!("rule {rule}")).or_else(|| known.paused("sweep"))?;
    Some(format!("paused: {}; when that is over: duebox resume {}", told(pause), shown(&pause.what)))
}

fn waits(message: &Message) -> Option<String> {
    let waits = message.now.duration_since(message.available_at).ok()?;
    (pending(message) && waits > SOON).then(|| {
        format!("message {} may go for {} and does not: duebox status says why", message.message_id, age(waits))
    })
}

/// A row that the broker did not take, and that is tried again.
fn refused(message: &Message) -> Option<String> {
    let error = message.last_error.as_deref().filter(|_| pending(message))?;
    let (id, held) = (message.message_id, message.available_at > message.now);
    // One that was requeued has its last error still, and all its attempts again.
    let again = match held {
        true => format!("at {}", utc(message.available_at)),
        false if message.attempts > 0 => "now".to_owned(),
        false => return None,
    };
    Some(format!("cure what the last error of message {id} says ({}); it is tried again {again}", shown(error)))
}

/// A row that somebody has to take, and nobody is there.
fn unheard(known: &Known<'_>, message: &Message) -> Option<String> {
    let nobody = promise::nobody(known).filter(|_| pending(message))?;
    Some(format!("message {} goes when a relay runs; {nobody}", message.message_id))
}

/// A rule that looks at an order and cannot close it: nothing is to be promised of it.
fn broken(rule: &str, seen: &Seen) -> Option<String> {
    let Seen::Order(Order { kept: None | Some(Kept::Early { .. }), problem: Some(problem), .. }) = seen else {
        return None;
    };
    Some(format!("rule {rule} is applied to no order before this is mended: {problem}"))
}

fn locked(known: &Known<'_>, rule: &str, seen: &Seen) -> Option<String> {
    let Seen::Order(Order { kept: Some(Kept::Locked), .. }) = seen else { return None };
    let who = holders(&known.config.rules.get(rule)?.table);
    Some(format!("the order is overdue and is closed when whoever has it locked lets it go; {who}"))
}

fn misfit(rule: &str, seen: &Seen) -> Option<String> {
    let Seen::Misfit(_) = seen else { return None };
    Some(format!("rule {rule} cannot be applied: duebox check --connect says what to mend"))
}
