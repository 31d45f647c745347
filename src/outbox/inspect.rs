//! Whether the schema is what this version needs and the role may do what it must: everything wrong at once.

use super::connect::{Db, Transaction};
use super::doorbell::facts::{DOORBELL, Facts};
use super::error::Error;
use super::migrate::{self, quote_ident};
use crate::config::Wake;
use std::time::Duration;
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

const COLUMNS: &str = include_str!("../../sql/columns.sql");
const RELATION: &str = include_str!("../../sql/relation.sql");
const PRIVILEGES: &str = include_str!("../../sql/privileges.sql");

/// No row is locked while the catalog is read.
const SILENCE: Duration = Duration::from_secs(10);

/// A value for a statement.
type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// What an inspection found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inspection {
    /// The relay cannot work while these are there; each says what to do.
    pub problems: Vec<String>,
    /// The schema version in a sentence.
    pub schema: String,
    /// Whether inserts ring for whoever listens.
    pub rings: bool,
}

impl Inspection {
    /// What to know about inserts that ring with this setting; the relay works with it all the same.
    #[must_use]
    pub fn note(&self, wake: Wake) -> Option<&'static str> {
        (self.rings && wake == Wake::Poll).then_some(
            "inserts ring although wake = \"poll\", and pay for it in every commit: unless another relay listens, run \
             `duebox migrate --no-doorbell`",
        )
    }
}

/// Inspects the schema as the role of `pool`.
///
/// # Errors
/// Postgres cannot be asked; this may heal by waiting.
pub async fn inspect(db: &Db) -> Result<Inspection, Error> {
    let asked = Asked { transaction: Transaction::begin(db, SILENCE).await?, schema: &db.settings().schema };
    let mut inspection = Inspection::default();
    asked.schema(&mut inspection).await?;
    asked.transaction.roll_back().await?;
    Ok(inspection)
}

/// Whoever is asked: everything in one transaction.
struct Asked<'a> {
    transaction: Transaction,
    schema: &'a str,
}

impl Asked<'_> {
    async fn rows(&self, what: &'static str, sql: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>, Error> {
        self.transaction.run(what, async |client| client.query_typed(sql, parameters).await).await
    }

    async fn schema(&self, inspection: &mut Inspection) -> Result<(), Error> {
        let (schema, what) = (self.schema, "inspect the schema");
        let usage = "select quote_ident(current_user) as role, has_schema_privilege(n.oid, 'usage') as usage \
                     from (select) as one left join pg_catalog.pg_namespace n on n.nspname = $1";
        let rows = self.rows(what, usage, &[(&schema, Type::TEXT)]).await?;
        let Some(row) = rows.first() else { return Err(Error::Unexpected(format!("{what}: no answer"))) };
        let role: String = row.try_get("role").map_err(Error::statement(what))?;
        match row.try_get("usage").map_err(Error::statement(what))? {
            None => {
                let problem = format!(
                    "schema '{schema}' does not exist; as its owner run: duebox migrate --url OWNER_URL --grant-relay {role}"
                );
                inspection.problems.push(problem);
            }
            Some(false) => {
                let problem =
                    format!("no access to schema '{schema}': grant usage on schema {} to {role};", quote_ident(schema));
                inspection.problems.push(problem);
            }
            Some(true) => self.tables(&role, inspection).await?,
        }
        Ok(())
    }

    async fn tables(&self, role: &str, inspection: &mut Inspection) -> Result<(), Error> {
        let what = "inspect the tables";
        let readable = "select 1 where has_table_privilege(to_regclass('state'), 'select') is not false";
        if !self.rows(what, readable, &[]).await?.is_empty() {
            let version = self.transaction.run(what, async |client| migrate::read_version(client, self.schema).await);
            let accepts = migrate::accepts(version.await?);
            inspection.schema = accepts.to_string();
            if !accepts.usable() {
                inspection.problems.push(accepts.to_string());
                return Ok(());
            }
        }
        for row in self.rows(what, RELATION, &[]).await? {
            let read = || Ok((row.try_get("kind")?, row.try_get("is_table")?, row.try_get("hidden")?));
            let (kind, is_table, hidden): (String, bool, bool) = read().map_err(Error::statement(what))?;
            if !is_table {
                inspection.problems.push(format!("outbox is a {kind}; its rows must be locked, so it must be a table"));
            }
            if hidden {
                let hint = format!("drop its policies for this role, or: alter role {role} bypassrls;");
                inspection.problems.push(format!("row-level security hides rows of outbox from {role}; {hint}"));
            }
        }
        for row in self.rows(what, COLUMNS, &[]).await? {
            let text = |name| row.try_get::<_, Option<String>>(name).map_err(Error::statement(what));
            let (name, expected) = (text("name")?.unwrap_or_default(), text("expected")?.unwrap_or_default());
            let found = text("found")?.unwrap_or_else(|| "missing".to_owned());
            inspection.problems.push(format!("column outbox.{name} must be {expected}, found {found}"));
        }
        for row in self.rows(what, PRIVILEGES, &[]).await? {
            let missing: String = row.try_get(0).map_err(Error::statement(what))?;
            inspection.problems.push(format!("missing privilege: grant {missing} to {role};"));
        }
        if let Some(row) = self.rows(what, DOORBELL, &[(&self.schema, Type::TEXT)]).await?.first() {
            inspection.rings = Facts::read(row).map_err(Error::statement(what))?.rings();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inserts_that_ring_for_nobody_are_noted() {
        let note = |rings, wake| Inspection { rings, ..Inspection::default() }.note(wake);
        assert!(note(true, Wake::Poll).is_some_and(|text| text.contains("--no-doorbell")));
        assert_eq!([note(true, Wake::Notify), note(false, Wake::Notify), note(false, Wake::Poll)], [None; 3]);
    }
}
