//! Names from outside, made safe to stand in SQL.

use super::error::{MigrateError, NameProblem};

/// Postgres cuts longer identifiers short with a mere notice: a grant would go to another role.
const MAX_ROLE_BYTES: usize = 63;

/// A channel is the schema's name and a suffix (see [`channel`]) and may have 63 bytes at most;
/// the rest is kept for a longer suffix.
const MAX_SCHEMA_BYTES: usize = 50;

/// The channel a relay of this schema listens on and inserts ring on, unquoted.
///
/// `0003_bell.sql` and `ring()` compute the same name.
#[must_use]
pub fn channel(schema: &str) -> String {
    format!("{schema}.outbox")
}

pub(super) fn quote_schema(name: &str) -> Result<String, MigrateError> {
    quote("schema", name, MAX_SCHEMA_BYTES)
}

pub(super) fn quote_role(name: &str) -> Result<String, MigrateError> {
    quote("role", name, MAX_ROLE_BYTES)
}

fn quote(what: &'static str, name: &str, max: usize) -> Result<String, MigrateError> {
    let problem = match name {
        "" => Some(NameProblem::Empty),
        _ if name.contains('\0') => Some(NameProblem::Nul),
        _ if name.len() > max => Some(NameProblem::TooLong { bytes: name.len(), max }),
        _ => None,
    };
    match problem {
        Some(problem) => Err(MigrateError::Name { what, name: name.to_owned(), problem }),
        None => Ok(quote_ident(name)),
    }
}

/// An SQL identifier, always quoted: quoting only where needed takes the keyword list of each server version.
#[must_use]
pub fn quote_ident(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A string constant that reads the same whatever `standard_conforming_strings` says.
pub(crate) fn quote_literal(text: &str) -> String {
    let quoted = text.replace('\'', "''");
    if quoted.contains('\\') { format!("E'{}'", quoted.replace('\\', "\\\\")) } else { format!("'{quoted}'") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nasty_names_stay_one_identifier() {
        for (name, quoted) in [
            ("app", "\"app\""),
            ("Out Box", "\"Out Box\""),
            ("select", "\"select\""),
            ("a\"b", "\"a\"\"b\""),
            ("\"; drop table orders; --", "\"\"\"; drop table orders; --\""),
            ("a'b\\c", "\"a'b\\c\""),
            ("$$", "\"$$\""),
            ("заказы-注文", "\"заказы-注文\""),
            ("new\nline", "\"new\nline\""),
        ] {
            assert_eq!(quote_role(name).unwrap(), quoted);
        }
    }

    #[test]
    fn empty_names_and_nul_are_refused_by_name() {
        assert_eq!(quote_role("").unwrap_err().to_string(), "role name \"\" is empty");
        assert_eq!(quote_schema("a\0b").unwrap_err().to_string(), "schema name \"a\\0b\" contains a NUL byte");
    }

    #[test]
    fn a_name_that_postgres_would_cut_short_is_refused() {
        assert!(quote_role(&"r".repeat(63)).is_ok());
        let error = quote_role(&"ü".repeat(32)).unwrap_err().to_string();
        assert!(error.ends_with("has 64 bytes, at most 63 are possible"), "{error}");
        assert!(quote_schema(&"s".repeat(50)).is_ok());
        assert!(quote_schema(&"s".repeat(51)).is_err());
    }

    #[test]
    fn literals_survive_quotes_and_backslashes() {
        assert_eq!(quote_literal("it's"), "'it''s'");
        assert_eq!(quote_literal("a\\'b"), "E'a\\\\''b'");
    }
}
