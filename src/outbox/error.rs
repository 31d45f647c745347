//! What can go wrong on the Postgres side, and how it is said.

use std::error::Error as _;
use std::time::Duration;
use tokio_postgres::error::SqlState;

/// The Postgres side failed; never about one row.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The URL cannot be used.
    #[error("postgres.url: {0}")]
    Url(String),
    /// No connection could be made or borrowed.
    #[error("cannot connect to Postgres: {0}")]
    Connect(String),
    /// A statement failed.
    #[error("{what}: {}", describe(.source))]
    Statement {
        /// What was being done.
        what: &'static str,
        /// The driver's error.
        source: tokio_postgres::Error,
    },
    /// No answer in time.
    #[error("{what}: no answer from Postgres within {within:?}")]
    Deadline {
        /// What was being done.
        what: &'static str,
        /// The deadline.
        within: Duration,
    },
    /// Postgres answered with something this version cannot read.
    #[error("{0}")]
    Unexpected(String),
}

impl Error {
    /// Wraps a driver error with what was being done.
    pub(crate) fn statement(what: &'static str) -> impl FnOnce(tokio_postgres::Error) -> Self {
        move |source| Self::Statement { what, source }
    }

    /// Serialization failure or deadlock: the same thing may simply be tried again.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        let Self::Statement { source, .. } = self else { return false };
        matches!(source.code(), Some(&SqlState::T_R_SERIALIZATION_FAILURE | &SqlState::T_R_DEADLOCK_DETECTED))
    }

    /// The database cannot be reached, as opposed to refusing this one statement.
    #[must_use]
    pub fn is_away(&self) -> bool {
        match self {
            Self::Connect(_) | Self::Deadline { .. } => true,
            // Without a code it is the connection that failed; class 57P is a server that shuts down or starts.
            Self::Statement { source, .. } => source.code().is_none_or(|code| code.code().starts_with("57P")),
            Self::Url(_) | Self::Unexpected(_) => false,
        }
    }

    /// The SQLSTATE, if Postgres sent one.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        let Self::Statement { source, .. } = self else { return None };
        source.code().map(SqlState::code)
    }
}

impl From<deadpool_postgres::PoolError> for Error {
    fn from(error: deadpool_postgres::PoolError) -> Self {
        use deadpool_postgres::{HookError, PoolError};
        Self::Connect(match &error {
            PoolError::Backend(source) | PoolError::PostCreateHook(HookError::Backend(source)) => describe(source),
            PoolError::Timeout(_)
            | PoolError::Closed
            | PoolError::NoRuntimeSpecified
            | PoolError::PostCreateHook(_) => error.to_string(),
        })
    }
}

/// The whole chain of a driver error, whose own text says only "db error".
#[must_use]
pub fn describe(error: &tokio_postgres::Error) -> String {
    if let Some(db) = error.as_db_error() {
        let extra = [db.detail(), db.hint()].into_iter().flatten().fold(String::new(), |text, part| text + "; " + part);
        return format!("{} ({}){extra}", db.message(), db.code().code());
    }
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
