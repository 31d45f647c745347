//! The pass of one rule's sweep: one relay at a time has it, and the period counts from its end.

use crate::outbox::connect::Db;
use crate::outbox::error::Error;
use std::time::Duration;
use tokio_postgres::types::Type;
use uuid::Uuid;

const TAKE: &str = include_str!("../../sql/sweep_take.sql");
const WAIT: &str = include_str!("../../sql/sweep_wait.sql");
const KEEP: &str = include_str!("../../sql/sweep_keep.sql");
const END: &str = include_str!("../../sql/sweep_end.sql");

/// One relay's share in the passes of a rule.
#[derive(Debug)]
pub(super) struct Pass<'a> {
    db: &'a Db,
    name: String,
    by: Uuid,
    every: String,
}

/// Whether the pass was to be had.
#[derive(Debug)]
pub(super) enum Taken {
    /// It is ours.
    Ours,
    /// It is not.
    Later {
        /// How long until it may be.
        wait: Duration,
        /// When the last one ended, in seconds since 1970, unless one is going on.
        ended: Option<f64>,
    },
}

impl<'a> Pass<'a> {
    pub(super) fn new(db: &'a Db, rule: &str, every: Duration) -> Self {
        let every = format!("{} microseconds", every.as_micros());
        Self { db, name: format!("sweep.{rule}"), by: Uuid::new_v4(), every }
    }

    /// Takes the pass.
    pub(super) async fn take(&self) -> Result<Taken, Error> {
        let what = "take the pass";
        let (name, by, every) = ((&self.name, Type::TEXT), (&self.by, Type::UUID), (&self.every, Type::TEXT));
        let taken = self.db.once(what, async |client| {
            client.query_typed(TAKE, &[(name.0, name.1), (by.0, by.1), (every.0, every.1)]).await
        });
        if !taken.await?.is_empty() {
            return Ok(Taken::Ours);
        }
        let rows = self.db.once(what, async |client| {
            client.query_typed(WAIT, &[(&self.name, Type::TEXT), (&self.every, Type::TEXT)]).await
        });
        let rows = rows.await?;
        let Some(row) = rows.first() else { return Ok(Taken::Later { wait: Duration::ZERO, ended: None }) };
        let wait: f64 = row.try_get("wait").map_err(Error::statement(what))?;
        let ended = row.try_get("ended").map_err(Error::statement(what))?;
        Ok(Taken::Later { wait: Duration::try_from_secs_f64(wait).unwrap_or_default(), ended })
    }

    /// Shows that the pass goes on. False: somebody else has taken it over.
    pub(super) async fn keep(&self) -> Result<bool, Error> {
        let run = self.db.once("keep the pass", async |client| {
            client.execute_typed(KEEP, &[(&self.name, Type::TEXT), (&self.by, Type::UUID)]).await
        });
        Ok(run.await? > 0)
    }

    /// Ends the pass: when, in seconds since 1970 by the database's clock; none: somebody else has taken it over.
    pub(super) async fn end(&self) -> Result<Option<f64>, Error> {
        self.end_ago("0 s").await
    }

    /// Gives up a pass that is not through, so that a relay that sweeps `every` so often takes it at once. Best effort
    /// within what a stop may take; without it the pass is free after 30 s.
    pub(super) async fn break_off(&self, every: Duration) {
        let ago = format!("{} microseconds", every.as_micros());
        drop(tokio::time::timeout(Duration::from_secs(1), self.end_ago(&ago)).await);
    }

    async fn end_ago(&self, ago: &str) -> Result<Option<f64>, Error> {
        let what = "end the pass";
        let run = self.db.once(what, async |client| {
            client.query_typed(END, &[(&self.name, Type::TEXT), (&self.by, Type::UUID), (&ago, Type::TEXT)]).await
        });
        let rows = run.await?;
        rows.first().map(|row| row.try_get("ended").map_err(Error::statement(what))).transpose()
    }
}
