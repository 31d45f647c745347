//! Brings a database to the tables and functions of this duebox, and says which version it has.
//!
//! The migrations are the files in `sql/migrations/`, static and with unqualified names; what is
//! generated here is only what carries a name from outside: the schema and the roles.

mod error;
mod grants;
mod ident;
mod script;
mod trigger;

use std::fmt;

use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, GenericClient, IsolationLevel, Transaction};

pub use self::error::MigrateError;
pub use self::grants::Grants;
pub(crate) use self::ident::quote_literal;
pub use self::ident::{channel, quote_ident};
use self::ident::{quote_role, quote_schema};
pub use self::script::script;
pub use self::trigger::Trigger;

/// The schema version this duebox was written for; the number of the last migration.
pub const VERSION: i32 = 3;

/// The migrations in order; the first has number 1.
const FILES: [&str; VERSION as usize] = [
    include_str!("../../sql/migrations/0001_outbox.sql"),
    include_str!("../../sql/migrations/0002_interface.sql"),
    include_str!("../../sql/migrations/0003_bell.sql"),
];

/// Notes the version reached; run in the schema, after the file of that number.
fn record(version: i32) -> String {
    format!(
        "insert into state (name, info) values ('schema', '{{\"version\": {version}}}')\n    \
         on conflict (name) do update set at = now(), info = excluded.info;\n"
    )
}

/// What [`apply`] did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// The schema's name.
    pub schema: String,
    /// The version found; `None` where there was nothing yet.
    pub from: Option<i32>,
    /// The version it has now.
    pub to: i32,
    /// Whether inserts ring for the relays.
    pub rings: bool,
}

impl fmt::Display for Applied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { schema, from, to, rings } = self;
        match from {
            None => write!(f, "schema {schema:?} is new, at version {to}"),
            Some(from) if from == to => write!(f, "schema {schema:?} was already at version {to}"),
            Some(from) => write!(f, "schema {schema:?} went from version {from} to {to}"),
        }?;
        f.write_str(if *rings {
            "; inserts ring for the relays"
        } else {
            "; inserts do not ring, relays poll (--doorbell changes that)"
        })
    }
}

/// Brings `schema` to [`VERSION`], sets the doorbell and grants to the roles, all in one transaction or not at all.
///
/// The owner needs CREATE on the database, or an existing schema of its own. Running it again
/// changes nothing but the grants, which are run each time so that a role can be added later, and a trigger that is not as
/// it should be.
///
/// # Errors
///
/// A bad name, a missing role, a schema of a newer duebox, or what the server said.
pub async fn apply(
    client: &mut Client,
    schema: &str,
    grants: &Grants,
    trigger: Trigger,
) -> Result<Applied, MigrateError> {
    let quoted = quote_schema(schema)?;
    let granting = grants.sql(schema)?;
    let tx = begin(client, schema).await?;
    check_roles(&tx, grants).await?;
    create_schema(&tx, schema, &quoted).await?;
    tx.batch_execute(&enter(&quoted)).await.map_err(MigrateError::while_("entering the schema"))?;
    let from = version(&tx, schema).await?;
    if let Some(found) = from.filter(|found| *found > VERSION) {
        return Err(MigrateError::Newer { schema: schema.to_owned(), found });
    }
    for (number, file) in (1..).zip(FILES).filter(|(number, _)| *number > from.unwrap_or(0)) {
        let doing = MigrateError::while_(format!("applying migration {number} to schema {schema:?}"));
        tx.batch_execute(&format!("{file}{}", record(number))).await.map_err(doing)?;
    }
    tx.batch_execute(&trigger.sql()).await.map_err(MigrateError::while_("setting the doorbell"))?;
    let rings = "select exists (select 1 from pg_trigger where tgrelid = 'outbox'::regclass and tgname = 'outbox_bell' \
                 and tgenabled in ('O', 'A'))";
    let rings = tx.query_typed_one(rings, &[]).await.and_then(|row| row.try_get(0));
    let rings = rings.map_err(MigrateError::while_("looking at the doorbell"))?;
    tx.batch_execute(&granting).await.map_err(MigrateError::while_("granting"))?;
    tx.commit().await.map_err(MigrateError::while_("committing"))?;
    Ok(Applied { schema: schema.to_owned(), from, to: VERSION, rings })
}

/// How long a migration waits for a table. While it waits, everything that comes after it waits too, so that one
/// producer's open transaction would hold up the inserts of all.
const PATIENT: &str = "set local lock_timeout = '5s'";

/// Begins, and waits for any other migration of this schema to end, however long that takes.
///
/// READ COMMITTED whatever the role's default: with one snapshot for all, whoever waited for the
/// lock would still see the catalog of before and create everything a second time.
async fn begin<'a>(client: &'a mut Client, schema: &str) -> Result<Transaction<'a>, MigrateError> {
    let starting = client.build_transaction().isolation_level(IsolationLevel::ReadCommitted).start();
    let tx = starting.await.map_err(MigrateError::while_("beginning"))?;
    let lock = "select pg_advisory_xact_lock(hashtextextended($1, 0))";
    let parameters: [(&(dyn ToSql + Sync), Type); 1] = [(&lock_name(schema), Type::TEXT)];
    let beginning = || MigrateError::while_("waiting for another migration");
    tx.batch_execute("set local lock_timeout = 0").await.map_err(beginning())?;
    tx.query_typed(lock, &parameters).await.map_err(beginning())?;
    tx.batch_execute(PATIENT).await.map_err(beginning())?;
    Ok(tx)
}

