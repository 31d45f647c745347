//! The claim: lock due rows of one tier, read them in growing fetches, stop at the batch's bounds.

use super::connect::{Db, Transaction};
use super::decode::{Head, Values, micros};
use super::error::Error;
use super::scan::{End, Scan};
use super::settle;
use crate::message::Row;
use crate::relay::Fate;
use futures_util::future::join;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokio_postgres::types::{ToSql, Type};

const CLAIM: &str = concat!("declare claim no scroll cursor for\n", include_str!("../../sql/claim.sql"));
const VALUES: &str = include_str!("../../sql/claim_values.sql");

/// How much longer than the batch's own deadline the server waits for us before it takes the rows back.
const SILENCE: Duration = Duration::from_secs(1);

/// The first fetch in rows. It travels with the claim, so that a quiet outbox pays one round trip; the others grow.
const FETCH_FIRST: usize = 4;

/// The largest fetch in rows.
const FETCH_MAX: usize = 64;

/// A row with more stored bytes than this comes without its values; `claim.sql` has the same number. Above about 2 kB
/// Postgres compresses, and a size no longer tells how much memory the value takes.
const INLINE: usize = 2_000;

/// Stored bytes of large rows that are read at once. Text may be a hundred times its compressed size.
const PART: usize = 64 << 10;

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
pub(crate) async fn claim(db: &Db, scan: &Arc<Scan>, tier: &str, limits: Limits) -> Result<Option<Batch>, Error> {
    let started = Instant::now();
    let bound = scan.bound(tier, started);
    let most = i64::try_from(limits.rows).unwrap_or(i64::MAX);
    let first = FETCH_FIRST.min(limits.rows);
    let fetch = fetch(first);
    let parameters: &[(&(dyn ToSql + Sync), Type)] =
        &[(&tier, Type::TEXT), (&bound, Type::TIMESTAMPTZ), (&most, Type::INT8)];
    let (transaction, rows) = Transaction::begin_with(db, limits.deadline + SILENCE, "claim rows", async |client| {
        let (declared, rows) = join(client.execute_typed(CLAIM, parameters), client.query_typed(&fetch, &[])).await;
        declared.and(rows)
    })
    .await?;
    let first_fetch = started.elapsed();
    let mut reader = Reader::new(tier, limits);
    reader.read(&transaction, rows, first).await?;
    let end = End { took: first_fetch, last: reader.last, short: !reader.full };
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
    bytes: usize,
    largest: usize,
    full: bool,
}

impl<'a> Reader<'a> {
    fn new(tier: &'a str, limits: Limits) -> Self {
        let rows = Vec::new();
        Self { tier, limits, rows, now: 0, last: None, bytes: 0, largest: 1, full: false }
    }

    /// Takes the first fetch, of at most `size` rows, and those that follow it.
    async fn read(
        &mut self,
        transaction: &Transaction,
        mut rows: Vec<tokio_postgres::Row>,
        mut size: usize,
    ) -> Result<(), Error> {
        let mut grown = size;
        loop {
            let more = rows.len() == size;
            self.take_all(transaction, rows).await?;
            if self.full || !more {
                return Ok(());
            }
            grown = (grown * 4).min(FETCH_MAX);
            size = self.next_fetch(grown);
            if size == 0 {
                self.full = true;
                return Ok(());
            }
            let fetch = fetch(size);
            rows = transaction.run("fetch", async |client| client.query_typed(&fetch, &[]).await).await?;
        }
    }

    /// Rows of the next fetch: no more than the batch has room for, judged by the largest row seen.
    fn next_fetch(&self, grown: usize) -> usize {
        let rows_left = self.limits.rows.saturating_sub(self.rows.len());
        let bytes_left = self.limits.bytes.saturating_sub(self.bytes);
        grown.min(rows_left).min(bytes_left / self.largest)
    }

    /// Takes fetched rows in order, large ones with their values, while the batch has room. The rest stays locked for
    /// as long as the batch lasts, and pending.
    async fn take_all(&mut self, transaction: &Transaction, rows: Vec<tokio_postgres::Row>) -> Result<(), Error> {
        let mut heads = VecDeque::new();
        for row in rows {
            heads.push_back(Head::new(row).map_err(Error::statement("decode a claimed row"))?);
        }
        while !heads.is_empty() {
            if !self.rows.is_empty() && self.bytes >= self.limits.bytes {
                self.full = true;
                return Ok(());
            }
            let part = next_part(&mut heads);
            let large: Vec<i64> = part.iter().filter(|head| head.stored > INLINE).map(|head| head.id).collect();
            let mut values = read_values(transaction, &large).await?;
            for head in part {
                let large = values.remove(&head.id);
                self.take(head, large).map_err(Error::statement("decode a claimed row"))?;
            }
        }
        Ok(())
    }

    fn take(&mut self, head: Head, large: Option<Values>) -> Result<(), tokio_postgres::Error> {
        self.now = micros(head.now);
        self.last = Some(head.available_at);
        let (row, size) = head.into_row(self.tier, large)?;
        let size = size.max(1);
        self.bytes += size;
        self.largest = self.largest.max(size);
        self.rows.push(row);
        Ok(())
    }
}

fn fetch(size: usize) -> String {
    format!("fetch {size} from claim")
}

/// The next rows whose values are read together: at least one, and no more than [`PART`] stored bytes.
fn next_part(heads: &mut VecDeque<Head>) -> Vec<Head> {
    let (mut part, mut stored) = (Vec::new(), 0);
    while let Some(head) = heads.pop_front_if(|head| part.is_empty() || stored + head.stored <= PART) {
        stored += head.stored;
        part.push(head);
    }
    part
}

async fn read_values(transaction: &Transaction, ids: &[i64]) -> Result<HashMap<i64, Values>, Error> {
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    let what = "read large rows";
    let rows = transaction.run(what, async |client| client.query_typed(VALUES, &[(&ids, Type::INT8_ARRAY)]).await);
    let mut values = HashMap::new();
    for row in rows.await? {
        let id = row.try_get("id").map_err(Error::statement(what))?;
        values.insert(id, Values::of(&row).map_err(Error::statement(what))?);
    }
    Ok(values)
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
