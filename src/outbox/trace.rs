//! Following one key through the outbox.

use super::connect::Db;
use super::error::Error;
use super::rights::{self, Needs};
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

const TRACE: &str = include_str!("../../sql/trace.sql");
const SWEEPS: &str = include_str!("../../sql/trace_sweeps.sql");

const NEEDS: Needs = Needs { tables: &[("outbox", "select"), ("state", "select")], rings: false };

/// The messages of one key.
#[derive(Debug, Clone, Default)]
pub struct Traced {
    /// The newest of them, in order.
    pub messages: Vec<Message>,
    /// How many there are, counted up to 10,000.
    pub total: i64,
}

/// One row of the outbox.
#[derive(Debug, Clone)]
pub struct Message {
    /// The AMQP message id.
    pub message_id: Uuid,
    /// Its tier.
    pub tier: String,
    /// Its AMQP type.
    pub kind: Option<String>,
    /// The routing key of its own.
    pub routing_key: Option<String>,
    /// When it was written.
    pub created_at: SystemTime,
    /// The due time of its own.
    pub due_at: Option<SystemTime>,
    /// Not claimed before.
    pub available_at: SystemTime,
    /// Attempts that counted.
    pub attempts: i32,
    /// Why the last one failed, or why it is held.
    pub last_error: Option<String>,
    /// What became of it.
    pub state: State,
    /// Who closed the order, if it is the event of a close.
    pub by: Option<String>,
    /// By which rule, likewise.
    pub rule: Option<String>,
    /// The database's time.
    pub now: SystemTime,
}

/// What became of a message, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Nothing yet.
    Pending,
    /// The broker has confirmed it.
    Sent(SystemTime),
    /// Out of circulation.
    Parked(SystemTime),
    /// Taken back.
    Cancelled(SystemTime),
}

impl Message {
    fn read(row: &Row) -> Result<Self, tokio_postgres::Error> {
        let at = |column| row.try_get::<_, Option<SystemTime>>(column);
        let state = match (at("sent_at")?, at("parked_at")?, at("cancelled_at")?) {
            (Some(at), ..) => State::Sent(at),
            (None, Some(at), _) => State::Parked(at),
            (None, None, Some(at)) => State::Cancelled(at),
            (None, None, None) => State::Pending,
        };
        Ok(Self {
            message_id: row.try_get("message_id")?,
            tier: row.try_get("tier")?,
            kind: row.try_get("type")?,
            routing_key: row.try_get("routing_key")?,
            created_at: row.try_get("created_at")?,
            due_at: at("due_at")?,
            available_at: row.try_get("available_at")?,
            attempts: row.try_get("attempts")?,
            last_error: row.try_get("last_error")?,
            state,
            by: row.try_get("by")?,
            rule: row.try_get("rule")?,
            now: row.try_get("now")?,
        })
    }
}

/// What there is to say of who would apply rules.
#[derive(Debug, Clone, Default)]
pub struct Sweeps {
    /// How long ago the last pass of each rule's sweep ended; zero: one is going on. Without an entry there was none yet.
    pub ended: BTreeMap<String, Duration>,
    /// Relays that listen; unknown without rules.
    pub relays: Option<i64>,
}

/// Reads who would apply `rules`.
///
/// # Errors
/// Postgres cannot be asked, or the role may not.
pub async fn sweeps(db: &Db, rules: &[&str]) -> Result<Sweeps, Error> {
    let what = "read the passes of sweeps";
    let rows = db.once(what, async |client| client.query_typed(SWEEPS, &[(&rules, Type::TEXT_ARRAY)]).await).await?;
    let read = || {
        let mut sweeps = Sweeps::default();
        for row in &rows {
            sweeps.relays = Some(row.try_get("relays")?);
            if let Some(ago) = row.try_get::<_, Option<f64>>("ended_ago")? {
                let ago = Duration::try_from_secs_f64(ago).unwrap_or_default();
                sweeps.ended.insert(row.try_get("rule")?, ago);
            }
        }
        Ok(sweeps)
    };
    read().map_err(Error::statement(what))
}

/// Reads the messages of `key`.
///
/// # Errors
/// Postgres cannot be asked, or the role may not.
pub async fn trace(db: &Db, key: &str) -> Result<Traced, Error> {
    let what = "read the messages of a key";
    let run = db.once(what, async |client| client.query_typed(TRACE, &[(&key, Type::TEXT)]).await);
    let rows = match run.await {
        Ok(rows) => rows,
        Err(error) => return Err(rights::explain(db, NEEDS, error).await),
    };
    let read = || {
        let total = rows.first().map_or(Ok(0), |row| row.try_get("total"))?;
        Ok(Traced { messages: rows.iter().map(Message::read).collect::<Result<_, _>>()?, total })
    };
    read().map_err(Error::statement(what))
}
