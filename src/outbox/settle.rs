//! Settle: write what became of each row of a batch, in the transaction that holds them.

use super::connect::Transaction;
use super::error::Error;
use crate::relay::Fate;
use std::time::{Duration, SystemTime};
use tokio_postgres::types::Type;

const SENT: &str = include_str!("../../sql/settle_sent.sql");
const LATER: &str = include_str!("../../sql/settle_later.sql");
const PARKED: &str = include_str!("../../sql/settle_parked.sql");

/// Writes `fates`; the caller commits.
pub(super) async fn write(transaction: &Transaction, fates: &[(i64, Fate)]) -> Result<(), Error> {
    let (mut sent, mut later, mut parked) = (Vec::new(), Later::default(), Parked::default());
    for (id, fate) in fates {
        match fate {
            Fate::Sent => sent.push(*id),
            Fate::Later { until, counted, reason } => later.push(*id, *until, *counted, reason.as_deref()),
            Fate::Parked { counted, reason } => parked.push(*id, *counted, reason),
        }
    }
    if !sent.is_empty() {
        let count = sent.len();
        let run =
            transaction.run("mark rows as sent", async |c| c.execute_typed(SENT, &[(&sent, Type::INT8_ARRAY)]).await);
        expect(run.await?, count)?;
    }
    if !later.ids.is_empty() {
        expect(later.write(transaction).await?, later.ids.len())?;
    }
    if !parked.ids.is_empty() {
        expect(parked.write(transaction).await?, parked.ids.len())?;
    }
    Ok(())
}

/// The rows are locked by this transaction, so every one of them must still be there.
fn expect(updated: u64, wanted: usize) -> Result<(), Error> {
    if u64::try_from(wanted) == Ok(updated) {
        return Ok(());
    }
    Err(Error::Unexpected(format!(
        "settled {updated} of {wanted} rows that this transaction holds; nothing is committed"
    )))
}

#[derive(Default)]
struct Later {
    ids: Vec<i64>,
    until: Vec<SystemTime>,
    counted: Vec<i32>,
    reasons: Vec<Option<String>>,
}

impl Later {
    fn push(&mut self, id: i64, until: i64, counted: bool, reason: Option<&str>) {
        self.ids.push(id);
        self.until.push(time(until));
        self.counted.push(i32::from(counted));
        self.reasons.push(reason.map(clean));
    }

    async fn write(&self, transaction: &Transaction) -> Result<u64, Error> {
        transaction
            .run("put rows off", async |client| {
                let (ids, until) = ((&self.ids as _, Type::INT8_ARRAY), (&self.until as _, Type::TIMESTAMPTZ_ARRAY));
                let (counted, reasons) =
                    ((&self.counted as _, Type::INT4_ARRAY), (&self.reasons as _, Type::TEXT_ARRAY));
                client.execute_typed(LATER, &[ids, until, counted, reasons]).await
            })
            .await
    }
}

#[derive(Default)]
struct Parked {
    ids: Vec<i64>,
    counted: Vec<i32>,
    reasons: Vec<String>,
}

impl Parked {
    fn push(&mut self, id: i64, counted: bool, reason: &str) {
        self.ids.push(id);
        self.counted.push(i32::from(counted));
        self.reasons.push(clean(reason));
    }

    async fn write(&self, transaction: &Transaction) -> Result<u64, Error> {
        transaction
            .run("park rows", async |client| {
                let (ids, counted) = ((&self.ids as _, Type::INT8_ARRAY), (&self.counted as _, Type::INT4_ARRAY));
                client.execute_typed(PARKED, &[ids, counted, (&self.reasons, Type::TEXT_ARRAY)]).await
            })
            .await
    }
}

/// A reason that Postgres can store: text cannot hold NUL, and one that cannot be written would never settle.
fn clean(reason: &str) -> String {
    reason.chars().filter(|c| *c != '\0').take(2_000).collect()
}

/// A point in time from microseconds since the Unix epoch.
fn time(micros: i64) -> SystemTime {
    let distance = Duration::from_micros(micros.unsigned_abs());
    if micros >= 0 { SystemTime::UNIX_EPOCH + distance } else { SystemTime::UNIX_EPOCH - distance }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_come_back_as_they_went() {
        for micros in [0, 1, -1, 1_700_000_000_000_001, -62_000_000_000_000_000] {
            assert_eq!(super::super::decode::micros(time(micros)), micros);
        }
    }

    #[test]
    fn a_reason_is_storable_whatever_the_broker_said() {
        assert_eq!(clean("a\0b"), "ab");
        assert_eq!(clean(&"é".repeat(5_000)).chars().count(), 2_000);
    }
}
