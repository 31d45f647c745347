//! Why a migration failed, in sentences for the person who runs it.

use std::error::Error as _;
use std::fmt;

use tokio_postgres::error::SqlState;

use super::VERSION;

/// Why [`apply`](super::apply), [`script`](super::script()) or [`version`](super::version) failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MigrateError {
    /// A name that cannot be an identifier.
    #[error("{what} name {name:?} {problem}")]
    Name {
        /// `schema` or `role`.
        what: &'static str,
        /// The name as given.
        name: String,
        /// What is wrong with it.
        problem: NameProblem,
    },
    /// A role to grant to that the server does not know.
    #[error("role {role:?} does not exist; create it first, for example: create role {quoted} login;")]
    MissingRole {
        /// The name as given.
        role: String,
        /// The same as an SQL identifier.
        quoted: String,
    },
    /// The schema was migrated by a newer duebox, which this one would break.
    #[error(
        "schema {schema:?} is at version {found}, newer than this duebox (version {VERSION}); use the newer duebox"
    )]
    Newer {
        /// The schema's name.
        schema: String,
        /// Its version.
        found: i32,
    },
    /// Somebody holds a table.
    #[error(
        "{doing}: somebody's open transaction holds the table, and everything that comes later would wait behind us; \
         nothing was changed, try again (SQLSTATE 55P03)"
    )]
    Held {
        /// What was going on.
        doing: String,
    },
    /// The server refused, or went away. The whole cause is in the text, so it is no `source` too:
    /// whoever prints the chain would say it twice.
    #[error("{doing}: {}", told(cause))]
    Postgres {
        /// What was going on.
        doing: String,
        /// The driver's error.
        cause: tokio_postgres::Error,
    },
}

impl MigrateError {
    /// For `map_err`: says what was going on when the driver failed.
    pub(super) fn while_(doing: impl Into<String>) -> impl FnOnce(tokio_postgres::Error) -> Self {
        let doing = doing.into();
        move |cause| match cause.code() {
            Some(&SqlState::LOCK_NOT_AVAILABLE) => Self::Held { doing },
            _ => Self::Postgres { doing, cause },
        }
    }
}

/// What is wrong with a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameProblem {
    /// It has no characters.
    Empty,
    /// It contains a NUL, which ends a text on the wire.
    Nul,
    /// It has more bytes than Postgres keeps.
    TooLong {
        /// Its length.
        bytes: usize,
        /// The longest possible.
        max: usize,
    },
}

impl fmt::Display for NameProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("is empty"),
            Self::Nul => f.write_str("contains a NUL byte"),
            Self::TooLong { bytes, max } => write!(f, "has {bytes} bytes, at most {max} are possible"),
        }
    }
}

/// The driver's `Display` is a mere "db error"; what the server said is in its sources.
fn told(error: &tokio_postgres::Error) -> String {
    let Some(db) = error.as_db_error() else {
        return chain(error);
    };
    let mut text = format!("{} (SQLSTATE {})", db.message(), db.code().code());
    for (label, part) in [("detail", db.detail()), ("hint", db.hint())] {
        if let Some(part) = part {
            text.push_str(&format!("; {label}: {part}"));
        }
    }
    text
}

fn chain(error: &tokio_postgres::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(&format!(": {cause}"));
        next = cause.source();
    }
    text
}
