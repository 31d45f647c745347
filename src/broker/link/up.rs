//! A connection that works, and what its users tell each other about it.

use crate::broker::socket::Cut;
use lapin::Connection;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};

/// A connection that lasted this long was a good one, even if nothing was confirmed over it.
const LASTED: Duration = Duration::from_secs(10);

/// A connection that works.
#[derive(Debug)]
pub(in crate::broker) struct Up {
    pub(in crate::broker) id: u64,
    pub(in crate::broker) connection: Connection,
    pub(in crate::broker) blocked: watch::Sender<bool>,
    since: Instant,
    /// When a publisher last got a confirm over it.
    last_confirm: Mutex<Option<Instant>>,
    /// Raised by a publisher that has reason to think that the connection is dead.
    pub(in crate::broker) suspect: Notify,
    pub(super) cut: Cut,
}

impl Up {
    pub(super) fn new(connection: Connection, cut: Cut) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            connection,
            blocked: watch::Sender::new(false),
            since: Instant::now(),
            last_confirm: Mutex::new(None),
            suspect: Notify::new(),
            cut,
        }
    }

    /// Whether it was of any use, so that losing it begins a new row of failures instead of adding to the old one.
    pub(super) fn proved(&self) -> bool {
        self.last_confirm().is_some() || self.since.elapsed() >= LASTED
    }

    /// A publisher got its confirms.
    pub(in crate::broker) fn confirmed(&self) {
        *self.last_confirm.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Something begun at `started` got no answer. That costs the connection only if nobody else got one meanwhile.
    pub(in crate::broker) fn unanswered(&self, started: Instant) {
        if self.last_confirm().is_none_or(|last| last < started) && !*self.blocked.borrow() {
            self.suspect.notify_one();
        }
    }

    fn last_confirm(&self) -> Option<Instant> {
        *self.last_confirm.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
