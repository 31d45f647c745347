//! The user's SQL: each expression must be one, alone, before it becomes part of a statement.

use super::probe::Probe;
use super::statements::assignment;
use super::terms::{Names, expression};
use crate::config::{Action, Rule};
use crate::outbox::error::Error;
use crate::outbox::migrate::quote_ident;
use std::collections::BTreeSet;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

const FUNCTION: &str = include_str!("../../sql/rule_function.sql");

/// Said of an expression that Postgres refuses.
const ALONE: &str = "it must be one SQL expression over the row `o`, without `;` and parameters";

/// Whether each expression of the rule is one.
///
/// As it stands it must be the end of a statement, so that it closes no bracket of ours; in brackets it must be their
/// whole, so that it is no more than an expression.
pub(super) async fn check(
    probe: Probe<'_>,
    rule: &Rule,
    names: &Names,
    problems: &mut Vec<String>,
) -> Result<(), Error> {
    let table = &names.table;
    let mut each = Vec::new();
    if let Some(guard) = &rule.guard {
        each.push((
            "guard".to_owned(),
            [guard.clone(), expression(guard)].map(|text| format!("select 1 from {table} o where {text}")),
        ));
    }
    if let Action::Update { set, .. } = &rule.action {
        each.extend(set.iter().map(|(column, value)| {
            let bare = format!("update {table} o set {} = {value}", quote_ident(column));
            (format!("set.{column}"), [bare, format!("update {table} o set {}", assignment(column, value))])
        }));
    }
    if let Some(payload) = rule.event.as_ref().and_then(|event| event.payload.as_ref()) {
        let bare = format!("select {payload} from {table} o");
        each.push((
            "event.payload".to_owned(),
            [bare, format!("select {}::jsonb from {table} o", expression(payload))],
        ));
    }
    for (key, statements) in each {
        for statement in statements {
            if let Err(reason) = probe.explain(&statement).await? {
                let alone = if reason.is_denied { String::new() } else { format!("; {ALONE}") };
                problems.push(format!("{key}: {reason}{alone}"));
                break;
            }
        }
    }
    Ok(())
}

/// Tables that the guard reads beside the orders'. What a function reads is not seen.
pub(super) async fn other_tables(probe: Probe<'_>, rule: &Rule, names: &Names) -> Result<BTreeSet<String>, Error> {
    let Some(guard) = &rule.guard else { return Ok(BTreeSet::new()) };
    let mut both = Vec::new();
    // Partitions of the orders, and what the table's policies read, are there without the guard as well.
    for guard in ["true".to_owned(), expression(guard)] {
        let explain = format!("(verbose, format json) select 1 from {} o where {guard}", names.table);
        let rows = probe.explain(&explain).await?.unwrap_or_default();
        let plan = rows.first().map(|row| row.try_get::<_, serde_json::Value>(0)).transpose();
        let mut found = BTreeSet::new();
        relations(&plan.map_err(Error::statement("read a plan"))?.unwrap_or_default(), &mut found);
        both.push(found);
    }
    Ok(both.iter().rev().skip(1).fold(both.last().cloned().unwrap_or_default(), |with, without| &with - without))
}

/// Every table that a plan reads.
fn relations(plan: &serde_json::Value, found: &mut BTreeSet<String>) {
    if let Some(name) = plan.get("Relation Name").and_then(|name| name.as_str()) {
        let schema = plan.get("Schema").and_then(|name| name.as_str());
        found.insert(schema.map_or_else(|| name.to_owned(), |schema| format!("{schema}.{name}")));
    }
    let (parts, fields) =
        (plan.as_array().into_iter().flatten(), plan.as_object().into_iter().flat_map(|o| o.values()));
    parts.chain(fields).for_each(|part| relations(part, found));
}

/// The function of the rule, qualified and quoted, and whether it returns nothing; none after a problem.
pub(super) async fn function(
    probe: Probe<'_>,
    rule: &Rule,
    names: &Names,
    problems: &mut Vec<String>,
) -> Result<Option<(String, bool)>, Error> {
    let Action::Function(function) = &rule.action else { return Ok(None) };
    let parameters = [(function as _, Type::TEXT), (&names.id_type as _, Type::TEXT)];
    let found = match probe.ask("", FUNCTION, &parameters).await? {
        Err(reason) => Err(format!("function = '{function}' is not the name of a function: {reason}")),
        Ok(rows) => match rows.first() {
            None => Err(format!("there is no function '{function}'")),
            Some(row) => judge(row).map_err(Error::statement("read a function"))?,
        },
    };
    let called = match found {
        Err(problem) => Err(problem),
        Ok((name, void)) => {
            let call = format!("select {name}(o.{}) from {} o", quote_ident(&rule.id), names.table);
            let answer = probe.explain(&call).await?;
            answer
                .map(|_| (name, void))
                .map_err(|reason| format!("function = '{function}' does not take the id: {reason}"))
        }
    };
    Ok(called.map_err(|problem| problems.push(problem)).ok())
}

fn judge(row: &Row) -> Result<Result<(String, bool), String>, tokio_postgres::Error> {
    let (signature, role): (String, String) = (row.try_get("signature")?, row.try_get("role_name")?);
    Ok(if !row.try_get::<_, bool>("is_fit")? {
        Err(format!("function {signature} must take an id alone and return boolean or void, no set"))
    } else if !row.try_get::<_, bool>("may_enter")? {
        let schema: String = row.try_get("schema_name")?;
        Err(format!("missing privilege: grant usage on schema {schema} to {role};"))
    } else if !row.try_get::<_, bool>("may_execute")? {
        Err(format!("missing privilege: grant execute on function {signature} to {role};"))
    } else {
        Ok((row.try_get("function_name")?, row.try_get("is_void")?))
    })
}

/// Whether Postgres knows the rule's time zone.
pub(super) async fn check_zone(probe: Probe<'_>, zone: &str, problems: &mut Vec<String>) -> Result<(), Error> {
    if let Err(reason) = probe.ask("", "select now() at time zone $1::text", &[(&zone, Type::TEXT)]).await? {
        problems.push(format!("time_zone = '{zone}': {reason}; a name such as 'Europe/Berlin' is meant"));
    }
    Ok(())
}
