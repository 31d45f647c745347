//! Whether the schema is what this version needs and the role may do what it must: everything wrong at once.

use super::connect::{Settings, get, once, within};
use super::error::Error;
use super::migrate::{self, quote_ident};
use deadpool_postgres::Pool;

const COLUMNS: &str = include_str!("../../sql/columns.sql");
const RELATION: &str = include_str!("../../sql/relation.sql");
const PRIVILEGES: &str = include_str!("../../sql/privileges.sql");

/// What an inspection found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inspection {
    /// The relay cannot work while these are there; each says what to do.
    pub problems: Vec<String>,
    /// The schema version in a sentence.
    pub schema: String,
}

/// Inspects the schema as the role of `pool`.
///
/// # Errors
/// Postgres cannot be asked; this may heal by waiting.
pub async fn inspect(pool: &Pool, settings: &Settings) -> Result<Inspection, Error> {
    let schema = &settings.schema;
    let what = "inspect the schema";
    let found = once(pool, settings, what, async |client| {
        let usage = "select has_schema_privilege(oid, 'usage') from pg_catalog.pg_namespace where nspname = $1";
        client.query_opt(usage, &[schema]).await?.map(|row| row.try_get::<_, bool>(0)).transpose()
    })
    .await?;
    let role = once(pool, settings, what, async |client| {
        client.query_one("select quote_ident(current_user)", &[]).await?.try_get::<_, String>(0)
    })
    .await?;
    let mut inspection = Inspection::default();
    match found {
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
        Some(true) => tables(pool, settings, &role, &mut inspection).await?,
    }
    Ok(inspection)
}

async fn tables(pool: &Pool, settings: &Settings, role: &str, inspection: &mut Inspection) -> Result<(), Error> {
    let what = "inspect the tables";
    let readable = once(pool, settings, what, async |client| {
        let readable = "select has_table_privilege(to_regclass('state'), 'select') is not false";
        client.query_one(readable, &[]).await?.try_get::<_, bool>(0)
    })
    .await?;
    if readable {
        let client = get(pool, settings).await?;
        let found = within(what, settings.patience(), async {
            migrate::version(&**client, &settings.schema).await.map_err(|error| Error::Unexpected(error.to_string()))
        });
        let accepts = migrate::accepts(found.await?);
        inspection.schema = accepts.to_string();
        if !accepts.usable() {
            inspection.problems.push(accepts.to_string());
            return Ok(());
        }
    }
    if let Some(row) = once(pool, settings, what, async |client| client.query_opt(RELATION, &[]).await).await? {
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
    let columns = once(pool, settings, what, async |client| client.query(COLUMNS, &[]).await).await?;
    for row in columns {
        let text = |name| row.try_get::<_, Option<String>>(name).map_err(Error::statement(what));
        let (name, expected) = (text("name")?.unwrap_or_default(), text("expected")?.unwrap_or_default());
        let found = text("found")?.unwrap_or_else(|| "missing".to_owned());
        inspection.problems.push(format!("column outbox.{name} must be {expected}, found {found}"));
    }
    let privileges = once(pool, settings, what, async |client| client.query(PRIVILEGES, &[]).await).await?;
    for row in privileges {
        let missing: String = row.try_get(0).map_err(Error::statement(what))?;
        inspection.problems.push(format!("missing privilege: grant {missing} to {role};"));
    }
    Ok(())
}
