//! The orders of one rule: is the table what the rule says, and may this role close in it?

use super::statements::{Names, Statements};
use crate::config::Rule;
use crate::outbox::connect::{Pool, Settings, Transaction, once};
use crate::outbox::error::{Error, describe};
use crate::outbox::migrate::{quote_ident, quote_literal};
use std::time::{Duration, SystemTime};
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;

const TABLE: &str = include_str!("../../sql/rule_table.sql");

/// No row is locked while a table is looked at.
const SILENCE: Duration = Duration::from_secs(10);

const IDS: [&str; 6] = ["int8", "int4", "int2", "uuid", "text", "varchar"];
const STATUSES: [&str; 7] = ["text", "varchar", "bpchar", "int8", "int4", "int2", "enum"];

/// What an inspection of a rule found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Findings {
    /// The rule cannot be applied while these are there; each says what to do.
    pub problems: Vec<String>,
    /// It works, but not well.
    pub notes: Vec<String>,
}

/// The orders of one rule, as its statements see them.
#[derive(Debug, Clone)]
pub struct Orders {
    pub(super) rule: String,
    pub(super) has_event: bool,
    pub(super) statements: Statements,
}

/// A place among the overdue orders: due and id.
pub(super) type Place = (SystemTime, String);

/// Inspects the table of the rule `name` as the role of `pool`.
///
/// # Errors
/// Postgres cannot be asked; this may heal by waiting.
pub async fn inspect(pool: &Pool, settings: &Settings, name: &str, rule: &Rule) -> Result<Findings, Error> {
    prepare(pool, settings, name, rule).await.map(|(_, findings)| findings)
}

/// The orders of the rule `name`; none when there is a problem.
///
/// # Errors
/// Postgres cannot be asked; this may heal by waiting.
pub async fn prepare(
    pool: &Pool,
    settings: &Settings,
    name: &str,
    rule: &Rule,
) -> Result<(Option<Orders>, Findings), Error> {
    let mut findings = Findings::default();
    let Some(names) = look_up(pool, settings, rule, &mut findings.problems).await? else {
        return Ok((None, findings));
    };
    check_values(pool, settings, rule, &names, &mut findings.problems).await?;
    if !findings.problems.is_empty() {
        return Ok((None, findings));
    }
    let statements = Statements::new(name, rule, &names, &settings.schema);
    let orders = Orders { rule: name.to_owned(), has_event: rule.event.is_some(), statements };
    if !orders.indexed(pool, settings, &rule.due, &rule.status).await? {
        findings.notes.push(format!(
            "no index serves rule {name}, each look reads the whole table: \
             create index concurrently on {} ({}) where {} in ({});",
            names.table,
            quote_ident(&rule.due),
            quote_ident(&rule.status),
            rule.from.iter().map(|one| quote_literal(one)).collect::<Vec<_>>().join(", ")
        ));
    }
    Ok((Some(orders), findings))
}

/// One of the three columns, as the catalog has it.
struct Column {
    name: String,
    shown_type: Option<String>,
    type_name: String,
    kind: String,
    may_select: bool,
    may_update: bool,
}

impl Column {
    fn read(row: &Row) -> Result<Self, tokio_postgres::Error> {
        Ok(Self {
            name: row.try_get("column_name")?,
            shown_type: row.try_get("shown_type")?,
            type_name: row.try_get("type_name")?,
            kind: row.try_get("kind")?,
            may_select: row.try_get("may_select")?,
            may_update: row.try_get("may_update")?,
        })
    }

    /// Whether it is of one of these types; if not, that is a problem.
    fn is(&self, table: &str, what: &str, good: &[&str], wanted: &str, problems: &mut Vec<String>) {
        let name = &self.name;
        match &self.shown_type {
            None => problems.push(format!("{table} has no column {name}, which the rule names as `{what}`")),
            Some(_) if good.contains(&self.kind.as_str()) => {}
            Some(_) if what == "due" && self.kind == "timestamp" => problems.push(format!(
                "column {name} of {table} is a timestamp without time zone: which moments it means depends on a \
                 time zone, and a rule can name one in a later version only; timestamptz works"
            )),
            Some(found) => problems.push(format!("column {name} of {table} is {found}; `{what}` must be {wanted}")),
        }
    }
}

/// The table and its columns; none when there is no telling what the rule means.
async fn look_up(
    pool: &Pool,
    settings: &Settings,
    rule: &Rule,
    problems: &mut Vec<String>,
) -> Result<Option<Names>, Error> {
    let what = "look up a rule's table";
    let transaction = Transaction::begin(pool, settings, SILENCE).await?;
    let own_path = "set local search_path to default";
    transaction.run(what, async |client| client.batch_execute(own_path).await).await?;
    let columns = [&rule.id, &rule.status, &rule.due];
    let run = transaction.run(what, async |client| {
        client.query_typed(TABLE, &[(&rule.table, Type::TEXT), (&columns.as_slice(), Type::TEXT_ARRAY)]).await
    });
    let rows = match run.await {
        Err(Error::Statement { cause, .. }) if cause.code() == Some(&SqlState::INVALID_PARAMETER_VALUE) => {
            problems.push(format!("table = '{}' is not the name of a table: {}", rule.table, describe(&cause)));
            transaction.roll_back().await?;
            return Ok(None);
        }
        rows => rows?,
    };
    transaction.roll_back().await?;
    judge(&rows, rule, problems).map_err(Error::statement(what))
}

