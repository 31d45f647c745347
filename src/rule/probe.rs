//! Asking Postgres about a rule, in a transaction that is rolled back.

use crate::outbox::connect::{Db, Transaction};
use crate::outbox::error::{Error, describe};
use std::time::Duration;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row};

/// No row is locked while a table is looked at.
const SILENCE: Duration = Duration::from_secs(10);

/// How long is waited for a table that somebody has locked.
const LOCKED: &str = "set local lock_timeout = '1s'";

/// What a statement may take.
pub(super) type Parameters<'a> = &'a [(&'a (dyn ToSql + Sync), Type)];

/// Asks under the role's own `search_path`.
#[derive(Clone, Copy)]
pub(super) struct Probe<'a> {
    pub(super) db: &'a Db,
}

/// An answer, or why Postgres refuses the statement.
pub(super) type Answer = Result<Vec<Row>, String>;

impl Probe<'_> {
    /// Runs a statement that changes nothing, after `set`, and rolls back.
    pub(super) async fn ask(&self, set: &str, statement: &str, parameters: Parameters<'_>) -> Result<Answer, Error> {
        let what = "look at a rule";
        let set = format!("set local search_path to default; {LOCKED}; {set}");
        let begin = async |client: &Client| client.batch_execute(&set).await;
        let (transaction, ()) = Transaction::begin_with(self.db, SILENCE, what, begin).await?;
        let rows = transaction.run(what, async |client| client.query_typed(statement, parameters).await).await;
        let refused = match rows {
            Ok(rows) => {
                transaction.roll_back().await?;
                return Ok(Ok(rows));
            }
            Err(error) => error,
        };
        let Error::Statement { cause, .. } = &refused else { return Err(refused) };
        if refused.is_out_of_time() {
            // It says nothing about the statement.
            transaction.roll_back().await?;
            return Err(refused);
        }
        let reason = match cause.code() {
            // It bears the class of a lost connection.
            Some(&SqlState::PROTOCOL_VIOLATION) => "there is no parameter $1".to_owned(),
            _ if refused.is_away() => return Err(refused),
            Some(&SqlState::INSUFFICIENT_PRIVILEGE) => {
                format!("{}: the relay's role needs that GRANT", describe(cause))
            }
            _ => describe(cause),
        };
        transaction.roll_back().await?;
        Ok(Err(reason))
    }

    /// What `explain` says of a statement without parameters, or why it refuses it.
    pub(super) async fn explain(&self, statement: &str) -> Result<Answer, Error> {
        self.ask("", &format!("explain {statement}"), &[]).await
    }
}
