//! `[rule.NAME]`: which orders are overdue, and what happens to them then.

mod action;
mod checks;
mod event;
mod values;

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use super::sections::{Sweep, sweep_every, sweep_grace};
use super::shape::{MAX_AMQP_NAME, choice, duration, list, quote, show_list, text};
use super::table::Table;
use super::tiers::Tiers;
use super::units::show_duration;
use crate::tier::MAX_DELAY;
pub use action::Action;
pub use event::Event;
use values::{expression, moment, pointer, status_text};

/// Longest identifier of Postgres.
const MAX_IDENTIFIER: usize = 63;
/// Longest status, and longest name of a table or function, which may be qualified and quoted.
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
    /// Column with the moment from which `after` counts.
    pub due: String,
    /// Time zone of that column, if it is without one.
    pub time_zone: Option<String>,
    /// How long after `due` an order is overdue, 0 s to 10 years; the delay of `tier` unless set.
    pub after: Duration,
    /// Looks of the closer at an order, the last when it is overdue, all counted from one beginning; empty: that one only.
    pub checks: Vec<Duration>,
    /// What else must hold for an order to be closed: an SQL predicate over its row `o`.
    pub guard: Option<String>,
    /// Orders that were overdue before this moment are left alone.
    pub not_before: Option<SystemTime>,
    /// Whether orders are closed, or only counted.
    pub mode: Mode,
    /// What closing does.
    pub action: Action,
    /// Tier whose messages are about these orders.
    pub tier: Option<String>,
    /// JSON pointer to the order's id in the body of a message that has no key.
    pub id_pointer: Option<String>,
    /// Message that closing writes to the outbox.
    pub event: Option<Event>,
    /// Time from the end of a pass to the next; `sweep.every` unless set.
    pub every: Duration,
    /// How far overdue an order must be; `sweep.grace` unless set.
    pub grace: Duration,
}

/// `mode` of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Orders are closed.
    Enforce,
    /// What would be closed is counted, and nothing is changed.
    Observe,
}

const MODES: [(&str, Mode); 2] = [("enforce", Mode::Enforce), ("observe", Mode::Observe)];

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
    let due = table.required("due", &column, "the column with the moment that `after` counts from");
    let time_zone = table.optional("time_zone", &text(MAX_TEXT));
    let guard = table.optional("guard", &expression());
    let not_before = table.optional("not_before", &moment());
    let mode = table.or(
        "mode",
        Mode::Enforce,
        &choice(&MODES, |mode| {
            MODES.iter().find(|(_, known)| known == mode).map_or_else(String::new, |(name, _)| quote(name))
        }),
    );
    let tier = table.optional("tier", &text(MAX_AMQP_NAME));
    if let Some(rule) = tier.as_deref().and_then(|tier| tiers.unknown(tier)) {
        table.problem("tier", rule);
    }
    let checks = table.optional("checks", &checks::checks()).unwrap_or_default();
    if !checks.is_empty() && tier.is_none() {
        table.problem("checks", CHECKS);
    }
    let after = read_after(&mut table, name, tier.as_deref(), tiers, &checks);
    let id_pointer = table.optional("id_pointer", &pointer());
    let action = action::read(&mut table, [&id, &status], from.as_deref());
    let event = event::read(&mut table, tiers);
    let every = table.or("every", sweep.every, &sweep_every());
    let grace = table.or("grace", sweep.grace, &sweep_grace());
    table.finish();
    Some(Rule {
        table: from_table?,
        id: id?,
        status: status?,
        from: from?,
        due: due?,
        time_zone,
        after: after?,
        checks,
        guard,
        not_before,
        mode,
        action: action?,
        tier,
        id_pointer,
        event,
        every,
        grace,
    })
}

/// `after`, by default the last of the checks, or the delay of the rule's tier, which brings the first look.
fn read_after(
    table: &mut Table<'_>,
    name: &str,
    tier: Option<&str>,
    tiers: &Tiers,
    checks: &[Duration],
) -> Option<Duration> {
    let shape = duration(Duration::ZERO..=MAX_DELAY);
    let delay = tier.and_then(|tier| tiers.built.get(tier)).map(crate::tier::Tier::delay).filter(|d| !d.is_zero());
    if let Some(last) = checks.last() {
        let after = table.or("after", *last, &shape);
        match (checks::first_look(checks, after), delay) {
            (None, _) => table.problem("checks", "must not end after `after`: the last look is when the order is overdue"),
            (Some(first), Some(delay)) if first != delay => table.reader.warnings.push(format!(
                "rule.{name}.checks begin {} after the order, and the delay of its tier is {}: the first look comes then",
                show_duration(first),
                show_duration(delay)
            )),
            _ => {}
        }
        return Some(after);
    }
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

/// Why `checks` alone do nothing.
const CHECKS: &str = "must come with `tier`: the messages of that tier bring the looks, and the sweep closes what is overdue \
    without them; set tier = \"...\" to the tier of the rule's messages, or leave `checks` out";

/// Why `after` is missed.
const AFTER: &str = "how long after `due` an order is overdue; only a rule with a `tier` that delays has a default";
