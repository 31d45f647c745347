//! Closing: lock the orders, then change those that still are overdue, in one READ COMMITTED transaction.
//!
//! Two statements, because the second takes its snapshot when the locks are held: whatever a payment committed before is
//! seen, and whatever comes after waits. With a single UPDATE, a condition that reads another table closed paid orders.

mod apply;
mod locked;
mod unknown;

use super::closing::{Closing, Kept};
use super::orders::Orders;
use super::statements::Close;
use crate::config::Mode;
use crate::outbox::connect::{Db, Transaction, within};
use crate::outbox::error::Error;
use futures_util::future::join;
use locked::Locked;
use std::time::Duration;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;

/// How long the parts of a transaction may take once it holds an order: together the second that a payment waits at most.
pub(super) struct Bounds {
    /// Each statement.
    statement: Duration,
    /// A lock that a statement waits for; below the statement's, so that the error says that it was a lock.
    lock: Duration,
    /// Postgres ends the transaction of a relay that was stopped between two statements.
    pub(super) silence: Duration,
}

/// What looking again may take, which finds its orders by their ids.
const AGAIN: Duration = Duration::from_millis(60);
/// Lock; close, deferred, look again; commit.
pub(super) const UPDATE: Bounds = Bounds::of(205, 175, 160);
/// Lock; call; finish, deferred, look again; commit.
pub(super) const FUNCTION: Bounds = Bounds::of(150, 130, 110);

/// How long one order is waited for that somebody else has locked; nothing is held meanwhile.
pub const PATIENCE: Duration = Duration::from_secs(2);
/// Not at all: the least that Postgres takes for a bound.
pub(super) const AT_ONCE: Duration = Duration::from_millis(1);
/// Bound that we keep ourselves on closing one order: Postgres keeps its own, this catches one that no longer answers.
const ONE: Duration = Duration::from_secs(5);

/// Such an order is there, and no message of it may be taken for one of an unknown order.
const HIDDEN: &str = "the order can be read and not locked: a policy of row-level security on the table hides it from \
    closing; a policy for update must let this role have it, or the role needs bypassrls";

impl Bounds {
    const fn of(statement: u64, lock: u64, silence: u64) -> Self {
        Self {
            statement: Duration::from_millis(statement),
            lock: Duration::from_millis(lock),
            silence: Duration::from_millis(silence),
        }
    }

    fn for_orders(orders: &Orders) -> &'static Self {
        match orders.statements.close {
            Close::Update(_) => &UPDATE,
            Close::Function { .. } => &FUNCTION,
        }
    }

    /// As settings of a transaction.
    fn set(&self) -> String {
        set(self.statement, self.lock)
    }
}

fn set(statement: Duration, lock: Duration) -> String {
    let (statement, lock) = (statement.as_millis(), lock.as_millis());
    format!("set local statement_timeout = {statement}; set local lock_timeout = {lock}")
}

/// Begins a transaction for [`some`].
pub(super) async fn begin(db: &Db, orders: &Orders) -> Result<Transaction, Error> {
    let bounds = Bounds::for_orders(orders);
    begin_with(db, bounds.silence, &bounds.set()).await
}

async fn begin_with(db: &Db, silence: Duration, set: &str) -> Result<Transaction, Error> {
    // The role's own search_path: the user's triggers and expressions run in here, up to the commit.
    let set = format!("set local search_path to default; {set}");
    let work = async |client: &Client| client.batch_execute(&set).await;
    Ok(Transaction::begin_with(db, silence, "begin to close", work).await?.0)
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
    let rows = transaction.run(what, async |client| client.query_typed(lock, &[(&ids, Type::TEXT_ARRAY)]).await);
    let rows = match rows.await {
        Ok(rows) => rows,
        // No order is waited for, so that it is the table.
        Err(error) if error.is_locked() => return Err(orders.table_locked(transaction.fail(error).await)),
        Err(error) => return Err(transaction.fail(error).await),
    };
    let locked = Locked::read(&rows).map_err(Error::statement(what))?;
    Box::pin(apply::apply(transaction, orders, &locked, by)).await
}

/// Closes the order `id` if it is to be closed, and waits for whoever has it locked, for so long ([`PATIENCE`]).
///
/// What else closing it takes may be locked too, or slow: that ends within the bounds, and the order is kept.
///
/// # Errors
/// Postgres cannot be asked, the id is none that the column can have (class 22), or the close of this order fails.
pub async fn one(
    db: &Db,
    orders: &Orders,
    (id, patience): (&str, Duration),
    by: &'static str,
) -> Result<Closing, Error> {
    if orders.mode == Mode::Observe {
        return Ok(Closing::Kept(Kept::Observed));
    }
    let bounds = Bounds::for_orders(orders);
    let patient = set(patience + bounds.statement, patience);
    // A connection may have to be made, which has bounds of its own.
    let transaction = begin_with(db, bounds.silence, &patient).await?;
    let closing = async {
        let (transaction, locked) = lock(transaction, orders, id).await?;
        if locked.ids.is_empty() {
            return missing(transaction, orders, id).await.map(Closing::Kept);
        }
        let closings = Box::pin(apply::apply(transaction, orders, &locked, by)).await?;
        Ok(closings.into_iter().next().map_or(Closing::Kept(Kept::Unknown), |(_, closing)| closing))
    };
    match within("close an order", ONE, closing).await {
        Err(error) if is_locked_as_a_whole(&error) => Ok(Closing::Kept(Kept::Unready)),
        Err(error) if error.is_locked() => Ok(Closing::Kept(Kept::Locked)),
        Err(error) if error.is_slow() => Ok(Closing::Kept(Kept::Slow)),
        closing => closing,
    }
}

