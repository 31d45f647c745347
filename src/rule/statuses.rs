//! Whether orders have the statuses that a rule waits for: one that is mistyped closes nothing, and no error tells.

use super::probe::Probe;
use super::terms::Names;
use crate::config::Rule;
use crate::outbox::error::Error;
use crate::outbox::migrate::{quote_ident, quote_literal};
use crate::tier::nearest;
use crate::words::shown;

/// Orders that are read for it. Of a larger table nothing is said: a sample would miss the few that are open.
const FEW: i64 = 10_000;

/// Statuses that are named.
const NAMED: usize = 10;

/// The statuses that there are where the column is an enum; none where it is not.
pub(super) async fn labels(probe: Probe<'_>, names: &Names) -> Result<Vec<String>, Error> {
    let statement = format!(
        "select array(select e.enumlabel::text from pg_enum e where e.enumtypid = {}::regtype order by e.enumsortorder)",
        quote_literal(&names.status_type)
    );
    let Ok(rows) = probe.ask("", &statement, &[]).await? else { return Ok(Vec::new()) };
    let labels = rows.first().map_or(Ok(Vec::new()), |row| row.try_get(0));
    labels.map_err(Error::statement("look at the statuses of a rule"))
}

/// A note for each status of `from` that no order has and that looks mistyped, where the table is small enough to know.
pub(super) async fn unseen(probe: Probe<'_>, name: &str, rule: &Rule, names: &Names) -> Result<Vec<String>, Error> {
    if names.is_policed {
        // What policies hide may have it.
        return Ok(Vec::new());
    }
    let (table, status) = (&names.table, quote_ident(&rule.status));
    let statement = format!(
        "select count(*) as orders, coalesce(array_agg(distinct status) filter (where status is not null), '{{}}') as statuses \
           from (select {status}::text as status from {table} limit {FEW} + 1) few"
    );
    let Ok(rows) = probe.ask("", &statement, &[]).await? else { return Ok(Vec::new()) };
    let Some(row) = rows.first() else { return Ok(Vec::new()) };
    let read = || Ok((row.try_get("orders")?, row.try_get("statuses")?));
    let (orders, statuses): (i64, Vec<String>) = read().map_err(Error::statement("look at the statuses of a rule"))?;
    if orders > FEW || statuses.is_empty() {
        return Ok(Vec::new());
    }
    // It has closed orders, so that there simply is no open one at the moment.
    if rule.action.to().is_some_and(|to| statuses.iter().any(|status| status == to)) {
        return Ok(Vec::new());
    }
    let ours = |status: &&String| rule.from.contains(*status) || rule.action.to() == Some(status.as_str());
    let others: Vec<&str> = statuses.iter().filter(|status| !ours(status)).map(String::as_str).collect();
    let missing = rule.from.iter().filter(|from| !statuses.contains(from));
    Ok(missing.filter_map(|from| note(name, table, from, &others)).collect())
}

/// A status that no order has at the moment is nothing unusual; one that is like another that orders have may be mistyped.
fn note(rule: &str, table: &str, from: &str, others: &[&str]) -> Option<String> {
    // "unpaid" is no mistyped "paid", which is what became of its orders.
    let other_word = |near: &&str| from.ends_with(near) || near.ends_with(from);
    let near = nearest(from, others.iter().copied()).filter(|near| !other_word(near))?;
    let mut has: Vec<String> = others.iter().take(NAMED).map(|status| shown(status)).collect();
    if others.len() > NAMED {
        has.push("...".to_owned());
    }
    let (has, from, near) = (has.join(", "), shown(from), shown(near));
    Some(format!("rule {rule}: no order of {table} has status '{from}' (others have: {has}); did you mean '{near}'?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_that_no_order_has_is_told_with_those_that_there_are() {
        assert_eq!(note("r", "orders", "unpaid", &["paid"]), None, "all are paid");
        let said = note("r", "orders", "unpayed", &["paid", "unpaid"]);
        let expected =
            "rule r: no order of orders has status 'unpayed' (others have: paid, unpaid); did you mean 'unpaid'?";
        assert_eq!(said.as_deref(), Some(expected));
        assert_eq!(note("r", "orders", "pending", &["closed"]), None, "there may be none now");
        assert!(note("r", "orders", "xxy", &["xxx"; 11]).is_some_and(|said| said.contains("xxx, ...)")));
    }
}
