//! The claim: lock due rows of one tier, read them in growing fetches, stop at the batch's bounds.

use super::connect::{Settings, Transaction};
use super::error::{Error, describe};
use super::scan::{End, Scan};
use super::settle;
use crate::message::{Message, Row};
use crate::relay::Fate;
use deadpool_postgres::Pool;
use serde_json::{Map, Value};
use std::error::Error as StdError;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokio_postgres::types::{FromSql, Type};
use uuid::Uuid;

const CLAIM: &str = concat!("declare claim no scroll cursor for\n", include_str!("../../sql/claim.sql"));

/// How much longer than the batch's own deadline the server waits for us before it takes the rows back.
const SILENCE: Duration = Duration::from_secs(1);

/// The largest fetch in rows; the first ones are 1, 4 and 16, so that a quiet outbox pays for one row only and a
/// backlog of large rows is noticed before many are read.
const FETCH_MAX: usize = 64;

/// The bounds of one batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Most rows.
    pub(crate) rows: usize,
    /// Stops after this many bytes of payload; the first row is always taken.
    pub(crate) bytes: usize,
    /// From claim to commit.
    pub(crate) deadline: Duration,
}

/// Claimed rows and the transaction that holds them. Dropped unsettled, it gives them back.
#[derive(Debug)]
pub struct Batch {
    transaction: Option<Transaction>,
    scan: Arc<Scan>,
    tier: String,
    rows: Vec<Row>,
    now: i64,
    full: bool,
}

/// Claims up to `limits` rows of `tier`; `None` when there are none to be had.
pub(crate) async fn claim(
    pool: &Pool,
    settings: &Settings,
    scan: &Arc<Scan>,
    tier: &str,
    limits: Limits,
) -> Result<Option<Batch>, Error> {
    let transaction = Transaction::begin(pool, settings, limits.deadline + SILENCE).await?;
    let started = Instant::now();
    let bound = scan.bound(tier, started);
    let most = i64::try_from(limits.rows).unwrap_or(i64::MAX);
    transaction
        .run("claim", async |client| {
            client.execute_typed(CLAIM, &[(&tier, Type::TEXT), (&bound, Type::TIMESTAMPTZ), (&most, Type::INT8)]).await
        })
        .await?;
    let mut reader = Reader::new(tier, limits);
    reader.read(&transaction).await?;
    let end = End { took: reader.first_fetch, last: reader.last, short: !reader.full };
    scan.done(tier, bound, started, end);
    if reader.rows.is_empty() {
        transaction.roll_back().await?;
        return Ok(None);
    }
    Ok(Some(Batch {
        transaction: Some(transaction),
        scan: Arc::clone(scan),
        tier: tier.to_owned(),
        rows: reader.rows,
        now: reader.now,
        full: reader.full,
    }))
}

/// Reads the cursor in growing fetches.
struct Reader<'a> {
    tier: &'a str,
    limits: Limits,
    rows: Vec<Row>,
    now: i64,
    last: Option<SystemTime>,
    first_fetch: Duration,
    bytes: usize,
    largest: usize,
    full: bool,
}

impl<'a> Reader<'a> {
    fn new(tier: &'a str, limits: Limits) -> Self {
        let rows = Vec::new();
        Self { tier, limits, rows, now: 0, last: None, first_fetch: Duration::ZERO, bytes: 0, largest: 1, full: false }
    }

    async fn read(&mut self, transaction: &Transaction) -> Result<(), Error> {
        let mut grown = 1;
        loop {
            let size = self.next_fetch(grown);
            if size == 0 {
                self.full = true;
                return Ok(());
            }
            let started = Instant::now();
            let fetch = format!("fetch {size} from claim");
            let rows = transaction.run("fetch", async |client| client.query_typed(&fetch, &[]).await).await?;
            if grown == 1 {
                self.first_fetch = started.elapsed();
            }
            for row in &rows {
                self.take(row).map_err(Error::statement("decode a claimed row"))?;
            }
            if rows.len() < size {
                return Ok(());
            }
            grown = (grown * 4).min(FETCH_MAX);
        }
    }

