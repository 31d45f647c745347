//! The orders of one rule: finding those that are overdue, once everything about the rule is known to be right.

use super::close;
use super::probe::Probe;
use super::statements::{Close, Statements};
use super::terms::Names;
use super::{expressions, statuses, table};
use crate::config::{Action, Mode, Rule};
use crate::outbox::connect::Db;
use crate::outbox::error::Error;
use crate::outbox::migrate::{quote_ident, quote_literal};
use crate::tier;
use futures_util::future::join;
use std::collections::BTreeSet;
use std::time::SystemTime;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

/// What an inspection of a rule found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Findings {
    /// The rule cannot be applied while these are there; each says what to do.
    pub problems: Vec<String>,
    /// It works, but not well.
    pub notes: Vec<String>,
    /// What was not looked at, because it could only be refused for a problem that is told: there may be more to mend.
    pub unseen: Option<&'static str>,
}

/// The orders of one rule, as its statements see them.
#[derive(Debug, Clone)]
pub struct Orders {
    pub(super) rule: String,
    /// The table, qualified and quoted.
    pub(super) table: String,
    pub(super) mode: Mode,
    pub(super) has_event: bool,
    /// Whether closing leaves the status to `set` or a function, and has to show that the rule is through with the order.
    pub(super) sets_no_status: bool,
    /// Whether policies of row-level security decide what may be locked.
    pub(super) is_policed: bool,
    pub(super) statements: Statements,
    /// Type of the due column.
    due: Type,
}

/// A place among the overdue orders: due as the column has it, and id.
pub(super) type Place = (SystemTime, String);

/// An overdue order.
pub(super) struct Found {
    pub(super) place: Place,
    /// The guard lets it be closed.
    pub(super) applies: bool,
}

/// Inspects the table of the rule `name` as the role of `pool`.
///
/// # Errors
/// Postgres cannot be asked; this may heal by waiting.
pub async fn inspect(db: &Db, name: &str, rule: &Rule) -> Result<Findings, Error> {
    let (orders, mut findings) = prepare(db, name, rule).await?;
    let probe = Probe { db };
    if orders.is_some()
        && let Some(names) = table::look_up(probe, rule, &mut Vec::new(), &mut Vec::new()).await?
    {
        // A mistyped status goes first: the index that is missed would be one for it.
        findings.notes.splice(..0, statuses::unseen(probe, name, rule, &names).await?);
    }
    Ok(findings)
}

/// The orders of the rule `name`; none when there is a problem.
///
/// # Errors
/// Postgres cannot be asked; this may heal by waiting.
pub async fn prepare(db: &Db, name: &str, rule: &Rule) -> Result<(Option<Orders>, Findings), Error> {
    make(db, name, rule).await.map_err(in_time(name, rule))
}

/// A look at a table that had no answer in time, with the table.
pub(super) fn in_time(name: &str, rule: &Rule) -> impl FnOnce(Error) -> Error {
    move |error| {
        if !error.is_out_of_time() {
            return error;
        }
        let Error::Statement { cause, .. } = error else { return error };
        Error::Table { rule: name.to_owned(), table: rule.table.clone(), cause }
    }
}

