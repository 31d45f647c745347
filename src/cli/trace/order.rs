//! One order as a rule sees it.

use super::Known;
use crate::outbox::trace::Message;
use crate::rule::utc;
use crate::rule::{Kept, Order, Seen};
use crate::words::{age, shown};
use serde::Serialize;

/// What a rule says of the key.
#[derive(Serialize)]
pub(super) struct OrderView {
    pub(super) rule: String,
    /// Its table has such an order.
    found: bool,
    status: Option<String>,
    /// Since when it is overdue, or when it will be.
    overdue_at: Option<String>,
    /// It would be closed now.
    closes: bool,
    /// Why not, as `duebox_rule_refused_total` has it.
    kept: Option<&'static str>,
    /// Why the rule closes no order at all.
    problem: Option<String>,
    /// Who closed it, if its event is in the outbox.
    closed_by: Option<String>,
    /// The same in words.
    pub(super) text: String,
}

impl OrderView {
    pub(super) fn of(known: &Known<'_>, rule: &str, seen: &Seen) -> Self {
        let table = known.config.rules.get(rule).map_or("", |rule| rule.table.as_str());
        let close = known.closes(rule).last();
        let mut view = Self {
            rule: rule.to_owned(),
            found: false,
            status: None,
            overdue_at: None,
            closes: false,
            kept: None,
            closed_by: close.and_then(|close| close.by.clone()),
            problem: None,
            text: format!("no order of {table} has this id"),
        };
        match seen {
            Seen::Unknown => {}
            Seen::Misfit(reason) => view.text = format!("cannot be asked: {reason}"),
            Seen::Order(order) => {
                view.found = true;
                view.status.clone_from(&order.status);
                view.overdue_at = order.overdue_at.map(utc);
                view.closes = order.kept.is_none() && order.problem.is_none();
                view.kept = order.kept.as_ref().map(Kept::reason);
                view.text = format!("the order in {table} is {}", of_order(known, rule, order));
                view.problem.clone_from(&order.problem);
            }
        }
        let event = known.config.rules.get(rule).and_then(|rule| rule.event.as_ref());
        let closed_status = view.status.as_deref().is_some_and(|status| Some(status) == to(known, rule));
        match close {
            Some(close) => view.text.push_str(&told(known, rule, close)),
            None if closed_status && event.is_some() => view.text.push_str("; no event in the outbox tells by whom"),
            None => {}
        }
        view
    }
}

/// The status of an order that the rule has closed.
fn to<'a>(known: &Known<'a>, rule: &str) -> Option<&'a str> {
    known.config.rules.get(rule)?.action.to()
}

/// Whether the rule is through with an order that has left `from`: by its status, or because its event says so.
fn is_done(known: &Known<'_>, rule: &str, order: &Order) -> bool {
    let closes = known.config.rules.get(rule).is_some_and(|rule| rule.action.closes());
    to(known, rule).is_some_and(|to| order.status.as_deref() == Some(to))
        || closes && known.closes(rule).next().is_some()
}

fn of_order(known: &Known<'_>, rule: &str, order: &Order) -> String {
    let status = order.status.as_deref().unwrap_or("null");
    let due = match order.overdue_at {
        None => "due at no finite time".to_owned(),
        Some(at) => match order.now.duration_since(at) {
            Ok(late) => format!("overdue since {} ({})", utc(at), age(late)),
            Err(early) => format!("not overdue before {} (in {})", utc(at), age(early.duration())),
        },
    };
    let would = match known.config.rules.get(rule) {
        Some(rule) if !rule.action.closes() => "the rule would be applied now",
        _ => "it would be closed now",
    };
    let then = match &order.kept {
        None if order.problem.is_some() => format!("{would}, but the rule has a problem"),
        None => would.to_owned(),
        Some(Kept::Status(_)) if is_done(known, rule, order) => return shown(status),
        Some(Kept::Status(_)) => "the rule leaves it alone: that status is none of its `from`".to_owned(),
        Some(Kept::Early { .. }) => "until then it is left alone".to_owned(),
        Some(kept) => format!("it is left alone: {kept}"),
    };
    match &order.kept {
        // Whether it was overdue is nobody's question any more.
        Some(Kept::Status(_)) => format!("{}; {then}", shown(status)),
        _ => format!("{}, {due}; {then}", shown(status)),
    }
}

/// What its event tells.
fn told(known: &Known<'_>, rule: &str, event: &Message) -> String {
    let by = event.by.as_deref().map_or_else(String::new, |by| format!(" by the {}", shown(by)));
    let done = if known.config.rules.get(rule).is_none_or(|rule| rule.action.closes()) { "closed" } else { "applied" };
    format!("; {done}{by} {}, told in message {}", utc(event.created_at), event.message_id)
}
