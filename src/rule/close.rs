//! Closing: lock the orders, then change those that still are overdue, in one READ COMMITTED transaction.
//!
//! Two statements, because the second takes its snapshot when the locks are held: whatever a payment committed before is
//! seen, and whatever comes after waits. With a single UPDATE, a condition that reads another table closed paid orders.

use super::closing::{Closed, Closing, Kept, seconds};
use super::orders::Orders;
use crate::outbox::connect::{Pool, Settings, Transaction, within};
use crate::outbox::decode::micros;
use crate::outbox::error::Error;
use futures_util::future::join;
use std::time::{Duration, SystemTime};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row};
use uuid::Uuid;

/// Bound on each of the two statements. Both and [`SILENCE`] make the second that a payment waits at most.
const STATEMENT: Duration = Duration::from_millis(350);
/// Below the statement's, so that the error says that it was a lock.
const LOCK: Duration = Duration::from_millis(300);
/// Postgres ends the transaction of a relay that was stopped between the two.
const SILENCE: Duration = Duration::from_millis(300);

/// How long one order is waited for that somebody else has locked; nothing is held meanwhile.
const PATIENCE: Duration = Duration::from_secs(2);
/// Bound that we keep ourselves on closing one order: Postgres keeps its own, this catches one that no longer answers.
const ONE: Duration = Duration::from_secs(5);

/// Makes the message ids of events: the same close has the same id on every relay. Any fixed value does.
const NAMESPACE: Uuid = Uuid::from_u128(0x6475_6562_6f78_4c8e_9d2a_7275_6c65_0001);

/// Begins a transaction for [`some`].
pub(super) async fn begin(pool: &Pool, settings: &Settings) -> Result<Transaction, Error> {
    begin_with(pool, settings, &bounds(STATEMENT, LOCK)).await
}

async fn begin_with(pool: &Pool, settings: &Settings, bounds: &str) -> Result<Transaction, Error> {
    // The role's own search_path: the user's triggers and expressions run in here, up to the commit.
    let set = format!("set local search_path to default; {bounds}");
    let work = async |client: &Client| client.batch_execute(&set).await;
    Ok(Transaction::begin_with(pool, settings, SILENCE, "begin to close", work).await?.0)
}

fn bounds(statement: Duration, lock: Duration) -> String {
    let (statement, lock) = (statement.as_millis(), lock.as_millis());
    format!("set local statement_timeout = {statement}; set local lock_timeout = {lock}")
}

/// Closes those of `ids` that are overdue and that nobody else has locked, and commits; no payment waits for it longer
/// than a second. What became of each that was free.
pub(super) async fn some(
    transaction: Transaction,
    orders: &Orders,
    ids: &[String],
    by: &'static str,
) -> Result<Vec<(String, Closing)>, Error> {
    let what = "lock orders";
    let lock = &orders.statements.lock_free;
    let rows =
        transaction.run(what, async |client| client.query_typed(lock, &[(&ids, Type::TEXT_ARRAY)]).await).await?;
    let locked = Locked::read(&rows, &orders.rule).map_err(Error::statement(what))?;
    close(transaction, orders, &locked, by).await
}

/// Closes the order `id` if it is to be closed, and waits up to two seconds for whoever has it locked.
///
/// # Errors
/// Postgres cannot be asked, the id is none that the column can have (class 22), or the close of this order fails.
pub async fn one(
    pool: &Pool,
    settings: &Settings,
    orders: &Orders,
    id: &str,
    by: &'static str,
) -> Result<Closing, Error> {
    let what = "lock an order";
    let closing = async {
        let transaction = begin_with(pool, settings, &bounds(PATIENCE + STATEMENT, PATIENCE)).await?;
        let (lock, then) = (&orders.statements.lock, bounds(STATEMENT, LOCK));
        let run = transaction.run(what, async |client| {
            let ids = vec![id];
            // Sent together: the second holds from the moment of the lock.
            let (rows, set) =
                join(client.query_typed(lock, &[(&ids, Type::TEXT_ARRAY)]), client.batch_execute(&then)).await;
            rows.and_then(|rows| set.map(|()| rows))
        });
        let rows = match run.await {
            Err(Error::Statement { cause, .. }) if cause.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => {
                transaction.roll_back().await?;
                return Ok(Closing::Kept(Kept::Locked));
            }
            rows => rows?,
        };
        let locked = Locked::read(&rows, &orders.rule).map_err(Error::statement(what))?;
        let closings = close(transaction, orders, &locked, by).await?;
        Ok(closings.into_iter().next().map_or(Closing::Kept(Kept::Unknown), |(_, closing)| closing))
    };
    within("close an order", ONE, closing).await
}

/// The second statement, and the commit.
async fn close(
    transaction: Transaction,
    orders: &Orders,
    locked: &Locked,
    by: &'static str,
) -> Result<Vec<(String, Closing)>, Error> {
    if locked.ids.is_empty() {
        transaction.roll_back().await?;
        return Ok(Vec::new());
    }
    let what = "close orders";
    let rows = transaction.run(what, async |client| {
        let (ids, message_ids) = ((&locked.ids as _, Type::TEXT_ARRAY), (&locked.message_ids as _, Type::UUID_ARRAY));
        client.query_typed(&orders.statements.close, &[ids, message_ids, (&by, Type::TEXT)]).await
    });
    let rows = rows.await?;
    let closings = rows.iter().map(|row| {
        let id: String = row.try_get("id").map_err(Error::statement(what))?;
        let closing = locked.closing(row, &id, orders.has_event).map_err(Error::statement(what))?;
        // The rows are locked: nobody else can have changed them. Alone, the order is named; its close is rolled back.
        closing.map(|closing| (id, closing)).ok_or(Error::Undone(UNDONE))
    });
    let closings = closings.collect::<Result<Vec<_>, _>>()?;
    transaction.commit().await?;
    Ok(closings)
}

const UNDONE: &str = "the update was suppressed or changed: a trigger or a policy of the table keeps the order open";

/// Orders that this transaction holds.
#[derive(Default)]
struct Locked {
    ids: Vec<String>,
    message_ids: Vec<Uuid>,
}

impl Locked {
    fn read(rows: &[Row], rule: &str) -> Result<Self, tokio_postgres::Error> {
        let mut locked = Self::default();
        for row in rows {
            let (id, due): (String, Option<SystemTime>) = (row.try_get("id")?, row.try_get("due")?);
            // Without a due it is not closed.
            locked.message_ids.push(message_id(rule, &id, due.unwrap_or(SystemTime::UNIX_EPOCH)));
            locked.ids.push(id);
        }
        Ok(locked)
    }

    /// What became of the order of this row; none: it should have been closed and is not.
    fn closing(&self, row: &Row, id: &str, has_event: bool) -> Result<Option<Closing>, tokio_postgres::Error> {
        let was: Option<String> = row.try_get("was")?;
        let (was, late) = (was.unwrap_or_default(), row.try_get::<_, Option<f64>>("late")?.unwrap_or_default());
        if let Some(reason) = row.try_get::<_, Option<&str>>("kept")? {
            return Ok(Kept::of(reason, &was, late).map(Closing::Kept));
        }
        if row.try_get::<_, Option<bool>>("done")? != Some(true) {
            return Ok(None);
        }
        let place = self.ids.iter().position(|locked| has_event && locked == id);
        let message_id = place.and_then(|place| self.message_ids.get(place)).copied();
        let written = row.try_get("written")?;
        Ok(Some(Closing::Closed(Closed { id: id.to_owned(), was, message_id, written, late: seconds(late) })))
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
