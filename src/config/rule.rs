//! `[rule.NAME]`: which orders are overdue, and what happens to them then.

use std::collections::BTreeMap;
use std::time::Duration;

use super::sections::{Sweep, sweep_every, sweep_grace};
use super::shape::{MAX_AMQP_NAME, Raw, Shape, duration, list, quote, text};
use super::table::Table;
use super::tiers::Tiers;
use super::units::show_duration;
use crate::tier::{MAX_DELAY, Target};

/// Longest identifier of Postgres.
const MAX_IDENTIFIER: usize = 63;
/// Longest status and table name; the latter may be qualified and quoted.
const MAX_TEXT: usize = 255;

/// `[rule.NAME]`: which orders are overdue, and what happens to them then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// The orders' table, qualified unless it is on the search path.
    pub table: String,
    /// Column that identifies an order.
    pub id: String,
    /// Column with the status.
    pub status: String,
    /// Statuses of an order that may be closed.
    pub from: Vec<String>,
    /// Status that closing sets; none of `from`.
    pub to: String,
    /// Column with the moment from which `after` counts.
    pub due: String,
    /// How long after `due` an order is overdue, 0 s to 10 years; the delay of `tier` unless set.
    pub after: Duration,
    /// Tier whose messages are about these orders.
    pub tier: Option<String>,
    /// Message that closing writes to the outbox.
    pub event: Option<Event>,
    /// Time from the end of a pass to the next; `sweep.every` unless set.
    pub every: Duration,
    /// How far overdue an order must be; `sweep.grace` unless set.
    pub grace: Duration,
}

/// `event` of a rule: the message that closing writes to the outbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Its tier.
    pub tier: String,
    /// Its AMQP type; the key is `type`.
    pub type_: String,
    /// Its routing key, set exactly where the target of the tier has none.
    pub routing_key: Option<String>,
}

/// Reads all rules; those with a problem are left out.
pub(crate) fn read_rules(rules: Table<'_>, tiers: &Tiers, sweep: &Sweep) -> BTreeMap<String, Rule> {
    let mut read = BTreeMap::new();
    rules.drain_tables(|table, name| {
        let rule = read_rule(table, name, tiers, sweep);
        read.extend(rule.map(|rule| (name.to_owned(), rule)));
    });
    read
}

/// Reads one rule; `None` after a problem, which is noted.
fn read_rule(mut table: Table<'_>, name: &str, tiers: &Tiers, sweep: &Sweep) -> Option<Rule> {
    super::tiers::check_name(&mut table, name);
    let column = text(MAX_IDENTIFIER);
    let from_table = table.required("table", &text(MAX_TEXT), "the orders' table, such as \"public.orders\"");
    let id = table.required("id", &column, "the column that identifies an order");
    let status = table.required("status", &column, "the column with the status");
    let from = table.required("from", &list(status_text(), |all| show_list(all)), "the statuses that may be closed");
    let to = table.required("to", &status_text(), "the status that closing sets");
    let due = table.required("due", &column, "the column with the moment that `after` counts from");
    let tier = table.optional("tier", &text(MAX_AMQP_NAME));
    if let Some(rule) = tier.as_deref().and_then(|tier| tiers.unknown(tier)) {
        table.problem("tier", rule);
    }
    let after = read_after(&mut table, name, tier.as_deref(), tiers);
    let event = read_event(&mut table, tiers);
    let every = table.or("every", sweep.every, &sweep_every());
    let grace = table.or("grace", sweep.grace, &sweep_grace());
    if let (Some(from), Some(to)) = (&from, &to)
        && from.contains(to)
    {
        table.problem("to", "must not be one of `from`: closing would have to be done again for ever");
    }
    table.finish();
    let (table, id, status) = (from_table?, id?, status?);
    Some(Rule { table, id, status, from: from?, to: to?, due: due?, after: after?, tier, event, every, grace })
}

/// A status: a text, or a whole number for a column of numbers.
fn status_text() -> Shape<String> {
    let shape = text(MAX_TEXT);
    Shape::new(
        |status| quote(status),
        move |raw: &Raw<'_>| match raw.whole() {
            Some(number) if !raw.env => Ok(number.to_string()),
            _ => (shape.read)(raw),
        },
    )
}

/// A list of texts as TOML.
fn show_list(all: &[String]) -> String {
    format!("[{}]", all.iter().map(|one| quote(one)).collect::<Vec<_>>().join(", "))
}

/// `after`, by default the delay of the rule's tier.
fn read_after(table: &mut Table<'_>, name: &str, tier: Option<&str>, tiers: &Tiers) -> Option<Duration> {
    let shape = duration(Duration::ZERO..=MAX_DELAY);
    let delay = tier.and_then(|tier| tiers.built.get(tier)).map(crate::tier::Tier::delay).filter(|d| !d.is_zero());
    let Some(delay) = delay else {
        // A tier with problems of its own has a delay that is not known yet: no second problem for that.
        let broken = tier.is_some_and(|tier| !tiers.built.contains_key(tier));
        return if broken { table.optional("after", &shape) } else { table.required("after", &shape, AFTER) };
    };
    let after = table.or("after", delay, &shape);
    if after != delay {
        table.reader.warnings.push(format!(
            "rule.{name}.after is {}, and the delay of its tier is {}: messages and sweep disagree about what is overdue",
            show_duration(after),
            show_duration(delay)
        ));
    }
    Some(after)
}

/// Why `after` is missed.
const AFTER: &str = "how long after `due` an order is overdue; only a rule with a `tier` that delays has a default";

/// `event`, with its tier checked.
fn read_event(table: &mut Table<'_>, tiers: &Tiers) -> Option<Event> {
    let mut table = table.table("event")?;
    let tier = table.required("tier", &text(MAX_AMQP_NAME), "the tier that the message goes to");
    let type_ = table.required("type", &text(MAX_AMQP_NAME), "the AMQP type, such as \"order.closed\"");
    let routing_key = table.optional("routing_key", &text(MAX_AMQP_NAME));
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
    Some(Event { tier: tier?, type_: type_?, routing_key })
}
