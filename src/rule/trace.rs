//! Looking at one order as a rule sees it. Whether somebody else has it locked shows only when one tries to lock it, which
//! is let go at once.

use super::closing::Kept;
use super::orders::{in_time, prepare};
use super::probe::Probe;
use super::statements::{lock_free, look};
use super::table;
use super::terms::{Names, Terms};
use crate::config::{Mode, Rule};
use crate::outbox::connect::Db;
use crate::outbox::error::Error;
use crate::outbox::migrate::quote_ident;
use std::time::SystemTime;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

/// What a rule says of an id.
#[derive(Debug, Clone, PartialEq)]
pub enum Seen {
    /// Its table has no such order.
    Unknown,
    /// It has.
    Order(Order),
    /// It cannot be asked.
    Misfit(String),
}

/// One order as a rule sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct Order {
    /// Its status.
    pub status: Option<String>,
    /// Since when it is overdue, or when it will be; none: it is due at no finite time.
    pub overdue_at: Option<SystemTime>,
    /// The database's time.
    pub now: SystemTime,
    /// Why it would not be closed now; none: it would be.
    pub kept: Option<Kept>,
    /// Why the rule closes no order at all.
    pub problem: Option<String>,
}

/// Looks at the order `id` by the rule `name`, as the role of `pool`.
///
/// # Errors
/// Postgres cannot be asked.
pub async fn trace(db: &Db, name: &str, rule: &Rule, id: &str) -> Result<Seen, Error> {
    match look_at(db, name, rule, id).await.map_err(in_time(name, rule)) {
        // The other rules, and the messages, are not locked with it.
        Err(error @ Error::Table { .. }) => Ok(Seen::Misfit(error.to_string())),
        seen => seen,
    }
}

async fn look_at(db: &Db, name: &str, rule: &Rule, id: &str) -> Result<Seen, Error> {
    let (probe, mut problems) = (Probe { db }, Vec::new());
    let names = table::look_up(probe, rule, &mut problems, &mut Vec::new()).await?;
    let Some(names) = names else { return Ok(Seen::Misfit(problems.join("; "))) };
    // Whatever cannot be an id of this table is the id of none of its orders.
    let cast = format!("select ($1::text::{}) is null", names.id_type);
    if probe.ask("", &cast, &[(&id, Type::TEXT)]).await?.is_err() && problems.is_empty() {
        return Ok(Seen::Unknown);
    }
    let ids = vec![id];
    match probe.ask("", &statement(name, rule, &names, &db.settings().schema), &[(&ids, Type::TEXT_ARRAY)]).await? {
        // What is wrong with the rule, rather than what the statement stumbled over.
        Err(_) if !problems.is_empty() => Ok(Seen::Misfit(problems.join("; "))),
        Err(reason) => Ok(Seen::Misfit(reason.to_string())),
        Ok(rows) => {
            let Some(row) = rows.first() else { return Ok(Seen::Unknown) };
            let mut order = order(row, rule).map_err(Error::statement("look at an order"))?;
            if problems.is_empty() && matches!(order.kept, None | Some(Kept::Early { .. })) {
                // What closing needs beyond looking. One that cannot be told says nothing.
                problems.extend(prepare(db, name, rule).await.map(|(_, found)| found.problems).unwrap_or_default());
            }
            order.problem = (!problems.is_empty()).then(|| problems.join("; "));
            if order.kept.is_none() && order.problem.is_none() && is_locked(db, (name, rule), &names, id).await? {
                order.kept = Some(Kept::Locked);
            }
            Ok(Seen::Order(order))
        }
    }
}

/// Whether somebody else has the order locked, as far as this role may know.
async fn is_locked(db: &Db, (name, rule): (&str, &Rule), names: &Names, id: &str) -> Result<bool, Error> {
    // Policies may hide an order from locking.
    if names.is_policed {
        return Ok(false);
    }
    let lock = lock_free(&Terms::new(name, rule, names, &quote_ident(&db.settings().schema)), names);
    // Begun, locked and ended in one message to the server, so that no payment waits for us.
    let rows = db
        .once("try to lock an order", async |client| client.query_typed(&lock, &[(&vec![id], Type::TEXT_ARRAY)]).await);
    match rows.await {
        Ok(rows) => Ok(rows.is_empty()),
        Err(error) if error.is_away() => Err(error),
        Err(_) => Ok(false),
    }
}

/// The look that closing has, on an order that is not locked.
fn statement(name: &str, rule: &Rule, names: &Names, schema: &str) -> String {
    let look = look(&Terms::new(name, rule, names, &quote_ident(schema)), names, "'sweep'");
    format!(
        "{look}
select l.was::text as was, l.due_at, l.kept, now() as now,
       coalesce(extract(epoch from now() - l.due_at), 0)::float8 as late
  from duebox_look l"
    )
}

fn order(row: &Row, rule: &Rule) -> Result<Order, tokio_postgres::Error> {
    let (status, reason): (Option<String>, Option<String>) = (row.try_get("was")?, row.try_get("kept")?);
    let overdue_at = row.try_get("due_at")?;
    let (was, late) = (status.as_deref().unwrap_or("null"), row.try_get("late")?);
    let reason = match reason.as_deref() {
        // The end of a pause changes nothing for an order that has left `from`.
        Some("paused" | "asker_paused") if !rule.from.iter().any(|from| from == was) => Some("status"),
        reason => reason,
    };
    let kept = reason.and_then(|reason| Kept::of(reason, was, late, overdue_at));
    let observed = (reason.is_none() && rule.mode == Mode::Observe).then_some(Kept::Observed);
    Ok(Order { overdue_at, now: row.try_get("now")?, kept: kept.or(observed), problem: None, status })
}
