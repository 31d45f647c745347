//! What a command of an operator's needs in our schema, and its role may not do.

use super::connect::Db;
use super::error::Error;
use super::inspect;
use tokio_postgres::types::Type;

const RIGHTS: &str = include_str!("../../sql/rights.sql");

/// What a command needs.
#[derive(Debug, Clone, Copy)]
pub struct Needs {
    /// Tables of ours, each with a privilege.
    pub tables: &'static [(&'static str, &'static str)],
    /// It wakes the relays.
    pub rings: bool,
}

/// The error of a command in the operator's words: the missing GRANT, or what is wrong with the schema, where that is
/// why it was refused.
pub async fn explain(db: &Db, needs: Needs, error: Error) -> Error {
    if !error.is_denied_or_missing() {
        return error;
    }
    match reasons(db, needs).await {
        Ok(reasons) if !reasons.is_empty() => Error::Unexpected(reasons.join("\n")),
        // What the statement said is all there is to say.
        _ => error,
    }
}

async fn reasons(db: &Db, needs: Needs) -> Result<Vec<String>, Error> {
    let what = "look for missing privileges";
    let (tables, privileges): (Vec<&str>, Vec<&str>) = needs.tables.iter().copied().unzip();
    let rows = db.once(what, async |client| {
        let (schema, tables) = ((&db.settings().schema as _, Type::TEXT), (&tables as _, Type::TEXT_ARRAY));
        client.query_typed(RIGHTS, &[schema, tables, (&privileges, Type::TEXT_ARRAY), (&needs.rings, Type::BOOL)]).await
    });
    let missing = rows.await?.iter().map(|row| row.try_get::<_, String>(0)).collect::<Result<Vec<_>, _>>();
    let missing = missing.map_err(Error::statement(what))?;
    if missing.is_empty() {
        return Ok(inspect::inspect(db).await?.problems);
    }
    Ok(missing.iter().map(|grant| format!("missing privilege: {grant}")).collect())
}
