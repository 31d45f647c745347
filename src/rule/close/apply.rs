//! What is done to the orders that a transaction holds, and its commit.

use super::AGAIN;
use super::locked::Locked;
use super::unknown::Unknown;
use crate::outbox::connect::Transaction;
use crate::outbox::error::Error;
use crate::rule::closing::{Closed, Closing, Kept, seconds};
use crate::rule::orders::Orders;
use crate::rule::statements::Close;
use futures_util::future::join3;
use std::time::{Duration, SystemTime};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row};

const CALL: &str = "close orders";
const FINISH: &str = "write events";

/// What is deferred runs here, under the bound that a statement has and a commit has not. What a trigger of these defers once
/// more is left to the commit.
const DEFERRED: &str = "set constraints all immediate; set local statement_timeout = ";

/// The row is locked, so nobody else can have changed it. Alone, the order is named; its close is rolled back.
const UNDONE: &str = "the update was suppressed or changed: a trigger or a policy of the table keeps the order open";

/// It would be done again in every pass, with an event each.
const STILL: &str = "the rule still applies to an order after its `set` or `function` and all triggers, which must end that: \
    by another status, a later due, or what the guard looks at (guard = \"reminded_at is null\", \
    set = { reminded_at = \"now()\" })";

/// Whether it closed the order, and an event is due, is not known.
const NULL: &str = "the rule's `function` returned null: it must return true, false (it did nothing), or void";

/// Closes the locked orders that are to be closed, and commits; what became of each.
pub(super) async fn apply(
    transaction: Transaction,
    orders: &Orders,
    locked: &Locked,
    by: &'static str,
) -> Result<Vec<(String, Closing)>, Error> {
    if locked.ids.is_empty() {
        transaction.roll_back().await?;
        return Ok(Vec::new());
    }
    let closings = match &orders.statements.close {
        Close::Update(update) => run_update(&transaction, orders, locked, by, update).await,
        Close::Function { call, finish } => call_function(&transaction, orders, locked, by, (call, finish)).await,
    };
    match closings {
        Ok(closings) => {
            let unknown = Unknown::of(orders, &closings);
            let committed = transaction.commit().await;
            unknown.known(&committed);
            committed.map(|()| closings)
        }
        Err(failed) => Err(transaction.fail(failed).await),
    }
}

async fn run_update(
    transaction: &Transaction,
    orders: &Orders,
    locked: &Locked,
    by: &'static str,
    update: &str,
) -> Result<Vec<(String, Closing)>, Error> {
    let rows = transaction.run(CALL, async |client| {
        let (ids, message_ids) = ((&locked.ids as _, Type::TEXT_ARRAY), (&locked.message_ids as _, Type::UUID_ARRAY));
        let parameters = [ids, message_ids, (&by as _, Type::TEXT)];
        run_to_the_end(client, client.query_typed(update, &parameters), (&orders.statements.still, &locked.ids)).await
    });
    let (rows, still) = rows.await?;
    let mut closings = Vec::new();
    for row in rows {
        let Look { id, was, kept, late, .. } = Look::read(&row).map_err(Error::statement(CALL))?;
        let closing = match kept {
            Some(kept) => Closing::Kept(kept),
            None => {
                let done: Option<bool> = row.try_get("done").map_err(Error::statement(CALL))?;
                match done {
                    Some(true) => {}
                    Some(false) if orders.sets_no_status => return Err(Error::Refused(STILL)),
                    Some(false) | None => return Err(Error::Undone(UNDONE)),
                }
                Closing::Closed(closed(&row, orders, locked, (&id, was, late)).map_err(Error::statement(CALL))?)
            }
        };
        closings.push((id, closing));
    }
    refuse_still(&closings, &still)?;
    Ok(closings)
}

