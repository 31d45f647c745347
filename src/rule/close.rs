//! Closing: lock the orders, then change those that still are overdue, in one READ COMMITTED transaction.
//!
//! Two statements, because the second takes its snapshot when the locks are held: whatever a payment committed before is
//! seen, and whatever comes after waits. With a single UPDATE, a condition that reads another table closed paid orders.

use super::orders::Orders;
use crate::outbox::connect::{Pool, Settings, Transaction};
use crate::outbox::decode::micros;
use crate::outbox::error::Error;
use std::time::{Duration, SystemTime};
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

/// Bound on each of the two statements. Both and [`SILENCE`] make the second that a payment waits at most.
const STATEMENT: Duration = Duration::from_millis(350);
/// Below the statement's, so that the error says that it was a lock.
const LOCK: Duration = Duration::from_millis(300);
/// Postgres ends the transaction of a relay that was stopped between the two.
const SILENCE: Duration = Duration::from_millis(300);

/// Makes the message ids of events: the same close has the same id on every relay. Any fixed value does.
const NAMESPACE: Uuid = Uuid::from_u128(0x6475_6562_6f78_4c8e_9d2a_7275_6c65_0001);

/// One order that was closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Closed {
    /// Its id.
    pub(super) id: String,
    /// The status that it had.
    pub(super) was: String,
    /// The event's id, if the rule has an event.
    pub(super) message_id: Option<Uuid>,
    /// Whether the event is new; one of the same order, rule and due may be in the outbox from before.
    pub(super) written: bool,
}

/// Begins a transaction that keeps no payment waiting for longer than a second.
pub(super) async fn begin(pool: &Pool, settings: &Settings) -> Result<Transaction, Error> {
    let transaction = Transaction::begin(pool, settings, SILENCE).await?;
    // The role's own search_path: the user's triggers run in here, up to the commit.
    let bounds = format!(
        "set local search_path to default; set local statement_timeout = {}; set local lock_timeout = {}",
        STATEMENT.as_millis(),
        LOCK.as_millis()
    );
    transaction.run("begin to close", async |client| client.batch_execute(&bounds).await).await?;
    Ok(transaction)
}

/// Closes those of `ids` that are overdue and that nobody else has locked, and commits.
pub(super) async fn close(
    transaction: Transaction,
    orders: &Orders,
    ids: &[String],
    by: &'static str,
) -> Result<Vec<Closed>, Error> {
    let locked = lock(&transaction, orders, ids).await?;
    if locked.ids.is_empty() {
        transaction.roll_back().await?;
        return Ok(Vec::new());
    }
    let Locked { ids, statuses, message_ids } = &locked;
    let what = "close orders";
    let rows = transaction.run(what, async |client| {
        let (ids, statuses) = ((ids as _, Type::TEXT_ARRAY), (statuses as _, Type::TEXT_ARRAY));
        client
            .query_typed(&orders.statements.close, &[ids, statuses, (message_ids, Type::UUID_ARRAY), (&by, Type::TEXT)])
            .await
    });
    let rows = rows.await?;
    let done = rows.iter().map(|row| row.try_get::<_, bool>("done").map_err(Error::statement(what)));
    if rows.len() < ids.len() || !done.collect::<Result<Vec<_>, _>>()?.into_iter().all(|done| done) {
        // The rows are locked: nobody else can have changed them. Alone, the order is named; its close is rolled back.
        let error = "the update was suppressed or changed: a trigger or a policy of the table keeps the order open";
        return Err(Error::Unexpected(error.to_owned()));
    }
    let closed = rows.iter().map(|row| locked.closed(row, orders.has_event).map_err(Error::statement(what)));
    let closed = closed.collect::<Result<Vec<_>, _>>()?;
    transaction.commit().await?;
    Ok(closed)
}

/// Orders that this transaction holds.
#[derive(Default)]
struct Locked {
    ids: Vec<String>,
    statuses: Vec<String>,
    message_ids: Vec<Uuid>,
}

async fn lock(transaction: &Transaction, orders: &Orders, ids: &[String]) -> Result<Locked, Error> {
    let what = "lock orders";
    let lock = &orders.statements.lock;
    let run = transaction.run(what, async |client| client.query_typed(lock, &[(&ids, Type::TEXT_ARRAY)]).await);
    let mut locked = Locked::default();
    for row in run.await? {
        locked.take(&row, &orders.rule).map_err(Error::statement(what))?;
    }
    Ok(locked)
}

impl Locked {
    fn take(&mut self, row: &Row, rule: &str) -> Result<(), tokio_postgres::Error> {
        let id: String = row.try_get("id")?;
        self.message_ids.push(message_id(rule, &id, row.try_get("due")?));
        self.statuses.push(row.try_get("was")?);
        self.ids.push(id);
        Ok(())
    }

    fn closed(&self, row: &Row, has_event: bool) -> Result<Closed, tokio_postgres::Error> {
        let id: String = row.try_get("id")?;
        let place = self.ids.iter().position(|locked| has_event && *locked == id);
        let message_id = place.and_then(|place| self.message_ids.get(place)).copied();
        Ok(Closed { id, was: row.try_get("was")?, message_id, written: row.try_get("written")? })
    }
}

/// The id of the event of one close.
fn message_id(rule: &str, id: &str, due: SystemTime) -> Uuid {
    // NUL is in no name and no id, so no two closes have one text.
    Uuid::new_v5(&NAMESPACE, format!("{rule}\0{id}\0{}", micros(due)).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_close_has_one_message_id_and_no_other_close_has_it() {
        let due = SystemTime::UNIX_EPOCH + Duration::from_micros(1_700_000_000_000_001);
        let id = message_id("unpaid", "42", due);
        assert_eq!(id, message_id("unpaid", "42", due));
        // Pinned: another version of duebox must make the same one, or an upgrade forks a chain.
        assert_eq!(id.to_string(), "1b6da40e-dda9-590c-a0ba-d4651317269c");
        for other in [
            message_id("unpaid", "43", due),
            message_id("unpaid4", "2", due),
            message_id("unpaid", "42", due + Duration::from_micros(1)),
        ] {
            assert_ne!(id, other);
        }
    }

    #[test]
    fn no_payment_waits_for_longer_than_a_second() {
        assert!(STATEMENT * 2 + SILENCE <= Duration::from_secs(1) && LOCK < STATEMENT);
    }
}
