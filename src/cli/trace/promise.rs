//! What may be promised of an order to which a rule applies, or will: nothing that is past, and nothing that nobody is there to
//! do.

use super::Known;
use crate::config::{Mode, Rule, Wake};
use crate::rule::{Kept, Order, Seen, utc};
use crate::words::age;
use std::time::{Duration, SystemTime};

/// How much longer than its time a sweep may take before that is worth a look.
const LATE: Duration = Duration::from_secs(60);

/// An order to which a rule applies now.
struct Overdue<'a> {
    name: &'a str,
    rule: &'a Rule,
    /// For how long it does.
    late: Duration,
}

impl Overdue<'_> {
    /// Within this time of when it was overdue the sweep finds it.
    fn within(&self) -> Duration {
        self.rule.every + self.rule.grace
    }
}

fn all<'a>(known: &'a Known<'_>) -> impl Iterator<Item = Overdue<'a>> {
    known.orders.iter().filter_map(|(name, seen)| {
        let Seen::Order(Order { kept: None, overdue_at: Some(at), now, .. }) = seen else { return None };
        Some(Overdue { name, rule: known.config.rules.get(*name)?, late: now.duration_since(*at).unwrap_or_default() })
    })
}

/// Why nothing is to be expected of any relay. One that polls is not seen.
pub(super) fn nobody(known: &Known<'_>) -> Option<&'static str> {
    let listens = known.config.outbox.wake == Wake::Notify;
    (listens && known.sweeps.relays == Some(0)).then_some("no relay listens now: does a relay run? duebox status")
}

/// Why nothing is to be expected of the sweep of a rule.
fn no_sweep(known: &Known<'_>, name: &str, rule: &Rule) -> Option<String> {
    if !known.config.sweep.enabled {
        return Some("no sweep runs here: [sweep] enabled = false".to_owned());
    }
    if let Some(nobody) = nobody(known) {
        return Some(nobody.to_owned());
    }
    match known.sweeps.ended.get(name) {
        None => Some("its sweep has not run yet: does a relay run? duebox status".to_owned()),
        Some(ago) if *ago > rule.every + LATE => {
            Some(format!("its sweep has not run for {}: does a relay run? duebox status", age(*ago)))
        }
        Some(_) => None,
    }
}

/// An order that somebody has to see to, the one that waits for longest of all that a rule may be late with.
pub(super) fn broken(known: &Known<'_>) -> Option<String> {
    let missed = all(known).filter_map(|order| {
        let why = match no_sweep(known, order.name, order.rule) {
            Some(why) => why,
            None if order.late < order.within() + LATE => return None,
            None => "its sweep runs: duebox status and the log say why".to_owned(),
        };
        Some((order, why))
    });
    let (Overdue { name, rule, .. }, why) =
        missed.max_by_key(|(order, _)| order.late.saturating_sub(order.within()))?;
    let done = if rule.action.closes() { "nobody has closed it" } else { "the rule was not applied" };
    Some(format!("the order is overdue by rule {name}, and {done}; {why}; at once: duebox sweep --once --rule {name}"))
}

/// An order that a sweep will find, by the rule that comes first.
pub(super) fn overdue(known: &Known<'_>) -> Option<String> {
    let order = all(known).min_by_key(|order| order.within().saturating_sub(order.late))?;
    let Overdue { name, rule, late } = &order;
    let verb = if rule.action.closes() { "closes the order" } else { "applies it" };
    Some(if *late < order.within() {
        let within = age(order.within());
        format!("nothing to do: the sweep of rule {name} {verb} within {within} of when it was overdue")
    } else {
        format!("nothing to do yet: the sweep of rule {name} is due; look again in a minute")
    })
}

/// An order that is not overdue yet, by the rule that comes first.
pub(super) fn early(known: &Known<'_>) -> Option<String> {
    let early = |(name, seen): &(&'_ str, Seen)| -> Option<(SystemTime, String)> {
        // One that only observes closes nothing.
        let rule = known.config.rules.get(*name).filter(|rule| rule.mode == Mode::Enforce)?;
        let Seen::Order(Order { kept: Some(Kept::Early { .. }), overdue_at: Some(at), .. }) = seen else { return None };
        let then = if rule.action.closes() { "closes the order" } else { "is applied to the order" };
        let is_closers = known.config.closer.enabled && rule.tier.is_some() && !known.config.sweep.enabled;
        let why = if is_closers { nobody(known).map(str::to_owned) } else { no_sweep(known, name, rule) };
        let but = why.map_or_else(String::new, |why| format!("; but {why}"));
        let at = *at;
        Some((at, format!("nothing to do: unless it leaves that status, rule {name} {then} after {}{but}", utc(at))))
    };
    known.orders.iter().filter_map(early).min().map(|(_, said)| said)
}