/// What the advisory lock of a migration is hashed from.
fn lock_name(schema: &str) -> String {
    format!("duebox migrate {schema}")
}

/// Not `create schema if not exists`: that asks for CREATE on the database even where the schema is
/// there, and an owner of just the schema need not have it.
async fn create_schema(tx: &Transaction<'_>, schema: &str, quoted: &str) -> Result<(), MigrateError> {
    let find = "select 1 from pg_namespace where nspname = $1::text";
    let found = tx
        .query_typed_opt(find, &[(&schema, Type::TEXT)])
        .await
        .map_err(MigrateError::while_("looking for the schema"))?;
    if found.is_none() {
        let doing = MigrateError::while_(format!("creating schema {schema:?}"));
        tx.batch_execute(&format!("create schema {quoted}")).await.map_err(doing)?;
    }
    Ok(())
}

/// From here on unqualified names mean this schema, until the transaction ends. `pg_temp` is named
/// because it would be searched first otherwise.
fn enter(quoted: &str) -> String {
    format!("set local search_path = {quoted}, pg_temp;\n")
}

async fn check_roles(tx: &Transaction<'_>, grants: &Grants) -> Result<(), MigrateError> {
    for role in grants.roles() {
        let find = "select 1 from pg_roles where rolname = $1::text";
        let found = tx
            .query_typed_opt(find, &[(&role, Type::TEXT)])
            .await
            .map_err(MigrateError::while_("looking for the roles"))?;
        if found.is_none() {
            return Err(MigrateError::MissingRole { role: role.to_owned(), quoted: quote_role(role)? });
        }
    }
    Ok(())
}

/// The version that `schema` has; `None` where no duebox has migrated it.
///
/// # Errors
///
/// A bad schema name, or what the server said.
pub async fn version(client: &impl GenericClient, schema: &str) -> Result<Option<i32>, MigrateError> {
    quote_schema(schema)?;
    let found = read_version(client, schema).await;
    found.map_err(MigrateError::while_(format!("reading the version of schema {schema:?}")))
}

/// The same of a schema that is there.
pub(super) async fn read_version(
    client: &impl GenericClient,
    schema: &str,
) -> Result<Option<i32>, tokio_postgres::Error> {
    // Asked first, as a missing table would abort the transaction this may run in.
    let find = "select 1 from pg_class c join pg_namespace n on n.oid = c.relnamespace \
                where n.nspname = $1::text and c.relname = 'state'";
    if client.query_typed_opt(find, &[(&schema, Type::TEXT)]).await?.is_none() {
        return Ok(None);
    }
    let read = format!("select (info->>'version')::int from {}.state where name = 'schema'", quote_ident(schema));
    client.query_typed_opt(&read, &[]).await?.map_or(Ok(None), |row| row.try_get(0))
}

/// Whether this relay can work on a schema of the version found; its `Display` is the sentence to log.
///
/// One version back is accepted, so that relays are upgraded first, one by one, and migrated then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accepts {
    /// The version this duebox was written for.
    Current,
    /// The one before: works, `duebox migrate` is due.
    Previous,
    /// Never migrated.
    Missing,
    /// Too old to work on.
    TooOld(i32),
    /// Migrated by a newer duebox.
    TooNew(i32),
}

/// Judges the answer of [`version`].
#[must_use]
pub fn accepts(found: Option<i32>) -> Accepts {
    match found {
        None => Accepts::Missing,
        Some(VERSION) => Accepts::Current,
        Some(found) if found > VERSION => Accepts::TooNew(found),
        Some(found) if found == VERSION - 1 => Accepts::Previous,
        Some(found) => Accepts::TooOld(found),
    }
}

impl Accepts {
    /// Whether the relay may start claiming.
    #[must_use]
    pub fn usable(self) -> bool {
        matches!(self, Self::Current | Self::Previous)
    }
}

impl fmt::Display for Accepts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let previous = VERSION - 1;
        match self {
            Self::Current => write!(f, "the schema is at version {VERSION}, this duebox's own"),
            Self::Previous => write!(
                f,
                "the schema is at version {previous}, accepted by this duebox (version {VERSION}); \
                 run `duebox migrate` once all relays are upgraded"
            ),
            Self::Missing => f.write_str("the schema has no duebox tables; run `duebox migrate` as their owner"),
            Self::TooOld(found) => write!(
                f,
                "the schema is at version {found}, this duebox accepts {VERSION} and {previous}; run `duebox migrate`"
            ),
            Self::TooNew(found) => write!(
                f,
                "the schema is at version {found}, this duebox accepts {VERSION} and {previous}; upgrade this duebox"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_own_version_and_the_one_before_are_usable_and_no_other() {
        let usable: Vec<i32> = (0..=VERSION + 2).filter(|found| accepts(Some(*found)).usable()).collect();
        assert_eq!(usable, [VERSION - 1, VERSION]);
        assert!(!accepts(None).usable());
    }

    #[test]
    fn the_sentence_names_the_version_found_and_the_way_out() {
        assert!(accepts(Some(VERSION + 1)).to_string().contains(&format!("version {}", VERSION + 1)));
        assert!(accepts(Some(VERSION + 1)).to_string().contains("upgrade this duebox"));
        assert!(accepts(Some(0)).to_string().contains("run `duebox migrate`"));
        assert!(accepts(None).to_string().contains("run `duebox migrate`"));
    }
}
