//! What can go wrong on the Postgres side, and how it is said.

use super::migrate::quote_literal;
use std::error::Error as _;
use std::time::Duration;
use tokio_postgres::error::{DbError, Severity, SqlState};

/// Said of a server that takes no writes.
pub(super) const READ_ONLY: &str = "the server takes no writes: it is a standby, or default_transaction_read_only is on \
    there; duebox waits for the primary; where that may move, name every server: postgres://duebox@db1,db2/shop";

/// The Postgres side failed: about no row of the outbox; of a close, about its order where it says so.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The URL cannot be used.
    #[error("postgres.url: {0}")]
    Url(String),
    /// No connection could be made or borrowed.
    #[error("cannot connect to Postgres: {0}")]
    Connect(String),
    /// A connection that worked has ended.
    #[error("lost the connection to Postgres: {0}")]
    Lost(String),
    /// A statement failed.
    #[error("{what}: {}", describe(.cause))]
    Statement {
        /// What was being done.
        what: &'static str,
        /// The driver's error. Its text is in ours, so it is no `source`: a printed chain would say it twice.
        cause: tokio_postgres::Error,
    },
    /// A rule's table could not be looked at in time. It is locked as a whole by whoever alters it, and by those who wait
    /// for that.
    #[error(
        "no answer in time about table {table} of rule {rule}: {}; who has it locked, and since when: select a.pid, l.mode, \
         a.xact_start, a.query from pg_locks l join pg_stat_activity a using (pid) where l.granted and \
         l.relation = {}::regclass;",
        describe(.cause),
        quote_literal(.table)
    )]
    Table {
        /// The rule.
        rule: String,
        /// Its table, as the configuration has it.
        table: String,
        /// The driver's error.
        cause: tokio_postgres::Error,
    },
    /// The server takes no writes any more: the primary has moved.
    #[error("{what}: {READ_ONLY}")]
    ReadOnly {
        /// What was being done.
        what: &'static str,
    },
    /// No answer in time.
    #[error("{what}: no answer from Postgres within {within:?}")]
    Deadline {
        /// What was being done.
        what: &'static str,
        /// The deadline.
        within: Duration,
    },
    /// A statement did not do to an order what it had to, and was rolled back.
    #[error("{0}")]
    Undone(&'static str),
    /// The same, for a reason that the function or the statement itself gives.
    #[error("{0}")]
    Refused(&'static str),
    /// Postgres answered with something this version cannot read.
    #[error("{0}")]
    Unexpected(String),
}

impl Error {
    /// Wraps a driver error with what was being done.
    pub(crate) fn statement(what: &'static str) -> impl FnOnce(tokio_postgres::Error) -> Self {
        move |cause| match cause.code() {
            Some(&SqlState::READ_ONLY_SQL_TRANSACTION) => Self::ReadOnly { what },
            _ => Self::Statement { what, cause },
        }
    }

    /// Serialization failure or deadlock: the same thing may simply be tried again.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        let Self::Statement { cause, .. } = self else { return false };
        matches!(cause.code(), Some(&SqlState::T_R_SERIALIZATION_FAILURE | &SqlState::T_R_DEADLOCK_DETECTED))
    }

    /// Somebody else keeps locked what a statement needs.
    #[must_use]
    pub fn is_locked(&self) -> bool {
        matches!(self, Self::Statement { cause, .. } if cause.code() == Some(&SqlState::LOCK_NOT_AVAILABLE))
    }

    /// A statement ran into its time limit, for whatever reason.
    #[must_use]
    pub fn is_slow(&self) -> bool {
        matches!(self, Self::Statement { cause, .. } if cause.code() == Some(&SqlState::QUERY_CANCELED))
    }

    /// A statement ran into a bound: somebody keeps locked what it names or writes, or the database is slow. Which of the two
    /// cannot always be told: who waits for a row waits for several locks, each with a bound of its own.
    #[must_use]
    pub fn is_out_of_time(&self) -> bool {
        self.is_locked() || self.is_slow()
    }

    /// The server has ended a transaction in which we said nothing for too long.
    #[must_use]
    pub fn is_silence(&self) -> bool {
        let silence = SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT;
        self.is_gone() && matches!(self, Self::Statement { cause, .. } if cause.code() == Some(&silence))
    }

    /// The role may not, or what the statement names is not there.
    #[must_use]
    pub fn is_denied_or_missing(&self) -> bool {
        let Self::Statement { cause, .. } = self else { return false };
        let missing = [SqlState::UNDEFINED_TABLE, SqlState::UNDEFINED_FUNCTION, SqlState::UNDEFINED_COLUMN];
        cause.code().is_some_and(|code| *code == SqlState::INSUFFICIENT_PRIVILEGE || missing.contains(code))
    }

    /// The database cannot be reached, as opposed to refusing this one statement.
    #[must_use]
    pub fn is_away(&self) -> bool {
        // 08 connection, 25P03 we were silent for too long, 53 out of something, 57P shut down, starting or terminated.
        const AWAY: [&str; 4] = ["08", "25P03", "53", "57P"];
        match self {
            Self::Connect(_) | Self::Lost(_) | Self::Deadline { .. } | Self::ReadOnly { .. } => true,
            Self::Statement { cause, .. } => match cause.code() {
                Some(code) => AWAY.iter().any(|class| code.code().starts_with(class)),
                None => cause.is_closed() || cause.source().is_some_and(<dyn std::error::Error>::is::<std::io::Error>),
            },
            Self::Url(_) | Self::Table { .. } | Self::Undone(_) | Self::Refused(_) | Self::Unexpected(_) => false,
        }
    }

    /// The same of a statement that runs code of the user's: a trigger may raise any class, that of a lost connection
    /// (dblink) or of a full disk too. Only when the server ends the session, it says FATAL.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        let Self::Statement { cause, .. } = self else { return self.is_away() };
        cause.as_db_error().map_or_else(|| self.is_away(), ends_session)
    }
}

/// An older pooler has only the word that a server translates.
fn ends_session(error: &DbError) -> bool {
    match error.parsed_severity() {
        Some(severity) => matches!(severity, Severity::Fatal | Severity::Panic),
        None => matches!(error.severity(), "FATAL" | "PANIC"),
    }
}

/// The whole chain of a driver error, whose own text says only "db error".
#[must_use]
pub fn describe(error: &tokio_postgres::Error) -> String {
    if let Some(db) = error.as_db_error() {
        // The detail of a broken constraint (class 23) quotes the row: somebody's order, or a payload.
        let detail = db.detail().filter(|_| !db.code().code().starts_with("23"));
        // Of code of the user's, where in it: the innermost of its functions, and none of the statements above it.
        let place = db.where_().and_then(|place| place.lines().find(|line| line.starts_with("PL/")));
        let extra =
            [detail, db.hint(), place].into_iter().flatten().fold(String::new(), |text, part| text + "; " + part);
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