async fn make(db: &Db, name: &str, rule: &Rule) -> Result<(Option<Orders>, Findings), Error> {
    let (probe, mut findings) = (Probe { db }, Findings::default());
    let Findings { problems, notes, unseen } = &mut findings;
    let names = table::look_up(probe, rule, problems, notes).await?;
    // One thing at a time: what is asked below is only refused for the reason that was just told.
    let Some(names) = names.filter(|_| problems.is_empty()) else {
        *unseen = Some("its statuses, expressions and indexes");
        return Ok((None, findings));
    };
    check_values(probe, rule, &names, problems).await?;
    if let Some(zone) = &rule.time_zone {
        expressions::check_zone(probe, zone, problems).await?;
    }
    expressions::check(probe, rule, &names, problems).await?;
    let (mut rule, mut void) = (rule.clone(), false);
    if let Some(function) = expressions::function(probe, &rule, &names, problems).await? {
        (rule.action, void) = (Action::Function(function.0), function.1);
    }
    let rule = &rule;
    if !problems.is_empty() {
        *unseen = Some("its indexes");
        return Ok((None, findings));
    }
    let others = expressions::other_tables(probe, rule, &names).await?;
    let statements = Statements::new(name, rule, &names, &db.settings().schema, (others.is_empty(), void));
    let due = if rule.time_zone.is_some() { Type::TIMESTAMP } else { Type::TIMESTAMPTZ };
    let (has_event, sets_no_status) = (rule.event.is_some(), rule.action.to().is_none());
    let is_policed = names.is_policed;
    let orders = Orders {
        rule: name.to_owned(),
        table: names.table.clone(),
        mode: rule.mode,
        has_event,
        sets_no_status,
        is_policed,
        statements,
        due,
    };
    notes.extend(others_note(name, &names, &others));
    notes.extend(endless_note(name, rule));
    if !orders.indexed(probe, &rule.due, &rule.status).await? {
        notes.push(index_note(name, rule, &names));
    }
    Ok((Some(orders), findings))
}

/// The one thing that locking the order cannot see to.
fn others_note(name: &str, names: &Names, others: &BTreeSet<String>) -> Option<String> {
    let (table, read) = (&names.table, others.iter().cloned().collect::<Vec<_>>().join(", "));
    (!others.is_empty()).then(|| {
        format!(
            "the guard of rule {name} reads {read}: a paid order stays open for certain only if whoever writes there \
             locks or updates the order's row in {table} first, in the same transaction \
             (select ... from {table} ... for update)"
        )
    })
}

/// Without a guard only status and due tell that the rule is through with an order. A trigger may change them.
fn endless_note(name: &str, rule: &Rule) -> Option<String> {
    let Action::Update { to: None, set } = &rule.action else { return None };
    let ends = rule.guard.is_some() || set.contains_key(&rule.status) || set.contains_key(&rule.due);
    (!ends).then(|| {
        format!(
            "rule {name} has no `to` and no `guard`, and its `set` changes neither {} nor {}: unless a trigger does, the rule \
             still applies afterwards and nothing is done; guard = \"o.reminded_at is null\", \
             set = {{ reminded_at = \"now()\" }}",
            rule.status, rule.due
        )
    })
}

fn index_note(name: &str, rule: &Rule, names: &Names) -> String {
    format!(
        "no index serves rule {name}, each look reads the whole table: \
         create index {}on {} ({}) where {} in ({});",
        // Postgres has no such thing for a partitioned table.
        if names.is_partitioned { "" } else { "concurrently " },
        names.table,
        quote_ident(&rule.due),
        quote_ident(&rule.status),
        rule.from.iter().map(|one| quote_literal(one)).collect::<Vec<_>>().join(", ")
    )
}

/// Whether each status is one that the column can have.
async fn check_values(probe: Probe<'_>, rule: &Rule, names: &Names, problems: &mut Vec<String>) -> Result<(), Error> {
    // Not as the type itself: of an enum the driver would ask what it is, in a transaction that has failed.
    let cast = format!("select ($1::text::{}) is null", names.status_type);
    let mut labels = None;
    let from = rule.from.iter().map(|value| ("from", value.as_str()));
    for (key, value) in from.chain(rule.action.to().map(|to| ("to", to))) {
        if let Err(reason) = probe.ask("", &cast, &[(&value, Type::TEXT)]).await? {
            if labels.is_none() {
                labels = Some(statuses::labels(probe, names).await?);
            }
            let known: Vec<&str> = labels.iter().flatten().map(String::as_str).collect();
            let hint =
                if known.is_empty() { String::new() } else { format!("; {}", tier::hint("the rule", value, &known)) };
            problems.push(format!("{key} '{value}' is no status of {}: {reason}{hint}", names.table));
        }
    }
    Ok(())
}

impl Orders {
    /// What is said when the table is locked as a whole.
    pub(super) fn table_locked(&self, error: Error) -> Error {
        let Error::Statement { cause, .. } = error else { return error };
        Error::Table { rule: self.rule.clone(), table: self.table.clone(), cause }
    }