/// A function of the user's closes; what it did is seen by the statement after it.
async fn call_function(
    transaction: &Transaction,
    orders: &Orders,
    locked: &Locked,
    by: &'static str,
    (call, finish): (&str, &str),
) -> Result<Vec<(String, Closing)>, Error> {
    let rows = transaction.run(CALL, async |client| {
        client.query_typed(call, &[(&locked.ids, Type::TEXT_ARRAY), (&by, Type::TEXT)]).await
    });
    let (mut closings, mut called) = (Vec::new(), Called::default());
    for row in rows.await? {
        let look = Look::read(&row).map_err(Error::statement(CALL))?;
        // What a function returns that returns nothing is empty as text.
        let said: Option<String> = row.try_get("said").map_err(Error::statement(CALL))?;
        match (look.kept, said.as_deref()) {
            (Some(kept), _) => closings.push((look.id, Closing::Kept(kept))),
            (None, Some("true" | "")) => {
                called.due_at.push(row.try_get("due_at").map_err(Error::statement(CALL))?);
                called.message_ids.push(locked.message_id(&look.id).ok_or_else(|| not_locked(&look.id))?);
                called.ids.push(look.id);
                called.was.push(look.was);
            }
            (None, Some(_)) => closings.push((look.id, Closing::Kept(Kept::Declined))),
            // What it did is not known.
            (None, None) => return Err(Error::Refused(NULL)),
        }
    }
    let rows = transaction.run(FINISH, async |client| {
        let Called { ids, message_ids, was, due_at } = &called;
        let parameters = [
            (ids as _, Type::TEXT_ARRAY),
            (message_ids as _, Type::UUID_ARRAY),
            (&by as _, Type::TEXT),
            (was as _, Type::TEXT_ARRAY),
            (due_at as _, Type::TIMESTAMPTZ_ARRAY),
        ];
        run_to_the_end(client, client.query_typed(finish, &parameters), (&orders.statements.still, &called.ids)).await
    });
    let (rows, still) = rows.await?;
    for row in rows {
        let Done { done, id, was, late } = Done::read(&row).map_err(Error::statement(FINISH))?;
        if !done {
            return Err(Error::Refused(STILL));
        }
        let closed = closed(&row, orders, locked, (&id, was, late)).map_err(Error::statement(FINISH))?;
        closings.push((id, Closing::Closed(closed)));
    }
    refuse_still(&closings, &still)?;
    Ok(closings)
}

/// A statement, and after it what is deferred to the commit, and a look to which orders the rule still applies when all triggers
/// have run; in one round trip. A failed statement has failed all.
async fn run_to_the_end(
    client: &Client,
    statement: impl Future<Output = Result<Vec<Row>, tokio_postgres::Error>>,
    (still, ids): (&str, &[String]),
) -> Result<(Vec<Row>, Vec<String>), tokio_postgres::Error> {
    let deferred = format!("{DEFERRED}{}", AGAIN.as_millis());
    let ids = [(&ids as _, Type::TEXT_ARRAY)];
    let (rows, deferred, looks) =
        join3(statement, client.batch_execute(&deferred), client.query_typed(still, &ids)).await;
    let (rows, ()) = (rows?, deferred?);
    let mut still = Vec::new();
    for look in looks?.iter() {
        if look.try_get("still")? {
            still.push(look.try_get("id")?);
        }
    }
    Ok((rows, still))
}

/// Refuses the close if the rule still applies to one of the orders: a trigger has opened it again, after what the statement
/// says of itself.
fn refuse_still(closings: &[(String, Closing)], still: &[String]) -> Result<(), Error> {
    let closed = |(id, closing): &(String, Closing)| matches!(closing, Closing::Closed(_)) && still.contains(id);
    if closings.iter().any(closed) { Err(Error::Refused(STILL)) } else { Ok(()) }
}

/// Without the id that it was locked by, its event has none.
fn not_locked(id: &str) -> Error {
    Error::Unexpected(format!("order {id} was locked under another id"))
}

/// Orders for which the function was called and did not say no.
#[derive(Default)]
struct Called {
    ids: Vec<String>,
    message_ids: Vec<uuid::Uuid>,
    was: Vec<String>,
    due_at: Vec<Option<SystemTime>>,
}

/// What became of one of them.
struct Done {
    done: bool,
    id: String,
    was: String,
    late: Duration,
}

impl Done {
    fn read(row: &Row) -> Result<Self, tokio_postgres::Error> {
        let late: Option<f64> = row.try_get("late")?;
        let (done, id, was) = (row.try_get("done")?, row.try_get("id")?, row.try_get("was")?);
        Ok(Self { done, id, was, late: seconds(late.unwrap_or_default()) })
    }
}

/// What a statement saw of an order under its lock.
struct Look {
    id: String,
    was: String,
    kept: Option<Kept>,
    late: Duration,
}

impl Look {
    fn read(row: &Row) -> Result<Self, tokio_postgres::Error> {
        let (was, late): (Option<String>, Option<f64>) = (row.try_get("was")?, row.try_get("late")?);
        let (was, late) = (was.unwrap_or_default(), late.unwrap_or_default());
        let (kept, due_at) = (row.try_get::<_, Option<&str>>("kept")?, row.try_get("due_at")?);
        let kept = kept.and_then(|reason| Kept::of(reason, &was, late, due_at));
        Ok(Self { id: row.try_get("id")?, was, kept, late: seconds(late) })
    }
}

fn closed(
    row: &Row,
    orders: &Orders,
    locked: &Locked,
    (id, was, late): (&str, String, Duration),
) -> Result<Closed, tokio_postgres::Error> {
    let message_id = locked.message_id(id).filter(|_| orders.has_event);
    Ok(Closed { id: id.to_owned(), was, is: row.try_get("status")?, message_id, late })
}