fn judge(rows: &[Row], rule: &Rule, problems: &mut Vec<String>) -> Result<Option<Names>, tokio_postgres::Error> {
    let columns = rows.iter().map(Column::read).collect::<Result<Vec<_>, _>>()?;
    let ([id, status, due], Some(row)) = (columns.as_slice(), rows.first()) else {
        problems.push(format!(
            "there is no table '{}'; one that is not on this role's search_path is written with its schema \
             (\"shop.orders\"), and a name with capitals in quotes ('shop.\"Orders\"')",
            rule.table
        ));
        return Ok(None);
    };
    let table: String = row.try_get("table_name")?;
    if !row.try_get::<_, bool>("is_table")? {
        problems.push(format!("{table} is no table: its rows cannot be locked as orders"));
        return Ok(None);
    }
    id.is(&table, "id", &IDS, "bigint, uuid or text", problems);
    status.is(&table, "status", &STATUSES, "text, integer or an enum", problems);
    due.is(&table, "due", &["timestamptz"], "timestamptz", problems);
    let role: String = row.try_get("role_name")?;
    if !row.try_get::<_, bool>("may_enter")? {
        let schema: String = row.try_get("schema_name")?;
        problems.push(format!("missing privilege: grant usage on schema {schema} to {role};"));
    }
    let grants = missing_grants(&columns, status);
    if !grants.is_empty() {
        problems.push(format!("missing privilege: grant {grants} on {table} to {role};"));
    }
    Ok(Some(Names { table, id_type: id.type_name.clone(), status_type: status.type_name.clone() }))
}

/// The least that closing needs and the role does not have.
fn missing_grants(columns: &[Column], status: &Column) -> String {
    let there = columns.iter().filter(|column| column.shown_type.is_some());
    let unread: Vec<&str> = there.filter(|column| !column.may_select).map(|column| column.name.as_str()).collect();
    let mut grants = Vec::new();
    if !unread.is_empty() {
        grants.push(format!("select ({})", unread.join(", ")));
    }
    if status.shown_type.is_some() && !status.may_update {
        grants.push(format!("update ({})", status.name));
    }
    grants.join(", ")
}

/// Whether each status is one that the column can have.
async fn check_values(
    pool: &Pool,
    settings: &Settings,
    rule: &Rule,
    names: &Names,
    problems: &mut Vec<String>,
) -> Result<(), Error> {
    if !problems.is_empty() {
        return Ok(());
    }
    let cast = format!("select $1::text::{}", names.status_type);
    let from = rule.from.iter().map(|value| ("from", value));
    for (key, value) in from.chain([("to", &rule.to)]) {
        let run = once(pool, settings, "check a status", async |client| {
            client.query_typed(&cast, &[(value, Type::TEXT)]).await
        });
        match run.await {
            Err(Error::Statement { cause, .. }) if cause.as_db_error().is_some_and(is_bad_value) => {
                let table = &names.table;
                problems.push(format!("{key} '{value}' is no status of {table}: {}", describe(&cause)));
            }
            checked => drop(checked?),
        }
    }
    Ok(())
}

/// Class 22: the value does not fit the type.
fn is_bad_value(error: &tokio_postgres::error::DbError) -> bool {
    error.code().code().starts_with("22")
}

impl Orders {
    /// Overdue orders after `after`, oldest first, and at most `limit`; none is locked.
    pub(super) async fn find(
        &self,
        pool: &Pool,
        settings: &Settings,
        after: Option<&Place>,
        limit: usize,
    ) -> Result<Vec<Place>, Error> {
        let what = "find overdue orders";
        let (due, id) = after.map(|(due, id)| (*due, id.as_str())).unzip();
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows = once(pool, settings, what, async |client| {
            let parameters = [(&due as _, Type::TIMESTAMPTZ), (&id as _, Type::TEXT), (&limit as _, Type::INT8)];
            client.query_typed(&self.statements.find, &parameters).await
        });
        let place = |row: &Row| Ok((row.try_get("due")?, row.try_get("id")?));
        rows.await?.iter().map(|row| place(row).map_err(Error::statement(what))).collect()
    }

    /// Whether an index serves [`Self::find`], whatever the planner prefers for a table of this size.
    async fn indexed(&self, pool: &Pool, settings: &Settings, due: &str, status: &str) -> Result<bool, Error> {
        let what = "explain a rule";
        let transaction = Transaction::begin(pool, settings, SILENCE).await?;
        let set = "set local enable_seqscan = off";
        transaction.run(what, async |client| client.batch_execute(set).await).await?;
        let explain = format!("explain {}", self.statements.find);
        let (none, one) = ((None::<SystemTime>, None::<String>), 1_i64);
        let parameters = [(&none.0 as _, Type::TIMESTAMPTZ), (&none.1 as _, Type::TEXT), (&one as _, Type::INT8)];
        let run = transaction.run(what, async |client| client.query_typed(&explain, &parameters).await);
        let rows = run.await?;
        transaction.roll_back().await?;
        let lines = rows.iter().map(|row| row.try_get::<_, String>(0).map_err(Error::statement(what)));
        let lines = lines.collect::<Result<Vec<_>, _>>()?;
        // A condition on the status alone serves too: it reads the open orders, not the table.
        Ok(lines.iter().any(|line| line.contains("Index Cond: ") && (line.contains(due) || line.contains(status))))
    }
}