/// Of an order that was not there to be locked: whether it is there at all. An order that is hidden by a policy that came
/// under the running relay is not unknown, and whoever asks has to look at the table anew.
async fn missing(transaction: Transaction, orders: &Orders, id: &str) -> Result<Kept, Error> {
    let (what, ids) = ("look for an order", vec![id]);
    let missing = &orders.statements.missing;
    let rows = transaction.run(what, async |client| client.query_typed(missing, &[(&ids, Type::TEXT_ARRAY)]).await);
    let rows = match rows.await {
        Ok(rows) => rows,
        Err(error) => return Err(transaction.fail(error).await),
    };
    transaction.roll_back().await?;
    let flag = |name| rows.first().map_or(Ok(false), |row| row.try_get(name)).map_err(Error::statement(what));
    Ok(match (flag("seen")?, flag("policed")?, flag("as_prepared")?) {
        (_, _, false) => Kept::Unready,
        (true, true, _) => return Err(Error::Undone(HIDDEN)),
        // It was taken away and came back under its id: whoever did that had it locked.
        (true, false, _) => Kept::Locked,
        (false, ..) => Kept::Unknown,
    })
}

/// The first statement of [`one`].
const LOCK_ONE: &str = "lock an order";

/// Whether a connection was lost by the close that it was in, and by nothing else: the database answers others. A trigger may
/// end its session (`pg_terminate_backend`), or bring its server process down. It may also be a relay that stood still, whose
/// session the server has ended; that comes as a lost connection as well.
pub(super) async fn is_its_end(db: &Db, error: &Error) -> bool {
    let begun = matches!(error, Error::Statement { .. } | Error::Lost(_)) && error.is_gone() && !error.is_silence();
    let asked = db.once("ask for an answer", async |client| client.batch_execute("select").await);
    begun && Box::pin(asked).await.is_ok()
}

/// Whether it is certain enough to park a message for it: the server says that it ended the session, while code of the user's
/// ran. Locking an order runs none, but for what policies of row-level security call.
pub(super) fn is_its_doing(error: &Error) -> bool {
    let ended = |cause: &tokio_postgres::Error| cause.code() == Some(&SqlState::ADMIN_SHUTDOWN);
    matches!(error, Error::Statement { what, cause } if *what != LOCK_ONE && ended(cause))
}

/// What is said of such an order.
pub(super) fn ended(error: &Error) -> String {
    format!(
        "the database ended the session in which it was being closed, and answers others ({error}): look what a trigger, the \
         guard or the function does to this order"
    )
}

/// Whether the table is locked, and not the order: a name in the statement is waited for, and the error says which.
fn is_locked_as_a_whole(error: &Error) -> bool {
    let named = |cause: &tokio_postgres::Error| cause.as_db_error().is_some_and(|error| error.position().is_some());
    error.is_locked() && matches!(error, Error::Statement { what: LOCK_ONE, cause } if named(cause))
}

/// Whether the column cannot have an id such as this, as [`one`] says it.
pub(super) fn is_bad_id(error: &Error) -> bool {
    // Class 22: the value does not fit the type. Nothing else is asked of the value there.
    let bad = |cause: &tokio_postgres::Error| cause.code().is_some_and(|code| code.code().starts_with("22"));
    matches!(error, Error::Statement { what: LOCK_ONE, cause } if bad(cause))
}

/// Locks one order, and waits for whoever has it; from then on the bounds hold.
async fn lock(transaction: Transaction, orders: &Orders, id: &str) -> Result<(Transaction, Locked), Error> {
    let (what, lock, set) = (LOCK_ONE, &orders.statements.lock, Bounds::for_orders(orders).set());
    let run = transaction.run(what, async |client| {
        let ids = vec![id];
        // Sent together: the second holds from the moment of the lock.
        let (rows, set) = join(client.query_typed(lock, &[(&ids, Type::TEXT_ARRAY)]), client.batch_execute(&set)).await;
        rows.and_then(|rows| set.map(|()| rows))
    });
    let rows = match run.await {
        Ok(rows) => rows,
        Err(error) => return Err(transaction.fail(error).await),
    };
    let locked = Locked::read(&rows).map_err(Error::statement(what))?;
    Ok((transaction, locked))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_payment_waits_for_longer_than_a_second() {
        for (bounds, statements) in [(&UPDATE, 3), (&FUNCTION, 4)] {
            // Those that are deferred, and the look after them, go in the same round trip as the statement before.
            let longest = bounds.statement * statements + AGAIN + bounds.silence * (statements - 1);
            assert!(longest <= Duration::from_secs(1) && bounds.lock < bounds.statement, "{longest:?}");
        }
    }
}
