//! Statements: each in a transaction that brings its settings along and leaves nothing behind on the session.

use super::db::Lent;
use super::{Db, within};
use crate::outbox::error::Error;
use futures_util::future::{join, join3};
use std::time::Duration;
use tokio_postgres::{Client, SimpleQueryMessage};

impl Db {
    /// Runs one statement in a transaction of its own; `work` must be that statement alone.
    ///
    /// It costs one round trip, as the statement by itself would: begin, statement and commit are sent together, because
    /// whatever is polled first is sent first. The commit of a statement that failed rolls back.
    pub(crate) async fn once<T>(
        &self,
        what: &'static str,
        work: impl AsyncFnOnce(&Client) -> Result<T, tokio_postgres::Error>,
    ) -> Result<T, Error> {
        let lent = self.lend().await?;
        let begin = self.settings().begin();
        let answers = within(what, self.settings().patience(), async {
            let client = lent.client(what)?;
            Ok(join3(client.simple_query(&begin), work(client), client.batch_execute("commit")).await)
        });
        let (begun, done, ended) = answers.await.inspect_err(|error| self.note(error))?;
        let answer = begun.map_err(Error::statement(what)).and_then(|answer| refuse_read_only(what, &answer));
        let clean = answer.is_ok() && ended.is_ok();
        let answer = answer.and_then(|()| done.map_err(Error::statement(what)));
        let answer = answer.and_then(|done| ended.map(|()| done).map_err(Error::statement(what)));
        if clean {
            lent.give_back();
        }
        answer.inspect_err(|error| self.note(error))
    }
}

/// Judges the answer to `show transaction_read_only`.
pub(super) fn refuse_read_only(what: &'static str, answer: &[SimpleQueryMessage]) -> Result<(), Error> {
    let read_only = answer.iter().any(|one| matches!(one, SimpleQueryMessage::Row(row) if row.get(0) == Some("on")));
    if read_only { Err(Error::ReadOnly { what }) } else { Ok(()) }
}

/// A transaction that owns its connection. Dropped unfinished, it closes the connection: the server rolls back, and no
/// half-done transaction ever returns to the pool.
#[derive(Debug)]
pub struct Transaction {
    lent: Lent,
    db: Db,
}

impl Transaction {
    /// Begins a READ COMMITTED transaction that the server ends when we are silent for longer than `silence`.
    pub(crate) async fn begin(db: &Db, silence: Duration) -> Result<Self, Error> {
        let nothing = async |_: &Client| Ok(());
        Self::begin_with(db, silence, "begin", nothing).await.map(|(transaction, ())| transaction)
    }

    /// The same with its first statements, sent along in the same round trip.
    pub(crate) async fn begin_with<T>(
        db: &Db,
        silence: Duration,
        what: &'static str,
        work: impl AsyncFnOnce(&Client) -> Result<T, tokio_postgres::Error>,
    ) -> Result<(Self, T), Error> {
        let transaction = Self { lent: db.lend().await?, db: db.clone() };
        let silence = silence.as_millis();
        // tcp_user_timeout: without it a relay that was stopped while reading keeps its rows (measured).
        let begin = format!(
            "{}; set local idle_in_transaction_session_timeout = {silence}; set local tcp_user_timeout = {silence}",
            db.settings().begin()
        );
        let both = async |client: &Client| Ok(join(client.simple_query(&begin), work(client)).await);
        let (begun, done) = transaction.run(what, both).await?;
        let begun = begun.map_err(Error::statement("begin")).and_then(|answer| refuse_read_only("begin", &answer));
        let done = begun.and_then(|()| done.map_err(Error::statement(what))).inspect_err(|error| db.note(error))?;
        Ok((transaction, done))
    }

    /// Runs `work` on the connection within the deadline of one statement.
    ///
    /// Whether the server takes writes was asked at the begin. If that is what a statement fails with now, a trigger or a
    /// function of the user's has raised it.
    pub(crate) async fn run<T>(
        &self,
        what: &'static str,
        work: impl AsyncFnOnce(&Client) -> Result<T, tokio_postgres::Error>,
    ) -> Result<T, Error> {
        let answer = within(what, self.db.settings().patience(), async {
            work(self.lent.client(what)?).await.map_err(|cause| Error::Statement { what, cause })
        });
        answer.await.inspect_err(|error| self.db.note(error))
    }

    /// Commits. An error leaves the outcome unknown: the rows show it at the next claim.
    pub(crate) async fn commit(self) -> Result<(), Error> {
        self.finish("commit").await
    }

    /// Rolls back, so that the rows are free again at once.
    pub(crate) async fn roll_back(self) -> Result<(), Error> {
        self.finish("rollback").await
    }

    /// Rolls back because of `error`, which is returned. The connection is good unless it is gone; dropping the
    /// transaction would cost it.
    pub(crate) async fn fail(self, error: Error) -> Error {
        if error.is_gone() { error } else { self.roll_back().await.err().unwrap_or(error) }
    }

    async fn finish(self, how: &'static str) -> Result<(), Error> {
        let done = self.run(how, async |client| client.batch_execute(how).await).await;
        // Only now may the connection go back to the pool. A commit that was refused has rolled back.
        if !done.as_ref().is_err_and(Error::is_gone) {
            self.lent.give_back();
        }
        done
    }
}
