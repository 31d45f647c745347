//! The Postgres side of the relay: one short transaction a batch, in which the row locks are the claim.
//!
//! ```text
//! begin ─▶ claim (for update skip locked) ─▶ ... publish, confirm ... ─▶ settle ─▶ commit
//! ```
//!
//! A relay that dies gives its rows back at once, and a stale one cannot settle: its transaction is gone.

pub mod claim;
pub mod connect;
pub mod count;
pub(crate) mod decode;
pub mod doorbell;
pub mod error;
pub mod inspect;
pub mod look;
pub mod migrate;
pub mod pauses;
pub mod rights;
pub mod scan;
pub mod settle;
pub mod trace;

use crate::config::Relay;
use claim::Batch;
use connect::Db;
use doorbell::Doorbell;
use error::Error;
use scan::Scan;
use std::sync::Arc;
use std::time::Duration;

/// The outbox table of one database, as [`crate::relay`] uses it.
#[derive(Debug)]
pub struct Outbox {
    db: Db,
    doorbell: Arc<Doorbell>,
    scan: Arc<Scan>,
    batch_bytes: usize,
    batch_deadline: Duration,
}

impl Outbox {
    /// The outbox in `db`; no connection is made yet.
    #[must_use]
    pub fn new(db: Db, doorbell: Arc<Doorbell>, relay: &Relay) -> Self {
        Self {
            db,
            doorbell,
            scan: Arc::new(Scan::default()),
            batch_bytes: relay.batch_bytes,
            batch_deadline: relay.batch_deadline,
        }
    }
}

impl crate::relay::Outbox for Outbox {
    type Batch = Batch;
    type Error = Error;
    type Doorbell = Doorbell;

    fn doorbell(&self) -> &Doorbell {
        &self.doorbell
    }

    async fn look(&self, tiers: &[String]) -> Result<crate::relay::Look, Error> {
        look::look(&self.db, &self.scan, tiers).await
    }

    async fn unclaimed(&self, claimed: &[String]) -> Result<Vec<crate::relay::Unclaimed>, Error> {
        look::unclaimed(&self.db, claimed).await
    }

    async fn claim(&self, tier: &str, rows: usize) -> Result<Option<Batch>, Error> {
        let limits = claim::Limits { rows, bytes: self.batch_bytes, deadline: self.batch_deadline };
        claim::claim(&self.db, &self.scan, tier, limits).await
    }
}
