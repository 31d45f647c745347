//! The parts that a rule's statements are made of: quoted names, constants, and the conditions on an order `o`.
//!
//! Constants, not parameters: only these let the planner prove that an index `where status in (...)` serves.

use crate::config::Rule;
use crate::outbox::migrate::{quote_ident, quote_literal};
use std::time::{Duration, SystemTime};

/// Names of a rule's table, ready to stand in SQL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Names {
    /// The table, qualified and quoted.
    pub(super) table: String,
    /// Type of the id column, qualified and quoted.
    pub(super) id_type: String,
    /// Type of the status column, likewise.
    pub(super) status_type: String,
    /// Whether policies of row-level security decide which of its rows there are.
    pub(super) is_policed: bool,
    /// A text that changes with these policies.
    pub(super) policies: String,
    /// Whether it is a partitioned table.
    pub(super) is_partitioned: bool,
}

/// Quoted parts of the statements.
pub(super) struct Terms {
    pub(super) id: String,
    pub(super) status: String,
    pub(super) due: String,
    /// The statuses of an order that may be closed.
    pub(super) from: String,
    /// The guard; true where the rule has none.
    pub(super) guard: String,
    /// Where pauses are.
    state: String,
    /// The name of the rule's own.
    pause: String,
    pub(super) after: Duration,
    zone: Option<String>,
    not_before: Option<SystemTime>,
}

impl Terms {
    pub(super) fn new(name: &str, rule: &Rule, names: &Names, schema: &str) -> Self {
        Self {
            id: quote_ident(&rule.id),
            status: quote_ident(&rule.status),
            due: quote_ident(&rule.due),
            from: rule.from.iter().map(|one| constant(one, &names.status_type)).collect::<Vec<_>>().join(", "),
            guard: rule.guard.as_deref().map_or_else(|| "true".to_owned(), expression),
            state: format!("{schema}.state"),
            pause: quote_literal(&format!("pause.rule.{name}")),
            after: rule.after,
            zone: rule.time_zone.as_deref().map(quote_literal),
            not_before: rule.not_before,
        }
    }

    /// The rule is paused.
    pub(super) fn paused(&self) -> String {
        format!("exists (select 1 from {} s where s.name = {})", self.state, self.pause)
    }

    /// Whoever applies it is paused; `by` is an expression for who that is.
    pub(super) fn asker_paused(&self, by: &str) -> String {
        format!("exists (select 1 from {} s where s.name = 'pause.' || {by})", self.state)
    }

    /// Neither is the sweep nor the rule paused.
    pub(super) fn going(&self) -> String {
        format!("not exists (select 1 from {} s where s.name in ('pause.sweep', {}))", self.state, self.pause)
    }

    /// Type of the due column.
    pub(super) fn due_type(&self) -> &'static str {
        if self.zone.is_some() { "timestamp" } else { "timestamptz" }
    }

    /// The moment in the due column.
    pub(super) fn due_at(&self) -> String {
        match &self.zone {
            Some(zone) => format!("(o.{} at time zone {zone})", self.due),
            None => format!("o.{}", self.due),
        }
    }

    /// The order is overdue, `grace` ago.
    ///
    /// Of a time without zone the first condition is for the index, the second for the truth: when the clocks are put
    /// back, an hour of the column stands for two, and the first alone would take the earlier.
    pub(super) fn overdue(&self, grace: Duration) -> String {
        let (due, due_at, then) = (&self.due, self.due_at(), format!("now() - {}", interval(self.after + grace)));
        match &self.zone {
            Some(zone) => format!("o.{due} <= ({then}) at time zone {zone}\n   and {due_at} <= {then}"),
            None => format!("{due_at} <= {then}"),
        }
    }

    /// The order is not so old that `not_before` leaves it alone. Here the index is helped with a day to spare.
    pub(super) fn recent(&self) -> String {
        let Some(since) = self.not_before else { return "true".to_owned() };
        let since = format!("(timestamptz '{}' - {})", humantime::format_rfc3339_micros(since), interval(self.after));
        let (due, due_at) = (&self.due, self.due_at());
        match &self.zone {
            Some(zone) => {
                format!("o.{due} >= {since} at time zone {zone} - interval '1 day' and {due_at} >= {since}")
            }
            None => format!("{due_at} >= {since}"),
        }
    }

    /// The rule applies to the order.
    pub(super) fn applies(&self) -> String {
        let (status, from, overdue, recent, guard) =
            (&self.status, &self.from, self.overdue(Duration::ZERO), self.recent(), &self.guard);
        format!("(o.{status} in ({from}) and {overdue} and {recent} and {guard})")
    }
}

/// A constant of the column's own type.
pub(super) fn constant(text: &str, type_name: &str) -> String {
    format!("{}::{type_name}", quote_literal(text))
}

/// An expression of the user's, on lines of its own: it may end in a comment.
pub(super) fn expression(text: &str) -> String {
    format!("(\n{text}\n)")
}

/// In microseconds, so that no day in it is 23 or 25 hours long.
pub(super) fn interval(length: Duration) -> String {
    format!("interval '{} microseconds'", length.as_micros())
}
