//! What a look at all overdue orders could not do. It may take several passes, which add up.

use crate::config::{Action, Rule};
use crate::outbox::migrate::quote_literal;
use crate::rule::orders::Place;
use crate::words::shown;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Locked orders that are remembered, the oldest of each look.
const REMEMBERED: usize = 100;

/// An order is named that was found locked so often in a row, and for so long: a payment may simply be in hand.
const OFTEN: (u32, Duration) = (3, Duration::from_secs(5));
/// Or for so long, where passes are rare.
const LONG: Duration = Duration::from_secs(600);

/// What a look at all overdue orders could not do.
#[derive(Debug, Default)]
pub(super) struct Missed {
    /// Orders that could not be closed.
    pub(super) count: usize,
    /// The first of them, with the reason.
    pub(super) first: String,
    /// Orders that were closed.
    pub(super) closed: usize,
    /// Where the next pass goes on; none: all orders were looked at.
    pub(super) rest: Option<Place>,
    /// Orders that somebody else had locked.
    locked: Vec<String>,
}

impl Missed {
    /// Notes an order that somebody else has locked.
    pub(super) fn lock(&mut self, id: &str) {
        if self.locked.len() < REMEMBERED {
            self.locked.push(id.to_owned());
        }
    }

    /// What is to be said of it, if anything. A locked order is nothing to be said: see [`Held`].
    pub(super) fn told(&self, action: &Action) -> Option<String> {
        let others = match (self.closed, action.closes()) {
            (0, true) => "no other was".to_owned(),
            (closed, true) => format!("{closed} other(s) were"),
            (0, false) => "and was to no other".to_owned(),
            (applied, false) => format!("and was to {applied} other(s)"),
        };
        let rest = if self.rest.is_some() { "; the next pass goes on behind them" } else { "" };
        let Self { count, first, .. } = self;
        let said = action.said("could not", &format!("{count} order(s)"));
        (self.count > 0).then(|| format!("{said}, {others}; first {first}{rest}"))
    }
}

/// Orders that were found locked in every look so far: in how many, and since when.
#[derive(Debug, Default)]
pub(super) struct Held(BTreeMap<String, (u32, Instant)>);

impl Held {
    /// Learns which orders a look at all has found locked.
    pub(super) fn learn(&mut self, missed: &Missed, now: Instant) {
        let before = std::mem::take(&mut self.0);
        let again = |id: &String| before.get(id).map_or((1, now), |(times, since)| (times + 1, *since));
        self.0 = missed.locked.iter().map(|id| (id.clone(), again(id))).collect();
    }

    /// Names what stays locked: an abandoned or a prepared transaction keeps an order open for ever.
    pub(super) fn told(&self, rule: &Rule, now: Instant) -> Option<String> {
        let stuck = |(times, since): &(u32, Instant)| {
            let held = now.saturating_duration_since(*since);
            held >= LONG || *times >= OFTEN.0 && held >= OFTEN.1
        };
        let mut stuck = self.0.iter().filter(|(_, seen)| stuck(seen));
        let (first, _) = stuck.next()?;
        let others = match stuck.count() {
            0 => String::new(),
            others => format!(" and {others} other(s)"),
        };
        let said = rule.action.said("cannot", &format!("order {}{others}", shown(first)));
        Some(format!("{said}: somebody else has it locked, pass after pass; {}", holders(&rule.table)))
    }
}

/// How to find who may have an order of a table locked. A lock on a row is nowhere to be seen but in the row; whoever has
/// one has the table locked as well, lightly.
#[must_use]
pub fn holders(table: &str) -> String {
    format!(
        "who may have it, the oldest first: select a.pid, p.gid, coalesce(a.xact_start, p.prepared) as since, a.state, a.query \
         from pg_locks l left join pg_stat_activity a using (pid) \
         left join pg_prepared_xacts p on l.virtualtransaction = '-1/' || p.transaction::text \
         where l.granted and l.mode <> 'AccessShareLock' and l.relation in (select {table}::regclass union \
         select inhrelid from pg_inherits where inhparent = {table}::regclass) order by since;",
        table = quote_literal(table)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_not_be_closed_is_told_beside_what_was() {
        let told = |count, closed| {
            let missed = Missed { count, first: "7: no".into(), closed, ..Missed::default() };
            missed.told(&crate::rule::statements::tests::rule().action)
        };
        assert_eq!([told(0, 0), told(0, 9)], [None, None]);
        assert_eq!(told(3, 0).as_deref(), Some("3 order(s) could not be closed, no other was; first 7: no"));
        assert_eq!(told(1, 2).as_deref(), Some("1 order(s) could not be closed, 2 other(s) were; first 7: no"));
        let missed = Missed { count: 1, first: "7: no".into(), closed: 2, ..Missed::default() };
        let reminder = Action::Update { to: None, set: BTreeMap::new() };
        let said = "could not be applied to 1 order(s), and was to 2 other(s); first 7: no";
        assert_eq!(missed.told(&reminder).as_deref(), Some(said));
    }

    #[test]
    fn an_order_is_named_that_stays_locked_and_none_that_was_free_between() {
        let (begun, mut held) = (Instant::now(), Held::default());
        let mut look = |ids: &[&str], seconds| {
            let mut missed = Missed::default();
            ids.iter().for_each(|id| missed.lock(id));
            let now = begun + Duration::from_secs(seconds);
            held.learn(&missed, now);
            held.told(&crate::rule::statements::tests::rule(), now)
        };
        assert_eq!(
            [look(&["7", "8"], 0), look(&["7", "8"], 1), look(&["7"], 2), look(&["7", "8"], 4)],
            [(); 4].map(|()| None)
        );
        let named = look(&["7", "8"], 6);
        assert!(named.is_some_and(|named| named.starts_with("order 7 cannot be closed: ")));
        assert!(look(&["7", "8"], 9).is_some_and(|named| named.starts_with("order 7 and 1 other(s) cannot ")));
        assert_eq!([look(&[], 20), look(&["7"], 30)], [None, None]);
        assert!(look(&["7"], 630).is_some());
    }
}
