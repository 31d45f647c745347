//! The delay queue of a tier: its name, its arguments, and the way into it.

use std::time::Duration;

use super::shape::{MAX_AMQP_NAME, Raw, choice, quote, text, text_or_empty, whole};
use super::table::{Entry, Table, dotted};
use crate::tier::{Argument, Arguments, DelayQueue, Hop, Target, delay_queue_name};

/// The keys of a tier that say something about its delay queue.
pub(crate) const QUEUE_KEYS: [&str; 7] =
    ["late_tolerance", "queue", "exchange", "routing_key", "queue_type", "max_length", "arguments"];

/// The broker's types of queue that can delay.
#[derive(Clone, Copy, PartialEq, Eq)]
enum QueueType {
    Quorum,
    Classic,
}

/// Reads what a tier says about its delay queue; `None` where that cannot be said yet. `theirs`: one that is named is
/// the user's, and has the arguments that it has.
pub(crate) fn read_delay_queue(
    table: &mut Table<'_>,
    tier: &str,
    delay: Option<Duration>,
    target: Option<&Target>,
    theirs: bool,
) -> Option<DelayQueue> {
    let theirs = theirs && table.has("queue");
    let name = text(MAX_AMQP_NAME);
    let queue = table.optional("queue", &name);
    let exchange = table.optional("exchange", &name);
    let routing_key = table.optional("routing_key", &text_or_empty(MAX_AMQP_NAME));
    let types = choice(&[("quorum", QueueType::Quorum), ("classic", QueueType::Classic)], |kind| match kind {
        QueueType::Quorum => quote("quorum"),
        QueueType::Classic => quote("classic"),
    });
    let queue_type = if theirs {
        table.optional("queue_type", &types)
    } else {
        Some(table.or("queue_type", QueueType::Quorum, &types))
    };
    let max_length = table.optional("max_length", &whole::<i64>(1..=1_000_000_000));
    let extra = read_arguments(table, theirs);
    if exchange.is_some() && (queue.is_none() || routing_key.is_none()) {
        table.problem("exchange", "must come with the queue behind it and the routing_key that leads there");
    }
    if exchange.is_none() && routing_key.is_some() {
        table.problem("routing_key", "must not be set without an exchange");
    }
    let mut arguments = own_arguments(delay?, queue_type, &dead_letter(target?)?, theirs);
    arguments.extend(max_length.map(|length| ("x-max-length".to_owned(), Argument::Int(length))));
    arguments.extend(extra);
    let name = queue.unwrap_or_else(|| delay_queue_name(tier, delay.unwrap_or_default(), &arguments));
    let hop = match (exchange, routing_key) {
        (Some(exchange), Some(routing_key)) => Hop { exchange, routing_key },
        _ => Hop::queue(&name),
    };
    Some(DelayQueue { name, arguments, hop })
}

/// Where the broker takes a message when its time has come; `None` for a target without a fixed way.
fn dead_letter(target: &Target) -> Option<Hop> {
    match target {
        Target::Queue(queue) => Some(Hop::queue(queue)),
        Target::Exchange { exchange, routing_key, .. } => {
            routing_key.as_ref().map(|key| Hop { exchange: exchange.clone(), routing_key: key.clone() })
        }
    }
}

/// The arguments that make a queue a delay queue, and of one that is ours those that make it a safe one.
fn own_arguments(delay: Duration, queue_type: Option<QueueType>, dead_letter: &Hop, theirs: bool) -> Arguments {
    let text = |value: &str| Argument::Text(value.to_owned());
    let mut arguments = Arguments::from([
        ("x-message-ttl".to_owned(), Argument::Int(i64::try_from(delay.as_millis()).unwrap_or(i64::MAX))),
        ("x-dead-letter-exchange".to_owned(), text(&dead_letter.exchange)),
        ("x-dead-letter-routing-key".to_owned(), text(&dead_letter.routing_key)),
    ]);
    if let Some(queue_type) = queue_type {
        let name = if queue_type == QueueType::Quorum { "quorum" } else { "classic" };
        arguments.insert("x-queue-type".to_owned(), text(name));
    }
    if theirs {
        return arguments;
    }
    // A full queue refuses, and the row stays where it is; the broker's default drops the oldest message.
    arguments.insert("x-overflow".to_owned(), text("reject-publish"));
    if queue_type == Some(QueueType::Quorum) {
        // Only with x-overflow=reject-publish: without it the broker falls back to at-most-once and says nothing.
        arguments.insert("x-dead-letter-strategy".to_owned(), text("at-least-once"));
    }
    arguments
}

/// `arguments`: what the user's own queue was declared with beside that.
fn read_arguments(table: &mut Table<'_>, theirs: bool) -> Arguments {
    let mut arguments = Arguments::new();
    let Some(table) = table.table("arguments") else { return arguments };
    table.drain(|reader, path, key, raw| {
        let origin = reader.origin(path);
        match read_argument(key, &raw, theirs) {
            Ok(argument) => {
                let value = match &argument {
                    Argument::Text(text) => quote(text),
                    Argument::Int(_) | Argument::Bool(_) => argument.to_string(),
                };
                let section = path[..path.len() - 1].to_vec();
                reader.entries.push(Entry { section, key: key.to_owned(), value: Some(value), origin });
                arguments.insert(key.to_owned(), argument);
            }
            Err(rule) => {
                let (key, value) = (dotted(path), Some(raw.show()));
                reader.problems.push(super::Problem { key, value, rule, origin });
            }
        }
    });
    arguments
}

/// One argument, unless it would undo what makes the queue a delay queue.
fn read_argument(key: &str, raw: &Raw<'_>, theirs: bool) -> Result<Argument, String> {
    if raw.env {
        return Err("must be set in the file: a variable has neither the case nor the type of an argument".to_owned());
    }
    match key {
        "x-expires" => Err("must not be set: it would delete the queue together with its messages".to_owned()),
        "x-message-ttl" => Err("must not be set: `delay` sets it".to_owned()),
        "x-queue-type" => Err("must not be set: `queue_type` sets it".to_owned()),
        "x-max-length" => Err("must not be set: `max_length` sets it".to_owned()),
        "x-overflow" if !theirs => Err("must not be set: only reject-publish loses nothing".to_owned()),
        "x-dead-letter-strategy" if theirs => read_any(raw),
        _ if key.starts_with("x-dead-letter-") => Err("must not be set: `target` sets it".to_owned()),
        _ if key.len() > MAX_AMQP_NAME => Err(format!("must have a name of at most {MAX_AMQP_NAME} bytes")),
        _ => read_any(raw),
    }
}

fn read_any(raw: &Raw<'_>) -> Result<Argument, String> {
    let whole = raw.whole().and_then(|n| i64::try_from(n).ok()).map(Argument::Int);
    let other = || raw.text().map(|text| Argument::Text(text.to_owned()));
    whole
        .or_else(other)
        .or_else(|| raw.boolean().map(Argument::Bool))
        .ok_or_else(|| "must be a text, a whole number, true or false".to_owned())
}
