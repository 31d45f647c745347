//! Asking Postgres about a rule, in a transaction that is rolled back.

use crate::outbox::connect::{Db, Transaction};
use crate::outbox::error::{Error, describe};
use std::time::Duration;
use tokio_postgres::error::{DbError, SqlState};
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
pub(super) type Answer = Result<Vec<Row>, Refusal>;

/// Why Postgres refuses a statement, with the cure where it can be told.
#[derive(Debug)]
pub(super) struct Refusal {
    text: String,
    /// The statement is right, and the role may not run it.
    pub(super) is_denied: bool,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

/// The GRANT that is missing.
const DENIED: &str = include_str!("../../sql/rule_denied.sql");

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
        // A parameter bears the class of a lost connection.
        let code = cause.code();
        if refused.is_away() && code != Some(&SqlState::PROTOCOL_VIOLATION) {
            return Err(refused);
        }
        transaction.roll_back().await?;
        let text = match code {
            Some(&SqlState::PROTOCOL_VIOLATION) => "there is no parameter $1".to_owned(),
            Some(&SqlState::INSUFFICIENT_PRIVILEGE) => {
                format!("{}; {}", describe(cause), Box::pin(self.grant(cause)).await?)
            }
            _ => describe(cause),
        };
        Ok(Err(Refusal { text, is_denied: code == Some(&SqlState::INSUFFICIENT_PRIVILEGE) }))
    }

    /// The GRANT that the role lacks. Postgres names an object without its schema, in a sentence that a server may translate.
    async fn grant(&self, cause: &tokio_postgres::Error) -> Result<String, Error> {
        let message = cause.as_db_error().map_or("", DbError::message);
        let object = message.strip_prefix("permission denied for ").and_then(|object| object.rsplit_once(' '));
        let cures = match object {
            Some((kind, name)) => {
                let parameters = [(&kind as _, Type::TEXT), (&name as _, Type::TEXT)];
                let ask = async |client: &Client| client.query_typed(DENIED, &parameters).await;
                self.db.once("look for a missing privilege", ask).await?
            }
            None => Vec::new(),
        };
        let cure = match cures.as_slice() {
            [cure] => cure.try_get(0).map_err(Error::statement("look for a missing privilege"))?,
            // None: the right is missing inside a view or a function that runs as somebody else.
            _ => "the relay's role, or whoever owns the view or function that asks, needs that GRANT".to_owned(),
        };
        Ok(format!("missing privilege: {cure}"))
    }

    /// What `explain` says of a statement without parameters, or why it refuses it.
    pub(super) async fn explain(&self, statement: &str) -> Result<Answer, Error> {
        self.ask("", &format!("explain {statement}"), &[]).await
    }
}
