//! A connection that works, and what its users tell each other about it.

use crate::broker::socket::Cut;
use lapin::Connection;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use tokio::sync::{Notify, watch};

/// A connection that works.
#[derive(Debug)]
pub(in crate::broker) struct Up {
    pub(in crate::broker) id: u64,
    pub(in crate::broker) connection: Connection,
    pub(in crate::broker) blocked: watch::Sender<bool>,
    /// When a publisher last got a confirm over it.
    pub(in crate::broker) last_confirm: Mutex<Instant>,
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
            last_confirm: Mutex::new(Instant::now()),
            suspect: Notify::new(),
            cut,
        }
    }
}
