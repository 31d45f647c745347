//! Counting, for metrics and `status`: never in the way of the relay.

use super::connect::Db;
use super::error::Error;
use crate::admin::metrics::Backlog;
use std::time::Duration;
use tokio_postgres::types::Type;

const BACKLOG: &str = include_str!("../../sql/backlog.sql");
const NOTIFICATION_QUEUE: &str = include_str!("../../sql/notification_queue.sql");
const OVERVIEW: &str = include_str!("../../sql/overview.sql");
const RECORD_QUEUE: &str = include_str!("../../sql/record_queue.sql");

/// What waits, tier by tier.
///
/// # Errors
/// Postgres cannot be asked.
pub async fn backlog(db: &Db) -> Result<Vec<Backlog>, Error> {
    let what = "count the backlog";
    let rows = db.once(what, async |client| client.query_typed(BACKLOG, &[]).await).await?;
    let read = |row: &tokio_postgres::Row| -> Result<Backlog, tokio_postgres::Error> {
        let age: Option<f64> = row.try_get("oldest_age")?;
        Ok(Backlog {
            tier: row.try_get("tier")?,
            backlog: row.try_get("backlog")?,
            held: row.try_get("held")?,
            oldest_age: age.map(|age| Duration::try_from_secs_f64(age).unwrap_or_default()),
        })
    };
    rows.iter().map(|row| read(row).map_err(Error::statement(what))).collect()
}

/// How full the server's queue of notifications is, from 0 to 1.
///
/// # Errors
/// Postgres cannot be asked.
pub async fn notification_queue(db: &Db) -> Result<f64, Error> {
    let what = "ask for the notification queue";
    let rows = db.once(what, async |client| client.query_typed(NOTIFICATION_QUEUE, &[]).await).await?;
    rows.first().map_or(Ok(0.0), |row| row.try_get(0)).map_err(Error::statement(what))
}

/// What `status` shows beside the backlog.
#[derive(Debug, Clone)]
pub struct Overview {
    /// Rows out of circulation.
    pub parked: i64,
    /// Delay queues that were ever declared.
    pub queues: Vec<String>,
    /// Relays that listen on this database.
    pub relays: i64,
}

/// Reads the overview.
///
/// # Errors
/// Postgres cannot be asked.
pub async fn overview(db: &Db) -> Result<Overview, Error> {
    let what = "read the overview";
    let row = db.once(what, async |client| client.query_typed_one(OVERVIEW, &[]).await).await?;
    let read = || -> Result<Overview, tokio_postgres::Error> {
        Ok(Overview { parked: row.try_get("parked")?, queues: row.try_get("queues")?, relays: row.try_get("relays")? })
    };
    read().map_err(Error::statement(what))
}

/// Remembers delay queues that we declared.
///
/// # Errors
/// Postgres cannot be asked.
pub async fn record_queues(db: &Db, names: &[String]) -> Result<(), Error> {
    db.once("record our queues", async |client| {
        client.execute_typed(RECORD_QUEUE, &[(&names, Type::TEXT_ARRAY)]).await
    })
    .await?;
    Ok(())
}

/// Asks the database for a sign of life.
///
/// # Errors
/// It gives none.
pub async fn probe(db: &Db) -> Result<(), Error> {
    db.once("ask for a sign of life", async |client| client.batch_execute("").await).await
}