    /// Whether each order has a transaction of its own: what a function does to one may be what another is looked at for.
    pub(super) fn one_by_one(&self) -> bool {
        matches!(self.statements.close, Close::Function { .. })
    }

    /// Overdue orders after `after`, oldest first, and at most `limit`; none is locked.
    pub(super) async fn find(&self, db: &Db, (after, limit): (Option<&Place>, usize)) -> Result<Vec<Found>, Error> {
        self.find_by(&self.statements.find, db, after, limit).await
    }

    /// The same for closing them. Where the guard raises for one, or is slow, all are found: the close asks it of each by
    /// itself.
    pub(super) async fn find_to_close(
        &self,
        db: &Db,
        (after, limit): (Option<&Place>, usize),
    ) -> Result<Vec<Found>, Error> {
        let (found, unguarded) = (self.find(db, (after, limit)).await, &self.statements.find_unguarded);
        match (found, unguarded) {
            (Err(error), Some(unguarded)) if !error.is_gone() || close::is_its_end(db, &error).await => {
                tracing::debug!(rule = self.rule, %error, "orders are found without the guard: {error}");
                self.find_by(unguarded, db, after, limit).await
            }
            (found, _) => found,
        }
    }

    async fn find_by(
        &self,
        statement: &str,
        db: &Db,
        after: Option<&Place>,
        limit: usize,
    ) -> Result<Vec<Found>, Error> {
        let what = "find overdue orders";
        let (due, id) = after.map(|(due, id)| (*due, id.as_str())).unzip();
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let parameters = [(&due as _, self.due.clone()), (&id as _, Type::TEXT), (&limit as _, Type::INT8)];
        let rows = self.query(db, what, statement, &parameters);
        let found = |row: &Row| {
            Ok(Found { place: (row.try_get("due")?, row.try_get("id")?), applies: row.try_get("applies")? })
        };
        rows.await?.iter().map(|row| found(row).map_err(Error::statement(what))).collect()
    }

    /// How many overdue orders are left alone because of `not_before`.
    pub(super) async fn older(&self, db: &Db) -> Result<i64, Error> {
        let what = "count older orders";
        let Some(older) = &self.statements.older else { return Ok(0) };
        let rows = self.query(db, what, older, &[]).await?;
        rows.first().map_or(Ok(0), |row| row.try_get(0)).map_err(Error::statement(what))
    }

    /// Under the role's own `search_path`, where the guard finds its tables.
    async fn query(
        &self,
        db: &Db,
        what: &'static str,
        statement: &str,
        parameters: super::probe::Parameters<'_>,
    ) -> Result<Vec<Row>, Error> {
        let run = db.once(what, async |client| {
            let path = client.batch_execute("set local search_path to default");
            // Sent together, in this order.
            let (set, rows) = join(path, client.query_typed(statement, parameters)).await;
            set.and(rows)
        });
        run.await
    }

    /// Whether an index serves [`Self::find`], whatever the planner prefers for a table of this size.
    async fn indexed(&self, probe: Probe<'_>, due: &str, status: &str) -> Result<bool, Error> {
        let explain = format!("explain {}", self.statements.find);
        let (none, one) = ((None::<SystemTime>, None::<String>), 1_i64);
        let parameters = [(&none.0 as _, self.due.clone()), (&none.1 as _, Type::TEXT), (&one as _, Type::INT8)];
        let rows = probe.ask("set local enable_seqscan = off", &explain, &parameters).await?;
        let rows = rows.map_err(|reason| Error::Unexpected(reason.to_string()))?;
        let lines = rows.iter().map(|row| row.try_get::<_, String>(0).map_err(Error::statement("explain a rule")));
        let lines = lines.collect::<Result<Vec<_>, _>>()?;
        // A condition on the status alone serves too: it reads the open orders, not the table.
        Ok(lines.iter().any(|line| line.contains("Index Cond: ") && (line.contains(due) || line.contains(status))))
    }
}
