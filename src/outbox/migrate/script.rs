//! `duebox migrate --print`: the same as [`apply`](super::apply), for whoever runs DDL by hand.

use super::error::MigrateError;
use super::grants::Grants;
use super::ident::{quote_literal, quote_schema};
use super::{FILES, PATIENT, Trigger, VERSION, enter, lock_name, record};

/// A script for `psql -v ON_ERROR_STOP=1`, which ends where [`apply`](super::apply) ends.
///
/// It can be run again: what is there is left alone, only the grants are repeated, and a trigger that is not as it should be is made anew.
///
/// # Errors
///
/// A schema or role name that cannot be an identifier.
pub fn script(schema: &str, grants: &Grants, trigger: Trigger) -> Result<String, MigrateError> {
    let quoted = quote_schema(schema)?;
    let mut text = head(schema, &quoted);
    for (number, file) in (1..).zip(FILES) {
        text.push_str(&format!(
            "\nselect :duebox_version < {number} as duebox_new \\gset\n\\if :duebox_new\n{file}\n{}\\endif\n",
            record(number)
        ));
    }
    text.push_str(&format!("\n{}\n{}\ncommit;\n", trigger.sql(), grants.sql(schema)?));
    Ok(text)
}

/// Begins, creates what is not there and finds out the version, in psql's own variables: a plain
/// `if` would need each migration wrapped in a string.
fn head(schema: &str, quoted: &str) -> String {
    let name = quote_literal(schema);
    let lock = quote_literal(&lock_name(schema));
    format!(
        "-- duebox: schema version {VERSION}. Run it as the owner, on an empty database or one that duebox has
-- migrated before (what is there is left alone, the grants are repeated):
--   psql -v ON_ERROR_STOP=1 -f FILE
-- It needs psql for its \\if. The roles it grants to must exist.
begin isolation level read committed;
set local lock_timeout = 0;
select pg_advisory_xact_lock(hashtextextended({lock}, 0));
-- A lock timeout means that somebody's open transaction holds the table: nothing was changed, try again. To wait longer
-- would make every insert wait behind this.
{PATIENT};

select count(*) = 0 as duebox_new from pg_namespace where nspname = {name} \\gset
\\if :duebox_new
create schema {quoted};
\\endif
{}
\\set duebox_version 0
select count(*) = 1 as duebox_found from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where n.nspname = {name} and c.relname = 'state' \\gset
\\if :duebox_found
select (info->>'version')::int as duebox_version from state where name = 'schema' \\gset
\\endif
",
        enter(quoted)
    )
}