    /// Rows of the next fetch: no more than the batch has room for, judged by the largest row seen.
    fn next_fetch(&self, grown: usize) -> usize {
        let rows_left = self.limits.rows.saturating_sub(self.rows.len());
        if self.rows.is_empty() {
            return grown.min(rows_left);
        }
        let bytes_left = self.limits.bytes.saturating_sub(self.bytes);
        grown.min(rows_left).min(bytes_left / self.largest)
    }

    fn take(&mut self, row: &tokio_postgres::Row) -> Result<(), tokio_postgres::Error> {
        let available_at: SystemTime = row.try_get("available_at")?;
        self.now = micros(row.try_get("now")?);
        self.last = Some(available_at);
        let decoded = Row {
            id: row.try_get("id")?,
            message_id: row.try_get("message_id")?,
            key: row.try_get("key")?,
            message: decode(row, self.tier),
        };
        let size = decoded.message.as_ref().map_or(1, |message| message.body.len().max(1));
        self.bytes += size;
        self.largest = self.largest.max(size);
        self.rows.push(decoded);
        Ok(())
    }
}

/// The message of a row, or why it cannot be one.
fn decode(row: &tokio_postgres::Row, tier: &str) -> Result<Message, String> {
    let message = || -> Result<Result<Message, String>, tokio_postgres::Error> {
        let id: i64 = row.try_get("id")?;
        let message_id: Uuid = row.try_get("message_id")?;
        let payload: Option<JsonText> = row.try_get("payload")?;
        let body: Option<Vec<u8>> = row.try_get("body")?;
        let headers: JsonText = row.try_get("headers")?;
        let body = match (payload, body) {
            (Some(payload), None) => payload.0,
            (None, Some(body)) => body,
            _ => return Ok(Err("exactly one of payload and body must be set".to_owned())),
        };
        let headers: Map<String, Value> = match serde_json::from_slice(&headers.0) {
            Ok(headers) => headers,
            Err(error) => return Ok(Err(format!("headers cannot be read: {error}"))),
        };
        Ok(Ok(Message {
            id,
            message_id,
            tier: tier.to_owned(),
            key: row.try_get("key")?,
            kind: row.try_get("type")?,
            routing_key: row.try_get("routing_key")?,
            body,
            content_type: row.try_get("content_type")?,
            headers,
            created_at: micros(row.try_get("created_at")?),
            due_at: row.try_get::<_, Option<SystemTime>>("due_at")?.map(micros),
            attempts: row.try_get("attempts")?,
        }))
    };
    message().unwrap_or_else(|error| Err(format!("the row cannot be read: {}", describe(&error))))
}

/// A `jsonb` as the text that Postgres prints, byte for byte: its binary form is a version byte and that text.
struct JsonText(Vec<u8>);

impl<'a> FromSql<'a> for JsonText {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn StdError + Sync + Send>> {
        match raw {
            [1, text @ ..] => Ok(Self(text.to_vec())),
            _ => Err("unknown jsonb version".into()),
        }
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::JSONB
    }
}

/// Microseconds since the Unix epoch, saturating; Postgres counts in microseconds too.
pub(crate) fn micros(at: SystemTime) -> i64 {
    match at.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_micros()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_micros()).map_or(i64::MIN, |micros| -micros),
    }
}

impl crate::relay::Batch for Batch {
    type Error = Error;

    fn rows(&self) -> &[Row] {
        &self.rows
    }

    fn now(&self) -> i64 {
        self.now
    }

    fn full(&self) -> bool {
        self.full
    }

    async fn settle(mut self, fates: &[(i64, Fate)]) -> Result<(), Error> {
        let Some(transaction) = self.transaction.take() else { return Ok(()) };
        let settled = async {
            settle::write(&transaction, fates).await?;
            transaction.commit().await
        };
        settled.await.inspect_err(|_| self.scan.reset(&self.tier))
    }

    async fn roll_back(mut self) -> Result<(), Error> {
        let Some(transaction) = self.transaction.take() else { return Ok(()) };
        self.scan.reset(&self.tier);
        transaction.roll_back().await
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        if self.transaction.is_some() {
            self.scan.reset(&self.tier);
        }
    }
}
